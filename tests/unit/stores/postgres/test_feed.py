"""LISTEN/NOTIFY: others' changes are told, silence is doubted, a broken connection drops everything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from tenuto.errors import SessionNotFound
from tenuto.model import NewSession, Retention
from tenuto.model.scope import session_key
from tenuto.model.store_reports import Invalidation
from tenuto.ports import Clock, utc_now
from tenuto.stores.cached import CachedStore
from tenuto.stores.postgres import PostgresStore, _database, _feed
from tenuto.stores.postgres._feed import PostgresFeed, parse_payload
from tests.clock import FakeClock
from tests.patience import LONG
from tests.peek import ping_postgres
from tests.samples import ANN, batch, talk
from tests.servers import PostgresDatabase
from tests.shared_stores import postgres_store


@pytest.fixture(autouse=True)
def trustful(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that stands still for two seconds gives no sign of life for as long, and every feed would be in doubt.

    Whoever waits for feeds waits still longer than they vouch, as ever.
    """
    assert _feed.PULSE < _feed.DOUBT < _feed.PATIENCE
    monkeypatch.setattr(_feed, "DOUBT", 10 * LONG)
    monkeypatch.setattr(_database, "PATIENCE", 11 * LONG)


class Told:
    """What a feed told, for a test to wait for."""

    def __init__(self) -> None:
        self.news: list[Invalidation] = []
        self.keys: list[bytes] = []
        self.calls = 0
        self.dropped_all = asyncio.Event()
        self._news = asyncio.Event()

    def __call__(self, news: Invalidation | None) -> None:
        self.calls += 1
        if news is None:
            self.dropped_all.set()
        else:
            self.news.append(news)
            self.keys += news.keys
        self._news.set()

    async def until(self, count: int) -> None:
        """Wait for so many keys."""
        async with asyncio.timeout(LONG):
            while len(self.keys) < count:
                self._news.clear()
                await self._news.wait()


@asynccontextmanager
async def _stores(
    database: PostgresDatabase, count: int = 2, clock: Clock = utc_now
) -> AsyncIterator[list[PostgresStore]]:
    async with AsyncExitStack() as stack:
        opened = [postgres_store(database.app_url, clock=clock) for _ in range(count)]
        yield [await stack.enter_async_context(each) for each in opened]


async def _vouching(store: PostgresStore) -> None:
    """Wait until the feed vouches again; it sends no event when it does."""
    async with asyncio.timeout(LONG):
        while not store.feed.drain_invalidations():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_anothers_changes_and_ones_own_are_told(database: PostgresDatabase) -> None:
    """One's own too: a write whose caller gave up goes through all the same, and a cache must hear of it."""
    async with _stores(database) as (mine, other):
        told = Told()
        async with mine.feed.watch(told):
            assert mine.feed.drain_invalidations()
            await mine.sessions.append(ANN, "mine", batch("hello"))
            await talk(other, ANN, "his", "hello", "hi")
            await other.sessions.delete(ANN, "his")
            await told.until(4)

        assert told.keys == [session_key(ANN, "mine"), *[session_key(ANN, "his")] * 3]
        assert [news.local for news in told.news] == [True, False, False, False]
        assert [news.removed for news in told.news] == [False, False, False, True]


async def test_without_a_watch_nothing_is_vouched_for(database: PostgresDatabase) -> None:
    async with _stores(database, 1) as (store,):
        assert not store.feed.drain_invalidations()
        async with store.feed.watch(Told()):
            assert store.feed.drain_invalidations()
        assert not store.feed.drain_invalidations()


async def test_several_may_watch_and_the_last_one_ends_it(database: PostgresDatabase) -> None:
    """A cache and a journal listen on one connection."""
    async with _stores(database) as (mine, other):
        told, also = Told(), Told()
        async with mine.feed.watch(told):
            async with mine.feed.watch(also):
                await other.sessions.append(ANN, "both", batch("hello"))
                await told.until(1)
                await also.until(1)
            assert mine.feed.drain_invalidations()
            await other.sessions.append(ANN, "one", batch("hello"))
            await told.until(2)
        assert not mine.feed.drain_invalidations()

        assert told.keys == [session_key(ANN, "both"), session_key(ANN, "one")]
        assert also.keys == [session_key(ANN, "both")]


async def test_a_batch_is_told_in_one_notification(database: PostgresDatabase) -> None:
    """Each NOTIFY holds a lock of the whole database over its commit: never one for each row."""
    async with _stores(database) as (mine, other):
        told = Told()
        await asyncio.gather(*(other.sessions.append(ANN, f"s{n}", batch("hello")) for n in range(100)))
        async with mine.feed.watch(told):
            told.calls = 0
            await asyncio.gather(*(other.sessions.append(ANN, f"s{n}", batch("hello")) for n in range(100)))
            await told.until(100)

        assert told.calls <= 10


async def test_more_keys_than_a_notification_holds_are_all_told(database: PostgresDatabase) -> None:
    clock, told = FakeClock(), Told()
    day = NewSession(retention=Retention(idle=timedelta(days=1)))
    async with _stores(database, clock=clock) as (mine, other):
        await asyncio.gather(*(other.sessions.append(ANN, f"s{n}", batch("hello", create=day)) for n in range(600)))
        clock.advance(timedelta(days=2))
        async with mine.feed.watch(told):
            gone = await other.upkeep.sweep()
            await told.until(600)

    assert len(gone) == 600
    assert set(told.keys) == {session_key(ANN, f"s{n}") for n in range(600)}


async def test_a_cut_connection_drops_everything_and_is_made_again(database: PostgresDatabase) -> None:
    async with _stores(database) as (mine, other):
        told = Told()
        async with mine.feed.watch(told):
            told.dropped_all.clear()
            await other.link.fetch(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tenuto listener'"
            )
            async with asyncio.timeout(LONG):
                await told.dropped_all.wait()
            doubted = not mine.feed.drain_invalidations()
            await _vouching(mine)
            await other.sessions.append(ANN, "s", batch("hello"))
            await told.until(1)

        assert doubted


async def test_a_strange_notification_drops_everything(database: PostgresDatabase) -> None:
    async with _stores(database) as (mine, other):
        told = Told()
        async with mine.feed.watch(told):
            told.dropped_all.clear()
            await other.link.fetch("SELECT pg_notify('tenuto', 'what is this')")
            async with asyncio.timeout(LONG):
                await told.dropped_all.wait()


async def test_a_deleted_session_is_not_shown_by_a_hot_cache_elsewhere(database: PostgresDatabase) -> None:
    """T4: two hot L1s; a deletion returns when both have heard of it."""
    async with (
        _stores(database) as (one, two),
        CachedStore(store=one, feed=one.feed) as here,
        CachedStore(store=two, feed=two.feed) as there,
    ):
        for n in range(50):
            await here.sessions.append(ANN, f"s{n}", batch("hello"))
            await _hot(there, f"s{n}")
            await here.sessions.delete(ANN, f"s{n}")
            with pytest.raises(SessionNotFound):
                await there.sessions.get(ANN, f"s{n}")


async def _hot(cache: CachedStore, session_id: str) -> None:
    """News of an append may come after the first answers, and take them out of the cache again."""
    hits = cache.sessions.hits
    async with asyncio.timeout(LONG):
        while cache.sessions.hits == hits:
            await cache.sessions.get(ANN, session_id)
            await asyncio.sleep(0)


async def test_a_sign_of_life_counts_from_when_it_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process may have stood still before it read the answer: what was changed meanwhile is not in it."""
    now = [1000.0]

    class ReadLate:
        async def execute(self, *_: object) -> None:
            now[0] += _feed.DOUBT

    async def unused() -> Any:
        raise AssertionError("nobody watches")

    monkeypatch.setattr(_feed, "PULSE", 0)
    monkeypatch.setattr(_feed, "time", SimpleNamespace(monotonic=lambda: now[0]))
    feed = PostgresFeed(unused, "tenuto", lambda _: (None, None))

    await ping_postgres(feed, ReadLate())

    assert not feed.drain_invalidations()


def test_a_notification_names_whole_keys() -> None:
    keys = [bytes(range(16)), bytes(16)]
    digits = "".join(key.hex() for key in keys)

    assert parse_payload("writer00" + digits) == ("writer00", None, keys)
    assert parse_payload("writer00!000000ff" + digits) == ("writer00", 255, keys)
    for payload in ("", "writer00", "writer00abc", "writer00" + "zz" * 16, "writer00!" + digits):
        with pytest.raises(ValueError, match="not a notification of ours"):
            parse_payload(payload)
