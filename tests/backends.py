"""Every store that keeps the contract: a backend is an opener, a way to damage a record, and lines in `BACKENDS`."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import asyncpg
import msgspec
from msgspec import structs

from tenuto.model import Scope
from tenuto.model.privacy import Mode, PrivacyPolicy
from tenuto.model.scope import session_key, site_key
from tenuto.ports import Clock, RecordStore, Store, utc_now
from tenuto.privacy.crypto.keyring import KeyRing, MasterKey, MasterKeys
from tenuto.privacy.crypto.tenant_ciphers import TenantCiphers
from tenuto.privacy.redacting_store import RedactingStore
from tenuto.stores.engine import Engine, PlainCodecs
from tenuto.stores.engine.breaker_records import BreakerRecords
from tenuto.stores.engine.journal_files import DiskFolder
from tenuto.stores.engine.sealing import SealedCodecs
from tenuto.stores.engine.state import EngineState
from tenuto.stores.memory import InMemoryRecords
from tenuto.stores.postgres import PostgresRecords
from tenuto.stores.postgres._client import Connection, ConnectionPool
from tenuto.stores.postgres._schema import migrate
from tenuto.stores.redis import RedisRecords
from tenuto.stores.sqlite import SqliteRecords
from tests.redactors import redactor_over
from tests.samples import fresh
from tests.servers import PostgresServer, redis_programs
from tests.timeouts import LONG

# The master key of every encrypted store under test.
RING = KeyRing(keys=MasterKeys(current=MasterKey(name="test", secret=bytes(range(32)))))

_SCHEMA = "contract"


class LastingPool(ConnectionPool):
    """Connections to Postgres that one test hands to the next; all of them run on one event loop.

    On a new connection the first call of each kind takes some twenty times as long as the second.
    """

    superuser: Connection

    @classmethod
    async def open(cls, server: PostgresServer) -> LastingPool:
        pool = cls(server.app_url, schema=_SCHEMA, connections=8, timeout=LONG, connect_timeout=LONG)
        await pool.prepare(migrate)
        pool.superuser = await asyncpg.connect(server.admin_url, server_settings={"search_path": _SCHEMA})
        return pool

    async def empty(self) -> None:
        """Row by row and past the walls: after TRUNCATE every plan is made anew."""
        await self.superuser.execute("DELETE FROM records; DELETE FROM entries;")

    async def close(self) -> None:
        """The store of one test ends, its connections stay."""

    async def end(self) -> None:
        self.superuser.terminate()
        await super().close()


@dataclass(frozen=True)
class Place:
    """Where a test opens its store: its clock, a folder of its own, and the servers the suite has started.

    Tests that share an event loop may share `pools` to Postgres as well, by the server's address. The engine there
    `seals`, or `guards` itself with a breaker and a journal.
    """

    clock: Clock
    folder: Path
    server: Callable[[str], Any]
    pools: dict[str, LastingPool] | None = None
    seals: bool = False
    guards: bool = False


Damage: TypeAlias = Callable[[Store, Scope, str], Awaitable[None]]


@dataclass(frozen=True)
class Backend:
    """A way to open a store; `damage` makes one stored session unreadable."""

    name: str
    open: Callable[[Place], AbstractAsyncContextManager[Store]]
    damage: Damage | None = None


def screened(backend: Backend) -> Backend:
    """The same backend behind a privacy policy, which must keep the same contract for words that are no secret."""

    @asynccontextmanager
    async def opened(place: Place) -> AsyncIterator[Store]:
        async with backend.open(place) as store:
            yield RedactingStore(store=store, redactor=redactor_over(store, PrivacyPolicy(message=Mode.PSEUDONYM)))

    return Backend(f"screened {backend.name}", opened)


class Column(StrEnum):
    """What of a record's columns is made undecodable."""

    KIND = "kind"
    SCOPE = "scope"
    STATUS = "status"


def records_behind(store: Store) -> RecordStore:
    """The backend of an engine, also where a breaker is in front of it."""
    assert isinstance(store, Engine)
    return store.records.inner if isinstance(store.records, BreakerRecords) else store.records


@asynccontextmanager
async def engine_over(
    records: RecordStore, clock: Clock = utc_now, *, seals: bool = False, journal: Path | None = None
) -> AsyncIterator[Engine]:
    """An engine over a backend, which is closed with it; one with a journal has a breaker as well."""
    async with AsyncExitStack() as stack:
        stack.push_async_callback(records.close)
        behind, folder, codecs = records, None, None
        if journal is not None:
            behind, folder = BreakerRecords(records, now=time.monotonic), await DiskFolder.open(journal)
            stack.push_async_callback(folder.close)
        if seals:
            keys = EngineState(records, PlainCodecs(), Random(2))
            codecs = SealedCodecs(TenantCiphers(store=keys, ring=RING, clock=clock), clock=clock)
        engine = Engine(behind, clock=clock, chance=Random(1), codecs=codecs, folder=folder)
        yield await stack.enter_async_context(engine)


def _engine_at(place: Place, records: RecordStore) -> AbstractAsyncContextManager[Engine]:
    journal = place.folder / "journal" if place.guards else None
    return engine_over(records, place.clock, seals=place.seals, journal=journal)


def _memory(place: Place) -> AbstractAsyncContextManager[Store]:
    return _engine_at(place, InMemoryRecords())


def damage_row(records: InMemoryRecords, key: bytes) -> None:
    """Make a record unreadable, as a disk may."""
    row = records.table._rows[key]
    row.head = b"\x01scribble"
    row.revision += 1


async def _damage_memory(store: Store, scope: Scope, session_id: str) -> None:
    """Another process scribbles over the head, and the feed tells of it as of every commit."""
    assert isinstance(store, Engine)
    records = records_behind(store)
    assert isinstance(records, InMemoryRecords)
    key = session_key(scope, session_id)
    damage_row(records, key)
    store.cache.on_change(key, records.table.revision(key))


MEMORY = Backend("memory", _memory, _damage_memory)


@asynccontextmanager
async def sqlite_engine(path: Path, clock: Clock = utc_now) -> AsyncIterator[Engine]:
    """An engine over a file."""
    async with engine_over(await SqliteRecords.open(path), clock) as engine:
        yield engine


@asynccontextmanager
async def redis_engine(url: str, clock: Clock = utc_now) -> AsyncIterator[Engine]:
    """An engine over a Redis server."""
    async with engine_over(await RedisRecords.open(url), clock) as engine:
        yield engine


@asynccontextmanager
async def postgres_engine(url: str, clock: Clock = utc_now) -> AsyncIterator[Engine]:
    """An engine over a Postgres database."""
    async with engine_over(await PostgresRecords.open(url), clock) as engine:
        yield engine


@asynccontextmanager
async def _sqlite(place: Place) -> AsyncIterator[Store]:
    async with _engine_at(place, await SqliteRecords.open(place.folder / "records.db")) as engine:
        yield engine


async def _damage_sqlite(store: Store, scope: Scope, session_id: str) -> None:
    """Another process scribbles over the head, and its commit is in the list of changes as every commit is."""
    records = records_behind(store)
    assert isinstance(records, SqliteRecords)
    key = session_key(scope, session_id)
    with closing(sqlite3.connect(records.path)) as db, db:
        db.execute("UPDATE head SET head = x'00', revision = revision + 1 WHERE key = ?", (key,))
        (revision,) = db.execute("SELECT revision FROM head WHERE key = ?", (key,)).fetchone()
        db.execute("INSERT INTO change (keys) VALUES (?)", (key + revision.to_bytes(8, "big"),))


SQLITE = Backend("sqlite", _sqlite, _damage_sqlite)


@asynccontextmanager
async def _postgres(place: Place) -> AsyncIterator[Store]:
    """One schema for the whole suite, emptied for each test: migrating anew would cost ten times as much."""
    server = place.server("postgres")
    assert isinstance(server, PostgresServer)
    pools = {} if place.pools is None else place.pools
    if server.app_url not in pools:
        pools[server.app_url] = await LastingPool.open(server)
    await pools[server.app_url].empty()
    async with _engine_at(place, PostgresRecords(pools[server.app_url], batches=2)) as engine:
        yield engine
    if place.pools is None:
        await pools[server.app_url].end()


async def _damage_postgres(store: Store, scope: Scope, session_id: str) -> None:
    """Another process scribbles over the head, and tells of it as of every commit."""
    records = records_behind(store)
    assert isinstance(records, PostgresRecords)
    connection = await records.pool.connect()
    async with connection.transaction():
        await connection.execute("SELECT enter($1)", site_key(scope))
        change = await connection.fetchval(
            "UPDATE records SET head = '\\x00', revision = revision + 1 WHERE key = $1 "
            "RETURNING key || int8send(revision)",
            session_key(scope, session_id),
        )
        strict = await connection.fetchval("SELECT next_strict()")
        await connection.execute("SELECT announce($1, $2)", change, strict)
    while not await connection.fetchval("SELECT heard_by_all($1)", strict):  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    await connection.close()


POSTGRES = Backend("postgres", _postgres, _damage_postgres)


@asynccontextmanager
async def _redis(place: Place, servers: str) -> AsyncIterator[Store]:
    """The servers are shared by the whole suite, so each store has a key prefix of its own."""
    records = await RedisRecords.open(place.server(servers).url, prefix=fresh("contract"))
    async with _engine_at(place, records) as engine:
        yield engine


async def _damage_redis(store: Store, scope: Scope, session_id: str) -> None:
    """Another process scribbles over the head in a commit."""
    records = records_behind(store)
    assert isinstance(records, RedisRecords)
    record = records.keys.record(session_key(scope, session_id))
    numbers = await records.client.call("HGET", record, "n", key=record)
    following = (int.from_bytes(numbers[:8], "big") + 1).to_bytes(8, "big")
    await records.client.call("HSET", record, "h", b"\0", "n", following + numbers[8:], key=record)


REDIS = Backend("redis", lambda place: _redis(place, "valkey"), _damage_redis)
REDIS_CLUSTER = Backend("redis cluster", lambda place: _redis(place, "redis_cluster"), _damage_redis)
REDIS_SENTINEL = Backend("redis sentinel", lambda place: _redis(place, "redis_sentinel"), _damage_redis)


def sealed(backend: Backend) -> Backend:
    """The same backend with an engine that seals, which must keep the same contract."""
    return replace(backend, name=f"sealed {backend.name}", open=lambda place: backend.open(replace(place, seals=True)))


def guarded(backend: Backend) -> Backend:
    """The same backend behind a breaker and with a journal, which must keep the same contract while it answers."""
    return replace(
        backend, name=f"guarded {backend.name}", open=lambda place: backend.open(replace(place, guards=True))
    )


# What every contract test runs on: each backend, and each layer where it does something of its own.
BACKENDS = [MEMORY, screened(MEMORY), sealed(SQLITE), SQLITE, POSTGRES, REDIS, guarded(REDIS), REDIS_CLUSTER]
# Further combinations of the same parts, which the state machine alone drives: a contract test would be the same call
# through the same code once more.
COMBINED = [sealed(MEMORY), sealed(POSTGRES), sealed(REDIS), guarded(POSTGRES), REDIS_SENTINEL]
# Where state is kept or looked at in ways of their own; every other layer passes it straight through.
KEEPING_STATE = [MEMORY, screened(MEMORY), sealed(MEMORY), SQLITE, POSTGRES, REDIS, REDIS_CLUSTER]
if "redis" in redis_programs():
    # Another server speaks the protocol here: everything runs on it as well.
    BACKENDS.append(Backend("redis on path", lambda place: _redis(place, "redis_on_path"), _damage_redis))


async def damage_column(store: Store, scope: Scope, session_id: str, column: Column) -> None:
    """Another process scribbles over a column of a session, as a newer release or a disk may."""
    records, key = records_behind(store), session_key(scope, session_id)
    scribbled: dict[Column, Any] = {Column.KIND: "board", Column.SCOPE: b"\xc1", Column.STATUS: "frozen"}
    if isinstance(records, InMemoryRecords):
        row = records.table._rows[key]
        row.index = structs.replace(row.index, is_damaged=True, **{column.value: None})
    elif isinstance(records, SqliteRecords):
        with closing(sqlite3.connect(records.path)) as db, db:
            db.execute(f"UPDATE record SET {column} = ? WHERE key = ?", (scribbled[column], key))
    elif isinstance(records, PostgresRecords):
        connection = await records.pool.connect()
        async with connection.transaction():
            await connection.execute("SELECT enter($1)", site_key(scope))
            text = f"UPDATE records SET {column} = $1 WHERE key = $2"
            await connection.execute(text, scribbled[column], key)
        await connection.close()
    else:
        assert isinstance(records, RedisRecords)
        record = records.keys.record(key)
        columns = msgspec.msgpack.decode(await records.client.call("HGET", record, "i", key=record))
        place = {Column.KIND: 2, Column.SCOPE: 3, Column.STATUS: 5}[column]
        columns[place] = 7 if column is Column.SCOPE else scribbled[column]
        await records.client.call("HSET", record, "i", msgspec.msgpack.encode(columns), key=record)
