"""An agent in a process of its own: counts on a task's board, and writes keys of its own beside it."""

from __future__ import annotations

import asyncio
import sys

import tenuto
from tenuto.errors import VersionConflict
from tenuto.model import Scope
from tenuto.model.task import BoardLock
from tenuto.task_errors import KeyLocked
from tenuto.tasks import Board
from tests.timeouts import lengthen_store_timeouts

TIMES = 15


async def work(board: Board, agent: str) -> None:
    """Add one so many times: by compare-and-set to `sum`, under a lock to `guarded`; and write so many own keys."""
    for n in range(TIMES):
        await add_one(board, agent)
        await add_under_lock(board, agent)
        await board.write(f"{agent}.{n}", n, agent=agent)


async def add_one(board: Board, agent: str) -> None:
    """Add one to what was read, again when another was faster."""
    while True:
        entry = await board.read_entry("sum")
        value, version = (entry.value, entry.version) if entry is not None else (0, 0)
        try:
            await board.write("sum", value + 1, agent=agent, if_version=version)
            return
        except VersionConflict:
            continue


async def add_under_lock(board: Board, agent: str) -> None:
    """Add one without a version, with the key to oneself."""
    lock = await locked(board, agent)
    entry = await board.read_entry("guarded")
    await board.write("guarded", (entry.value if entry is not None else 0) + 1, agent=agent, token=lock.token)
    await board.unlock("guarded", agent=agent, token=lock.token)


async def locked(board: Board, agent: str) -> BoardLock:
    """The lock, when it is this agent's turn."""
    while True:
        try:
            return await board.lock("guarded", agent=agent)
        except KeyLocked:
            await asyncio.sleep(0.001)


async def main(url: str, task_id: str, agent: str) -> None:
    """Work on a task of Ann's."""
    async with tenuto.open(url) as app:
        await work(app.tasks.board(Scope(tenant="acme", user="ann"), task_id), agent)


if __name__ == "__main__":
    lengthen_store_timeouts()
    asyncio.run(main(*sys.argv[1:]))
