"""The story of what follows the turns: each round sweeps, each turn may be followed by a title and a compression."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Final

from tenuto.errors import Unavailable
from tenuto.model import FinishTurn, OpenTurn
from tenuto.model.generation import TurnEnded
from tenuto.model.policy import SessionPolicy
from tenuto.ports import Clock, utc_now
from tenuto.privacy.upkeep_redaction import UpkeepRedaction
from tenuto.sessions import Sessions
from tenuto.tasks import Tasks
from tenuto.upkeep.jobs import Small, safely

if TYPE_CHECKING:
    from tenuto.upkeep.after_turn import AfterTurn

_log = logging.getLogger(__name__)
_BATCH: Final = 1000


class Upkeep:
    """Keeps the house in order while the application runs.

    What follows a turn is not queued anywhere: it is found due by looking at the stored session. A process that dies
    in between loses nothing, since the session's next turn finds the same work due again.
    """

    def __init__(
        self,
        *,
        sessions: Sessions,
        sweep_every: timedelta,
        tasks: Tasks | None = None,
        clock: Clock = utc_now,
        small: Small | None = None,
        redaction: UpkeepRedaction,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        catch_up: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._sessions = sessions
        self._tasks = tasks
        self._sweep_every = sweep_every
        self._clock = clock
        self._small = small
        self._redaction = redaction
        self._pause = pause
        self._catch_up = catch_up
        self._followed = False

    # After a turn

    def equip(self, *, small: Small | None = None) -> None:
        """Hand over what is only there once the first turn is: the small model. Before any `follow`."""
        assert not self._followed, "turns were followed without it already"
        self._small = small

    def follow(self, ended: TurnEnded) -> None:
        """Start what this turn calls for and return at once. Nothing that goes wrong there reaches the turn."""
        self._after_turn.follow(ended)

    async def secure(self, ended: TurnEnded, *, covered: int, adding: int) -> None:
        """Wait until that many messages can be stored without pushing out any that no summary covers.

        For the turn itself to await before it stores its answer: `ended` tells of it as if it were over, with the
        session's head as the turn began, and `covered` is how far the summary reached that the turn was shown (0 when
        there was none). It returns without a look at the store unless the stored cap is near; then it covers the oldest
        messages by extraction, asking no model. A store that is away is logged and not waited for.
        """
        await self._after_turn.secure(ended, covered=covered, adding=adding)

    def release(self, turn: OpenTurn, closing: FinishTurn, policy: SessionPolicy) -> None:
        """Give a turn up that the store did not take back, as soon as it does, and return at once.

        After the turn's lease nothing is left to do: it has run out by itself.
        """
        self._after_turn.release(turn, closing, policy)

    async def drain(self, within: timedelta | None = None) -> None:
        """Wait until everything that was started is done; what takes longer than `within` is cancelled."""
        if self._followed:
            await self._after_turn.drain(within)

    @cached_property
    def _after_turn(self) -> AfterTurn:
        # Tokenizer, titles and text rules: only programs whose turns are followed need them.
        from tenuto.upkeep.after_turn import AfterTurn

        self._followed = True
        return AfterTurn(sessions=self._sessions, small=self._small, redaction=self._redaction, clock=self._clock)

    # Every few minutes

    async def run(self) -> None:
        """Sweep again and again, until cancelled; a store that is away is tried again at the next round."""
        while True:
            try:
                await self.sweep()
            except Unavailable as away:
                _log.warning("expired sessions were not swept: %s", away)
            except Exception:
                # Whatever one round met, the next ones are still needed.
                _log.exception("expired sessions were not swept")
            await safely("sweep of tasks", self.sweep_tasks)
            if self._catch_up is not None:
                await safely("compaction", self._catch_up)
            await self._pause(self._sweep_every.total_seconds())

    async def sweep(self) -> int:
        """Remove everything that has expired by now, in bounded steps; tells how many sessions went."""
        total = 0
        while True:
            gone = await self._sessions.sweep(_BATCH)
            total += gone
            if gone < _BATCH:
                return total

    async def sweep_tasks(self) -> int:
        """Remove tasks and agents' notes that have expired by now, in bounded steps; tells how many tasks went."""
        total = 0
        while self._tasks is not None:
            swept = await self._tasks.sweep(_BATCH)
            total += swept.tasks
            if not swept.more:
                break
        return total
