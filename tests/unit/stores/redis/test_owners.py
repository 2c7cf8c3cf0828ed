"""Which owners keep state in Redis: a list of digests beside the values, that no race and no crash leaves short."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from tenuto.errors import StateCorrupt, Unavailable, VersionConflict
from tenuto.model import Scope, StateLocation
from tenuto.model.scope import owner_key, site_key, state_key
from tenuto.stores.redis import RedisStore
from tests.peek import redis_owners, redis_runner
from tests.samples import ACME, ANN, BOB, fresh

LEFT_OUT = "left out a state value whose name cannot be read"
TONE = StateLocation(scope=ANN, namespace="prefs", key="tone")


@pytest.fixture(params=["valkey", "redis_cluster"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[RedisStore]:
    opened = await RedisStore.open(request.getfixturevalue(request.param).url, prefix=fresh("owners"))
    yield opened
    await opened.close()


def owners_of(store: RedisStore, scope: Scope) -> bytes:
    return store.keys.state_owners(site_key(scope).hex())


async def listed(store: RedisStore) -> set[bytes]:
    """The owners on the list, whether or not they keep anything."""
    key = owners_of(store, ACME)
    return set(await store.link.call("ZRANGE", key, 0, -1, key=key))


async def test_the_list_holds_digests_and_the_tenant_itself_is_not_on_it(store: RedisStore) -> None:
    for scope in (ANN, BOB, ACME):
        await store.state.write_state(scope, "prefs", "tone", "warm")

    assert await listed(store) == {owner_key(ANN).hex().encode(), owner_key(BOB).hex().encode()}


async def test_an_owner_is_listed_before_the_value_is_written(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash right after that leaves one that keeps nothing: it is passed over, and leaves the list."""
    add = redis_owners(store).add

    async def added(scope: Scope) -> None:
        await add(scope)
        raise Unavailable("session store")

    monkeypatch.setattr(redis_owners(store), "add", added)
    with pytest.raises(Unavailable):
        await store.state.write_state(ANN, "prefs", "tone", "warm")
    before = await listed(store)

    assert await store.state.list_state_locations(ACME) == ()
    assert before == {owner_key(ANN).hex().encode()}
    assert await listed(store) == set()
    assert await store.upkeep.list_sites() == ()


async def test_an_owner_removed_while_writing_is_listed_again(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process erases, or finds nothing, between the note and the first value."""
    add, calls = redis_owners(store).add, 0

    async def added(scope: Scope) -> None:
        nonlocal calls
        calls += 1
        await add(scope)
        if calls == 1:
            await store.upkeep.erase(ANN)

    monkeypatch.setattr(redis_owners(store), "add", added)
    await store.state.write_state(ANN, "prefs", "tone", "warm")
    await store.state.write_state(ANN, "prefs", "tone", "cool")

    assert calls == 2, "before the first value and after it, and no more for the second"
    assert await store.state.list_state_locations(ACME) == (TONE,)
    assert await store.upkeep.list_sites() == (ACME,)


async def test_a_value_in_a_known_drawer_needs_one_call(store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does one that is refused; a new drawer of a listed owner is listed once, before its value."""
    await store.state.write_state(ANN, "prefs", "tone", "warm")
    add, run, calls = redis_owners(store).add, redis_runner(store).run_script, []

    async def added(scope: Scope) -> None:
        calls.append("add")
        await add(scope)

    async def ran(*args: Any, **options: Any) -> Any:
        calls.append("run")
        return await run(*args, **options)

    monkeypatch.setattr(redis_owners(store), "add", added)
    monkeypatch.setattr(redis_runner(store), "run_script", ran)

    await store.state.write_state(ANN, "prefs", "tone", "cool", if_version=1)
    await store.state.write_state(ANN, "prefs", "size", 4)
    with pytest.raises(VersionConflict):
        await store.state.write_state(ANN, "facts", "home", "Berlin", if_version=3)
    known = calls.copy()
    calls.clear()
    await store.state.write_state(ANN, "facts", "home", "Berlin", if_version=0)
    await store.state.write_state(ACME, "prefs", "tone", "plain")

    assert known == ["run", "run", "run"]
    assert calls == ["run", "add", "run", "run"]
    assert len(await store.state.list_state_locations(ACME)) == 3


async def test_a_site_that_loses_its_name_while_an_owner_goes_back_has_it_again(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process found no owner on the list while one was off it for a moment, and took the site off."""
    await store.state.write_state(ANN, "prefs", "tone", "warm")
    await store.link.call("DEL", store.keys.spaces, key=store.keys.spaces)

    await redis_owners(store).leave(site_key(ANN).hex(), owner_key(ANN).hex())

    assert await store.upkeep.list_sites() == (ACME,)


async def test_who_writes_while_being_taken_off_goes_back(store: RedisStore) -> None:
    await store.state.write_state(ANN, "prefs", "tone", "warm")

    await redis_owners(store).leave(site_key(ANN).hex(), owner_key(ANN).hex())

    assert await store.state.list_state_locations(ACME) == (TONE,)


async def test_nobodys_name_stays_with_the_last_value_of_a_drawer(store: RedisStore) -> None:
    await store.state.write_state(ANN, "prefs", "tone", "warm")
    await store.state.write_state(ANN, "prefs", "size", 4)
    notes = store.keys.state(ANN, "prefs")[2]

    await store.state.delete_state(ANN, "prefs", "tone")
    one_left = await store.link.call("HLEN", notes, key=notes)
    await store.state.delete_state(ANN, "prefs", "size")

    assert one_left == 1
    assert await store.link.call("EXISTS", notes, key=notes) == 0


async def test_a_drawer_without_a_note_hides_no_other_and_has_one_with_its_next_value(store: RedisStore) -> None:
    """Drawers were written before there were notes."""
    for drawer in ("one", "two"):
        for key in ("a", "b", "c"):
            await store.state.write_state(ANN, drawer, key, 1)
    notes = store.keys.state(ANN, "one")[2]
    await store.link.call("HDEL", notes, state_key(ANN, "one"), key=notes)

    first = await store.state.list_state_locations(ACME, limit=2)
    without = (*first, *await store.state.list_state_locations(ACME, first[-1], limit=2))
    await store.state.write_state(ANN, "one", "b", 2)

    assert [(one.namespace, one.key) for one in without] == [("two", "a"), ("two", "b"), ("two", "c")]
    assert len(await store.state.list_state_locations(ACME)) == 6


async def test_a_note_that_is_scribbled_over_names_nobody_and_hides_no_other(
    store: RedisStore, caplog: pytest.LogCaptureFixture
) -> None:
    """What is left out is logged in a line without names."""
    for scope in (ANN, BOB, Scope(tenant="evil", user="eve")):
        await store.state.write_state(scope, "prefs", "tone", "warm")
    await store.state.write_state(ANN, "facts", "home", "Berlin")
    notes, drawer = store.keys.state(ANN, "prefs")[2], state_key(ANN, "prefs")

    for scribble in (b"{", b'[{"tenant":"acme","user":"bob"},"prefs"]', b'[{"tenant":""},"prefs"]'):
        await store.link.call("HSET", notes, drawer, scribble, key=notes)
        caplog.clear()
        told = await store.state.list_state_locations(ACME)

        assert set(told) == {StateLocation(scope=ANN, namespace="facts", key="home"), replace(TONE, scope=BOB)}
        assert [record.getMessage() for record in caplog.records] == [LEFT_OUT]
        assert [one for size in (1, 1) for one in await store.state.list_state_locations(ACME, told[0], size)] == [
            told[1]
        ] * 2
        assert set(await store.upkeep.list_sites()) == {ACME, Scope(tenant="evil")}


async def test_a_site_all_of_whose_names_are_scribbled_over_hides_no_other(store: RedisStore) -> None:
    for scope in (ANN, Scope(tenant="evil", user="eve")):
        await store.state.write_state(scope, "prefs", "tone", "warm")
    notes = store.keys.state(ANN, "prefs")[2]
    await store.link.call("HSET", notes, state_key(ANN, "prefs"), b"{", key=notes)

    assert await store.state.list_state_locations(ACME) == ()
    assert await store.upkeep.list_sites(limit=1) == (Scope(tenant="evil"),)
    await store.state.write_state(ANN, "prefs", "size", 4)
    assert len(await store.state.list_state_locations(ACME)) == 2, "the next value writes the note anew"


async def test_a_value_that_is_scribbled_over_is_told_as_such(store: RedisStore) -> None:
    """Not as a store that is away: a walk over everything goes on."""
    await store.state.write_state(ANN, "prefs", "tone", "warm")
    values = store.keys.state(ANN, "prefs")[0]
    await store.link.call("HSET", values, state_key(ANN, "prefs") + b"tone", b"1:1:{", key=values)

    with pytest.raises(StateCorrupt):
        await store.state.read_state(ANN, "prefs", "tone")
