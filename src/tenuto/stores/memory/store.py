"""Sessions in this process's memory: for tests, for state that may vanish, and as the plain statement of the rules.

Each method runs without waiting in between, so it is atomic under asyncio.
"""

from __future__ import annotations

from typing import Final

from tenuto.ports import Clock, utc_now
from tenuto.stores.memory._sessions import MemorySessions, MemoryTraces
from tenuto.stores.memory._state import MemoryState
from tenuto.stores.memory._tables import MemoryTables
from tenuto.stores.memory._upkeep import MemoryUpkeep


class MemoryStore:
    """A backend of plain dictionaries, which only this process can change: there is no feed."""

    feed: Final = None

    def __init__(self, *, clock: Clock = utc_now) -> None:
        self.tables = MemoryTables(clock)
        self.sessions = MemorySessions(self.tables)
        self.traces = MemoryTraces(self.tables)
        self.state = MemoryState(self.tables)
        self.upkeep = MemoryUpkeep(self.tables)

    async def close(self) -> None:
        return None
