"""Fill a backend in two steps, and ask it after each: how large it is, how long reads take, what turns cost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from time import perf_counter, process_time
from typing import Final

import numpy as np
import psutil

import tenuto
from bench.capacity.sample import SESSIONS_PER_USER, TENANT, SampleUser, fill, session_id, user_scope
from bench.capacity.sizes import store_bytes
from bench.grounds import Ground
from bench.ours import open_engine
from bench.serving import Client, start_server
from tenuto.model import Page, Scope, SessionQuery
from tenuto.model.memory import MemoryQuery
from tenuto.stores.engine import Engine

_REPEATS: Final = 200
_SECONDS: Final = 4.0
_LEAST: Final = 5
_PAGE: Final = 50
_DEEP_PAGES: Final = 5
_CLIENTS: Final = 32
_TENANT: Final = Scope(tenant=TENANT)


@dataclass(frozen=True, slots=True)
class Timing:
    """Milliseconds of one kind of call by the clock, and of the calling process's processor."""

    p50: float
    p99: float
    cpu: float
    calls: int


@dataclass(frozen=True, slots=True)
class Turns:
    """Processor milliseconds of a turn in the server and in the backend; resident bytes of the server after it."""

    turns: int
    per_second: float
    server_cpu: float
    backend_cpu: float
    resident: int


@dataclass(slots=True)
class Stage:
    """A store of some size."""

    sessions: int
    fill_seconds: float
    fill_cpu: float
    bytes: dict[str, float]
    reads: dict[str, Timing] = field(default_factory=dict)


@dataclass(slots=True)
class Measured:
    """One backend."""

    backend: str
    about: str
    stages: list[Stage]
    idle_resident: int = 0
    turns: dict[str, Turns] = field(default_factory=dict)


async def measure_stages(up: Ground, url: str, users: Sequence[SampleUser], sizes: Sequence[int]) -> list[Stage]:
    """Fill the store up to each size."""
    stages, first = [], 0
    for size in sizes:
        engine = await open_engine(url)
        try:
            began, cpu = perf_counter(), process_time()
            await fill(engine.records, users, first, size)
            took, spent, first = perf_counter() - began, process_time() - cpu, size
            stage = Stage(size, took, spent, store_bytes(up, url, size))
            stage.reads = await _measure_reads(engine, url, size)
        finally:
            await engine.close()
        stages.append(stage)
    return stages


async def _measure_reads(engine: Engine, url: str, sessions: int) -> dict[str, Timing]:
    dice, users, listed = random.Random(1), sessions // SESSIONS_PER_USER, engine.sessions.list
    deep = await _deep_cursor(engine)

    async def page() -> None:
        number = dice.randrange(sessions)
        scope = user_scope(number // SESSIONS_PER_USER)
        await engine.sessions.messages(scope, session_id(number), Page(limit=20, touch=False))

    reads: dict[str, Callable[[], Awaitable[object]]] = {
        "messages of a session": page,
        "list, a user": lambda: listed(user_scope(dice.randrange(users)), SessionQuery(limit=_PAGE)),
        "list, a tenant": lambda: listed(_TENANT, SessionQuery(limit=_PAGE)),
        "list, a tenant, page 100": lambda: listed(_TENANT, SessionQuery(limit=_PAGE, cursor=deep)),
        "title search, frequent word": lambda: listed(_TENANT, SessionQuery(limit=_PAGE, title="three rooms")),
        "title search, no hit": lambda: listed(_TENANT, SessionQuery(limit=_PAGE, title="no such title")),
        "totals of a tenant": lambda: engine.upkeep.stats(_TENANT),
    }
    found = {name: await _time(call) for name, call in reads.items()}
    async with tenuto.open(url) as app:
        memories = await app.memories()
        query, fresh = MemoryQuery(text="When does the parcel arrive?"), cycle(range(users))
        found["memory search, first of a user"] = await _time(lambda: memories.search(user_scope(next(fresh)), query))
        found["memory search"] = await _time(lambda: memories.search(user_scope(0), query))
    return found


async def _deep_cursor(engine: Engine) -> str | None:
    cursor = None
    for _ in range(_DEEP_PAGES):
        cursor = (await engine.sessions.list(_TENANT, SessionQuery(limit=1000, cursor=cursor))).cursor
    return cursor


async def _time(call: Callable[[], Awaitable[object]]) -> Timing:
    """Repeat a call until there are enough of them or they took long enough."""
    took: list[float] = []
    await call()
    cpu, until = process_time(), perf_counter() + _SECONDS
    while len(took) < _LEAST or (len(took) < _REPEATS and perf_counter() < until):
        began = perf_counter()
        await call()
        took.append((perf_counter() - began) * 1e3)
    spent = (process_time() - cpu) * 1e3 / len(took)
    p50, p99 = (round(float(value), 2) for value in np.percentile(took, (50, 99)))
    return Timing(p50, p99, round(spent, 2), len(took))


def measure_turns(up: Ground, url: str, sessions: int, seconds: float, folder: Path) -> tuple[int, dict[str, Turns]]:
    """One server process: its memory before, and turns in sessions that it does not know, then in those it does."""
    with start_server(url, folder / f"{up.backend}-capacity") as (port, server):
        idle = server.memory_info().rss
        return idle, asyncio.run(_measure_turns(up, port, server, sessions, seconds))


async def _measure_turns(
    up: Ground, port: int, server: psutil.Process, sessions: int, seconds: float
) -> dict[str, Turns]:
    dice, each = random.Random(2), sessions // _CLIENTS
    clients = [Client(port, "user-0") for _ in range(_CLIENTS)]

    async def measure(among: int, seconds: float) -> Turns:
        """Turns in any of the first sessions of each client's share."""
        before, began = (_cpu(server), _backend_cpu(up)), perf_counter()

        async def keep_asking(client: Client, first: int) -> int:
            turns = 0
            while perf_counter() < began + seconds:
                number = first + dice.randrange(among)
                client.switch(f"user-{number // SESSIONS_PER_USER}", session_id(number))
                await client.chat("JSON")
                turns += 1
            return turns

        await asyncio.gather(*(client.connect() for client in clients))
        shares = enumerate(clients)
        count = sum(await asyncio.gather(*(keep_asking(client, place * each) for place, client in shares)))
        await asyncio.gather(*(client.close() for client in clients))
        took, spent = perf_counter() - began, (_cpu(server) - before[0], _backend_cpu(up) - before[1])
        cpu = [round(one * 1e3 / count, 2) for one in spent]
        return Turns(count, round(count / took, 1), cpu[0], cpu[1], server.memory_info().rss)

    await measure(1, seconds / 2)  # Libraries are loaded, pools are open.
    return {"known sessions": await measure(1, seconds), "unknown sessions": await measure(each, seconds)}


def _cpu(process: psutil.Process) -> float:
    return sum(process.cpu_times()[:2])


def _backend_cpu(up: Ground) -> float:
    """Processor seconds of the backend's processes."""
    if up.server is None:
        return 0.0
    process = psutil.Process(up.server.pid)
    return _cpu(process) + sum(map(_child_cpu, process.children()))


def _child_cpu(process: psutil.Process) -> float:
    """Without the cleaning up after the fill, and without processes that have ended."""
    try:
        return 0.0 if "autovacuum" in " ".join(process.cmdline()) else _cpu(process)
    except psutil.NoSuchProcess:
        return 0.0
