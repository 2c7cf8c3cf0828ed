"""What a turn is followed by: a title for the session, a summary of what no longer fits, a lease given back late."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from tenuto.context import TokenCounter
from tenuto.model import FinishTurn, OpenTurn
from tenuto.model.generation import TurnEnded
from tenuto.model.policy import SessionPolicy
from tenuto.model.scope import session_key
from tenuto.ports import Clock
from tenuto.privacy.upkeep_redaction import UpkeepRedaction
from tenuto.sessions import Sessions
from tenuto.upkeep.compressor import Compressor
from tenuto.upkeep.jobs import Jobs, safely
from tenuto.upkeep.lease_release import LeaseRelease
from tenuto.upkeep.summarizer_model import Small
from tenuto.upkeep.titler import Titler


class AfterTurn:
    """Decides what a turn calls for, and has it done in the background."""

    def __init__(self, *, sessions: Sessions, small: Small | None, redaction: UpkeepRedaction, clock: Clock) -> None:
        counter = TokenCounter()
        self._jobs = Jobs()
        self._releasing = LeaseRelease(sessions=sessions)
        self._titler = Titler(sessions=sessions, small=small, redaction=redaction)
        self._compressor = Compressor(sessions=sessions, small=small, redaction=redaction, counter=counter, clock=clock)

    def follow(self, ended: TurnEnded) -> None:
        """Start what is due. What waits holds no history."""
        subject = session_key(ended.scope, ended.session.id)
        bare = replace(ended, loaded=())
        if ended.titles:
            self._jobs.start("title", subject, lambda: self._titler.title(bare))
        if self._compressor.may_be_due(ended):
            self._jobs.start("summary", subject, lambda: self._compressor.compress(bare))

    async def secure(self, ended: TurnEnded, *, covered: int, adding: int) -> None:
        """See `Upkeep.secure`."""
        if self._compressor.would_lose_messages(ended, covered, adding):
            await safely("summary", lambda: self._compressor.compress(ended, adding=adding, at_once=True))

    def release(self, turn: OpenTurn, closing: FinishTurn, policy: SessionPolicy) -> None:
        """See `Upkeep.release`."""
        self._releasing.release(turn, closing, policy)

    async def drain(self, within: timedelta | None) -> None:
        """Wait for what was started."""
        await self._releasing.drain(within)
        await self._jobs.drain(within)
