"""Stores for tests that change single methods of them."""

from __future__ import annotations

from typing import Any, Final, Self

from tenuto.ports import Clock, utc_now
from tenuto.stores.memory._sessions import MemorySessions, MemoryTraces
from tenuto.stores.memory._state import MemoryState
from tenuto.stores.memory.record import MemoryTables
from tenuto.stores.memory.store import MemoryUpkeep


class OwnPorts:
    """Sessions, state and upkeep of this store are the object itself."""

    @property
    def sessions(self) -> Self:
        return self

    state = upkeep = sessions


class FlatMemoryStore(OwnPorts, MemorySessions, MemoryState, MemoryUpkeep):
    """Sessions, state and upkeep are this one object, so that a subclass overrides any of their methods."""

    feed: Final = None

    def __init__(self, *, clock: Clock = utc_now) -> None:
        self.tables = MemoryTables(clock)
        super().__init__(self.tables)
        self.traces = MemoryTraces(self.tables)

    async def close(self) -> None:
        return None


def port_with(store: Any, method: str) -> Any:
    """The port of a store that has the method."""
    return next(port for port in (store.sessions, store.state, store.upkeep, store.traces) if hasattr(port, method))
