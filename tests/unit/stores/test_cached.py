"""L1: true LRU, bounded twice, one load for many askers, and never an answer the store would not give."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from tenuto.errors import SessionNotFound, StoreUnavailable
from tenuto.model import AppendResult, Changes, MessagePage, NewSession, Page, Retention, Scope, Session, Touch
from tenuto.model.scope import session_key
from tenuto.model.store_reports import Invalidation
from tenuto.stores.cached import CachedStore
from tenuto.stores.session_cache import SessionCache
from tests.clock import FakeClock
from tests.doubles import FlatMemoryStore
from tests.samples import ANN, BOB, EVE, HEAD, batch, begin, closing, stored, talk, texts


class Feed:
    """A change feed that a test speaks through."""

    def __init__(self) -> None:
        self.tell: Callable[[Invalidation | None], None] = lambda news: None
        self.sure = True
        self.asked = 0
        self.pending: list[bytes] = []

    @asynccontextmanager
    async def watch(self, on_invalidate: Callable[[Invalidation | None], None]) -> AsyncIterator[None]:
        self.tell = on_invalidate
        yield

    @property
    def listening(self) -> bool:
        return self.sure

    def drain_invalidations(self) -> bool:
        self.asked += 1
        keys, self.pending = self.pending, []
        self.tell(Invalidation(keys=tuple(keys)))
        return self.sure


class Counting(FlatMemoryStore):
    """Counts reads, and lets a test hold one back."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self.reads = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def get(self, scope: Scope, session_id: str) -> Session:
        self.reads += 1
        session = await super().get(scope, session_id)
        await self.gate.wait()
        return session

    async def messages(self, scope: Scope, session_id: str, query: Page) -> MessagePage:
        self.reads += 1
        return await super().messages(scope, session_id, query)


@pytest.fixture
def store(clock: FakeClock) -> Counting:
    return Counting(clock)


@pytest.fixture
def feed() -> Feed:
    return Feed()


@pytest.fixture
async def cached(store: Counting, feed: Feed, clock: FakeClock) -> AsyncIterator[CachedStore]:
    async with CachedStore(store=store, feed=feed, clock=clock) as hot:
        yield hot


async def next_turn_of_the_loop() -> None:
    """News from another process need a turn of the loop to get here: no news can have come in between."""
    await asyncio.sleep(0)


async def test_a_hit_asks_the_store_nothing(cached: CachedStore, store: Counting) -> None:
    await talk(store, ANN, "s", "q", "a")
    first = await cached.sessions.messages(ANN, "s", Page(limit=20))

    again = await cached.sessions.messages(ANN, "s", Page(limit=20))
    fewer = await cached.sessions.messages(ANN, "s", Page(limit=1))

    assert again == first
    assert ([message.text for message in fewer.messages], fewer.more_before) == (["a"], True)
    assert store.reads == 1


async def test_the_least_recently_used_goes_first(store: Counting, feed: Feed, clock: FakeClock) -> None:
    """T6: of 10,001 sessions exactly the least recently used one goes, and never the newest."""
    async with CachedStore(store=store, feed=feed, clock=clock, max_sessions=10_000) as hot:
        for n in range(10_001):
            await store.append(ANN, f"s{n}", batch())
        for n in range(10_000):
            await hot.sessions.get(ANN, f"s{n}")
        await hot.sessions.get(ANN, "s0")
        await hot.sessions.get(ANN, "s10000")
        store.reads = 0

        for n in [0, *range(2, 10_001)]:
            await hot.sessions.get(ANN, f"s{n}")
        assert store.reads == 0
        await hot.sessions.get(ANN, "s1")
        assert store.reads == 1
        assert len(hot.sessions) == 10_000


async def test_bytes_are_bounded_too(store: Counting, feed: Feed, clock: FakeClock) -> None:
    async with CachedStore(store=store, feed=feed, clock=clock, max_bytes=52_000) as hot:
        for n in range(10):
            await store.append(ANN, f"s{n}", batch("x" * 10_000))
            await hot.sessions.messages(ANN, f"s{n}", Page())
        await store.append(ANN, "huge", batch("x" * 60_000))
        await hot.sessions.messages(ANN, "huge", Page())

        assert len(hot.sessions) == 4
        for n in range(4):
            await store.append(ANN, f"h{n}", batch(create=NewSession(context={"notes": "x" * 20_000})))
            await hot.sessions.get(ANN, f"h{n}")

        assert len(hot.sessions) == 2, "a large head counts, too"


async def test_many_askers_make_one_load(cached: CachedStore, store: Counting) -> None:
    await store.append(ANN, "s", batch())
    store.gate.clear()

    asking = [asyncio.create_task(cached.sessions.get(ANN, "s")) for _ in range(20)]
    await asyncio.sleep(0)
    store.gate.set()
    sessions = await asyncio.gather(*asking)

    assert store.reads == 1
    assert len({session.version for session in sessions}) == 1


async def test_an_asker_who_gives_up_leaves_the_others_their_answer(cached: CachedStore, store: Counting) -> None:
    await store.append(ANN, "s", batch())
    store.gate.clear()

    first, second = (asyncio.create_task(cached.sessions.get(ANN, "s")) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    store.gate.set()

    assert (await second).id == "s"


async def test_a_stranger_finds_a_hot_session_as_absent_as_a_cold_one(cached: CachedStore, store: Counting) -> None:
    """T1: the scope is checked on a hit, and a stranger's question takes the same road as any miss."""
    await talk(cached, ANN, "s", "q", "a")
    await cached.sessions.get(ANN, "s")
    store.reads = 0

    for stranger in (BOB, EVE):
        with pytest.raises(SessionNotFound):
            await cached.sessions.get(stranger, "s")
        with pytest.raises(SessionNotFound):
            await cached.sessions.messages(stranger, "s", Page())

    assert store.reads == 4
    assert (await cached.sessions.get(ANN, "s")).id == "s"


async def test_a_change_elsewhere_is_seen_at_the_next_question(
    cached: CachedStore, store: Counting, feed: Feed
) -> None:
    """T4: what another process did shows before anything is answered from here."""
    await talk(cached, ANN, "s", "q", "a")
    await cached.sessions.messages(ANN, "s", Page())
    await store.append(ANN, "s", batch("from elsewhere"))
    feed.pending.append(session_key(ANN, "s"))
    await next_turn_of_the_loop()

    assert await texts(cached, ANN, "s") == ["q", "a", "from elsewhere"]


async def test_a_session_deleted_elsewhere_is_gone_here(cached: CachedStore, store: Counting, feed: Feed) -> None:
    await talk(cached, ANN, "s", "q", "a")
    await cached.sessions.get(ANN, "s")
    await store.delete(ANN, "s")
    feed.pending.append(session_key(ANN, "s"))
    await next_turn_of_the_loop()

    with pytest.raises(SessionNotFound):
        await cached.sessions.get(ANN, "s")


async def test_nothing_is_answered_while_the_feed_is_in_doubt(cached: CachedStore, store: Counting, feed: Feed) -> None:
    await talk(cached, ANN, "s", "q", "a")
    await cached.sessions.get(ANN, "s")
    feed.sure = False
    await next_turn_of_the_loop()
    await store.patch(ANN, "s", Changes(title="elsewhere"))

    assert (await cached.sessions.get(ANN, "s")).title == "elsewhere"


async def test_the_feed_is_asked_once_in_a_turn_of_the_loop(cached: CachedStore, feed: Feed) -> None:
    await talk(cached, ANN, "s", "q", "a")
    await next_turn_of_the_loop()
    for _ in range(3):
        await cached.sessions.get(ANN, "s")
    asked = feed.asked
    await next_turn_of_the_loop()
    await cached.sessions.get(ANN, "s")

    assert feed.asked == asked + 1


async def test_after_a_loss_of_the_feed_nothing_from_before_is_served(
    cached: CachedStore, store: Counting, feed: Feed
) -> None:
    await talk(cached, ANN, "s", "q", "a")

    feed.tell(None)
    await store.patch(ANN, "s", Changes(title="elsewhere"))

    assert (await cached.sessions.get(ANN, "s")).title == "elsewhere"


async def _turn(cached: CachedStore) -> None:
    await talk(cached, ANN, "s", "more", "a")


async def _title(cached: CachedStore) -> None:
    await cached.sessions.patch(ANN, "s", Changes(title="t"))


async def _summary(cached: CachedStore) -> None:
    await cached.sessions.append(ANN, "s", batch("note"))


async def _renewal(cached: CachedStore) -> None:
    turn = await begin(cached, ANN, "s", "long")
    await cached.sessions.renew_turn(turn)
    await cached.sessions.finish_turn(turn, closing("a"))


@pytest.mark.parametrize("change", [_turn, _title, _summary, _renewal])
async def test_a_conversation_is_served_without_a_read_of_the_store(
    cached: CachedStore, store: Counting, change: Callable[[CachedStore], Awaitable[None]]
) -> None:
    for _ in range(3):
        await change(cached) if store.tables.records else await talk(cached, ANN, "s", "q", "a")
        session = await cached.sessions.get(ANN, "s")
        page = await cached.sessions.messages(ANN, "s", Page(limit=5))
        assert (store.reads, session) == (0, await FlatMemoryStore.get(store, ANN, "s"))
        assert page == await FlatMemoryStore.messages(store, ANN, "s", Page(limit=5))


async def test_a_read_that_overtakes_an_answer_costs_nothing(cached: CachedStore, store: Counting) -> None:
    await talk(cached, ANN, "s", "q", "a")
    append = store.append

    async def late(*args: Any) -> AppendResult:
        done = await append(*args)
        cached.cache.on_invalidate(None)
        await cached.sessions.get(ANN, "s")
        await cached.sessions.messages(ANN, "s", Page(limit=20))
        return done

    store.append = late  # type: ignore[assignment,method-assign]
    await cached.sessions.append(ANN, "s", batch("note"))
    entry = cached.cache.get(session_key(ANN, "s"))

    assert entry is not None
    assert [message.text for message in entry.tail] == ["q", "a", "note"]


async def test_evicted_messages_are_not_served(cached: CachedStore, store: Counting) -> None:
    """What a turn adds may take the place of older messages."""
    kept = NewSession(retention=Retention(max_messages=3))
    for question in ("one", "two", "three"):
        await talk(cached, ANN, "s", question, "a", create=kept)

    page = await cached.sessions.messages(ANN, "s", Page(limit=20))

    assert (store.reads, page) == (0, await FlatMemoryStore.messages(store, ANN, "s", Page(limit=20)))


async def test_the_tail_is_as_long_as_what_was_asked_for(cached: CachedStore) -> None:
    for number in range(10):
        await talk(cached, ANN, "s", f"q{number}", "a", window=4)

    entry = cached.cache.get(session_key(ANN, "s"))

    assert entry is not None
    assert len(entry.tail) == 4


async def test_a_change_that_may_be_anothers_is_asked_for(cached: CachedStore, store: Counting, feed: Feed) -> None:
    """A report right behind our answer, without its origin; the session stays known for an outage."""
    await talk(cached, ANN, "s", "q", "a")
    await store.patch(ANN, "s", Changes(title="elsewhere"))
    feed.pending.append(session_key(ANN, "s"))
    await next_turn_of_the_loop()

    assert (await cached.sessions.get(ANN, "s")).title == "elsewhere"
    assert len(cached.sessions) == 1


@pytest.mark.parametrize("local", [True, None])
async def test_a_call_without_an_answer_may_be_applied_later(
    cached: CachedStore, store: Counting, feed: Feed, local: bool | None
) -> None:
    """Its report is ours, and what it changed is not known."""
    await talk(cached, ANN, "s", "q", "a")

    async def lost(*_: object) -> Session:
        raise StoreUnavailable

    store.patch = lost  # type: ignore[assignment,method-assign]
    with pytest.raises(StoreUnavailable):
        await cached.sessions.patch(ANN, "s", Changes(title="late"))
    await cached.sessions.get(ANN, "s")
    await FlatMemoryStore.patch(store, ANN, "s", Changes(title="late"))
    feed.tell(Invalidation(keys=(session_key(ANN, "s"),), local=local))

    assert (await cached.sessions.get(ANN, "s")).title == "late"


async def test_a_load_overtaken_by_a_change_is_not_kept(cached: CachedStore, store: Counting, feed: Feed) -> None:
    await store.append(ANN, "s", batch())
    store.gate.clear()
    loading = asyncio.create_task(cached.sessions.get(ANN, "s"))
    await asyncio.sleep(0)
    await store.patch(ANN, "s", Changes(title="newer"))
    feed.tell(Invalidation(keys=(session_key(ANN, "s"),)))
    store.gate.set()
    await loading

    assert (await cached.sessions.get(ANN, "s")).title == "newer"


async def test_a_hit_touches_where_reads_touch(cached: CachedStore, clock: FakeClock) -> None:
    """T5: a session that is only ever read from L1 stays alive."""
    kept = NewSession(retention=Retention(idle=timedelta(minutes=30), touch=Touch.READ))
    await cached.sessions.append(ANN, "s", batch("q", create=kept))

    for _ in range(5):
        clock.advance(timedelta(minutes=20))
        await cached.sessions.get(ANN, "s")


async def test_what_expired_is_not_answered_from_here(cached: CachedStore, clock: FakeClock) -> None:
    await talk(cached, ANN, "s", "q", "a")
    await cached.sessions.get(ANN, "s")
    clock.advance(timedelta(days=30))

    with pytest.raises(SessionNotFound):
        await cached.sessions.get(ANN, "s")


@pytest.mark.parametrize("order", [(3, 4), (4, 3)], ids=["in order", "overtaken"])
async def test_answers_of_our_own_changes_are_joined_in_any_order(feed: Feed, order: tuple[int, int]) -> None:
    """A summary may be appended while a turn ends; an outage right after needs the whole window."""
    cache = SessionCache(feed, max_sessions=10, max_bytes=2**20)
    heads = {seq: replace(HEAD, version=seq, messages=seq, last_seq=seq) for seq in (2, 3, 4)}
    key = session_key(HEAD.scope, HEAD.id)
    with cache.reads(key) as read:
        cache.observe_page(read, heads[2], (stored(1), stored(2)), wanted=20)
    with cache.changes(key) as first, cache.changes(key) as second:
        for call, seq in zip((first, second), order, strict=True):
            cache.observe_added(call, heads[seq], (stored(seq),))

    entry = cache.current(key)
    assert entry is not None
    assert [message.seq for message in entry.tail] == [1, 2, 3, 4]
    with cache.reads(key) as head_alone:
        cache.observe_page(head_alone, replace(heads[4], version=5), (), wanted=0)
    renewed = cache.current(key)
    assert renewed is not None
    assert renewed.tail == entry.tail
