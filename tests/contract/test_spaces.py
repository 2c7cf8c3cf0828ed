"""Which tenants' sites there are: each one that holds sessions, in a fixed order, page by page."""

from __future__ import annotations

from datetime import timedelta

from tenuto.model import ForkRequest, NewSession, Retention, Scope
from tenuto.ports import Store
from tests.backends import Backend
from tests.clock import FakeClock
from tests.samples import ACME, ANN, ANN_ELSEWHERE, BOB, EVE, batch, begin

MUSEUM = Scope(tenant="acme", site="museum")
EVIL = Scope(tenant="evil")
DAY = NewSession(retention=Retention(idle=timedelta(days=1)))


async def paged(store: Store, size: int) -> list[Scope]:
    """Every space, by pages of that size."""
    found: list[Scope] = []
    while page := await store.upkeep.list_sites(found[-1] if found else None, size):
        assert len(page) <= size
        found += page
        if len(page) < size:
            break
    return found


async def test_an_empty_store_has_no_spaces(store: Store) -> None:
    assert await store.upkeep.list_sites() == ()


async def test_each_site_that_holds_sessions_is_told_once_without_its_users(store: Store) -> None:
    """However many sessions and owners it has; a chat's are the site's as well."""
    for scope in (ANN, BOB, ACME, EVE, ANN_ELSEWHERE, Scope(tenant="acme", user="ann", channel="lark", chat="team")):
        await begin(store, scope, f"by turn {scope.owner}", "hello", create=DAY)
        await store.sessions.append(scope, f"by words {scope.owner}", batch("hello"))

    told = await store.upkeep.list_sites()

    assert sorted(told, key=repr) == sorted((ACME, MUSEUM, EVIL), key=repr)


async def test_pages_of_any_size_find_all_in_the_same_order(store: Store) -> None:
    sites = [Scope(tenant=f"t{n // 3}", site=f"{n % 3}") for n in range(23)]
    odd = [Scope(tenant="*:{}..\N{GRINNING FACE}"), Scope(tenant="t1:2"), Scope(tenant="t", site="1:2")]
    for scope in (*sites, *odd):
        await store.sessions.append(scope, "s", batch("hello"))

    whole = await store.upkeep.list_sites()

    assert set(whole) == {*sites, *odd}
    assert len(whole) == 26
    for size in (1, 5, 13, 26):
        assert await paged(store, size) == list(whole)
    assert await store.upkeep.list_sites(limit=0) == ()


async def test_going_on_needs_no_space_that_is_still_there(store: Store) -> None:
    for tenant in "abcde":
        await store.sessions.append(Scope(tenant=tenant), "s", batch("hello"))
    whole = await store.upkeep.list_sites()

    await store.sessions.delete(whole[1], "s")

    assert await store.upkeep.list_sites(after=whole[1]) == whole[2:]
    assert await store.upkeep.list_sites() == (whole[0], *whole[2:])


async def test_a_space_goes_with_its_last_session_and_comes_back_with_the_next(store: Store) -> None:
    await store.sessions.append(ANN, "a", batch("hello"))
    await store.sessions.append(BOB, "b", batch("hello"))
    await store.sessions.append(EVE, "e", batch("hello"))

    await store.sessions.delete(ANN, "a")
    one_left = set(await store.upkeep.list_sites())
    await store.sessions.delete(BOB, "b")
    none_left = await store.upkeep.list_sites()
    await store.sessions.append(ANN, "a", batch("hello"))

    assert one_left == {ACME, EVIL}
    assert none_left == (EVIL,)
    assert set(await store.upkeep.list_sites()) == {ACME, EVIL}


async def test_a_fork_alone_holds_its_space(store: Store) -> None:
    await store.sessions.append(ANN, "a", batch("hello"))
    await store.sessions.fork(ANN, "a", ForkRequest(new_id="b"))
    await store.sessions.delete(ANN, "a")

    assert await store.upkeep.list_sites() == (ACME,)


async def test_what_was_swept_holds_no_space(store: Store, clock: FakeClock) -> None:
    """One that has expired may be told until then."""
    await store.sessions.append(ANN, "a", batch("hello", create=DAY))
    await store.sessions.append(EVE, "e", batch("hello"))
    clock.advance(timedelta(days=2))

    before = set(await store.upkeep.list_sites())
    await store.upkeep.sweep()

    assert EVIL in before <= {ACME, EVIL}
    assert await store.upkeep.list_sites() == (EVIL,)


async def test_a_damaged_session_hides_no_other_of_its_space(backend: Backend, store: Store, clock: FakeClock) -> None:
    for session_id in ("a", "b", "c"):
        await store.sessions.append(ANN, session_id, batch("hello"))
        clock.advance(timedelta(seconds=1))
    if backend.damage is not None:
        await backend.damage(store, ANN, "a")
        await backend.damage(store, ANN, "c")

    assert await store.upkeep.list_sites() == (ACME,)
    assert (await store.sessions.get(ANN, "b")).id == "b"


async def test_a_space_whose_only_session_is_damaged_breaks_nothing(backend: Backend, store: Store) -> None:
    await store.sessions.append(ANN, "a", batch("hello"))
    await store.sessions.append(EVE, "e", batch("hello"))
    if backend.damage is not None:
        await backend.damage(store, ANN, "a")

    assert EVIL in await store.upkeep.list_sites()


async def test_what_users_keep_holds_a_space_and_the_tenants_own_state_does_not(store: Store) -> None:
    """A user's memory outlives their sessions, and a walk over everything must find it."""
    await store.state.write_state(ANN, "prefs", "tone", "warm")
    await store.state.write_state(BOB, "prefs", "tone", "warm")
    await store.state.write_state(Scope(tenant="house"), "prefs", "tone", "warm")
    await store.sessions.append(EVE, "e", batch("hello"))

    both = await store.upkeep.list_sites()
    await store.state.delete_state(ANN, "prefs", "tone")
    of_one = await store.upkeep.list_sites()
    await store.upkeep.erase(BOB)

    assert set(both) == set(of_one) == {ACME, EVIL}
    assert await store.upkeep.list_sites() == (EVIL,)


async def test_sites_of_both_kinds_come_in_one_order_by_pages_of_any_size(store: Store) -> None:
    sites = [Scope(tenant=f"t{n}") for n in range(12)]
    for n, scope in enumerate(sites):
        if n % 3 != 0:
            await store.sessions.append(scope, "s", batch("hello"))
        if n % 3 != 1:
            await store.state.write_state(Scope(tenant=scope.tenant, user="ann"), "prefs", "tone", "warm")

    whole = await store.upkeep.list_sites()

    assert set(whole) == set(sites)
    assert len(whole) == 12
    for size in (1, 5, 12):
        assert await paged(store, size) == list(whole)
