"""The list of spaces in Redis: digests alone, off the path of a turn, repaired and tidied by the sweep."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tenuto.model import Scope
from tenuto.model.scope import session_key, site_key
from tenuto.stores.redis import RedisStore
from tests.clock import FakeClock
from tests.peek import redis_leave_space
from tests.samples import ACME, ANN, BOB, EVE, batch, fresh, talk

EVIL = Scope(tenant="evil")


@pytest.fixture(params=["valkey", "redis_cluster"])
async def store(request: pytest.FixtureRequest, fake_clock: FakeClock) -> AsyncIterator[RedisStore]:
    """One server keeps the list within a session's script; in a cluster it follows."""
    url = request.getfixturevalue(request.param).url
    opened = await RedisStore.open(url, prefix=fresh("spaces"), clock=fake_clock)
    yield opened
    await opened.close()


async def listed(store: RedisStore) -> set[bytes]:
    """What the list holds, whether or not it is true."""
    return set(await store.link.call("ZRANGE", store.keys.spaces, 0, -1, key=store.keys.spaces))


async def lose_the_list(store: RedisStore) -> None:
    await store.link.call("UNLINK", store.keys.spaces, key=store.keys.spaces)


async def vanish(store: RedisStore, scope: Scope, session_id: str) -> None:
    """What a server does some time after the deadline, without a sweep."""
    keys = store.keys.session(session_key(scope, session_id))
    await store.link.call("UNLINK", *keys, key=keys[0])


async def test_the_list_holds_digests_and_no_ids(store: RedisStore) -> None:
    await store.sessions.append(ANN, "a", batch("hello"))
    await store.sessions.append(EVE, "e", batch("hello"))

    assert await listed(store) == {site_key(ANN).hex().encode(), site_key(EVE).hex().encode()}


async def test_only_a_new_session_touches_the_list(store: RedisStore) -> None:
    """What a turn costs has nothing to do with how many tenants there are."""
    await talk(store, ANN, "a", "one", "two")
    await lose_the_list(store)

    await talk(store, ANN, "a", "three", "four")
    await store.sessions.append(ANN, "a", batch("five"))
    await store.sessions.reset(ANN, "a")
    untouched = await listed(store)
    await store.sessions.append(ANN, "b", batch("hello"))

    assert untouched == set()
    assert await store.upkeep.list_sites() == (ACME,)


async def test_the_sweep_lists_again_what_a_crash_left_out(store: RedisStore) -> None:
    await store.sessions.append(ANN, "a", batch("hello"))
    await store.sessions.append(EVE, "e", batch("hello"))
    await lose_the_list(store)
    assert await store.upkeep.list_sites() == ()

    # A server hands out its keys in pieces; the shared ones hold other tests' too.
    while len(await store.upkeep.list_sites()) < 2:
        await store.upkeep.sweep()

    assert set(await store.upkeep.list_sites()) == {ACME, EVIL}


async def test_sessions_that_went_by_themselves_hold_no_space(store: RedisStore) -> None:
    for number in range(25):
        await store.sessions.append(ANN, f"a{number}", batch("hello"))
    await store.sessions.append(EVE, "e", batch("hello"))
    for number in range(25):
        await vanish(store, ANN, f"a{number}")

    assert await store.upkeep.list_sites() == (EVIL,)
    assert await listed(store) == {site_key(EVE).hex().encode()}


async def test_a_session_behind_many_that_went_still_tells_whose_space_it_is(store: RedisStore) -> None:
    """All changed at the same instant, so the shelf knows no order but that of their keys."""
    for number in range(25):
        await store.sessions.append(ANN, f"a{number}", batch("hello"))
    for number in range(24):
        await vanish(store, ANN, f"a{number}")

    assert await store.upkeep.list_sites() == (ACME,)


async def test_the_sweep_takes_empty_spaces_off_the_list(store: RedisStore) -> None:
    for scope in (ANN, BOB, EVE):
        await store.sessions.append(scope, f"{scope.user} of {scope.tenant}", batch("hello"))
    await store.sessions.delete(EVE, "ann of evil")

    await store.upkeep.sweep()

    assert await listed(store) == {site_key(ANN).hex().encode()}


async def test_a_space_that_gets_a_session_while_it_leaves_goes_back(store: RedisStore) -> None:
    """Found empty, then taken off: between the two a session began."""
    await store.sessions.append(ANN, "a", batch("hello"))

    await redis_leave_space(store, site_key(ANN).hex().encode())

    assert await listed(store) == {site_key(ANN).hex().encode()}
