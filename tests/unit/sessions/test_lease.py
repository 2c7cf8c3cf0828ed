"""Work that comes to its end even if its caller is cancelled."""

from __future__ import annotations

import asyncio

import pytest

from tenuto.sessions.lease import complete_despite_cancel


async def test_a_caller_cancelled_twice_still_waits_for_the_work() -> None:
    begun, released, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        await released.wait()
        done.set()

    caller = asyncio.create_task(complete_despite_cancel(work()))
    await begun.wait()
    for _ in range(2):
        caller.cancel()
        await asyncio.sleep(0)
        assert not caller.done()
    released.set()

    with pytest.raises(asyncio.CancelledError):
        await caller
    assert done.is_set()


async def test_a_cancellation_goes_before_the_failure_of_the_work() -> None:
    begun, released = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        await released.wait()
        raise LookupError

    caller = asyncio.create_task(complete_despite_cancel(work()))
    await begun.wait()
    caller.cancel()
    released.set()

    with pytest.raises(asyncio.CancelledError):
        await caller


async def test_the_result_and_the_failure_of_the_work_are_the_callers() -> None:
    async def works(fails: bool) -> str:
        if fails:
            raise LookupError
        return "done"

    assert await complete_despite_cancel(works(False)) == "done"
    with pytest.raises(LookupError):
        await complete_despite_cancel(works(True))
