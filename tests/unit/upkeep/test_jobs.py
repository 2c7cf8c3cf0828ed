"""Work in the background: one job per subject, a few at a time, drained at the end, and silent about what users say."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tenuto.errors import Unavailable
from tenuto.upkeep.jobs import JobCounts, Jobs


class Bench:
    """Jobs that wait until they are let go, and what happened to them."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.done: list[str] = []
        self.gate = asyncio.Event()
        self._another = asyncio.Event()

    async def work(self, name: str) -> None:
        self.begun.append(name)
        self._another.set()
        await self.gate.wait()
        self.done.append(name)

    async def started(self, count: int) -> None:
        while len(self.begun) < count:
            self._another.clear()
            await self._another.wait()


async def test_a_subject_has_one_job_at_a_time_and_the_latest_wish_is_next() -> None:
    jobs, bench = Jobs(), Bench()
    for name in ("first", "second", "third"):
        jobs.start("summary", "session", lambda name=name: bench.work(name))  # type: ignore[misc]
        await bench.started(1)

    bench.gate.set()
    await jobs.drain()

    assert bench.done == ["first", "third"]


async def test_kinds_and_subjects_do_not_wait_for_each_other() -> None:
    jobs, bench = Jobs(), Bench()
    jobs.start("summary", "one", lambda: bench.work("a"))
    jobs.start("summary", "two", lambda: bench.work("b"))
    jobs.start("title", "one", lambda: bench.work("c"))

    await bench.started(3)
    bench.gate.set()
    await jobs.drain()

    assert sorted(bench.done) == ["a", "b", "c"]


async def test_counts_tell_what_waits_runs_and_fails_in_a_row() -> None:
    jobs, bench = Jobs(at_once=1), Bench()

    async def fail() -> None:
        raise ValueError

    for name in ("a", "b"):
        jobs.start("title", name, lambda name=name: bench.work(name))  # type: ignore[misc]
    await bench.started(1)
    busy = jobs.counts
    bench.gate.set()
    for name in ("c", "d"):
        jobs.start("title", name, fail)
    await jobs.drain()
    failed = jobs.counts
    jobs.start("title", "e", lambda: bench.work("e"))
    await jobs.drain()

    assert busy == JobCounts(waiting=1, running=1)
    assert failed == JobCounts(done=2, failed=2, failed_in_a_row=2)
    assert jobs.counts == JobCounts(done=3, failed=2)


async def test_only_so_many_run_at_once() -> None:
    jobs, bench = Jobs(at_once=2), Bench()
    for number in range(5):
        jobs.start("summary", number, lambda: bench.work("x"))
    await bench.started(2)
    for _ in range(20):
        await asyncio.sleep(0)

    running = len(bench.begun)
    bench.gate.set()
    await jobs.drain()

    assert (running, len(bench.done)) == (2, 5)


async def test_slow_jobs_of_one_kind_keep_no_other_kind_waiting() -> None:
    """Titles of many chats hang; another chat's summary and capture run all the same, and more than so many wait."""
    jobs, slow, quick = Jobs(at_once=4, most=50), Bench(), Bench()
    quick.gate.set()
    for number in range(60):
        jobs.start("title", number, lambda: slow.work("x"))
    await slow.started(4)

    jobs.start("summary", ("chat", None), lambda: quick.work("summary"))
    jobs.start("capture", "chat", lambda: quick.work("capture"))
    async with asyncio.timeout(10):
        await quick.started(2)

    assert (len(slow.begun), jobs.counts.waiting >= 46) == (4, True)
    await jobs.drain(timedelta(0))


async def test_sessions_of_a_kind_take_turns() -> None:
    """One chat with many jobs delays another by one of them."""
    jobs, bench = Jobs(at_once=1), Bench()
    for number in range(20):
        jobs.start("edit", ("busy", number), lambda number=number: bench.work(f"busy {number}"))  # type: ignore[misc]
    jobs.start("edit", ("calm", 1), lambda: bench.work("calm"))
    await bench.started(1)

    bench.gate.set()
    await jobs.drain()

    assert bench.done[:3] == ["busy 0", "busy 1", "calm"]
    assert len(bench.done) == 21


async def test_beyond_a_bound_jobs_are_left_for_the_next_turn(caplog: pytest.LogCaptureFixture) -> None:
    jobs, bench = Jobs(most=2), Bench()
    for number in range(3):
        jobs.start("summary", number, lambda: bench.work("x"))
    bench.gate.set()

    await jobs.drain()

    assert len(bench.done) == 2
    assert "a summary was postponed" in caplog.text


@pytest.mark.parametrize(
    ("failure", "logged"),
    [
        (Unavailable("session store"), "a title was postponed: Unavailable"),
        (ValueError("my secret is 42"), "a title was postponed: ValueError in fail"),
    ],
    ids=["an outage", "a bug"],
)
async def test_a_failed_job_is_logged_without_its_subject_and_a_bug_with_its_place(
    failure: Exception, logged: str, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = Jobs()

    async def fail() -> None:
        raise failure

    jobs.start("title", "session", fail)
    await jobs.drain()

    [told] = caplog.messages
    assert told == logged if isinstance(failure, Unavailable) else told.startswith(logged)
    assert "secret" not in caplog.text


async def test_draining_is_bounded_and_leaves_nothing_running() -> None:
    jobs, bench = Jobs(), Bench()
    jobs.start("summary", "session", lambda: bench.work("never let go"))
    await bench.started(1)

    await jobs.drain(timedelta(0))

    assert bench.done == []
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "tenuto summary"]


async def test_draining_waits_for_what_a_job_starts() -> None:
    jobs, bench = Jobs(), Bench()
    bench.gate.set()

    async def start_another() -> None:
        jobs.start("title", "session", lambda: bench.work("child"))

    jobs.start("summary", "session", start_another)
    await jobs.drain()

    assert bench.done == ["child"]
