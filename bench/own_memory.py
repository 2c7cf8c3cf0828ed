"""The same as `peers.mem0_memory`, by `tenuto.open` with its defaults: adds and searches per second."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Awaitable, Callable
from time import perf_counter, process_time

import tenuto
from bench.texts import ADDED, SEARCHED, sentence
from tenuto.model.memory import MemoryQuery


async def measure(folder: str) -> str:
    """Adds and searches per second, and milliseconds of processor time of each."""
    async with tenuto.open(f"sqlite:///{folder}/beside.db") as app:
        memories, scope, words = await app.memories(), app.scope(user="ann"), random.Random(1)
        assert memories.embedder is not None
        await memories.embedder.warm()
        figures: list[tuple[float, float]] = []
        acts: tuple[tuple[int, Callable[[str], Awaitable[object]]], ...] = (
            (ADDED, lambda text: memories.add(scope, text)),
            (SEARCHED, lambda text: memories.search(scope, MemoryQuery(text=text))),
        )
        for count, act in acts:
            started, cpu = perf_counter(), process_time()
            for _ in range(count):
                await act(sentence(words, 14 if count == ADDED else 8))
            figures.append((count / (perf_counter() - started), (process_time() - cpu) * 1000 / count))
        await memories.drain()
    (adds, add_cpu), (searches, search_cpu) = figures
    return f"{adds:.1f} {searches:.1f} {add_cpu:.1f} {search_cpu:.1f}"


if __name__ == "__main__":
    print(asyncio.run(measure(sys.argv[1])))
