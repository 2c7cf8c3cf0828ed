"""Background jobs that outlive the call that started them: one per subject, a few at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from datetime import timedelta
from traceback import extract_tb
from typing import Final, TypeAlias

from msgspec.structs import replace

from tenuto.errors import Unavailable
from tenuto.model import Scope
from tenuto.model.values import Value

Work: TypeAlias = Callable[[], Awaitable[object]]

# Messages that are stored beside an answer: the entry of its summary, and those of the next turn.
SPARE: Final = 4
_AT_ONCE: Final = 4
_MOST: Final = 1000
_log = logging.getLogger(__name__)


class JobCounts(Value, frozen=True, kw_only=True):
    """How many jobs wait and run now, how many have succeeded and failed, and the last failures in a row."""

    waiting: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    failed_in_a_row: int = 0

    def after(self, ok: bool) -> JobCounts:
        """The counts after one more job has succeeded or failed."""
        if ok:
            return replace(self, done=self.done + 1, failed_in_a_row=0)
        return replace(self, failed=self.failed + 1, failed_in_a_row=self.failed_in_a_row + 1)

    def __add__(self, other: JobCounts) -> JobCounts:
        return JobCounts(
            waiting=self.waiting + other.waiting,
            running=self.running + other.running,
            done=self.done + other.done,
            failed=self.failed + other.failed,
            failed_in_a_row=max(self.failed_in_a_row, other.failed_in_a_row),
        )


class Jobs:
    """Runs jobs in the background. A failed job is logged, by its kind and where it failed.

    What is started for a subject whose job is still running runs after it; of several, the last.
    """

    def __init__(self, *, at_once: int = _AT_ONCE, most: int = _MOST) -> None:
        self._slots = asyncio.Semaphore(at_once)
        self._most = most
        self._tasks: dict[Hashable, asyncio.Task[None]] = {}
        self._next: dict[Hashable, Work] = {}
        self._running = 0
        self._ended = JobCounts()

    @property
    def counts(self) -> JobCounts:
        """The jobs of now, and those since the start that ended."""
        return self._ended + JobCounts(waiting=len(self._tasks) - self._running, running=self._running)

    def start(self, kind: str, subject: Hashable, work: Work) -> None:
        """Run the work soon. With too many jobs waiting it is left out: it will be found due again."""
        key = (kind, subject)
        if key in self._tasks:
            self._next[key] = work
        elif len(self._tasks) >= self._most:
            _log.warning("%s jobs are waiting: a %s was put off", len(self._tasks), kind)
        else:
            self._next[key] = work
            task = asyncio.create_task(self._run(kind, key), name=f"tenuto {kind}")
            self._tasks[key] = task
            # Not in the job itself: one that is cancelled before its first step never gets to its end.
            task.add_done_callback(lambda ended: self._on_done(kind, subject, ended))

    def is_running(self, kind: str, subject: Hashable) -> bool:
        """Whether such a job is running or waiting."""
        return (kind, subject) in self._tasks

    async def drain(self, within: timedelta | None = None) -> None:
        """Wait until no job is left; those that take longer than `within` are cancelled."""
        try:
            async with asyncio.timeout(within.total_seconds() if within is not None else None):
                while self._tasks:
                    await asyncio.wait(self._tasks.values())
        except TimeoutError:
            _log.warning("%s jobs were cancelled: they are found due again", len(self._tasks))
            for task in self._tasks.values():
                task.cancel()
            while self._tasks:
                await asyncio.wait(self._tasks.values())

    async def _run(self, kind: str, key: Hashable) -> None:
        while (work := self._next.pop(key, None)) is not None:
            async with self._slots:
                self._running += 1
                try:
                    ok = await safely(kind, work)
                finally:
                    self._running -= 1
                self._ended = self._ended.after(ok)

    def _on_done(self, kind: str, subject: Hashable, ended: asyncio.Task[None]) -> None:
        del self._tasks[kind, subject]
        work = self._next.pop((kind, subject), None)
        if work is not None and not ended.cancelled():
            # It came in the moment between the job's last look and its end.
            self.start(kind, subject, work)


async def safely(kind: str, work: Work) -> bool:
    """Do the work; an error is logged without its message, which may hold user text. Returns whether there was none."""
    try:
        await work()
        return True
    except Unavailable as away:
        _log.warning("a %s was put off: %s", kind, type(away).__name__)
    except Exception as failure:
        place = extract_tb(failure.__traceback__)[-1]
        _log.warning("a %s was put off: %s in %s", kind, type(failure).__name__, f"{place.name}, line {place.lineno}")
    return False


# The small model for titles and summaries: scope, instructions, text, and the limit of output tokens.
Small: TypeAlias = Callable[[Scope, str, str, int], Awaitable[str]]
