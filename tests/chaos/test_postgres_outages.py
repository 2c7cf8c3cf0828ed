"""Postgres is killed, frozen, read-only or slow: what was acknowledged stays whole, and the rest is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import psutil
import pytest
import uvloop

from tenuto.errors import SessionBusy, SessionNotFound, StoreReadOnly, StoreRejected, Unavailable
from tenuto.model import NewSession, Retention, TurnState
from tenuto.model.scope import session_key, site_key
from tenuto.model.session import Touch
from tenuto.model.stored import StoredRecord
from tenuto.stores.engine import Engine
from tenuto.stores.postgres import PostgresRecords
from tenuto.stores.postgres._client import Connection, ConnectionPool
from tenuto.stores.postgres._errors import InDoubt
from tests.backends import engine_over, postgres_engine
from tests.clock import FakeClock
from tests.record_changes import message_entries, record_change
from tests.samples import ANN, batch, begin, closing, fresh, once, texts
from tests.servers import PostgresServer, start_postgres
from tests.shared_stores import until_it_answers
from tests.timeouts import LONG, wait_until

# For calls that are to end without an answer. What must be answered is asked of another store.
SHORT = 1.0
_POOL: dict[str, Any] = {"schema": "tenuto", "connections": 8}
WORKERS = 8
ROUNDS = 3
_ENDLESS = "SELECT pg_sleep(3600)"


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server of this test's own, to be killed."""
    with start_postgres() as own:
        yield own


@asynccontextmanager
async def _engine(pool: ConnectionPool, *, prepared_by: PostgresServer) -> AsyncIterator[Engine]:
    """An engine with these connections, on a schema that is there already."""
    await (await PostgresRecords.open(prepared_by.app_url)).close()
    async with engine_over(PostgresRecords(pool, batches=2)) as engine:
        await until_it_answers(engine)
        yield engine


class Writer:
    """Commits to a record of its own: two messages each time, and every fifth time a profile."""

    def __init__(self, records: PostgresRecords, number: int) -> None:
        self.records = records
        self.key = bytes([number + 1]) * 16
        self.acknowledged = 0
        self.failed = 0

    async def go_on(self, stop: asyncio.Event) -> None:
        """Commit, whatever happens."""
        at: int | None = 0
        while not stop.is_set():
            try:
                if at is None:
                    record = await self.records.load(self.key, 0)
                    at = 0 if record is None else record.revision
                    # What was acknowledged is there, and of what was sent without an answer one commit at most.
                    assert at - self.acknowledged in (0, 1)
                profile = b"profile" if at % 5 == 0 else None
                puts = message_entries(2 * at + 1, 2 * at + 2)
                refused = await self.records.commit([record_change(self.key, at, at + 1, profile=profile, puts=puts)])
                assert refused is None
                at = self.acknowledged = at + 1
            except Unavailable:
                self.failed += 1
                at = None
                await asyncio.sleep(0.02)

    async def stored(self) -> StoredRecord | None:
        """The record with all its messages."""
        return await self.records.load(self.key, 100_000)


async def _until_each(writers: list[Writer], name: str, more: int) -> None:
    """Go on until each has had so many more commits that ended like this."""
    before = [getattr(writer, name) for writer in writers]
    await wait_until(lambda: all(getattr(one, name) >= had + more for one, had in zip(writers, before, strict=True)))


async def test_commits_are_whole_and_what_was_acknowledged_survives_a_kill(server: PostgresServer) -> None:
    records = await PostgresRecords.open(server.app_url, timeout=timedelta(seconds=1))
    writers = [Writer(records, number) for number in range(WORKERS)]
    stop = asyncio.Event()
    async with asyncio.timeout(LONG), asyncio.TaskGroup() as group:
        for writer in writers:
            group.create_task(writer.go_on(stop))
        for _ in range(ROUNDS):
            await _until_each(writers, "acknowledged", 5)
            await asyncio.to_thread(server.kill)
            await _until_each(writers, "failed", 1)
            await asyncio.to_thread(server.start)
        await _until_each(writers, "acknowledged", 5)
        stop.set()

    for writer in writers:
        record = await writer.stored()
        assert record is not None
        assert record.revision == writer.acknowledged
        assert record.head == f"head {record.revision}".encode()
        assert [entry.number for entry in record.messages] == list(range(1, 2 * record.revision + 1))
    await records.close()


async def test_a_keyed_turn_sent_until_it_is_acknowledged_is_stored_once(server: PostgresServer) -> None:
    async def send(store: Engine, key: str) -> None:
        while True:
            try:
                turn = await begin(
                    store, ANN, f"s-{key}", f"q-{key}", idempotency_key=once(key), lease=timedelta(milliseconds=20)
                )
                if turn.state is not TurnState.FINISHED:
                    await store.sessions.finish_turn(turn, closing(f"a-{key}"))
                return
            except (Unavailable, SessionBusy):
                await asyncio.sleep(0.05)

    async with postgres_engine(server.app_url) as store:
        keys = [fresh("key") for _ in range(200)]
        async with asyncio.TaskGroup() as group:
            for key in keys:
                group.create_task(send(store, key))
            await asyncio.sleep(0.05)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)

        for key in keys:
            assert await texts(store, ANN, f"s-{key}") == [f"q-{key}", f"a-{key}"]


def test_calls_that_a_kill_interrupts_are_in_doubt_under_the_loop_that_we_ship(server: PostgresServer) -> None:
    """Whatever becomes of the connections, each call tells that it may have been carried out."""

    async def killed_in_the_middle() -> list[object]:
        pool = ConnectionPool(server.app_url, **_POOL, timeout=LONG, connect_timeout=LONG)
        calls = [asyncio.create_task(pool.fetch(_ENDLESS)) for _ in range(WORKERS)]
        await _until_under_way(server, WORKERS)
        await asyncio.to_thread(server.kill)
        return [*await asyncio.gather(*calls, return_exceptions=True)]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        ends = runner.run(killed_in_the_middle())

    assert {type(end) for end in ends} == {InDoubt}


async def _until_under_way(server: PostgresServer, calls: int) -> None:
    """Until the server works on so many endless calls."""
    pool = ConnectionPool(server.app_url, **_POOL, timeout=LONG, connect_timeout=LONG)
    async with asyncio.timeout(LONG):
        while len(await pool.fetch("SELECT FROM pg_stat_activity WHERE query = $1", _ENDLESS)) < calls:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    await pool.close()


async def test_a_cache_does_not_answer_for_a_frozen_server(server: PostgresServer) -> None:
    pool = ConnectionPool(server.app_url, **_POOL, timeout=SHORT, connect_timeout=SHORT)
    async with postgres_engine(server.app_url) as patient, _engine(pool, prepared_by=server) as warm:
        await patient.sessions.append(ANN, "s", batch("hello"))
        await _until_warm(warm, "s")
        feed = warm.records.feed
        assert feed is not None
        server.freeze()
        await wait_until(lambda: not feed.caught_up())

        with pytest.raises(Unavailable):
            await warm.sessions.get(ANN, "s")

        server.thaw()
        await _until_warm(warm, "s")
        assert (await patient.sessions.get(ANN, "s")).messages == 1


async def _until_warm(store: Engine, session_id: str) -> None:
    """News of an append may come after the first answers, and take them out of the cache again."""
    hits = store.cache.hits
    async with asyncio.timeout(LONG):
        while store.cache.hits == hits:
            with suppress(Unavailable):
                await store.sessions.get(ANN, session_id)
            await asyncio.sleep(0.01)


async def test_a_hung_cache_delays_a_deletion_and_shows_nothing_old(server: PostgresServer) -> None:
    """The listener's process on the server is frozen: the deletion waits until that cache is in doubt."""
    async with postgres_engine(server.app_url) as warm:
        await warm.sessions.append(ANN, "s", batch("hello"))
        await _until_warm(warm, "s")
        listeners = "SELECT pid FROM pg_stat_activity WHERE application_name = 'tenuto listener'"
        listener = psutil.Process(int(server.sql(listeners)))
        async with postgres_engine(server.app_url) as other:
            listener.suspend()

            await other.sessions.delete(ANN, "s")

            with pytest.raises(SessionNotFound):
                await warm.sessions.get(ANN, "s")
            listener.resume()


async def test_a_read_only_server_refuses_writes_and_is_read_where_reads_touch(server: PostgresServer) -> None:
    clock = FakeClock()
    kept = NewSession(retention=Retention(idle=timedelta(hours=1), touch=Touch.READ))
    async with postgres_engine(server.app_url, clock) as store:
        deadline = (await store.sessions.append(ANN, "s", batch("hello", create=kept))).session.expires_at
        clock.advance(timedelta(minutes=30))
        # For new connections; the old ones have ended when this returns: they could still write.
        server.sql("ALTER DATABASE main SET default_transaction_read_only = on")
        server.sql("SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE application_name = 'tenuto'")
        await until_it_answers(store)

        writes: list[Callable[[], Awaitable[object]]] = [
            lambda: store.sessions.append(ANN, "s", batch("more")),
            lambda: begin(store, ANN, "new", "more"),
            lambda: store.sessions.delete(ANN, "s"),
            lambda: store.state.write_state(ANN, "prefs", "k", 1),
        ]
        for write in writes:
            with pytest.raises(StoreReadOnly):
                await write()
        assert await texts(store, ANN, "s") == ["hello"]
        assert (await store.sessions.get(ANN, "s")).expires_at == deadline


class _ImpatientForLocks(ConnectionPool):
    """Only a lock is waited for so briefly: calls that go on have all the time they need."""

    async def connect(self) -> Connection:
        connection = await super().connect()
        limits = [await connection.fetchval(f"SHOW {limit}") for limit in ("lock_timeout", "statement_timeout")]
        # Calls batched with one that waits in vain have time for a try of their own.
        assert limits == [f"{share * LONG:.0f}s" for share in (0.45, 0.9)]
        await connection.execute("SET lock_timeout = '200ms'")
        return connection


@pytest.mark.requirement("D17")
async def test_a_lock_that_is_not_released_delays_no_other_session(server: PostgresServer) -> None:
    """A call that waits for it is refused in time and once, for good: others go on in its batch and behind it."""
    pool = _ImpatientForLocks(server.app_url, **_POOL, timeout=LONG, connect_timeout=LONG)
    async with _engine(pool, prepared_by=server) as store:
        for session in ("stuck", "free"):
            await store.sessions.append(ANN, session, batch("hello"))
        other = await pool.connect()
        async with other.transaction():
            await other.execute("SELECT enter($1)", site_key(ANN))
            await other.execute("SELECT FROM records WHERE key = $1 FOR UPDATE", session_key(ANN, "stuck"))
            stuck = asyncio.create_task(store.sessions.append(ANN, "stuck", batch("late")))
            same_batch = await store.sessions.append(ANN, "free", batch("in time"))
            next_batch = await store.sessions.append(ANN, "free", batch("in time, too"))

            # The lock is held all the while: a call that did not give up would never end.
            with pytest.raises(StoreRejected, match="took too long"):
                await stuck
        await other.close()
        assert (same_batch.session.messages, next_batch.session.messages) == (2, 3)
        assert await texts(store, ANN, "stuck") == ["hello"]
