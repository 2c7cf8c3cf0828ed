"""Upkeep: sweeps at intervals; a title and a compression after a turn."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Final

from tenuto.errors import Unavailable
from tenuto.ports import Clock, utc_now
from tenuto.privacy.turn_redaction import UpkeepRedaction
from tenuto.sessions import Sessions
from tenuto.sessions.usage import UsageLedger
from tenuto.tasks import Tasks
from tenuto.upkeep.jobs import JobCounts, Jobs, SmallModel, Work, safely
from tenuto.upkeep.unread import CaptureBacklog

if TYPE_CHECKING:
    from tenuto.recall.service import Memories
    from tenuto.upkeep.after_turn import AfterTurn
    from tenuto.upkeep.memory_sweep import MemorySweep

_log = logging.getLogger(__name__)
_BATCH: Final = 1000
LAST_WORK: Final = timedelta(seconds=10)
"""How long closing waits for running titles and summaries; cancelled ones are due again."""


class Upkeep:
    """Background work of a running application.

    Work after a turn is not queued: the stored session shows what is due. A process that dies in between loses nothing,
    since the session's next turn finds the same work due.
    """

    def __init__(
        self,
        *,
        sessions: Sessions,
        sweep_every: timedelta,
        tasks: Tasks | None = None,
        ledger: UsageLedger | None = None,
        clock: Clock = utc_now,
        model: SmallModel | None = None,
        redaction: UpkeepRedaction,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        catch_up: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._sessions = sessions
        self._tasks = tasks
        self._ledger = ledger
        self._sweep_every = sweep_every
        self._clock = clock
        self.model = model
        self.redaction = redaction
        self._pause = pause
        self._catch_up = catch_up
        self._memories: Memories | None = None
        self._memory_sweep: MemorySweep | None = None
        self._followed = False
        # Of all turns, so that a session is summarised once at a time, whichever model answers in it.
        self._jobs = Jobs()
        # By kind: one that fails in every round must not look well because the others succeed.
        self._sweeps: dict[str, JobCounts] = {}
        # A moment of the event loop's clock.
        self.ends_at: float | None = None

    # After a turn

    def equip(
        self,
        *,
        model: SmallModel | None = None,
        memories: Memories | None = None,
        memory_sweep: MemorySweep | None = None,
    ) -> None:
        """Set what turns bring along, before the first use of `after_turn`."""
        assert not self._followed, "turns were followed without it already"
        self.model = model
        self._memories = memories
        self._memory_sweep = memory_sweep

    @property
    def jobs(self) -> JobCounts:
        """The jobs that follow turns, and the sweeps that have ended."""
        ended = sum(self._sweeps.values(), self._jobs.counts)
        return ended + self.after_turn.counts if self._followed else ended

    @property
    def backlog(self) -> CaptureBacklog:
        """What was said and not read for memories yet, as far as this process knows."""
        return self.after_turn.backlog if self._followed else CaptureBacklog(0, None)

    def start(self, kind: str, subject: Hashable, work: Work) -> None:
        """Run work of a turn in the background, one at a time for each subject."""
        self._jobs.start(kind, subject, work)

    async def drain(self, within: timedelta | None = None) -> None:
        """Wait until everything that was started is done; what takes longer than `within` is cancelled, and so is what
        goes on after `ends_at`."""
        if self.ends_at is not None:
            left = timedelta(seconds=max(0.0, self.ends_at - asyncio.get_running_loop().time()))
            within = left if within is None else min(within, left)
        if self._followed:
            await self.after_turn.drain(within)
        await self._jobs.drain(within)
        if self._followed:
            await self.after_turn.stop()

    @cached_property
    def after_turn(self) -> AfterTurn:
        """The work that follows a turn."""
        # Tokenizer, titles and text rules: only programs whose turns are followed need them.
        from tenuto.upkeep.after_turn import AfterTurn

        self._followed = True
        return AfterTurn(
            sessions=self._sessions,
            jobs=self._jobs,
            model=self.model,
            redaction=self.redaction,
            clock=self._clock,
            memories=self._memories,
        )

    # Every few minutes

    async def run(self) -> None:
        """Sweep again and again, until cancelled; an unavailable store is retried in the next round."""
        while True:
            self._count("sweep of sessions", await self._sweep_sessions())
            await self._run_sweep("indexing of sessions", self._sessions.index_words)
            await self._run_sweep("sweep of tasks", self.sweep_tasks)
            if self._memory_sweep is not None:
                await self._run_sweep("sweep of memories", self._memory_sweep.sweep_if_due)
            await self._run_sweep("sweep of usage", self.sweep_usage)
            if self._catch_up is not None:
                await self._run_sweep("compaction", self._catch_up)
            await self._pause(self._sweep_every.total_seconds())

    async def _sweep_sessions(self) -> bool:
        try:
            await self.sweep()
        except Unavailable as error:
            _log.warning("expired sessions were not swept: %s", error)
        except Exception:
            # The next rounds are needed whatever fails in one.
            _log.exception("expired sessions were not swept")
        else:
            return True
        return False

    async def _run_sweep(self, kind: str, work: Work) -> None:
        self._count(kind, await safely(kind, work))

    def _count(self, kind: str, ok: bool) -> None:
        self._sweeps[kind] = self._sweeps.get(kind, JobCounts()).after(ok)

    async def sweep(self) -> int:
        """Remove all that expired or is beyond an assistant's number, in bounded steps; returns how many expired."""
        total = 0
        while True:
            removed_sessions = await self._sessions.sweep(_BATCH)
            total += removed_sessions
            if removed_sessions < _BATCH:
                break
        # Those that were created without a turn, or whose turn failed.
        while self._sessions.over_cap:
            await self._sessions.trim()
        return total

    async def sweep_tasks(self) -> int:
        """Remove expired tasks and agents' notes in bounded steps; returns how many tasks were removed."""
        total = 0
        while self._tasks is not None:
            result = await self._tasks.sweep(_BATCH)
            total += result.tasks
            if not result.more:
                break
        return total

    async def sweep_usage(self) -> int:
        """Remove usage older than 400 days; returns how many rows were removed."""
        return await self._ledger.prune() if self._ledger is not None else 0
