"""What is taken away is told as such by a real server, also where it tells of two changes at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import TypeAlias

import pytest
from msgspec.structs import replace

from tenuto.model import Changes, NewSession, Page, Retention, Rewrite, Truncation, text_part
from tenuto.model.scope import session_key
from tenuto.model.store_reports import Invalidation
from tenuto.stores.cached import CachedStore
from tenuto.stores.journaled import JournaledStore, Outbox
from tenuto.stores.redis import ConnectionPolicy, RedisStore, _invalidation
from tests.clock import FakeClock
from tests.patience import LONG, until
from tests.peek import last_seen
from tests.samples import ANN, batch, begin, closing, talk
from tests.servers import RedisCluster, RedisServer, start_redis
from tests.shared_stores import redis_store

KEY, LAST = session_key(ANN, "s"), session_key(ANN, "last")
PATIENT = ConnectionPolicy(connect_timeout=LONG, call_timeout=LONG)
_Step: TypeAlias = Callable[[RedisStore, FakeClock], Awaitable[object]]


@pytest.fixture(autouse=True)
def trustful(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that stands still is silent for as long, and no ear is to be in doubt for it."""
    monkeypatch.setattr(_invalidation, "DOUBT", 10 * LONG)


class Told:
    """What a feed told of the session, and whether it has told of the last one."""

    def __init__(self) -> None:
        self.news: list[Invalidation] = []
        self.all = False

    def __call__(self, news: Invalidation | None) -> None:
        if news is not None and KEY in news.keys:
            self.news.append(news)
        self.all = self.all or (news is not None and LAST in news.keys)

    @property
    def taken_away(self) -> bool:
        return any(news.removed for news in self.news)


async def _rewrite(store: RedisStore, _: FakeClock) -> None:
    log = (await store.sessions.messages(ANN, "s", Page())).messages
    await store.sessions.rewrite(ANN, "s", Rewrite(messages=(replace(log[0], parts=(text_part("-"),)),)))


async def _sweep(store: RedisStore, clock: FakeClock) -> None:
    clock.advance(timedelta(days=2))
    await store.upkeep.sweep()


async def _renew(store: RedisStore, _: FakeClock) -> None:
    await store.sessions.renew_turn(await begin(store, ANN, "s", "words"))


TAKEN_AWAY: dict[str, _Step] = {
    "deleted": lambda store, _: store.sessions.delete(ANN, "s"),
    "reset": lambda store, _: store.sessions.reset(ANN, "s"),
    "cut off": lambda store, _: store.sessions.truncate(ANN, "s", Truncation(after=1)),
    "rewritten": _rewrite,
    "evicted": lambda store, _: store.upkeep.evict(ANN, 0),
    "erased": lambda store, _: store.upkeep.erase(ANN),
    "expired": _sweep,
}
SAID: dict[str, _Step] = {
    "a turn": lambda store, _: talk(store, ANN, "s", "question", "answer"),
    "a renewal": _renew,
    "a title": lambda store, _: store.sessions.patch(ANN, "s", Changes(title="t")),
    "a message": lambda store, _: store.sessions.append(ANN, "s", batch("more")),
}


async def _told_of(url: str, step: _Step) -> Told:
    """What one store is told when another takes a step."""
    clock, told = FakeClock(), Told()
    given = {"policy": PATIENT, "clock": clock}
    async with redis_store(url, **given) as mine, redis_store(url, **given) as other, mine.feed.watch(told):
        day = NewSession(retention=Retention(idle=timedelta(days=1)))
        await until(mine.feed.drain_invalidations)
        await other.sessions.append(ANN, "s", batch("one", "two", create=day))
        await until(lambda: mine.feed.drain_invalidations() and bool(told.news))
        told.news.clear()
        await step(other, clock)
        await other.sessions.append(ANN, "last", batch("x"))
        await until(lambda: mine.feed.drain_invalidations() and told.all and bool(told.news))
    return told


@pytest.mark.parametrize("step", TAKEN_AWAY.values(), ids=TAKEN_AWAY.keys())
async def test_what_is_taken_away_is_told_as_such_and_leaves_no_key(redis_server: RedisServer, step: _Step) -> None:
    redis_server.flush()
    told = await _told_of(redis_server.url, step)

    assert told.taken_away
    assert not [key for key in redis_server.call("KEYS", "*") if ":g:" in key]


@pytest.mark.parametrize("step", SAID.values(), ids=SAID.keys())
async def test_what_is_said_is_not(redis_server: RedisServer, step: _Step) -> None:
    redis_server.flush()
    told = await _told_of(redis_server.url, step)

    assert told.news
    assert not told.taken_away


async def test_in_a_cluster_it_is_told_as_well(redis_cluster: RedisCluster) -> None:
    redis_cluster.flush()
    told = Told()
    given = {"policy": PATIENT, "clock": FakeClock()}
    url = redis_cluster.url
    async with redis_store(url, **given) as mine, redis_store(url, **given) as other, mine.feed.watch(told):
        await until(mine.feed.drain_invalidations)
        await other.sessions.append(ANN, "s", batch("one"))
        await other.sessions.delete(ANN, "s")

        await until(lambda: mine.feed.drain_invalidations() and told.taken_away)


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A server of the test's own, to be held or filled."""
    with start_redis(fsync="no") as started:
        yield started


async def test_a_server_without_memory_tells_it_too(server: RedisServer) -> None:
    async def on_full(store: RedisStore, _: FakeClock) -> None:
        server.call("CONFIG", "SET", "maxmemory", 1)
        await store.sessions.delete(ANN, "s")
        server.call("CONFIG", "SET", "maxmemory", 0)

    assert (await _told_of(server.url, on_full)).taken_away


async def test_a_removal_in_one_round_with_our_change_is_not_taken_for_ours(
    server: RedisServer, tmp_path: Path
) -> None:
    """The server tells of the session once for both, whichever comes first. Our own change alone costs nothing."""
    told = Told()
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(redis_store(server.url, policy=PATIENT))
        other = await stack.enter_async_context(redis_store(server.url, policy=PATIENT))
        outbox = await Outbox.open(tmp_path / "journal")
        stack.push_async_callback(outbox.close)
        cached = await stack.enter_async_context(CachedStore(store=store, feed=store.feed))
        journal = await stack.enter_async_context(JournaledStore(store=cached, outbox=outbox, auto_replay=False))
        await stack.enter_async_context(store.feed.watch(told))
        await until(store.feed.drain_invalidations)
        await talk(journal, ANN, "s", "secret", "1")
        # The server knows the scripts from here on: each call is one message.
        await talk(journal, ANN, "last", "x", "y")
        await journal.sessions.patch(ANN, "last", Changes(title="t"))
        await other.sessions.reset(ANN, "last")
        await until(lambda: store.feed.drain_invalidations() and told.all)
        own_alone = last_seen(journal).get(KEY)
        told.news.clear()

        server.freeze()
        ours = asyncio.create_task(journal.sessions.patch(ANN, "s", Changes(title="t")))
        theirs = asyncio.create_task(other.sessions.reset(ANN, "s"))
        await until(lambda: _calls_waiting(server) == 2)
        server.thaw()
        await ours
        await theirs
        await until(lambda: store.feed.drain_invalidations() and told.taken_away)

        assert own_alone is not None
        assert len([news for news in told.news if not news.removed and not news.mixed]) == 1
        assert last_seen(journal).get(KEY) is None


@pytest.mark.parametrize("theirs_connects_first", [True, False])
async def test_a_change_in_one_round_with_the_end_of_our_turn_is_served(
    server: RedisServer, theirs_connects_first: bool
) -> None:
    """The server tells of the session once for both, and may take theirs last; our own turns alone are served."""
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(redis_store(server.url, policy=PATIENT)) for _ in range(2)]
        other, store = stores if theirs_connects_first else reversed(stores)
        cached = await stack.enter_async_context(CachedStore(store=store, feed=store.feed))
        await until(store.feed.drain_invalidations)
        for connected in (other, cached):
            await talk(connected, ANN, "last", "x", "y")
            await connected.sessions.patch(ANN, "last", Changes(title="t"))
        await talk(cached, ANN, "s", "one", "1")
        turn = await begin(cached, ANN, "s", "two")

        server.freeze()
        ours = asyncio.create_task(cached.sessions.finish_turn(turn, closing("2")))
        theirs = asyncio.create_task(other.sessions.patch(ANN, "s", Changes(title="theirs")))
        await until(lambda: _calls_waiting(server) == 2)
        server.thaw()
        await ours
        await theirs

        assert await cached.sessions.get(ANN, "s") == await store.sessions.get(ANN, "s")


async def test_our_own_turns_are_served_without_a_read(server: RedisServer) -> None:
    async with redis_store(server.url, policy=PATIENT) as store, CachedStore(store=store, feed=store.feed) as cached:
        await until(store.feed.drain_invalidations)
        for number in range(20):
            await talk(cached, ANN, "s", f"q{number}", "a")
            assert (await cached.sessions.get(ANN, "s")).turns == number + 1

        assert cached.sessions.hits > 15, "a report may come behind its answer"


def _calls_waiting(server: RedisServer) -> int:
    """On how many connections bytes of a call of ours wait for a server that stands still; a ping has but a few."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    unread = [int(queues.split(":")[1], 16) for _, local, _, _, queues, *_ in lines if _port(local) == server.port]
    return sum(size > 100 for size in unread)


def _port(address: str) -> int:
    return int(address.split(":")[1], 16)
