"""The death of a task in the background is logged at once, and what it complained of is not."""

from __future__ import annotations

import asyncio

import pytest

from tenuto.background import run_in_background, running


async def fail() -> None:
    raise ValueError("what the user wrote")


async def test_a_death_is_logged_while_the_task_is_held(caplog: pytest.LogCaptureFixture) -> None:
    task = run_in_background(fail(), "example")

    await asyncio.wait([task])

    (record,) = caplog.records
    assert (record.levelname, task.get_name()) == ("ERROR", "tenuto example")
    assert "'tenuto example' died: ValueError at test_background.py" in record.message
    assert "what the user wrote" not in caplog.text


async def test_an_end_and_a_cancellation_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    ended = run_in_background(asyncio.sleep(0, "done"), "ended")
    cancelled = run_in_background(asyncio.sleep(60), "cancelled")
    await ended
    cancelled.cancel()
    await asyncio.wait([cancelled])

    assert (ended.result(), caplog.records) == ("done", [])


async def test_work_that_runs_meanwhile_is_cancelled_and_waited_for() -> None:
    steps = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            steps.append("cleaned up")

    async with running(work(), "example"):
        await asyncio.sleep(0)
        steps.append("left")

    assert steps == ["left", "cleaned up"]
