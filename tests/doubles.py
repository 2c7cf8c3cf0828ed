"""Stores in memory, and such whose single methods a test changes."""

from __future__ import annotations

from asyncio import Future
from random import Random
from typing import Any, Self

from tenuto.model.stored import Known, StoredRecord
from tenuto.ports import Clock, utc_now
from tenuto.stores.engine import Engine, PlainCodecs
from tenuto.stores.engine.engine import EngineSessions, EngineTraces
from tenuto.stores.engine.state import EngineState
from tenuto.stores.engine.upkeep import EngineUpkeep
from tenuto.stores.memory import InMemoryRecords


class CountedRecords(InMemoryRecords):
    """Counts what the cache does not answer."""

    loads = 0

    def load(self, key: bytes, tail: int, known: Known | None = None) -> Future[StoredRecord | None]:
        self.loads += 1
        return super().load(key, tail, known)


class MemoryStore(Engine):
    """An engine over memory."""

    def __init__(self, *, clock: Clock = utc_now) -> None:
        self.memory = CountedRecords()
        super().__init__(self.memory, clock=clock, chance=Random(1))


class OwnPorts:
    """Sessions, state and upkeep of this store are the object itself."""

    @property
    def sessions(self) -> Self:
        return self

    state = upkeep = sessions


class FlatMemoryStore(OwnPorts, EngineSessions, EngineState, EngineUpkeep):
    """Sessions, state and upkeep are this one object, so that a subclass overrides any of their methods."""

    def __init__(self, *, clock: Clock = utc_now) -> None:
        engine = MemoryStore(clock=clock)
        self.clock = clock
        codecs = PlainCodecs()
        EngineSessions.__init__(self, engine.sessions.context, codecs)
        EngineState.__init__(self, engine.records, codecs, Random(1))
        EngineUpkeep.__init__(self, engine.records, engine.cache, codecs, clock, self)
        self.unindexed = self.context.unindexed
        self.traces = EngineTraces(self)

    async def close(self) -> None:
        return None


def port_with(store: Any, method: str) -> Any:
    """The port of a store that has the method."""
    return next(port for port in (store.sessions, store.state, store.upkeep, store.traces) if hasattr(port, method))
