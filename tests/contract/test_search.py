"""Search by words, on every backend: what is stored is found at once, what is removed is not."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from tenuto.errors import SearchOff
from tenuto.model import (
    Changes,
    ForkRequest,
    NewSession,
    Page,
    Retention,
    Rewrite,
    Scope,
    SearchQuery,
    Status,
    Truncation,
    text_part,
)
from tenuto.model.scope import site_key, site_scope
from tenuto.model.stored import IndexOrder, IndexQuery
from tenuto.ports import Store
from tenuto.stores.engine import Engine
from tenuto.stores.engine.changes import unindexed_mark
from tenuto.stores.engine.searching import wanted_groups
from tests.clock import FakeClock
from tests.samples import ANN, BOB, EVE, batch, begin, closing, fresh, says


async def found(store: Store, text: str, scope: Scope) -> set[str]:
    page = await store.sessions.search(scope, SearchQuery(text=text))
    assert page.unsearched == 0
    return {one.session.id for one in page.found}


async def say(store: Store, *texts: str, scope: Scope, **new: Any) -> str:
    session_id = fresh("said")
    first = replace(batch(*texts), create=NewSession(**new))
    await store.sessions.append(scope, session_id, first)
    return session_id


async def test_what_was_said_is_found_at_once_by_its_words(store: Store) -> None:
    scope = replace(ANN, user=fresh("ann"))
    trip = await say(store, "We booked two hotels near the station", "去京都旅行的时候住在哪里", scope=scope)
    tea = await say(store, "Tea at five", scope=scope, title="Plans for Sunday")

    assert await found(store, "booking a hotel", scope) == {trip}
    assert await found(store, "京都", scope) == {trip}
    assert await found(store, "Sunday tea", scope) == {tea}
    assert await found(store, "station tea", scope) == set()
    assert await found(store, "what is the", scope) == set()

    await store.sessions.append(scope, tea, batch("at the station"))
    assert await found(store, "station", scope) == {tea, trip}
    turn = await begin(store, scope, trip, user_messages=(says("and the ryokan?"),))
    await store.sessions.finish_turn(turn, closing("It has a garden"))
    assert await found(store, "ryokan gardens", scope) == {trip}


async def test_matches_show_where_the_words_stand(store: Store) -> None:
    scope = replace(ANN, user=fresh("ann"))
    text = "x " * 200 + "the Hotel in Kyoto has a garden " + "y " * 200
    session_id = await say(store, "a hotel", text, "something else", scope=scope)

    (one,) = (await store.sessions.search(scope, SearchQuery(text="kyoto hotels"))).found

    assert one.session.id == session_id
    best, other = one.matches
    assert (best.seq, best.words, other.seq, other.excerpt) == (2, ("Hotel", "Kyoto"), 1, "a hotel")
    assert best.excerpt.startswith("…")
    assert "Hotel in Kyoto has a garden" in best.excerpt


async def test_a_search_stays_in_its_scope(store: Store) -> None:
    ann, bob, eve = (replace(who, user=fresh("someone")) for who in (ANN, BOB, EVE))
    word = fresh("zebra").replace("-", "")
    hers, his, foreign = [await say(store, f"a {word}", scope=who) for who in (ann, bob, eve)]

    assert (await found(store, word, ann), await found(store, word, bob)) == ({hers}, {his})
    assert await found(store, word, site_scope(ann)) == {his, hers}
    assert await found(store, word, eve) == {foreign}


async def test_what_was_removed_is_found_no_more(store: Store) -> None:
    scope = replace(ANN, user=fresh("ann"))
    session_id = await say(store, "apples", "pears", "plums", scope=scope, title="Fruit")
    assert await found(store, "plums", scope) == {session_id}

    await store.sessions.truncate(scope, session_id, Truncation(after=2))
    assert (await found(store, "plums", scope), await found(store, "pears", scope)) == (set(), {session_id})

    await store.sessions.patch(scope, session_id, Changes(title="Food"))
    assert (await found(store, "fruit", scope), await found(store, "food", scope)) == (set(), {session_id})

    fork = fresh("fork")
    await store.sessions.fork(scope, session_id, ForkRequest(new_id=fork, at=1))
    assert await found(store, "apples", scope) == {fork, session_id}
    assert await found(store, "pears", scope) == {session_id}

    await store.sessions.reset(scope, session_id)
    assert (await found(store, "apples", scope), await found(store, "pears", scope)) == ({fork}, set())
    assert await found(store, "food", scope) == {fork, session_id}
    await store.sessions.delete(scope, fork)
    assert await found(store, "apples", scope) == set()
    await store.upkeep.erase(scope)
    assert await found(store, "food", scope) == set()


async def test_a_rewritten_message_is_found_by_its_new_words(store: Store) -> None:
    scope = replace(ANN, user=fresh("ann"))
    session_id = await say(store, "my number is seventeen", "noted", scope=scope)
    assert await found(store, "seventeen", scope) == {session_id}
    first = (await store.sessions.messages(scope, session_id, Page())).messages[0]

    hidden = replace(first, parts=(text_part("my number is hidden"),))
    await store.sessions.rewrite(scope, session_id, Rewrite(messages=(hidden,)))

    assert (await found(store, "seventeen", scope), await found(store, "hidden", scope)) == (set(), {session_id})


async def test_evicted_and_expired_messages_are_not_found(store: Store, clock: FakeClock) -> None:
    scope = replace(ANN, user=fresh("ann"))
    capped = await say(store, "apples", "pears", scope=scope, retention=Retention(max_messages=2))
    brief = await say(store, "cherries", scope=scope, retention=Retention(idle=timedelta(minutes=5)))
    assert await found(store, "apples", scope) == {capped}
    assert await found(store, "cherries", scope) == {brief}

    await store.sessions.append(scope, capped, batch("plums"))

    assert (await found(store, "apples", scope), await found(store, "plums", scope)) == (set(), {capped})
    clock.advance(timedelta(minutes=6))
    assert await found(store, "cherries", scope) == set()


async def test_a_search_goes_on_behind_its_cursor(store: Store, clock: FakeClock) -> None:
    scope, made = replace(ANN, user=fresh("ann")), list[str]()
    for n in range(5):
        clock.advance(timedelta(seconds=1))
        made.append(await say(store, f"walnut number {n}", scope=scope))
    clock.advance(timedelta(seconds=1))
    await store.sessions.patch(scope, made[1], Changes(status=Status.ARCHIVED))

    seen, query = list[str](), SearchQuery(text="walnuts", limit=2)
    for last in (False, False, True):
        page = await store.sessions.search(scope, query)
        seen += [one.session.id for one in page.found]
        query = replace(query, cursor=page.cursor)
        assert (page.cursor is None) is last

    assert seen == [made[1], *[made[n] for n in (4, 3, 2, 0)]]
    archived = await store.sessions.search(scope, SearchQuery(text="walnuts", status=Status.ARCHIVED))
    assert [one.session.id for one in archived.found] == [made[1]]


async def test_words_are_indexed_before_anybody_searches(store: Store, clock: FakeClock) -> None:
    scope = replace(ANN, user=fresh("ann"))
    session_id = await say(store, "walnuts", scope=scope)
    assert await store.upkeep.index_words() == 0
    clock.advance(timedelta(minutes=2))

    assert await store.upkeep.index_words() >= 1

    assert await store.upkeep.index_words() == 0
    assert await found(store, "walnut", scope) == {session_id}


async def indexed(store: Engine, text: str, scope: Scope) -> set[str]:
    """The sessions that have a word, or the mark of those to be indexed, in the index of the backend."""
    space = site_key(scope)
    codec = await store.sessions.codec(scope)
    (words,) = codec.digest_groups(wanted_groups(text), space)
    asked = IndexQuery(order=IndexOrder.NEWEST, space=space, limit=1000, words=((*words, unindexed_mark(space)),))
    ours = [one for one in await store.records.list(asked) if one.index.scope == scope]
    return {one.index.name for one in ours}


async def test_where_the_search_is_off_nothing_is_indexed(store: Store, clock: FakeClock) -> None:
    engine: Any = store
    while not isinstance(engine, Engine):
        engine = engine.inner
    scope = replace(ANN, user=fresh("ann"))
    goes_on, rests = [await say(store, "walnuts", scope=scope) for _ in range(2)]
    assert await found(store, "walnut", scope) == {goes_on, rests}
    marked = await say(store, "walnuts", scope=scope)

    engine.sessions.context.searchable = False
    with pytest.raises(SearchOff):
        await found(store, "walnut", scope)
    new = await say(store, "walnuts", scope=scope)
    for session_id in (goes_on, marked, new):
        await store.sessions.append(scope, session_id, batch("and apples"))
    clock.advance(timedelta(minutes=2))
    await store.upkeep.index_words()
    assert await indexed(engine, "walnut", scope) == {rests}
    await store.upkeep.index_all()
    assert await indexed(engine, "walnut", scope) == set()

    engine.sessions.context.searchable = True
    assert await found(store, "walnut", scope) == set()
    await store.sessions.append(scope, new, batch("and pears"))
    assert await found(store, "walnut", scope) == {new}
    await store.upkeep.index_all()
    assert await found(store, "walnut", scope) == {goes_on, rests, marked, new}
    assert await indexed(engine, "pears", scope) == {new}
