"""Every store that keeps the contract: a backend is an opener, a way to damage a record, and lines in `BACKENDS`."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import asyncpg

from tenuto.model import Scope
from tenuto.model.privacy import Mode, PrivacyPolicy
from tenuto.model.scope import session_key, site_key
from tenuto.model.store_reports import Invalidation
from tenuto.ports import ChangeFeed, Clock, RecordStore, Store, utc_now
from tenuto.privacy.crypto.keyring import KeyRing, MasterKey, MasterKeys
from tenuto.privacy.crypto.tenant_ciphers import TenantCiphers
from tenuto.privacy.redacting_store import RedactingStore
from tenuto.stores.cached import CachedStore
from tenuto.stores.circuit_breaker import CircuitBreakerStore
from tenuto.stores.encrypted import EncryptedStore
from tenuto.stores.engine import Engine, PlainCodecs
from tenuto.stores.engine.breaker import BreakerRecords
from tenuto.stores.engine.sealing import SealedCodecs
from tenuto.stores.engine.state import EngineState
from tenuto.stores.journaled import JournaledStore, Outbox
from tenuto.stores.memory import InMemoryRecords
from tenuto.stores.postgres import PostgresRecords, PostgresStore
from tenuto.stores.postgres._client import Connection, Link
from tenuto.stores.postgres._schema import migrate
from tenuto.stores.postgres.records import migrate_records
from tenuto.stores.redis import RedisRecords, RedisStore
from tenuto.stores.sqlite import SqliteStore
from tenuto.stores.sqlite.records import SqliteRecords
from tests.doubles import MemoryStore
from tests.patience import LONG
from tests.samples import fresh
from tests.screens import screen_over
from tests.servers import PostgresServer, redis_programs

# The master key of every encrypted store under test.
RING = KeyRing(keys=MasterKeys(current=MasterKey(name="test", secret=bytes(range(32)))))

_SCHEMA = "contract"
_TABLES = ("sessions", "messages", "keyed", "marks", "state", "state_spaces", "traces")
_RECORD_SCHEMA = "engine"
_RECORD_TABLES = ("records", "entries")


class LastingLink(Link):
    """Connections to Postgres that one test hands to the next; all of them run on one event loop.

    On a new connection the first call of each kind takes some twenty times as long as the second.
    """

    superuser: Connection

    @classmethod
    async def open(
        cls, server: PostgresServer, schema: str, migrate: Callable[[Connection, str], Awaitable[None]]
    ) -> LastingLink:
        link = cls(server.app_url, schema=schema, connections=8, timeout=LONG, connect_timeout=LONG)
        await link.prepare(migrate)
        link.superuser = await asyncpg.connect(server.admin_url, server_settings={"search_path": schema})
        return link

    async def empty(self, tables: Sequence[str]) -> None:
        """Row by row and past the walls: after TRUNCATE every plan is made anew."""
        await self.superuser.execute("".join(f"DELETE FROM {table};" for table in tables))

    async def close(self) -> None:
        """The store of one test ends, its connections stay."""

    async def end(self) -> None:
        self.superuser.terminate()
        await super().close()


@dataclass(frozen=True)
class Place:
    """Where a test opens its store: its clock, a folder of its own, and the servers the suite has started.

    Tests that share an event loop may share `links` to Postgres as well, by the server's address and the schema.
    """

    clock: Clock
    folder: Path
    server: Callable[[str], Any]
    chain_length: dict[str, LastingLink] | None = None


Damage: TypeAlias = Callable[[Store, Scope, str], Awaitable[None]]


@dataclass(frozen=True)
class Backend:
    """A way to open a store; `damage` makes one stored session unreadable."""

    name: str
    open: Callable[[Place], AbstractAsyncContextManager[Store]]
    damage: Damage | None = None


@asynccontextmanager
async def _memory(place: Place) -> AsyncIterator[Store]:
    yield MemoryStore(clock=place.clock)


class Unshared:
    """The feed of a store that no other process can change."""

    listening = True

    @asynccontextmanager
    async def watch(self, on_invalidate: Callable[[Invalidation | None], None]) -> AsyncIterator[None]:
        yield

    def drain_invalidations(self) -> bool:
        return True


@asynccontextmanager
async def _cached_memory(place: Place) -> AsyncIterator[Store]:
    async with CachedStore(store=MemoryStore(clock=place.clock), feed=Unshared(), clock=place.clock) as cached:
        yield cached


def _feed_of(store: Store) -> ChangeFeed:
    feed: ChangeFeed | None = getattr(store, "feed", None)
    assert feed is not None, "a cache needs to be told of changes"
    return feed


def _damage_inside(backend: Backend) -> Damage | None:
    """How a session of a wrapped store is made unreadable."""
    damage = backend.damage
    if damage is None:
        return None

    async def inside(store: Store, scope: Scope, session_id: str) -> None:
        assert isinstance(store, CachedStore | EncryptedStore | CircuitBreakerStore | JournaledStore)
        await damage(store.inner.inner if isinstance(store, JournaledStore) else store.inner, scope, session_id)

    return inside


def cached(backend: Backend) -> Backend:
    """The same backend behind an L1, which must keep the same contract."""

    @asynccontextmanager
    async def opened(place: Place) -> AsyncIterator[Store]:
        async with backend.open(place) as store:
            inner = store.inner if isinstance(store, EncryptedStore | CircuitBreakerStore) else store
            async with CachedStore(store=store, feed=_feed_of(inner), clock=place.clock) as hot:
                yield hot

    return Backend(f"cached {backend.name}", opened, _damage_inside(backend))


def encrypted(backend: Backend) -> Backend:
    """The same backend seeing sealed texts only, which must keep the same contract."""

    @asynccontextmanager
    async def opened(place: Place) -> AsyncIterator[Store]:
        async with backend.open(place) as store:
            yield EncryptedStore(store=store, ciphers=TenantCiphers(store=store.state, ring=RING, clock=place.clock))

    return Backend(f"encrypted {backend.name}", opened, _damage_inside(backend))


def guarded(backend: Backend) -> Backend:
    """The same backend behind a breaker, which must keep the same contract while its server answers."""

    @asynccontextmanager
    async def opened(place: Place) -> AsyncIterator[Store]:
        async with backend.open(place) as store:
            yield CircuitBreakerStore(store=store)

    return Backend(f"guarded {backend.name}", opened, _damage_inside(backend))


def journaled(backend: Backend) -> Backend:
    """The same backend behind a journal, which must keep the same contract while its server answers."""

    @asynccontextmanager
    async def opened(place: Place) -> AsyncIterator[Store]:
        async with backend.open(place) as store:
            outbox = await Outbox.open(place.folder / "journal")
            async with (
                CachedStore(store=store, feed=_feed_of(store), clock=place.clock) as hot,
                JournaledStore(store=hot, outbox=outbox, clock=place.clock) as journal,
            ):
                yield journal
            await outbox.close()

    return Backend(f"journaled {backend.name}", opened, _damage_inside(backend))


def screened(backend: Backend) -> Backend:
    """The same backend behind a privacy policy, which must keep the same contract for words that are no secret."""

    @asynccontextmanager
    async def opened(place: Place) -> AsyncIterator[Store]:
        async with backend.open(place) as store:
            yield RedactingStore(store=store, screen=screen_over(store, PrivacyPolicy(message=Mode.PSEUDONYM)))

    return Backend(f"screened {backend.name}", opened)


@asynccontextmanager
async def _sqlite(place: Place) -> AsyncIterator[Store]:
    async with await SqliteStore.open(place.folder / "sessions.db", clock=place.clock) as store:
        yield store


async def _damage_sqlite(store: Store, scope: Scope, session_id: str) -> None:
    """Another process scribbles over the head, and its commit is in the list of changes as every commit is."""
    assert isinstance(store, SqliteStore)
    key = session_key(scope, session_id)
    with closing(sqlite3.connect(store.path)) as db, db:
        db.execute(
            "UPDATE profile SET attributes = x'7b226f' WHERE session = (SELECT id FROM session WHERE key = ?)", (key,)
        )
        db.execute("INSERT INTO change (writer, keys) VALUES (0, ?)", (key,))


SQLITE = Backend("sqlite", _sqlite, _damage_sqlite)


@asynccontextmanager
async def _postgres(place: Place) -> AsyncIterator[Store]:
    """One schema for the whole suite, emptied for each test: migrating anew would cost ten times as much."""
    server = place.server("postgres")
    assert isinstance(server, PostgresServer)
    if place.chain_length is None:
        store = await PostgresStore.open(server.app_url, clock=place.clock, schema=_SCHEMA)
        await store.link.fetch(f"TRUNCATE {', '.join(_TABLES)}")
    else:
        store = PostgresStore(await _lasting(server, place.chain_length), clock=place.clock, batches=2)
    try:
        yield store
    finally:
        await store.close()


async def _lasting(server: PostgresServer, links: dict[str, LastingLink]) -> LastingLink:
    if server.app_url not in links:
        links[server.app_url] = await LastingLink.open(server, _SCHEMA, migrate)
    await links[server.app_url].empty(_TABLES)
    return links[server.app_url]


async def _damage_postgres(store: Store, scope: Scope, session_id: str) -> None:
    """Another process scribbles over the head, and tells as every writer does."""
    assert isinstance(store, PostgresStore)
    key = session_key(scope, session_id)
    connection = await store.link.connect()
    async with connection.transaction():
        await connection.execute("SELECT set_config('tenuto.space', $1::bytea::text, true)", site_key(scope))
        await connection.execute("UPDATE sessions SET context = '[]' WHERE key = $1", key)
        strict = await connection.fetchval("SELECT next_strict()")
        await connection.execute("SELECT announce('stranger', ARRAY[$1::bytea], $2)", key, strict)
    while not await connection.fetchval("SELECT heard_by_all($1)", strict):  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    await connection.close()


POSTGRES = Backend("postgres", _postgres, _damage_postgres)


@asynccontextmanager
async def _redis(place: Place, servers: str) -> AsyncIterator[Store]:
    """The servers are shared by the whole suite, so each store has a key prefix of its own."""
    store = await RedisStore.open(place.server(servers).url, prefix=fresh("contract"), clock=place.clock)
    try:
        yield store
    finally:
        await store.close()


async def _damage_redis(store: Store, scope: Scope, session_id: str) -> None:
    """Another process scribbles over the head."""
    assert isinstance(store, RedisStore)
    head = store.keys.session(session_key(scope, session_id))[0]
    await store.link.call("HSET", head, "s", "seven", key=head)


REDIS = Backend("redis", lambda place: _redis(place, "valkey"), _damage_redis)
REDIS_CLUSTER = Backend("redis cluster", lambda place: _redis(place, "redis_cluster"), _damage_redis)
REDIS_SENTINEL = Backend("redis sentinel", lambda place: _redis(place, "redis_sentinel"), _damage_redis)

MEMORY = Backend("memory", _memory)


def records_behind(store: Store) -> RecordStore:
    """The backend of an engine, also where a breaker is in front of it."""
    assert isinstance(store, Engine)
    return store.records.inner if isinstance(store.records, BreakerRecords) else store.records


@asynccontextmanager
async def _engine(place: Place) -> AsyncIterator[Store]:
    async with Engine(InMemoryRecords(), clock=place.clock, chance=Random(1)) as engine:
        yield engine


@asynccontextmanager
async def _engine_sealed(place: Place) -> AsyncIterator[Store]:
    records = InMemoryRecords()
    keys = EngineState(records, PlainCodecs(), Random(2))
    codecs = SealedCodecs(TenantCiphers(store=keys, ring=RING, clock=place.clock), clock=place.clock)
    async with Engine(records, clock=place.clock, chance=Random(1), codecs=codecs) as engine:
        yield engine


async def _damage_engine(store: Store, scope: Scope, session_id: str) -> None:
    """Another process scribbles over the head, and the feed tells of it as of every commit."""
    assert isinstance(store, Engine)
    assert isinstance(store.records, InMemoryRecords)
    key = session_key(scope, session_id)
    store.records.table.damage(key)
    store.cache.on_change(key, store.records.table.revision(key))


ENGINE = Backend("engine", _engine, _damage_engine)
ENGINE_SEALED = Backend("engine sealed", _engine_sealed, _damage_engine)


@asynccontextmanager
async def _engine_over(records: RecordStore, clock: Clock) -> AsyncIterator[Engine]:
    try:
        async with Engine(records, clock=clock, chance=Random(1)) as engine:
            yield engine
    finally:
        await records.close()


@asynccontextmanager
async def sqlite_engine(path: Path, clock: Clock = utc_now) -> AsyncIterator[Engine]:
    """An engine over a file."""
    async with _engine_over(await SqliteRecords.open(path), clock) as engine:
        yield engine


@asynccontextmanager
async def redis_engine(url: str, clock: Clock = utc_now) -> AsyncIterator[Engine]:
    """An engine over a Redis server."""
    async with _engine_over(await RedisRecords.open(url), clock) as engine:
        yield engine


@asynccontextmanager
async def postgres_engine(url: str, clock: Clock = utc_now) -> AsyncIterator[Engine]:
    """An engine over a Postgres database."""
    async with _engine_over(await PostgresRecords.open(url), clock) as engine:
        yield engine


def _engine_sqlite(place: Place) -> AbstractAsyncContextManager[Store]:
    return sqlite_engine(place.folder / "records.db", place.clock)


async def _damage_engine_sqlite(store: Store, scope: Scope, session_id: str) -> None:
    """Another process scribbles over the head, and its commit is in the list of changes as every commit is."""
    records = records_behind(store)
    assert isinstance(records, SqliteRecords)
    key = session_key(scope, session_id)
    with closing(sqlite3.connect(records.path)) as db, db:
        db.execute("UPDATE head SET head = x'00', revision = revision + 1 WHERE key = ?", (key,))
        (revision,) = db.execute("SELECT revision FROM head WHERE key = ?", (key,)).fetchone()
        db.execute("INSERT INTO change (writer, keys) VALUES (0, ?)", (key + revision.to_bytes(8, "big"),))


ENGINE_SQLITE = Backend("engine sqlite", _engine_sqlite, _damage_engine_sqlite)


@asynccontextmanager
async def _engine_postgres(place: Place) -> AsyncIterator[Store]:
    """On connections that tests leave to each other, as `_postgres`."""
    server = place.server("postgres")
    assert isinstance(server, PostgresServer)
    links = {} if place.chain_length is None else place.chain_length
    name = f"{server.app_url} {_RECORD_SCHEMA}"
    if name not in links:
        links[name] = await LastingLink.open(server, _RECORD_SCHEMA, migrate_records)
    await links[name].empty(_RECORD_TABLES)
    records = PostgresRecords(links[name], batches=2)
    async with Engine(records, clock=place.clock, chance=Random(1)) as engine:
        yield engine
    await records.close()
    if place.chain_length is None:
        await links[name].end()


async def _damage_engine_postgres(store: Store, scope: Scope, session_id: str) -> None:
    """Another process scribbles over the head, and tells of it as of every commit."""
    records = records_behind(store)
    assert isinstance(records, PostgresRecords)
    connection = await records.link.connect()
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


ENGINE_POSTGRES = Backend("engine postgres", _engine_postgres, _damage_engine_postgres)


@asynccontextmanager
async def _engine_redis(place: Place, servers: str) -> AsyncIterator[Store]:
    records = await RedisRecords.open(place.server(servers).url, prefix=fresh("engine"))
    async with Engine(records, clock=place.clock, chance=Random(1)) as engine:
        yield engine
    await records.close()


async def _damage_engine_redis(store: Store, scope: Scope, session_id: str) -> None:
    """Another process scribbles over the head in a commit."""
    records = records_behind(store)
    assert isinstance(records, RedisRecords)
    record = records.keys.record(session_key(scope, session_id))
    numbers = await records.link.call("HGET", record, "n", key=record)
    following = (int.from_bytes(numbers[:8], "big") + 1).to_bytes(8, "big")
    await records.link.call("HSET", record, "h", b"\0", "n", following + numbers[8:], key=record)


ENGINE_REDIS = Backend("engine redis", lambda place: _engine_redis(place, "valkey"), _damage_engine_redis)
ENGINE_REDIS_CLUSTER = Backend(
    "engine redis cluster", lambda place: _engine_redis(place, "redis_cluster"), _damage_engine_redis
)
ENGINE_REDIS_SENTINEL = Backend(
    "engine redis sentinel", lambda place: _engine_redis(place, "redis_sentinel"), _damage_engine_redis
)

# What every contract test runs on: each backend bare, and each wrapper where it does something of its own.
BACKENDS = [
    MEMORY,
    ENGINE,
    ENGINE_SQLITE,
    screened(MEMORY),
    SQLITE,
    cached(SQLITE),
    encrypted(SQLITE),
    cached(encrypted(SQLITE)),
    POSTGRES,
    cached(POSTGRES),
    REDIS,
    cached(REDIS),
    journaled(REDIS),
    REDIS_CLUSTER,
]
# Further combinations of the same parts, which the state machine alone drives: a contract test would be the same call
# through the same code once more.
COMBINED = [
    Backend("cached memory", _cached_memory),
    ENGINE_SEALED,
    encrypted(MEMORY),
    encrypted(POSTGRES),
    encrypted(REDIS),
    guarded(REDIS),
    cached(REDIS_CLUSTER),
    REDIS_SENTINEL,
    ENGINE_POSTGRES,
    ENGINE_REDIS,
]
# Where state is kept or looked at in ways of their own; every other wrapper passes it straight through.
KEEPING_STATE = [
    MEMORY,
    ENGINE,
    ENGINE_SQLITE,
    screened(MEMORY),
    SQLITE,
    encrypted(SQLITE),
    POSTGRES,
    REDIS,
    REDIS_CLUSTER,
]
if "redis" in redis_programs():
    # Another server speaks the protocol here: everything runs on it as well.
    BACKENDS.append(Backend("redis on path", lambda place: _redis(place, "redis_on_path"), _damage_redis))
