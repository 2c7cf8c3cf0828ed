"""What the memories of large owners cost in a whole process, and searches beside another store of memories.

Made-up memories whose words are spread as words of a language are, over a SQLite file, with made-up vectors: the
encoder's part is named apart. Each size is filled by one process and searched by another, which starts.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Final, NamedTuple, ParamSpec, TypeVar

import numpy as np
import psutil
from rich.console import Console

from bench.tables import Table
from bench.texts import ADDED, SEARCHED, sentence
from tenuto.model import Scope
from tenuto.model.memory import Memory, MemoryKind, MemoryPolicy, MemoryQuery
from tenuto.recall.embedding import CachedEmbedder
from tenuto.recall.evaluation import encode, has_encoder
from tenuto.recall.service import Memories
from tenuto.settings import Settings
from tenuto.wiring.stores import open_stores

_Args = ParamSpec("_Args")
_Result = TypeVar("_Result")

QUICK: Final = ((1, 1_000), (1, 10_000), (100, 100))
FULL: Final = (*QUICK, (1, 100_000), (1_000, 100))
_SEARCHES: Final = 100
_VISITED: Final = 100
_PATIENCE: Final = 600
_TOGETHER: Final = 100
_DIMENSION: Final = 512
_LENGTH: Final = 14
_START: Final = datetime(2025, 1, 1, tzinfo=UTC)
_NOW: Final = datetime(2026, 6, 1, tzinfo=UTC)
_MEM0: Final = Path(__file__).with_name("peers") / "mem0_memory.py"


class Found(NamedTuple):
    """Milliseconds of processor time; megabytes above a process with encoder, index and one small owner."""

    first: float
    p50: float
    p95: float
    limit_100: float
    megabytes: float


def measure_scale(console: Console, sizes: Sequence[tuple[int, int]], peers: Path | None = None) -> None:
    """Print a row as soon as it is measured."""
    console.print(f"[dim]encoder: {_encoder_part()}[/dim]")
    headers = (
        "owners x memories",
        "add, ms",
        "first search, ms",
        "search p50",
        "search p95",
        "limit=100 p50",
        "MB more",
    )
    table = Table("memories in a process, milliseconds of processor time without the encoder's", headers)
    with TemporaryDirectory(prefix="bench-recall-") as folder:
        for owners, size in sizes:
            url = f"sqlite:///{folder}/{owners}-{size}.db"
            added = _in_process(fill, url, owners, size)
            found = _in_process(search, url, owners, size)
            table.add(
                f"{owners:,} x {size:,}",
                f"{added:.2f}",
                *(f"{value:,.1f}" for value in found[:-1]),
                f"{found[-1]:,.0f}",
            )
            console.print(f"[dim]{' | '.join(table.rows[-1])}[/dim]")
        table.show(console)
        if peers is not None:
            _beside_mem0(console, peers, Path(folder))


def fill(url: str, owners: int, size: int) -> float:
    """Store memories as captures do; milliseconds for each, also for those whose index is stored meanwhile."""

    async def run() -> float:
        async with _memories(url) as memories:
            words, started = random.Random(size), process_time()
            for owner in range(owners):
                for start in range(0, size, _TOGETHER):
                    some = [_memory(words, number) for number in range(start, min(size, start + _TOGETHER))]
                    await memories.remember(_scope(owner), some)
            await memories.drain()
            return (process_time() - started) * 1000 / owners / size

    return asyncio.run(run())


def search(url: str, owners: int, size: int) -> Found:
    """Search in a process that has just started."""

    async def run() -> Found:
        async with _memories(url) as memories:
            words, process = random.Random(1), psutil.Process()
            if has_encoder():
                encode(["."])
            small = Scope(tenant="bench", user="small")
            await memories.add(small, "I have a small dog.")
            await memories.search(small, MemoryQuery(text="dog"))
            before = process.memory_info().rss

            visited = words.sample(range(owners), min(owners, _VISITED))

            async def one(owner: int, limit: int = 5) -> float:
                query = MemoryQuery(text=sentence(words, 8), limit=limit)
                started = process_time()
                await memories.search(_scope(owner), query)
                return (process_time() - started) * 1000

            # Each owner's first search loads its index.
            first = [await one(owner) for owner in visited]
            spent = [await one(words.choice(visited)) for _ in range(_SEARCHES)]
            size = process.memory_info().rss - before
            many = [await one(words.choice(visited), 100) for _ in range(_SEARCHES // 5)]
            p50, p95 = np.percentile(spent, (50, 95))
            return Found(float(np.mean(first)), p50, p95, float(np.median(many)), size / 2**20)

    return asyncio.run(run())


def _in_process(work: Callable[_Args, _Result], *args: _Args.args, **more: _Args.kwargs) -> _Result:
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(work, *args, **more).result()


class _MadeUpEmbedder:
    """An embedder that takes no time to speak of."""

    name = "made up"
    remote = True

    async def embed(self, texts: Sequence[str]) -> list[Sequence[float]]:
        return [_vector(text) for text in texts]


@asynccontextmanager
async def _memories(url: str) -> AsyncIterator[Memories]:
    async def redact(_: Scope, text: str) -> str:
        return text

    numbers, process = count(), os.getpid()
    async with AsyncExitStack() as stack:
        stores = await open_stores(stack, Settings(store=url), lambda: _NOW, read_only=False)
        memories = Memories(
            state=stores.front.state,
            redact=redact,
            clock=lambda: _NOW,
            policy=MemoryPolicy(max_memories=1_000_000, cache_bytes=1 << 32),
            new_id=lambda: f"{process}-{next(numbers)}",
            embedder=CachedEmbedder(_MadeUpEmbedder(), clock=lambda: _NOW, time_limit=timedelta(minutes=1)),
        )
        try:
            yield memories
        finally:
            await memories.close()


def _encoder_part() -> str:
    if not has_encoder():
        return "not installed"
    encode(["."])
    words, spent = random.Random(3), list[float]()
    for length in (8, _LENGTH):
        texts = [sentence(words, length) for _ in range(40)]
        started = process_time()
        for text in texts:
            encode([text])
        spent.append((process_time() - started) * 1000 / len(texts))
    return f"{spent[0]:.1f} ms of processor time for a question of 8 words, {spent[1]:.1f} for a memory of {_LENGTH}"


def _beside_mem0(console: Console, python: Path, folder: Path) -> None:
    """Both with the local encoder, which mem0 is given as its embedder; mem0 extracts nothing (`infer=False`)."""
    table = Table(
        f"beside mem0: {ADDED} memories of one user one by one, {SEARCHED} searches for five, one process, one caller",
        ("", "add/s", "search/s", "add, ms of CPU", "search, ms of CPU"),
        note="Both embed with the local encoder. Per second by wall time. mem0: infer=False, qdrant on disk.",
    )
    for name, command in (("tenuto", [sys.executable, "-m", "bench.own_memory"]), ("mem0", [str(python), str(_MEM0)])):
        root = Path(__file__).parents[1]
        ended = subprocess.run(
            [*command, str(folder)],
            capture_output=True,
            text=True,
            cwd=root,
            env={**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"},
            timeout=_PATIENCE,
            check=False,
        )
        if ended.returncode:
            console.print(f"{name} did not run: {ended.stderr.strip().splitlines()[-1:]}")
            continue
        table.add(name, *ended.stdout.split()[-4:])
    table.show(console)


def _scope(owner: int) -> Scope:
    return Scope(tenant="bench", user=f"user-{owner}")


def _vector(text: str) -> Sequence[float]:
    seed = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
    vector: list[float] = np.random.default_rng(seed).standard_normal(_DIMENSION, np.float32).tolist()
    return vector


def _memory(words: random.Random, number: int) -> Memory:
    return Memory(
        id=f"m{number}",
        kind=MemoryKind.FACT,
        text=sentence(words, _LENGTH),
        said_at=_START + timedelta(minutes=5 * number),
        speaker=words.choice(("Ann", "Bob")),
        session_id=f"s{number // 20}",
        seqs=(number,),
    )
