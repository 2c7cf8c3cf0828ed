"""When the store is asked to clear deleted bytes: one such work at a time, and not again and again.

It takes the whole installation's files, so nobody who asks to be forgotten may set it off at will. What comes too soon
is noted in the installation's own state and done by a later round of upkeep, of this process or another.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from tenuto.errors import Unavailable, VersionConflict
from tenuto.model import CompactionResult
from tenuto.model.scope import SYSTEM
from tenuto.ports import Clock, StateStore, StoreUpkeep

_log = logging.getLogger(__name__)
_NAMESPACE: Final = "privacy.compaction"
_KEY: Final = "due"
_APART: Final = timedelta(minutes=1)


class CompactionStatus(StrEnum):
    """What became of deleted bytes."""

    DONE = "done"
    LATER = "later"
    PARTLY = "partly"
    NOTHING = "nothing"


class Compactor:
    """Has the store compacted. At most one compaction runs at a time in this process."""

    def __init__(self, *, state: StateStore, upkeep: StoreUpkeep, clock: Clock, apart: timedelta = _APART) -> None:
        self._state = state
        self._upkeep = upkeep
        self._clock = clock
        self._apart = apart
        self._began: datetime | None = None
        self._running = asyncio.Lock()

    async def owe(self) -> None:
        """Note that deleted bytes wait, before anything is begun: who dies meanwhile leaves it to upkeep."""
        await self._state.write_state(SYSTEM, _NAMESPACE, _KEY, True)

    async def now(self) -> tuple[CompactionStatus, str]:
        """Compact when whatever is under way is over, since that may have begun too early; and why bytes stay."""
        await self.owe()
        async with self._running:
            return await self._compact()

    async def soon(self) -> tuple[CompactionStatus, str]:
        """Compact at once if nobody has lately; otherwise upkeep will."""
        await self.owe()
        if self._running.locked() or self._lately():
            return CompactionStatus.LATER, ""
        async with self._running:
            return await self._compact()

    async def catch_up(self) -> None:
        """Do what was put off; for the rounds of upkeep."""
        if self._running.locked() or self._lately() or not await self.due():
            return
        async with self._running:
            await self._compact()

    async def due(self) -> bool:
        """Whether deleted bytes wait to be cleared."""
        entry = await self._state.read_state(SYSTEM, _NAMESPACE, _KEY)
        return entry is not None and entry.value is True

    def _lately(self) -> bool:
        # A clock that was set back must not put it off for longer.
        return self._began is not None and timedelta(0) <= self._clock() - self._began < self._apart

    async def _compact(self) -> tuple[CompactionStatus, str]:
        entry = await self._state.read_state(SYSTEM, _NAMESPACE, _KEY)
        self._began = self._clock()
        try:
            told: CompactionResult = await self._upkeep.compact()
        except Unavailable as busy:
            # What is gone stays gone; the bytes go when the store next has a quiet moment for it.
            _log.warning("deleted bytes were not cleared: %s", busy)
            return CompactionStatus.LATER, ""
        if entry is not None:
            try:
                await self._state.write_state(SYSTEM, _NAMESPACE, _KEY, False, if_version=entry.version)
            except VersionConflict:
                pass  # Somebody was erased meanwhile.
        return (CompactionStatus.DONE, "") if told.cleared else (CompactionStatus.PARTLY, told.why)
