"""How long a search takes in large indexes: made-up memories whose words are spread as words of a language are."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from time import perf_counter, process_time
from typing import Final

import numpy as np
from rich.table import Table

from tenuto.model.memory import Memory, MemoryKind, MemoryQuery
from tenuto.recall.evaluation import encode, has_encoder
from tenuto.recall.index import MemoryIndex

_SIZES: Final = ((1, 3_000), (1, 20_000), (1, 100_000), (200, 500))
_SEARCHES: Final = 100
_DIMENSION: Final = 512
_WORDS: Final = 30_000
_START: Final = datetime(2025, 1, 1, tzinfo=UTC)
_NOW: Final = datetime(2026, 6, 1, tzinfo=UTC)


def measure_scale() -> Table:
    """Milliseconds of searches for five memories, the embedding of the query included where it is installed."""
    table = Table(title="searches in large indexes", title_justify="left")
    for column in (
        "owners",
        "memories each",
        "p50 ms",
        "p95 ms",
        "cpu p50",
        "cpu p95",
        "put ms (cpu)",
        "bytes a memory",
    ):
        table.add_column(column, justify="right")
    for owners, size in _SIZES:
        table.add_row(str(owners), f"{size:,}", *_measure(owners, size))
    return table


def _measure(owners: int, size: int) -> Iterator[str]:
    words, numbers = random.Random(size), np.random.default_rng(size)
    indexes = [MemoryIndex() for _ in range(owners)]
    spent = 0.0
    for index in indexes:
        for number in range(size):
            memory, vector = _memory(words, number), numbers.standard_normal(_DIMENSION, np.float32)
            started = process_time()
            index.put(memory, vector)
            spent += process_time() - started
    waits: list[float] = []
    cpu: list[float] = []
    for _ in range(_SEARCHES):
        index, text = words.choice(indexes), _sentence(words, 8)
        started, began = process_time(), perf_counter()
        asked = encode([text])[0] if has_encoder() else numbers.standard_normal(_DIMENSION, np.float32)
        index.search(MemoryQuery(text=text), asked, _NOW)
        cpu.append((process_time() - started) * 1000)
        waits.append((perf_counter() - began) * 1000)
    for times in (waits, cpu):
        yield from (f"{value:.1f}" for value in np.percentile(times, (50, 95)))
    yield f"{spent * 1000 / owners / size:.2f}"
    yield f"{sum(index.nbytes() for index in indexes) / owners / size:,.0f}"


def _memory(words: random.Random, number: int) -> Memory:
    return Memory(
        id=f"m{number}",
        kind=MemoryKind.FACT,
        text=_sentence(words, 14),
        said_at=_START + timedelta(minutes=5 * number),
        speaker=words.choice(("Ann", "Bob")),
        session_id=f"s{number // 20}",
        seqs=(number,),
    )


def _sentence(words: random.Random, count: int) -> str:
    # Zipf's law without the most frequent words, which are stop words: the n-th of the rest comes 1/(n+10) as often.
    return " ".join(f"word{int(10 * (_WORDS / 10) ** words.random()) - 10}" for _ in range(count))
