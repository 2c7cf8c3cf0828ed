"""Background jobs that outlive the call that started them: one per subject, a few at a time, fair to all."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from datetime import timedelta
from traceback import extract_tb
from typing import Final, Protocol, TypeAlias

from msgspec.structs import replace

from tenuto.background import run_in_background
from tenuto.errors import Unavailable
from tenuto.model import Scope
from tenuto.model.parameters import AnswerSchema
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


class FairSlots:
    """Lets a few jobs run at once, and one of each kind beside them, so that no kind waits for slow ones of another.

    A slot that becomes free goes to the kind with the fewest running, and within it to the sessions in turn.
    """

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._running: Counter[str] = Counter()
        self._waiting: OrderedDict[str, OrderedDict[Hashable, deque[asyncio.Future[None]]]] = OrderedDict()

    @asynccontextmanager
    async def slot(self, kind: str, session: Hashable) -> AsyncIterator[None]:
        """Wait for a slot and hold it."""
        if kind in self._waiting or not self._is_free(kind):
            await self._wait(kind, session)
        else:
            self._running[kind] += 1
        try:
            yield
        finally:
            self._running[kind] -= 1
            self._grant()

    async def _wait(self, kind: str, session: Hashable) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(kind, OrderedDict()).setdefault(session, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                # The slot was granted in the moment of the cancellation.
                self._running[kind] -= 1
            self._grant()
            raise

    def _is_free(self, kind: str) -> bool:
        return self._running.total() < self._at_once or not self._running[kind]

    def _grant(self) -> None:
        while kinds := [kind for kind in self._waiting if self._is_free(kind)]:
            # Of equal ones that which was served longest ago.
            kind = min(kinds, key=self._running.__getitem__)
            turn = self._next_turn(kind)
            # A cancelled job waits no more.
            if not turn.done():
                self._running[kind] += 1
                turn.set_result(None)

    def _next_turn(self, kind: str) -> asyncio.Future[None]:
        sessions = self._waiting.pop(kind)
        session, turns = sessions.popitem(last=False)
        turn = turns.popleft()
        if turns:
            sessions[session] = turns
        if sessions:
            self._waiting[kind] = sessions
        return turn


class Jobs:
    """Runs jobs in the background. A failed job is logged, by its kind and where it failed.

    What is started for a subject whose job is still running runs after it; of several, the last. A subject is a
    session, or a tuple that begins with one.
    """

    def __init__(self, *, at_once: int = _AT_ONCE, most: int = _MOST) -> None:
        self._slots = FairSlots(at_once)
        self._most = most
        self._of_kind: Counter[str] = Counter()
        self._tasks: dict[Hashable, asyncio.Task[None]] = {}
        self._next: dict[Hashable, Work] = {}
        self._running = 0
        self._totals = JobCounts()

    @property
    def counts(self) -> JobCounts:
        """The jobs of now, and those since the start that ended."""
        return self._totals + JobCounts(waiting=len(self._tasks) - self._running, running=self._running)

    def start(self, kind: str, subject: Hashable, work: Work) -> None:
        """Run the work soon. With too many jobs of its kind waiting it is left out: it will be found due again."""
        key = (kind, subject)
        if key in self._tasks:
            self._next[key] = work
        elif self._of_kind[kind] >= self._most:
            _log.warning("%s jobs are waiting: a %s was postponed", self._of_kind[kind], kind)
        else:
            self._next[key] = work
            session = subject[0] if isinstance(subject, tuple) else subject
            task = run_in_background(self._run(kind, key, session), kind)
            self._tasks[key] = task
            self._of_kind[kind] += 1
            # Not in the job itself: one that is cancelled before its first step never gets to its end.
            task.add_done_callback(lambda done_task: self._on_done(kind, subject, done_task))

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
            _log.warning("%s jobs were cancelled and will be found due again", len(self._tasks))
            for task in self._tasks.values():
                task.cancel()
            while self._tasks:
                await asyncio.wait(self._tasks.values())

    async def _run(self, kind: str, key: Hashable, session: Hashable) -> None:
        while (work := self._next.pop(key, None)) is not None:
            async with self._slots.slot(kind, session):
                self._running += 1
                try:
                    ok = await safely(kind, work)
                finally:
                    self._running -= 1
                self._totals = self._totals.after(ok)

    def _on_done(self, kind: str, subject: Hashable, task: asyncio.Task[None]) -> None:
        del self._tasks[kind, subject]
        self._of_kind[kind] -= 1
        work = self._next.pop((kind, subject), None)
        if work is not None and not task.cancelled():
            # It came in the moment between the job's last look and its end.
            self.start(kind, subject, work)


async def safely(kind: str, work: Work) -> bool:
    """Do the work; an error is logged without its message, which may hold user text. Returns whether there was none."""
    try:
        await work()
        return True
    except Unavailable as error:
        _log.warning("a %s was postponed: %s", kind, type(error).__name__)
    except Exception as error:
        place = extract_tb(error.__traceback__)[-1]
        _log.warning("a %s was postponed: %s in %s", kind, type(error).__name__, f"{place.name}, line {place.lineno}")
    return False


class SmallModel(Protocol):
    """The model for titles, summaries and notes, which limits its own time and the tokens of its answer.

    With a `schema` the answer is demanded in that form, and not checked.
    """

    async def __call__(
        self, scope: Scope, instructions: str, text: str, tokens: int, schema: AnswerSchema | None = None
    ) -> str: ...
