"""Redis and Postgres without room, or kept from writing: a clear error, nothing by halves, and then they go on.

`/dev/full` stands in the place of a file of the server's: whatever is written there meets a full disk. Where there is
no such device these tests fail, as they do without a server.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from tenuto.errors import StoreFull, StoreReadOnly, Unavailable
from tenuto.model import NewSession, Page, Retention, SessionQuery
from tenuto.model.session import Touch
from tenuto.ports import Store
from tenuto.stores.postgres import PostgresRecords
from tests.backends import postgres_engine, redis_engine
from tests.clock import FakeClock
from tests.samples import ANN, batch, begin, closing, talk, texts, trace_of
from tests.servers import PostgresServer, RedisServer, redis_programs, start_postgres, start_redis
from tests.servers.process import wait_until

FULL = Path("/dev/full")
KEPT_BY_READING = NewSession(retention=Retention(idle=timedelta(hours=1), touch=Touch.READ))


@dataclass(frozen=True)
class Trouble:
    """What keeps a server from writing: how it begins and ends, and the error it is."""

    name: str
    error: type[Unavailable]
    begin: Callable[[RedisServer], object]
    end: Callable[[RedisServer], object]
    options: Mapping[str, str] = field(default_factory=dict)


def _fill_the_disk(server: RedisServer) -> None:
    """The log goes on in a new file, on a full disk; what comes first is still acknowledged, and kept in memory."""
    (server.folder / "appendonlydir" / "appendonly.aof.2.incr.aof").symlink_to(FULL)
    _rewrite_log(server)
    server.call("SET", "anything", "at all")
    wait_until(lambda: server.info("persistence")["aof_last_write_status"] == "err", "the server has met the full disk")


def _rewrite_log(server: RedisServer) -> None:
    """Go on in yet another file, which has room again, and write there what had to wait."""
    server.call("BGREWRITEAOF")
    wait_until(lambda: not server.info("persistence")["aof_rewrite_in_progress"], "the log is rewritten")
    wait_until(lambda: server.info("persistence")["aof_last_write_status"] == "ok", "the log is written again")


def _spoil_snapshots(server: RedisServer) -> None:
    # A folder in the place of the file: not even root can rename anything over it.
    (server.folder / "dump.rdb" / "in the way").mkdir(parents=True)
    _snapshot(server)


def _mend_snapshots(server: RedisServer) -> None:
    shutil.rmtree(server.folder / "dump.rdb")
    _snapshot(server)


def _snapshot(server: RedisServer) -> None:
    server.call("BGSAVE")
    wait_until(lambda: not server.info("persistence")["rdb_bgsave_in_progress"], "the snapshot has come to its end")


def _configure(setting: str, value: int) -> Callable[[RedisServer], object]:
    return lambda server: server.call("CONFIG", "SET", setting, value)


TROUBLES = [
    Trouble("no memory", StoreFull, _configure("maxmemory", 1), _configure("maxmemory", 0)),
    Trouble("a full disk", StoreFull, _fill_the_disk, _rewrite_log),
    Trouble(
        "snapshots that fail", StoreReadOnly, _spoil_snapshots, _mend_snapshots, {"appendonly": "no", "save": "3600 1"}
    ),
    Trouble(
        "too few replicas",
        StoreReadOnly,
        _configure("min-replicas-to-write", 1),
        _configure("min-replicas-to-write", 0),
    ),
]


@pytest.fixture(params=TROUBLES, ids=lambda trouble: trouble.name)
def trouble(request: pytest.FixtureRequest) -> Trouble:
    chosen: Trouble = request.param
    return chosen


@pytest.fixture(params=sorted(redis_programs()) or ["valkey"])
def server(request: pytest.FixtureRequest, trouble: Trouble) -> Iterator[RedisServer]:
    # Without fsync the log is written before the answer, never a moment later.
    with start_redis(request.param, fsync="no", **trouble.options) as started:
        yield started


async def test_a_server_that_cannot_write_refuses_whole_calls_and_is_read(
    server: RedisServer, trouble: Trouble
) -> None:
    async with redis_engine(server.url) as store:
        await talk(store, ANN, "s", "one", "two")
        turn = await begin(store, ANN, "s", "three")
        idle = await talk(store, ANN, "idle", "one", "two")
        trouble.begin(server)

        for write in (
            lambda: store.sessions.finish_turn(turn, closing("four")),
            lambda: store.sessions.append(ANN, "s", batch("five")),
            lambda: begin(store, ANN, "new", "five"),
            lambda: begin(store, ANN, "idle", "three"),
            lambda: store.state.write_state(ANN, "prefs", "k", 1),
        ):
            with pytest.raises(trouble.error):
                await write()
        assert await texts(store, ANN, "s") == ["one", "two", "three"]
        listed = (await store.sessions.list(ANN, SessionQuery())).sessions
        assert {session.id: session.version for session in listed} == {"s": 3, "idle": idle.session.version + 1}
        await store.upkeep.ping()
        async with redis_engine(server.url) as another:
            assert (await another.sessions.get(ANN, "s")).messages == 3

        trouble.end(server)
        await store.sessions.finish_turn(turn, closing("four"))
        await talk(store, ANN, "s", "five", "six")
        assert await texts(store, ANN, "s") == ["one", "two", "three", "four", "five", "six"]
        if not trouble.options:
            server.kill()
            server.start()
            assert await texts(store, ANN, "s") == ["one", "two", "three", "four", "five", "six"]


async def test_a_server_that_cannot_write_is_read_where_reads_touch(server: RedisServer, trouble: Trouble) -> None:
    clock = FakeClock()
    async with redis_engine(server.url, clock) as store:
        deadline = (await store.sessions.append(ANN, "s", batch("one", create=KEPT_BY_READING))).session.expires_at
        clock.advance(timedelta(minutes=30))
        trouble.begin(server)

        assert await texts(store, ANN, "s") == ["one"]
        assert (await store.sessions.get(ANN, "s")).expires_at == deadline

        trouble.end(server)
        moved = (await store.sessions.get(ANN, "s")).expires_at
        assert moved is not None
        assert (
            moved
            == (await store.sessions.messages(ANN, "s", Page())).session.expires_at
            == clock() + timedelta(hours=1)
        )


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[PostgresServer]:
    """A server whose files may be tampered with."""
    with start_postgres() as server:
        yield server


@dataclass(frozen=True)
class FullTable:
    """A store in a database of its own, in which a file of the table of entries cannot grow; it is empty, so that no
    page has room."""

    server: PostgresServer
    database: str
    store: Store

    def make_room(self) -> None:
        """Written anew, a table goes on in new files."""
        self.server.sql("VACUUM FULL tenuto.entries", self.database)


@asynccontextmanager
async def _full(server: PostgresServer, relation: str) -> AsyncIterator[FullTable]:
    database = server.new_database()
    await (await PostgresRecords.open(database.app_url)).close()
    path = f"SELECT pg_relation_filepath({relation}) FROM pg_class WHERE oid = 'tenuto.entries'::regclass"
    file = server.folder / "data" / server.sql(path, database.name)
    file.unlink()
    file.symlink_to(FULL)
    async with postgres_engine(database.app_url) as store:
        yield FullTable(server, database.name, store)


async def test_a_full_disk_under_postgres_refuses_whole_batches(own_postgres: PostgresServer) -> None:
    async with _full(own_postgres, "oid") as full:
        store = full.store
        calls = [store.sessions.append(ANN, f"s{n}", batch("one")) for n in range(20)]
        ends = await asyncio.gather(*calls, begin(store, ANN, "t", "one"), return_exceptions=True)

        assert all(isinstance(end, StoreFull) for end in ends)
        assert (await store.sessions.list(ANN, SessionQuery())).sessions == ()
        assert (await store.upkeep.stats(ANN)).messages == 0

        full.make_room()
        await asyncio.gather(*(talk(store, ANN, f"s{n}", "one", "two") for n in range(20)))
        assert [await texts(store, ANN, f"s{n}") for n in range(20)] == [["one", "two"]] * 20


async def test_an_answer_refused_by_a_full_postgres_is_taken_when_it_has_room(own_postgres: PostgresServer) -> None:
    """The trace, which is long, has no room, so that the answer is not kept either; the turn stays open and can be
    finished."""
    async with _full(own_postgres, "reltoastrelid") as full:
        store = full.store
        turn = await begin(store, ANN, "s", "one")
        trace = trace_of(turn, answer=Random(1).randbytes(20_000).hex())
        with pytest.raises(StoreFull):
            await store.sessions.finish_turn(turn, closing("two", tokens=5, trace=trace))

        assert await texts(store, ANN, "s") == ["one"]
        assert (await store.sessions.get(ANN, "s")).tokens == 0

        full.make_room()
        await store.sessions.finish_turn(turn, closing("two", tokens=5, trace=trace))
        assert await texts(store, ANN, "s") == ["one", "two"]
        assert (await store.sessions.get(ANN, "s")).tokens == 5
        assert await store.traces.trace(ANN, "s", 1) == trace
