"""Agents in several processes on one board: no write of theirs is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import tenuto
from tenuto.model import Scope
from tenuto.model.task import NewTask
from tests.second_board import TIMES, work
from tests.timeouts import LONG
from tests.warm_start import open_program

pytestmark = pytest.mark.requirement("E10", "E19", "S8", "T17")


async def test_agents_of_two_processes_lose_nothing(url: str) -> None:
    ann = Scope(tenant="acme", user="ann")
    async with tenuto.open(url) as app:
        task = await app.tasks.open(ann, NewTask(type="count"))
        board = app.tasks.board(ann, task.id)
        other = open_program("-m", "tests.second_board", url, task.id, "there", cwd=Path(__file__).parents[2])
        async with asyncio.timeout(2 * LONG):
            while await board.read_entry("sum") is None:  # noqa: ASYNC110 (the other one has no way to tell)
                await asyncio.sleep(0.001)
        await work(board, "here")
        ended = await asyncio.to_thread(other.wait, 2 * LONG)
        entries = {entry.key: entry for entry in (await board.view()).entries}

    assert ended == 0
    assert (entries["sum"].value, entries["sum"].version) == (2 * TIMES, 2 * TIMES)
    assert (entries["guarded"].value, entries["guarded"].version) == (2 * TIMES, 2 * TIMES)
    assert {f"{agent}.{n}" for agent in ("here", "there") for n in range(TIMES)} == set(entries) - {"sum", "guarded"}
