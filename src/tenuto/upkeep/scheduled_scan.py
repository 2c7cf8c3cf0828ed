"""A scan of all stored data for private values on a schedule: it counts and changes nothing."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from tenuto.compare_and_set import write_if_unchanged
from tenuto.model.privacy import Sink
from tenuto.model.scope import SYSTEM
from tenuto.ports import Clock, StateStore
from tenuto.upkeep.jobs import safely

if TYPE_CHECKING:
    from tenuto.privacy.compliance.scan import ScanSummary

_log = logging.getLogger(__name__)
_PLACE: Final = ("privacy.scan", "began")


async def claim_round(state: StateStore, place: tuple[str, str], now: datetime, every: timedelta) -> bool:
    """Whether this process is the one to begin a round that is due once in `every`; the claim is stored at `place`."""
    entry = await state.read_state(SYSTEM, *place)
    # A clock that was set back must not defer it for longer.
    if entry is not None and timedelta(0) <= now - datetime.fromisoformat(entry.value) < every:
        return False
    claim = state.write_state(SYSTEM, *place, now.isoformat(), 0 if entry is None else entry.version)
    return await write_if_unchanged(claim) is not None


class ScheduledScan:
    """Scans once in `every`. The start is noted in the store, so one process of an installation scans at a time.

    `scans` and `violations` are those of this process and its last scan.
    """

    def __init__(
        self,
        *,
        scan: Callable[[], AsyncIterator[ScanSummary]],
        state: StateStore,
        clock: Clock,
        every: timedelta,
        look_every: timedelta,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._scan = scan
        self._state = state
        self._clock = clock
        self._every = every
        self._look_every = look_every
        self._pause = pause
        self.scans = 0
        self.violations: Counter[Sink] = Counter()

    async def run(self) -> None:
        """Scan whenever it is due, until cancelled."""
        while True:
            await safely("privacy scan", self.scan_if_due)
            await self._pause(self._look_every.total_seconds())

    async def scan_if_due(self) -> None:
        """Scan, unless a process began a scan less than `every` ago. A scan that was broken off is not repeated."""
        if not await claim_round(self._state, _PLACE, self._clock(), self._every):
            return
        last: ScanSummary | None = None
        async for last in self._scan():  # noqa: B007
            await asyncio.sleep(0)  # An embedded store yields to no other task in between.
        if last is not None:
            self._log_findings(last)

    def _log_findings(self, summary: ScanSummary) -> None:
        matches = summary.matches_by_sink(violations_only=True)
        self.scans += 1
        self.violations = Counter({sink: names.total() for sink, names in matches.items()})
        counts = [f"{count} {name} in {sink}" for sink, names in matches.items() for name, count in names.items()]
        _log.log(
            logging.WARNING if matches or summary.unreadable or summary.locked_sites else logging.INFO,
            "privacy scan: %d records, %d unreadable, %d sites locked, against the policy: %s",
            *(summary.records, summary.unreadable, len(summary.locked_sites), ", ".join(counts) or "nothing"),
        )
