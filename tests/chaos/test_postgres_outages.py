"""Postgres is killed, frozen, read-only or slow: what was acknowledged stays, the rest is told, the process lives."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta

import psutil
import pytest

from tenuto.errors import SessionBusy, SessionNotFound, StoreReadOnly, TenutoError, Unavailable
from tenuto.model import Keeping, NewSession, TurnState
from tenuto.model.session import Touch
from tenuto.stores.cached import Cached
from tenuto.stores.postgres import PostgresStore
from tests.clock import FakeClock
from tests.samples import ANN, batch, begin, closing, fresh, once, texts
from tests.servers import PostgresServer, start_postgres

SHORT = timedelta(seconds=1)
# A turn whose server died holds its session no longer than this.
BRIEF = timedelta(milliseconds=1)
UNCAPPED = NewSession(keeping=Keeping(max_messages=None))
WORKERS = 8


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server of this test's own, to be killed."""
    with start_postgres() as own:
        yield own


@asynccontextmanager
async def _opened(server: PostgresServer) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(server.app_url, timeout=SHORT, connect_timeout=SHORT)
    try:
        yield store
    finally:
        await store.close()


async def _until_it_answers(store: PostgresStore) -> None:
    async with asyncio.timeout(20):
        while True:
            try:
                return await store.ping()
            except Unavailable:
                await asyncio.sleep(0.05)


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
                turn = await begin(self.store, ANN, self.session_id, question, create=UNCAPPED, lease=BRIEF)
                await self.store.finish_turn(turn, closing(answer))
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
    async with asyncio.timeout(20):
        while any(len(getattr(talk, end)) < had + more for talk, had in zip(talks, before, strict=True)):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_acknowledged_turns_survive_a_killed_server_once_and_in_order(server: PostgresServer) -> None:
    async with _opened(server) as store:
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
                turn = await begin(store, ANN, f"s-{key}", f"q-{key}", once=once(key), lease=timedelta(milliseconds=20))
                if turn.state is not TurnState.FINISHED:
                    await store.finish_turn(turn, closing(f"a-{key}"))
                return
            except (Unavailable, SessionBusy):
                await asyncio.sleep(0.05)

    async with _opened(server) as store:
        keys = [fresh("key") for _ in range(200)]
        async with asyncio.TaskGroup() as group:
            for key in keys:
                group.create_task(send(store, key))
            await asyncio.sleep(0.05)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)

        for key in keys:
            assert await texts(store, ANN, f"s-{key}") == [f"q-{key}", f"a-{key}"]


async def test_a_frozen_server_is_given_up_in_time(server: PostgresServer) -> None:
    async with _opened(server) as store:
        await store.append(ANN, "s", batch("hello"))
        server.freeze()
        began = time.monotonic()

        results = await asyncio.gather(
            store.get(ANN, "s"), store.append(ANN, "s", batch("more")), store.ping(), return_exceptions=True
        )

        took = time.monotonic() - began
        server.thaw()
        await _until_it_answers(store)
        assert [type(result).__mro__[1] for result in results] == [Unavailable] * 3
        # One call, one repetition of what may be repeated, each with a connection to make: four seconds where the
        # machine is idle. Without an end of its own a call would wait for the thaw.
        assert took < 20
        assert (await texts(store, ANN, "s"))[0] == "hello"


async def test_a_cache_does_not_answer_for_a_frozen_server(server: PostgresServer) -> None:
    async with _opened(server) as store, Cached(store=store, feed=store) as hot:
        await hot.append(ANN, "s", batch("hello"))
        # News of our own append may come after the first answers, and take them out of the cache again.
        async with asyncio.timeout(20):
            while not hot.hits:
                await hot.get(ANN, "s")
        server.freeze()
        async with asyncio.timeout(10):
            while store.catch_up():  # noqa: ASYNC110
                await asyncio.sleep(0.05)

        with pytest.raises(Unavailable):
            await hot.get(ANN, "s")

        server.thaw()
        async with asyncio.timeout(20):
            while not store.catch_up():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert (await hot.get(ANN, "s")).messages == 1


async def test_a_hung_cache_delays_a_deletion_and_shows_nothing_old(server: PostgresServer) -> None:
    """The listener's backend is frozen, not its client: the deletion waits until the cache doubts itself."""
    async with _opened(server) as other, _opened(server) as store, Cached(store=store, feed=store) as hot:
        await hot.append(ANN, "s", batch("hello"))
        await hot.get(ANN, "s")
        rows = await other.link.fetch("SELECT pid FROM pg_stat_activity WHERE application_name = 'tenuto listener'")
        listener = psutil.Process(rows[0]["pid"])
        listener.suspend()

        await other.delete(ANN, "s")

        with pytest.raises(SessionNotFound):
            await hot.get(ANN, "s")
        listener.resume()


async def test_a_read_only_server_is_told_apart(server: PostgresServer) -> None:
    async with _opened(server) as store:
        await store.append(ANN, "s", batch("hello"))
        server.sql("ALTER DATABASE main SET default_transaction_read_only = on")
        server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tenuto'")

        for write in (
            lambda: store.append(ANN, "s", batch("more")),
            lambda: begin(store, ANN, "new", "more"),
            lambda: store.delete(ANN, "s"),
            lambda: store.write_state(ANN, "prefs", "k", 1),
        ):
            with pytest.raises(StoreReadOnly):
                await _second_time(write)
        assert await texts(store, ANN, "s") == ["hello"]


async def test_a_read_only_server_is_read_where_reading_would_move_the_deadline(server: PostgresServer) -> None:
    clock = FakeClock()
    store = await PostgresStore.open(server.app_url, clock=clock, timeout=SHORT, connect_timeout=SHORT)
    kept = NewSession(keeping=Keeping(idle=timedelta(hours=1), touch=Touch.READ))
    deadline = (await store.append(ANN, "s", batch("hello", create=kept))).session.expires_at
    clock.advance(timedelta(minutes=30))
    server.sql("ALTER DATABASE main SET default_transaction_read_only = on")
    server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tenuto'")
    await _until_it_answers(store)

    assert await texts(store, ANN, "s") == ["hello"]
    assert (await store.get(ANN, "s")).expires_at == deadline
    await store.close()


async def _second_time(call: object) -> None:
    """The first call may find that its connection was cut."""
    assert callable(call)
    try:
        await call()
    except TenutoError as exc:
        if isinstance(exc, StoreReadOnly):
            raise
    await call()


async def test_a_slow_lock_holds_up_nobody_else(server: PostgresServer) -> None:
    """Somebody's transaction sits on a session: calls on it give up in time, other sessions go on."""
    async with _opened(server) as store:
        await store.append(ANN, "stuck", batch("hello"))
        await store.append(ANN, "free", batch("hello"))
        connection = await store.link.connect()
        async with connection.transaction():
            await connection.execute("SELECT set_config('tenuto.upkeep', 'on', true)")
            rows = await connection.fetch("SELECT space FROM sessions")
            await connection.execute("SELECT set_config('tenuto.space', $1::bytea::text, true)", rows[0]["space"])
            await connection.execute("SELECT FROM sessions WHERE id = 'stuck' FOR UPDATE")
            stuck = asyncio.create_task(store.append(ANN, "stuck", batch("late")))
            same_batch = await store.append(ANN, "free", batch("in time"))
            next_batch = await store.append(ANN, "free", batch("in time, too"))

            # The lock is held all the while: a call that did not give up would never end.
            with pytest.raises(Unavailable):
                await stuck
        await connection.close()
        assert (same_batch.session.messages, next_batch.session.messages) == (2, 3)
        assert await texts(store, ANN, "stuck") == ["hello"]


async def test_cancelled_callers_harm_nobody(server: PostgresServer) -> None:
    async with _opened(server) as store:
        await store.append(ANN, "s", batch())
        calls = [asyncio.create_task(store.append(ANN, "s", batch(f"m{n}"))) for n in range(60)]
        await asyncio.sleep(0.002)
        for call in calls[::2]:
            call.cancel()
        results = await asyncio.gather(*calls, return_exceptions=True)

        kept = {f"m{n}" for n, result in enumerate(results) if not isinstance(result, BaseException)}
        said = await texts(store, ANN, "s")
        assert kept <= set(said)
        assert len(said) == len(set(said))
