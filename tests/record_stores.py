"""Every `RecordStore`: a new backend is one line."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import monotonic

from tenuto.ports import RecordStore
from tenuto.stores.engine import MemoryRecords
from tenuto.stores.engine.breaker import BreakerRecords
from tenuto.stores.engine.sqlite_records import SqliteRecords
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


@asynccontextmanager
async def _guarded() -> AsyncIterator[RecordStore]:
    yield BreakerRecords(MemoryRecords(), now=monotonic)


@asynccontextmanager
async def _sqlite() -> AsyncIterator[RecordStore]:
    with TemporaryDirectory() as folder:
        records = await SqliteRecords.open(Path(folder) / "records.db")
        yield records
        await records.close()


RECORD_STORES = [
    RecordBackend("sqlite", _sqlite),
    RecordBackend("memory", _memory),
    RecordBackend("simulated", _simulated),
    RecordBackend("breaker", _guarded),
]
