"""When captures run: at a pause of their owner's conversations, when enough was said, or before the owner searches."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tenuto.background import run_in_background
from tenuto.errors import Unavailable
from tenuto.logs import bind_log_context_alone
from tenuto.model import Scope
from tenuto.model.generation import TurnSnapshot
from tenuto.model.scope import owner_key
from tenuto.recall.unread_marks import Marks, UnreadMark
from tenuto.upkeep.jobs import Jobs
from tenuto.upkeep.unread import UnreadStatements

# Seconds until what failed, or what another process reads, is tried again; twice as long after each failure.
_RETRY: Final = 10.0
_LONGEST_RETRY: Final = 300.0
_log = logging.getLogger(__name__)


class Pace(NamedTuple):
    """When statements are read: after a `pause` of their owner, when there are `enough`, after the `longest` wait.

    Times are seconds.
    """

    pause: float
    longest: float
    enough: int


# As many as the embedder takes at once.
WITHOUT_MODEL: Final = Pace(pause=10.0, longest=60.0, enough=8)
# As many as a request brings. Each one costs, and people think between two questions for longer than ten seconds.
WITH_MODEL: Final = Pace(pause=60.0, longest=300.0, enough=10)


class Captured(NamedTuple):
    """The sessions that need not be read again now, by their ids, and whether anything was read at all; what failed
    with those that could not be read, which stay due."""

    done: set[str]
    any_read: bool
    failed: Mapping[str, Exception] = {}


@dataclass(slots=True)
class _Owner:
    """Of one owner: the last turn of each session that has something to read, and what was said since the last reading.

    `since` is when the first of that was said, `last` the last turn. `waited` are the seconds for which a caller waited
    in vain: none does so again until all is read, unless it waits longer.
    """

    since: float
    last: float
    turns: dict[str, TurnSnapshot] = field(default_factory=dict)
    statements: int = 0
    failures: int = 0
    waited: float = 0
    timer: asyncio.TimerHandle | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def is_due(self, but: str | None) -> bool:
        """Whether anything is to be read, but in one session."""
        return any(session_id != but for session_id in self.turns)


class CaptureQueue:
    """Gathers what is due of each owner, and has it captured together.

    `capture` reads a portion of some sessions; `adopt` finds a session that another process has marked, if it is still
    there; `is_claimed` tells of a mark whether another process reads its session.
    """

    def __init__(
        self,
        *,
        jobs: Jobs,
        unread: UnreadStatements,
        capture: Callable[[Sequence[TurnSnapshot]], Awaitable[Captured]],
        adopt: Callable[[Scope, str, Marks], Awaitable[TurnSnapshot | None]],
        is_claimed: Callable[[UnreadMark], bool],
        pace: Pace,
    ) -> None:
        self._pace = pace
        self._jobs = jobs
        self._unread = unread
        self._capture = capture
        self._adopt = adopt
        self._is_claimed = is_claimed
        self._owners: dict[bytes, _Owner] = {}
        self._waited_for: set[asyncio.Task[bool]] = set()

    def add(self, turn: TurnSnapshot, statements: int) -> None:
        """Note that a session has something to read, and how much of it is new."""
        key, now = owner_key(turn.scope), asyncio.get_running_loop().time()
        owner = self._owners.get(key)
        if owner is None:
            owner = self._owners[key] = _Owner(since=now, last=now)
        elif not owner.turns:
            owner.since = now
        owner.turns[turn.session.id] = turn
        owner.statements += statements
        owner.last = now
        if owner.statements >= self._pace.enough:
            self._start(key)
        elif owner.timer is None:
            self._wait(key, owner, self._pace.pause)

    def flush(self) -> None:
        """Capture all that is due, without waiting for pauses."""
        for key in list(self._owners):
            self._start(key)

    async def stop(self) -> None:
        """Wait for no pause any more, and for no search; what is left stays due, by the marks of its sessions."""
        for owner in self._owners.values():
            if owner.timer is not None:
                owner.timer.cancel()
                owner.timer = None
        while self._waited_for:
            for work in self._waited_for:
                work.cancel()
            await asyncio.wait(self._waited_for)

    def is_due(self, scope: Scope, marks: Marks, but: str | None) -> bool:
        """As `CatchUp` says."""
        owner = self._owners.get(owner_key(scope))
        return any(session_id != but for session_id in marks) or (owner is not None and owner.is_due(but))

    async def catch_up(self, scope: Scope, marks: Marks, but: str | None, seconds: float) -> bool:
        """As `CatchUp` says. What takes longer goes on without its caller."""
        key = owner_key(scope)
        if key in self._owners and self._owners[key].waited >= seconds:
            return False
        work = run_in_background(self._catch_up(scope, marks, but), "capture")
        self._waited_for.add(work)
        work.add_done_callback(self._waited_for.discard)
        await asyncio.wait({work}, timeout=seconds)
        if not work.done() and key in self._owners:
            self._owners[key].waited = seconds
        return work.done() and not work.cancelled() and work.result()

    def is_reading(self, scope: Scope, marks: Marks) -> bool:
        """As `CatchUp` says."""
        owner = self._owners.get(owner_key(scope))
        return (owner is not None and owner.lock.locked()) or any(map(self._is_claimed, marks.values()))

    async def _catch_up(self, scope: Scope, marks: Marks, but: str | None) -> bool:
        key = owner_key(scope)
        try:
            known = self._owners[key].turns if key in self._owners else {}
            adopted = True
            for session_id in [name for name in marks if name != but and name not in known]:
                try:
                    turn = await self._adopt(scope, session_id, marks)
                except Exception as error:
                    # The others do not wait for it.
                    adopted = False
                    _log_uncaptured(error)
                    continue
                if turn is not None:
                    self.add(turn, 0)
            owner = self._owners.get(key)
            while owner is not None and owner.is_due(but):
                async with owner.lock:
                    if not owner.is_due(but):
                        continue
                    captured = await self._read(key, owner)
                for failure in captured.failed.values():
                    _log_uncaptured(failure)
                if not captured.any_read:
                    break
        except Exception as error:
            _log_uncaptured(error)
            return False
        return adopted and (owner is None or not owner.is_due(but))

    def _wait(self, key: bytes, owner: _Owner, seconds: float) -> None:
        owner.timer = asyncio.get_running_loop().call_later(seconds, self._on_time, key)

    def _on_time(self, key: bytes) -> None:
        owner = self._owners.get(key)
        if owner is None:
            return
        owner.timer = None
        now = asyncio.get_running_loop().time()
        left = min(owner.last + self._pace.pause, owner.since + self._pace.longest) - now
        if left > 0 and not owner.failures:
            # There were turns meanwhile.
            self._wait(key, owner, left)
        else:
            self._start(key)

    def _start(self, key: bytes) -> None:
        owner = self._owners[key]
        if owner.timer is not None:
            owner.timer.cancel()
            owner.timer = None
        self._jobs.start("capture", key, lambda: self._work(key))
        if not self._jobs.is_running("capture", key):
            # Too many of them wait.
            self._wait(key, owner, _RETRY)

    async def _work(self, key: bytes) -> None:
        """Read a portion; others may run before the next."""
        owner = self._owners.get(key)
        if owner is None:
            return
        async with owner.lock:
            captured = await self._read(key, owner)
        if captured.any_read and self._owners.get(key) is owner and owner.turns:
            self._start(key)
        for error in captured.failed.values():
            raise error

    async def _read(self, key: bytes, owner: _Owner) -> Captured:
        """Read a portion of what is due, under the owner's lock."""
        if not owner.turns:
            # A search was quicker.
            return Captured(set(), any_read=False)
        owner.statements, owner.since = 0, asyncio.get_running_loop().time()
        captured = Captured(set(), any_read=False)
        turns = list(owner.turns.values())
        try:
            # Of several sessions, and maybe started by the turn of another one.
            with bind_log_context_alone(tenant=turns[0].scope.tenant):
                captured = await self._capture(turns)
            owner.failures = owner.failures + 1 if captured.failed else 0
        except BaseException:
            owner.failures += 1
            raise
        finally:
            for session_id in captured.done:
                # What was said meanwhile is due.
                if session_id in owner.turns and not self._unread.is_due(owner.turns[session_id]):
                    del owner.turns[session_id]
            for session_id in captured.failed:
                # Behind the others: only so many are read together.
                if (turn := owner.turns.pop(session_id, None)) is not None:
                    owner.turns[session_id] = turn
            if not owner.turns:
                self._forget(key, owner)
            elif not captured.any_read and owner.timer is None:
                self._wait(key, owner, min(_RETRY * 2**owner.failures, _LONGEST_RETRY))
        return captured

    def _forget(self, key: bytes, owner: _Owner) -> None:
        if owner.timer is not None:
            owner.timer.cancel()
        if self._owners.get(key) is owner:
            del self._owners[key]


def _log_uncaptured(error: Exception) -> None:
    """A search goes on without what could not be captured; the message of an error may hold user text."""
    level = logging.INFO if isinstance(error, Unavailable) else logging.WARNING
    _log.log(level, "what was said last was not captured yet: %s", type(error).__name__)
