"""Compaction of the store after deletions: one at a time, and not too often.

It rewrites the files of the whole installation, so erasure requests must not start it at will. A request that comes too
soon is recorded in the installation's state and done by a later upkeep round, of this process or another.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from tenuto.compare_and_set import write_if_unchanged
from tenuto.errors import Unavailable
from tenuto.model import CompactionResult
from tenuto.model.scope import SYSTEM
from tenuto.ports import Clock, StateStore, StoreUpkeep

_log = logging.getLogger(__name__)
_NAMESPACE: Final = "privacy.compaction"
_KEY: Final = "due"
_APART: Final = timedelta(minutes=1)


class CompactionStatus(StrEnum):
    """Whether the bytes of deleted records were cleared from the files of the store."""

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
        """Record that deleted bytes are pending before work begins: after a crash upkeep clears them."""
        await self._state.write_state(SYSTEM, _NAMESPACE, _KEY, True)

    async def now(self) -> tuple[CompactionStatus, str]:
        """Compact after a running compaction, which may have begun too early; returns also why bytes stay."""
        await self.owe()
        async with self._running:
            return await self._compact()

    async def soon(self) -> tuple[CompactionStatus, str]:
        """Compact at once unless it was done recently; otherwise upkeep will."""
        await self.owe()
        if self._running.locked() or self._lately():
            return CompactionStatus.LATER, ""
        async with self._running:
            return await self._compact()

    async def catch_up(self) -> None:
        """Run a deferred compaction; called by upkeep."""
        if self._running.locked() or self._lately() or not await self.due():
            return
        async with self._running:
            await self._compact()

    async def due(self) -> bool:
        """Whether deleted bytes are pending."""
        entry = await self._state.read_state(SYSTEM, _NAMESPACE, _KEY)
        return entry is not None and entry.value is True

    def _lately(self) -> bool:
        # A clock that was set back must not defer it for longer.
        return self._began is not None and timedelta(0) <= self._clock() - self._began < self._apart

    async def _compact(self) -> tuple[CompactionStatus, str]:
        entry = await self._state.read_state(SYSTEM, _NAMESPACE, _KEY)
        self._began = self._clock()
        try:
            result: CompactionResult = await self._upkeep.compact()
        except Unavailable as error:
            # The rows are deleted all the same; a later round clears their bytes.
            _log.warning("deleted bytes were not cleared: %s", error)
            return CompactionStatus.LATER, ""
        if entry is not None:
            # Unless another erasure was recorded meanwhile.
            cleared = self._state.write_state(SYSTEM, _NAMESPACE, _KEY, False, if_version=entry.version)
            await write_if_unchanged(cleared)
        return (CompactionStatus.DONE, "") if result.cleared else (CompactionStatus.PARTLY, result.remaining_reason)
