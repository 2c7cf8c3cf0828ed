"""Every `RecordStore`: a new backend is one line."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

from tenuto.ports import RecordStore
from tenuto.stores.engine import MemoryRecords
from tenuto.stores.engine.breaker import BreakerRecords
from tenuto.stores.engine.redis import RedisRecords
from tenuto.stores.engine.sqlite_records import SqliteRecords
from tests.samples import fresh
from tests.simulation.store import SimClient, SimServer


@dataclass(frozen=True)
class RecordBackend:
    """A way to open an empty store of records."""

    name: str
    open: Callable[[Callable[[str], Any]], AbstractAsyncContextManager[RecordStore]]
    """Opens it, given a way to the servers of the suite."""


@asynccontextmanager
async def _memory(server: Callable[[str], Any]) -> AsyncIterator[RecordStore]:
    yield MemoryRecords()


@asynccontextmanager
async def _simulated(server: Callable[[str], Any]) -> AsyncIterator[RecordStore]:
    """The simulator's store with a network that does not fail: else it would simulate what no backend does."""
    yield SimClient(SimServer(Random(1)), "process0")


@asynccontextmanager
async def _guarded(server: Callable[[str], Any]) -> AsyncIterator[RecordStore]:
    yield BreakerRecords(MemoryRecords(), now=monotonic)


@asynccontextmanager
async def _sqlite(server: Callable[[str], Any]) -> AsyncIterator[RecordStore]:
    with TemporaryDirectory() as folder:
        records = await SqliteRecords.open(Path(folder) / "records.db")
        yield records
        await records.close()


def _redis(name: str) -> Callable[[Callable[[str], Any]], AbstractAsyncContextManager[RecordStore]]:
    @asynccontextmanager
    async def opened(server: Callable[[str], Any]) -> AsyncIterator[RecordStore]:
        """The servers are shared by the whole suite, so each store has a key prefix of its own."""
        records = await RedisRecords.open(server(name).url, prefix=fresh("records"))
        yield records
        await records.close()

    return opened


RECORD_STORES = [
    RecordBackend("sqlite", _sqlite),
    RecordBackend("redis", _redis("valkey")),
    RecordBackend("redis cluster", _redis("redis_cluster")),
    RecordBackend("memory", _memory),
    RecordBackend("simulated", _simulated),
    RecordBackend("breaker", _guarded),
]
