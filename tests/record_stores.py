"""Every `RecordStore`: a new backend is one line."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from random import Random

from tenuto.ports import RecordStore
from tenuto.stores.engine import MemoryRecords
from tests.simulation.store import SimClient, SimServer


@dataclass(frozen=True)
class RecordBackend:
    """A way to open an empty store of records."""

    name: str
    open: Callable[[], AbstractAsyncContextManager[RecordStore]]


@asynccontextmanager
async def _memory() -> AsyncIterator[RecordStore]:
    yield MemoryRecords()


@asynccontextmanager
async def _simulated() -> AsyncIterator[RecordStore]:
    """The simulator's store with a network that does not fail: else it would simulate what no backend does."""
    yield SimClient(SimServer(Random(1)), "process0")


RECORD_STORES = [RecordBackend("memory", _memory), RecordBackend("simulated", _simulated)]
