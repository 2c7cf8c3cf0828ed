"""Every `RecordStore`: a new backend is one line."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, TypeAlias

from tenuto.ports import RecordStore
from tenuto.stores.engine.breaker_records import BreakerRecords
from tenuto.stores.memory import InMemoryRecords
from tenuto.stores.postgres import PostgresRecords
from tenuto.stores.redis import RedisRecords
from tenuto.stores.sqlite.records import SqliteRecords
from tests.samples import fresh
from tests.servers import redis_programs
from tests.simulation.store import SimClient, SimServer

Server: TypeAlias = Callable[[str], Any]
"""The server of a name, as a fixture of the suite."""


@dataclass(frozen=True)
class RecordBackend:
    """A way to open an empty store of records, on a server that the suite has started."""

    name: str
    open: Callable[[Server], AbstractAsyncContextManager[RecordStore]]


@asynccontextmanager
async def _memory(_: Server) -> AsyncIterator[RecordStore]:
    yield InMemoryRecords()


@asynccontextmanager
async def _simulated(_: Server) -> AsyncIterator[RecordStore]:
    """The simulator's store with a network that does not fail: else it would simulate what no backend does."""
    yield SimClient(SimServer(Random(1)), "process0")


@asynccontextmanager
async def _guarded(_: Server) -> AsyncIterator[RecordStore]:
    yield BreakerRecords(InMemoryRecords(), now=monotonic)


@asynccontextmanager
async def _sqlite(_: Server) -> AsyncIterator[RecordStore]:
    with TemporaryDirectory() as folder:
        records = await SqliteRecords.open(Path(folder) / "records.db")
        yield records
        await records.close()


_SCHEMAS = ["records", "other_records"]


@asynccontextmanager
async def _postgres(server: Server) -> AsyncIterator[RecordStore]:
    """Emptied for each test: making a schema anew would cost ten times as much. Two may be open in one test."""
    schema = _SCHEMAS.pop(0)
    records = await PostgresRecords.open(server("postgres").app_url, schema=schema)
    await records.pool.fetch("TRUNCATE records, entries, words")
    yield records
    await records.close()
    _SCHEMAS.insert(0, schema)


def _redis(name: str) -> Callable[[Server], AbstractAsyncContextManager[RecordStore]]:
    @asynccontextmanager
    async def opened(server: Server) -> AsyncIterator[RecordStore]:
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
    RecordBackend("postgres", _postgres),
]
if "redis" in redis_programs():
    # Another server runs the scripts here: its Lua and its limits are its own.
    RECORD_STORES.append(RecordBackend("redis on path", _redis("redis_on_path")))
