"""Two processes that count on one day, and SIGKILL: what was stored stays, and nothing is counted twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

import tenuto
from tenuto.model.analytics import UsageCounts
from tests.timeouts import LONG
from tests.warm_start import open_program

pytestmark = pytest.mark.requirement("C14")


TURNS = 40
# Counts turn by turn, each with three tokens. A line says that the turn is stored; what follows the last one is not.
COUNTING = f"""
import asyncio, sys
from tenuto.app import open_app
from tenuto.model import Scope
from tenuto.model.analytics import UsageCounts
from tenuto.ports import utc_now
from tenuto.sessions.usage import UsageLedger
from tenuto.settings import Settings
from tests.timeouts import be_patient

async def main():
    async with open_app(Settings(store=sys.argv[1], l1=False), run_upkeep=False) as app:
        book = UsageLedger(state=app.store.state, clock=utc_now)
        for turn in range({TURNS}):
            book.count(Scope(tenant="acme"), UsageCounts(turns=1, input_tokens=3), "general")
            await book.flush()
            print("stored", flush=True)
        book.count(Scope(tenant="acme"), UsageCounts(turns=1000, input_tokens=3000), "general")
        print("gathered", flush=True)
        await asyncio.sleep(600)

be_patient()
asyncio.run(main())
"""


@asynccontextmanager
async def counting(url: str) -> AsyncIterator[Popen[bytes]]:
    """A process that counts, until it is killed."""
    with open_program("-c", COUNTING, url, stdout=PIPE, cwd=Path(__file__).parents[2]) as child:
        try:
            yield child
        finally:
            child.kill()


async def until_said(child: Popen[bytes], line: str, times: int = 1) -> None:
    assert child.stdout is not None
    async with asyncio.timeout(2 * LONG):
        for _ in range(times):
            while (said := await asyncio.to_thread(child.stdout.readline)) != f"{line}\n".encode():
                assert said, "the process died"


async def stored(url: str) -> UsageCounts:
    async with tenuto.open(url) as app:
        # Two days: midnight may have passed.
        return (await app.analytics.usage(app.scope(tenant="acme"), days=2)).total


async def test_two_processes_add_to_one_day_and_a_kill_loses_only_what_was_not_stored(url: str) -> None:
    async with counting(url) as first, counting(url) as second:
        await asyncio.gather(*(until_said(each, "gathered") for each in (first, second)))

    assert await stored(url) == UsageCounts(turns=2 * TURNS, input_tokens=6 * TURNS)


async def test_a_process_killed_while_it_counts_leaves_whole_turns(url: str) -> None:
    async with counting(url) as child:
        await until_said(child, "stored", times=TURNS // 4)

    left = await stored(url)

    assert TURNS // 4 <= left.turns <= TURNS
    assert left.input_tokens == 3 * left.turns
