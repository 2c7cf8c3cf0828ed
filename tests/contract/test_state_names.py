"""Where users and chats keep values: found without knowing any name, each once, inside the walls, page by page."""

from __future__ import annotations

from tenuto.model import Scope, StateLocation
from tenuto.ports import Store
from tests.samples import ACME, ANN, ANN_ELSEWHERE, BOB, EVE

MUSEUM = Scope(tenant="acme", site="museum")
TEAM = Scope(tenant="acme", user="ann", channel="lark", chat="team", thread="t")


def name(scope: Scope, namespace: str = "prefs", key: str = "tone") -> StateLocation:
    return StateLocation(scope=scope, namespace=namespace, key=key)


async def paged(store: Store, scope: Scope, size: int) -> list[StateLocation]:
    """Every name, by pages of that size."""
    found: list[StateLocation] = []
    while page := await store.state.list_state_locations(scope, found[-1] if found else None, size):
        assert len(page) <= size
        found += page
        if len(page) < size:
            break
    return found


async def test_where_nobody_keeps_anything_there_are_no_names(store: Store) -> None:
    assert await store.state.list_state_locations(ACME) == ()


async def test_what_users_and_chats_keep_is_told_and_the_tenants_own_is_not(store: Store) -> None:
    """A chat's value is the chat's: the member who wrote it is not named."""
    for scope, tone in ((ANN, "warm"), (BOB, "cool"), (TEAM, "brisk"), (ACME, "plain")):
        await store.state.write_state(scope, "prefs", "tone", tone)
    await store.state.write_state(ANN, "facts", "home", "Berlin")

    told = await store.state.list_state_locations(ACME)

    team = Scope(tenant="acme", channel="lark", chat="team", thread="t")
    assert len(told) == 4
    read = [await store.state.read_state(one.scope, one.namespace, one.key) for one in told]
    values = {one: entry and entry.value for one, entry in zip(told, read, strict=True)}
    assert values == {name(ANN): "warm", name(ANN, "facts", "home"): "Berlin", name(BOB): "cool", name(team): "brisk"}


async def test_names_do_not_cross_tenants_sites_and_owners(store: Store) -> None:
    for scope in (ANN, BOB, EVE, ANN_ELSEWHERE, TEAM):
        await store.state.write_state(scope, "prefs", "tone", "warm")

    assert await store.state.list_state_locations(ANN) == (name(ANN),)
    assert await store.state.list_state_locations(BOB) == (name(BOB),)
    assert await store.state.list_state_locations(MUSEUM) == (name(ANN_ELSEWHERE),)
    assert await store.state.list_state_locations(Scope(tenant="evil")) == (name(EVE),)
    assert len(await store.state.list_state_locations(TEAM)) == 1
    assert await store.state.list_state_locations(Scope(tenant="nobody")) == ()


async def test_pages_of_any_size_find_all_in_the_same_order(store: Store) -> None:
    users = [Scope(tenant="acme", user=f"u{n}") for n in range(5)]
    keys = ["b", "a", "é", "中 文", "😀", "*", "k" * 500, "k" * 499 + "l"]
    wanted = {name(user, drawer, key) for user in users for drawer in ("prefs", "{facts}:") for key in keys}
    for one in wanted:
        await store.state.write_state(one.scope, one.namespace, one.key, 1)

    whole = await store.state.list_state_locations(ACME, limit=1000)

    assert set(whole) == wanted
    assert len(whole) == 80
    for size in (1, 7, 16, 80):
        assert await paged(store, ACME, size) == list(whole)
    of_one = [one for one in whole if one.scope == users[2]]
    assert await paged(store, users[2], 3) == of_one
    assert await store.state.list_state_locations(ACME, limit=0) == ()


async def test_a_name_goes_with_its_value(store: Store) -> None:
    await store.state.write_state(ANN, "prefs", "tone", "warm")
    await store.state.write_state(ANN, "prefs", "tone", "cool")
    await store.state.write_state(ANN, "prefs", "size", 4)

    await store.state.delete_state(ANN, "prefs", "tone")
    one_left = await store.state.list_state_locations(ACME)
    await store.state.delete_state(ANN, "prefs", "size")
    none_left = await store.state.list_state_locations(ACME)
    await store.state.write_state(ANN, "prefs", "tone", "warm")

    assert one_left == (name(ANN, "prefs", "size"),)
    assert none_left == ()
    assert await store.state.list_state_locations(ACME) == (name(ANN),)


async def test_going_on_needs_no_name_that_is_still_there(store: Store) -> None:
    for user in "abcde":
        await store.state.write_state(Scope(tenant="acme", user=user), "prefs", "tone", "warm")
    whole = await store.state.list_state_locations(ACME)

    gone = whole[1]
    await store.state.delete_state(gone.scope, gone.namespace, gone.key)

    assert await store.state.list_state_locations(ACME, after=gone) == whole[2:]
    assert await store.state.list_state_locations(ACME) == (whole[0], *whole[2:])


async def test_names_go_with_their_owner_and_come_back_with_a_new_value(store: Store) -> None:
    """Erased, a user has no name left there, and no other name is missing."""
    for scope in (ANN, BOB, ANN_ELSEWHERE):
        await store.state.write_state(scope, "prefs", "tone", "warm")
        await store.state.write_state(scope, "facts", "home", "Berlin")

    erased = await store.upkeep.erase(ANN)
    left = await store.state.list_state_locations(ACME)
    await store.state.write_state(ANN, "prefs", "tone", "warm")

    assert erased.states == 2
    assert set(left) == {name(BOB), name(BOB, "facts", "home")}
    assert len(await store.state.list_state_locations(MUSEUM)) == 2
    assert set(await store.state.list_state_locations(ACME)) == {name(ANN), *left}
