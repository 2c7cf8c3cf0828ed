"""Postgres is killed, frozen, read-only or slow: what was acknowledged stays, the rest is told, the process lives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import psutil
import pytest
import uvloop

from tenuto.errors import SessionBusy, SessionNotFound, StoreReadOnly, TenutoError, Unavailable
from tenuto.model import NewSession, Retention, TurnState
from tenuto.model.session import Touch
from tenuto.ports import utc_now
from tenuto.stores.cached import CachedStore
from tenuto.stores.postgres import PostgresStore
from tenuto.stores.postgres._client import Connection, Link
from tenuto.stores.postgres._errors import InDoubt
from tests.clock import FakeClock
from tests.patience import LONG
from tests.samples import ANN, batch, begin, closing, fresh, once, talk, texts
from tests.servers import PostgresServer, start_postgres
from tests.shared_stores import postgres_store, until_it_answers

# For calls that are to end without an answer. What must be answered is asked of another store.
SHORT = 1.0
_LINK: dict[str, Any] = {"schema": "tenuto", "connections": 8}
# A turn whose server died holds its session no longer than this.
BRIEF = timedelta(milliseconds=1)
UNCAPPED = NewSession(retention=Retention(max_messages=None))
WORKERS = 8
_ENDLESS = "SELECT pg_sleep(3600)"


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server of this test's own, to be killed."""
    with start_postgres() as own:
        yield own


@asynccontextmanager
async def _impatient(server: PostgresServer) -> AsyncIterator[PostgresStore]:
    """A store that gives up soon, on a schema that is there already."""
    async with _over(Link(server.app_url, **_LINK, timeout=SHORT, connect_timeout=SHORT)) as store:
        await until_it_answers(store)
        yield store


@asynccontextmanager
async def _over(link: Link) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(link, clock=utc_now, batches=2)
    try:
        yield store
    finally:
        await store.close()


async def _until_under_way(server: PostgresServer, calls: int) -> None:
    """Until the server works on so many endless calls."""
    link = Link(server.app_url, **_LINK, timeout=LONG, connect_timeout=LONG)
    async with asyncio.timeout(LONG):
        while len(await link.fetch("SELECT FROM pg_stat_activity WHERE query = $1", _ENDLESS)) < calls:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    await link.close()


class Talk:
    """One worker on its own session: turns until told to stop, with a list of those that were acknowledged."""

    def __init__(self, store: PostgresStore, number: int) -> None:
        self.store = store
        self.session_id = f"s{number}"
        self.sent = 0
        self.acknowledged: list[str] = []
        self.refused: list[str] = []

    async def go_on(self, stop: asyncio.Event) -> None:
        """Talk, whatever happens."""
        while not stop.is_set():
            self.sent += 1
            question, answer = f"q{self.sent}", f"a{self.sent}"
            try:
                await talk(self.store, ANN, self.session_id, question, answer, create=UNCAPPED, lease=BRIEF)
                self.acknowledged.append(answer)
            except Unavailable:
                self.refused.append(answer)
                await asyncio.sleep(0.02)

    async def said(self) -> list[str]:
        """What is stored."""
        return await texts(self.store, ANN, self.session_id)


async def _until_each(talks: list[Talk], end: str, more: int) -> None:
    """Go on until each worker has heard this end of a turn so many times more."""
    before = [len(getattr(talk, end)) for talk in talks]
    async with asyncio.timeout(LONG):
        while any(len(getattr(talk, end)) < had + more for talk, had in zip(talks, before, strict=True)):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_acknowledged_turns_survive_a_killed_server_once_and_in_order(server: PostgresServer) -> None:
    async with postgres_store(server.app_url) as store:
        talks = [Talk(store, n) for n in range(WORKERS)]
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for talk in talks:
                group.create_task(talk.go_on(stop))
            for _ in range(3):
                await _until_each(talks, "acknowledged", 5)
                await asyncio.to_thread(server.kill)
                await _until_each(talks, "refused", 1)
                await asyncio.to_thread(server.start)
            await _until_each(talks, "acknowledged", 5)
            stop.set()

        for talk in talks:
            said = await talk.said()
            answers = [words for words in said if words.startswith("a")]
            assert len(said) == len(set(said))
            assert [words for words in answers if words in talk.acknowledged] == talk.acknowledged
            assert answers == sorted(answers, key=lambda words: int(words[1:]))


async def test_a_keyed_turn_sent_until_it_is_acknowledged_is_stored_once(server: PostgresServer) -> None:
    async def send(store: PostgresStore, key: str) -> None:
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

    async with postgres_store(server.app_url) as store:
        keys = [fresh("key") for _ in range(200)]
        async with asyncio.TaskGroup() as group:
            for key in keys:
                group.create_task(send(store, key))
            await asyncio.sleep(0.05)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)

        for key in keys:
            assert await texts(store, ANN, f"s-{key}") == [f"q-{key}", f"a-{key}"]


def test_a_server_killed_in_the_middle_of_calls_is_told_so_under_the_loop_that_we_ship(server: PostgresServer) -> None:
    """T7: whatever becomes of the connections, each call says that it may have been carried out."""

    async def killed_in_the_middle() -> list[object]:
        link = Link(server.app_url, **_LINK, timeout=LONG, connect_timeout=LONG)
        calls = [asyncio.create_task(link.fetch(_ENDLESS)) for _ in range(WORKERS)]
        await _until_under_way(server, WORKERS)
        await asyncio.to_thread(server.kill)
        return [*await asyncio.gather(*calls, return_exceptions=True)]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        told = runner.run(killed_in_the_middle())

    assert {type(each) for each in told} == {InDoubt}


async def test_a_cache_does_not_answer_for_a_frozen_server(server: PostgresServer) -> None:
    async with (
        postgres_store(server.app_url) as patient,
        _impatient(server) as store,
        CachedStore(store=store, feed=store.feed) as hot,
    ):
        await patient.sessions.append(ANN, "s", batch("hello"))
        await _until_hot(hot, "s")
        server.freeze()
        async with asyncio.timeout(LONG):
            while store.feed.drain_invalidations():  # noqa: ASYNC110
                await asyncio.sleep(0.05)

        with pytest.raises(Unavailable):
            await hot.sessions.get(ANN, "s")

        server.thaw()
        await _until_hot(hot, "s")
        assert (await patient.sessions.get(ANN, "s")).messages == 1


async def _until_hot(cache: CachedStore, session_id: str) -> None:
    """News of an append may come after the first answers, and take them out of the cache again."""
    hits = cache.sessions.hits
    async with asyncio.timeout(LONG):
        while cache.sessions.hits == hits:
            with suppress(Unavailable):
                await cache.sessions.get(ANN, session_id)
            await asyncio.sleep(0.01)


async def test_a_hung_cache_delays_a_deletion_and_shows_nothing_old(server: PostgresServer) -> None:
    """The listener's backend is frozen, not its client: the deletion waits until the cache doubts itself."""
    async with (
        postgres_store(server.app_url) as other,
        postgres_store(server.app_url) as store,
        CachedStore(store=store, feed=store.feed) as hot,
    ):
        await hot.sessions.append(ANN, "s", batch("hello"))
        await _until_hot(hot, "s")
        listener = await _suspended_listener(other)

        await other.sessions.delete(ANN, "s")

        with pytest.raises(SessionNotFound):
            await hot.sessions.get(ANN, "s")
        listener.resume()


async def _suspended_listener(store: PostgresStore) -> psutil.Process:
    """One that was silent for long is left for another, so that the one we ask about may be gone."""
    async with asyncio.timeout(LONG):
        while True:
            rows = await store.link.fetch("SELECT pid FROM pg_stat_activity WHERE application_name = 'tenuto listener'")
            with suppress(IndexError, psutil.NoSuchProcess):
                listener = psutil.Process(rows[-1]["pid"])
                listener.suspend()
                return listener
            await asyncio.sleep(0.01)


async def test_a_read_only_server_is_told_apart(server: PostgresServer) -> None:
    async with postgres_store(server.app_url) as store:
        await store.sessions.append(ANN, "s", batch("hello"))
        _make_read_only(server)

        for write in (
            lambda: store.sessions.append(ANN, "s", batch("more")),
            lambda: begin(store, ANN, "new", "more"),
            lambda: store.sessions.delete(ANN, "s"),
            lambda: store.state.write_state(ANN, "prefs", "k", 1),
        ):
            with pytest.raises(StoreReadOnly):
                await _second_time(write)
        assert await texts(store, ANN, "s") == ["hello"]


def _make_read_only(server: PostgresServer) -> None:
    """For new connections; the old ones are cut, and have ended when this returns: they could still write."""
    server.sql("ALTER DATABASE main SET default_transaction_read_only = on")
    server.sql("SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE application_name = 'tenuto'")


async def test_a_read_only_server_is_read_where_reading_would_move_the_deadline(server: PostgresServer) -> None:
    clock = FakeClock()
    async with postgres_store(server.app_url, clock=clock) as store:
        kept = NewSession(retention=Retention(idle=timedelta(hours=1), touch=Touch.READ))
        deadline = (await store.sessions.append(ANN, "s", batch("hello", create=kept))).session.expires_at
        clock.advance(timedelta(minutes=30))
        _make_read_only(server)
        await until_it_answers(store)

        assert await texts(store, ANN, "s") == ["hello"]
        assert (await store.sessions.get(ANN, "s")).expires_at == deadline


async def _second_time(call: object) -> None:
    """The first call may find that its connection was cut."""
    assert callable(call)
    try:
        await call()
    except TenutoError as exc:
        if isinstance(exc, StoreReadOnly):
            raise
    await call()


async def test_a_lock_is_waited_for_less_long_than_a_statement_may_take(server: PostgresServer) -> None:
    """So that calls batched with one that waits in vain have time for a try of their own."""
    async with postgres_store(server.app_url, timeout=timedelta(seconds=40)) as store:
        connection = await store.link.connect()
        limits = [await connection.fetchval(f"SHOW {limit}") for limit in ("lock_timeout", "statement_timeout")]
        await connection.close()
        assert limits == ["18s", "36s"]


class _WithoutPatienceForLocks(Link):
    """Only a lock is waited for so briefly: calls that go on have all the time they need."""

    async def connect(self) -> Connection:
        connection = await super().connect()
        await connection.execute("SET lock_timeout = '200ms'")
        return connection


async def test_a_slow_lock_holds_up_nobody_else(server: PostgresServer) -> None:
    """Another transaction locks a session: calls on it give up in time, other sessions go on."""
    link = _WithoutPatienceForLocks(server.app_url, **_LINK, timeout=LONG, connect_timeout=LONG)
    async with postgres_store(server.app_url) as other, _over(link) as store:
        await other.sessions.append(ANN, "stuck", batch("hello"))
        await other.sessions.append(ANN, "free", batch("hello"))
        connection = await other.link.connect()
        async with connection.transaction():
            await connection.execute("SELECT set_config('tenuto.upkeep', 'on', true)")
            rows = await connection.fetch("SELECT space FROM sessions")
            await connection.execute("SELECT set_config('tenuto.space', $1::bytea::text, true)", rows[0]["space"])
            await connection.execute("SELECT FROM sessions WHERE id = 'stuck' FOR UPDATE")
            stuck = asyncio.create_task(store.sessions.append(ANN, "stuck", batch("late")))
            same_batch = await store.sessions.append(ANN, "free", batch("in time"))
            next_batch = await store.sessions.append(ANN, "free", batch("in time, too"))

            # The lock is held all the while: a call that did not give up would never end.
            with pytest.raises(Unavailable):
                await stuck
        await connection.close()
        assert (same_batch.session.messages, next_batch.session.messages) == (2, 3)
        assert await texts(store, ANN, "stuck") == ["hello"]


async def test_cancelled_callers_harm_nobody(server: PostgresServer) -> None:
    async with postgres_store(server.app_url) as store:
        await store.sessions.append(ANN, "s", batch())
        calls = [asyncio.create_task(store.sessions.append(ANN, "s", batch(f"m{n}"))) for n in range(60)]
        await asyncio.sleep(0.002)
        for call in calls[::2]:
            call.cancel()
        results = await asyncio.gather(*calls, return_exceptions=True)

        kept = {f"m{n}" for n, result in enumerate(results) if not isinstance(result, BaseException)}
        said = await texts(store, ANN, "s")
        assert kept <= set(said)
        assert len(said) == len(set(said))
