"""Work that follows a turn: a title, a summary, memories, and the release of a lease after an outage."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from tenuto.context import TokenCounter
from tenuto.context.compression import compresses, compression_due, would_evict_uncovered
from tenuto.errors import TenutoError, Unavailable
from tenuto.model import FinishTurn, OpenTurn, Scope
from tenuto.model.generation import TurnSnapshot
from tenuto.model.policy import SessionPolicy
from tenuto.model.scope import owner_key, owner_scope, session_key
from tenuto.ports import Clock
from tenuto.privacy.turn_redaction import UpkeepRedaction
from tenuto.recall.service import Memories
from tenuto.sessions import Sessions
from tenuto.upkeep.capture import Capturer
from tenuto.upkeep.compressor import Compressor
from tenuto.upkeep.jobs import SPARE, JobCounts, Jobs, SmallModel, safely
from tenuto.upkeep.stale_capture import StaleCapture
from tenuto.upkeep.titler import Titler
from tenuto.upkeep.unread import CaptureBacklog

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 2.0
_log = logging.getLogger(__name__)


class LeaseRelease:
    """Releases the lease of a turn that ended in an outage: retries until the store is back or the lease expires."""

    def __init__(self, *, sessions: Sessions) -> None:
        self._sessions = sessions
        # Not the jobs of titles and summaries, which sessions on other servers need during an outage of one.
        self._jobs = Jobs()
        self._draining = asyncio.Event()

    @property
    def counts(self) -> JobCounts:
        """The retries as jobs."""
        return self._jobs.counts

    def release(self, turn: OpenTurn, request: FinishTurn, policy: SessionPolicy) -> None:
        """Start the retries and return at once."""
        until = asyncio.get_running_loop().time() + turn.lease.total_seconds()
        self._jobs.start("release", turn.id, lambda: self._retry_release(turn, request, policy, until))

    async def drain(self, within: timedelta | None) -> None:
        """Retry each waiting turn once more and stop."""
        self._draining.set()
        await self._jobs.drain(within)
        self._draining.clear()

    async def _retry_release(self, turn: OpenTurn, request: FinishTurn, policy: SessionPolicy, until: float) -> None:
        pause = _FIRST_PAUSE
        while asyncio.get_running_loop().time() + pause < until:
            last = await self._wait(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
            try:
                await self._sessions.finish(turn, request, policy)
            except Unavailable:
                if last:
                    return
            except TenutoError as error:
                _log.info("a lease need not be released any more: %s", error.code)
                return
            else:
                _log.info("a lease was released after an outage")
                return

    async def _wait(self, pause: float) -> bool:
        """Wait; returns whether `drain` cut it short."""
        try:
            async with asyncio.timeout(pause):
                return await self._draining.wait()
        except TimeoutError:
            return False


class AfterTurn:
    """Decides what is due after a turn, and starts it in the background."""

    def __init__(
        self,
        *,
        sessions: Sessions,
        jobs: Jobs,
        model: SmallModel | None,
        redaction: UpkeepRedaction,
        clock: Clock,
        memories: Memories | None = None,
    ) -> None:
        self._sessions = sessions
        self._counter = TokenCounter()
        self._jobs = jobs
        self._releasing = LeaseRelease(sessions=sessions)
        self._titler = Titler(sessions=sessions, model=model, redaction=redaction)
        self._compressor = Compressor(
            sessions=sessions, model=model, redaction=redaction, counter=self._counter, clock=clock
        )
        self._capturer: Capturer | None = None
        self._stale: StaleCapture | None = None
        if memories is not None:
            self._capturer = Capturer(
                memories=memories, sessions=sessions, model=model, redaction=redaction, jobs=jobs, clock=clock
            )
            memories.captures = self._capturer.queue
            self._stale = StaleCapture(
                memories=memories, sessions=sessions, redaction=redaction, compressor=self._compressor
            )

    @property
    def counts(self) -> JobCounts:
        """The retries of releases; the owner of the other jobs counts those."""
        return self._releasing.counts

    @property
    def backlog(self) -> CaptureBacklog:
        """What was said and not read for memories yet, as far as this process knows."""
        return self._capturer.backlog if self._capturer is not None else CaptureBacklog(0, None)

    def hear(self, turn: TurnSnapshot) -> asyncio.Task[None] | None:
        """As the port says."""
        return self._capturer.hear(turn) if self._capturer is not None else None

    def follow(self, turn: TurnSnapshot) -> None:
        """Start what is due after this turn and return at once. Failures do not reach the turn.

        Waiting jobs hold no history.
        """
        subject = session_key(turn.scope, turn.session.id)
        bare = replace(turn, log_tail=())
        self._trim_if_due()
        if turn.claims_title:
            self._jobs.start("title", subject, lambda: self._titler.title(bare))
        if self._capturer is not None:
            # What an edit has removed was forgotten when the turn began.
            self._capturer.hear(replace(turn, edited_from=0))
        if self._stale is not None and turn.recalls and self._stale.may_be_due(turn):
            self._start_stale_capture(self._stale, turn.scope)
        # A running job will have covered what this turn saw; what came since is found due after the next turn.
        whose = (subject, turn.persona)
        if self._may_be_due(turn) and not self._jobs.is_running("summary", whose):
            self._jobs.start("summary", whose, lambda: self._compressor.compress(bare))

    def _trim_if_due(self) -> None:
        if self._sessions.over_cap:
            self._jobs.start("removal of old sessions", "", self._trim)

    async def _trim(self) -> None:
        """Remove one portion; others may run before the next."""
        await self._sessions.trim()
        self._trim_if_due()

    def _start_stale_capture(self, stale: StaleCapture, scope: Scope) -> None:
        self._jobs.start("stale capture", owner_key(owner_scope(scope)), lambda: stale.capture_due(scope))

    async def note_stale(self, turn: TurnSnapshot) -> None:
        """Note what became stale with a turn that has begun, and clear it."""
        if self._stale is not None:
            await self._stale.note(turn)

    async def capture_stale(self, owner: Scope) -> None:
        """Remember the stale stretches of an owner that are due."""
        if self._stale is not None:
            await self._stale.capture_due(owner)

    def _may_be_due(self, turn: TurnSnapshot) -> bool:
        """Judged by the messages that the turn has loaded, before the stored session is read."""
        if not turn.log_tail:
            return compresses(turn.policies.context)
        compression = compression_due(
            turn.session,
            turn.log_tail,
            self._counter,
            turn.prompt,
            turn.policies.context,
            persona=turn.persona,
            overhead=turn.reserved_tokens,
        )
        return compression is not None

    async def compress(self, turn: TurnSnapshot) -> None:
        """Cover what is due now, and wait for it: for callers whose turns are not followed."""
        await self._compressor.compress(turn)

    async def secure(self, turn: TurnSnapshot, *, through: int, adding: int) -> None:
        """Wait until that many messages can be stored without evicting any that no summary covers.

        The turn awaits this before it stores its answer: `turn` describes it as finished, with the session's head as
        the turn began; `through` is how far the summary in its prompt reached (0 without one). The store is read only
        if the stored cap is near; then the oldest messages are covered by extraction, without a model. An outage of the
        store is logged and not waited for.
        """
        compressing = compresses(turn.policies.context)
        if compressing and would_evict_uncovered(turn.session, through, adding + SPARE):
            await safely("summary", lambda: self._compressor.compress(turn, adding=adding, at_once=True))

    def release(self, turn: OpenTurn, request: FinishTurn, policy: SessionPolicy) -> None:
        """Retry the release of a lease in the background until it succeeds or the lease expires."""
        self._releasing.release(turn, request, policy)

    async def drain(self, within: timedelta | None) -> None:
        """Wait for the releases, and have all captured that is due, which are jobs like others."""
        if self._capturer is not None:
            self._capturer.queue.flush()
        await self._releasing.drain(within)

    async def stop(self) -> None:
        """Capture nothing by itself any more until the next turn; what is left stays due."""
        if self._capturer is not None:
            await self._capturer.stop()
