"""Key/value state by scope: versions, order, walls."""

from __future__ import annotations

import asyncio

import pytest

from tenuto.errors import Invalid, VersionConflict
from tenuto.model import StateChange
from tenuto.model.values import MAX_ID_BYTES
from tenuto.ports import Store
from tests.samples import ACME, ANN, ANN_ELSEWHERE, BOB, EVE, ODD_VALUES


async def test_a_value_is_read_back_with_its_version(store: Store) -> None:
    first = await store.state.write_state(ANN, "prefs", "tone", "warm")
    second = await store.state.write_state(ANN, "prefs", "tone", {"style": ["short", 1.0]})

    assert (first.version, second.version) == (1, 2)
    assert await store.state.read_state(ANN, "prefs", "tone") == second


async def test_any_json_is_a_value(store: Store, subtests: pytest.Subtests) -> None:
    for place, value in enumerate(ODD_VALUES):
        with subtests.test(value=value):
            await store.state.write_state(ANN, "prefs", f"k{place}", value)

            entry = await store.state.read_state(ANN, "prefs", f"k{place}")

            assert entry is not None
            assert repr(entry.value) == repr(value)


async def test_absent_is_none(store: Store) -> None:
    assert await store.state.read_state(ANN, "prefs", "nothing") is None
    assert await store.state.delete_state(ANN, "prefs", "nothing") is False


@pytest.mark.requirement("A25", "E7")
async def test_state_does_not_cross_scopes_or_namespaces(store: Store) -> None:
    await store.state.write_state(ANN, "prefs", "k", "ann's")

    for scope in (ACME, BOB, EVE, ANN_ELSEWHERE):
        assert await store.state.read_state(scope, "prefs", "k") is None
        assert await store.state.list_state(scope, "prefs") == ()
        assert not await store.state.delete_state(scope, "prefs", "k")
    assert await store.state.read_state(ANN, "other", "k") is None
    assert await store.state.read_state(ANN, "prefs", "k") is not None


async def test_keys_are_listed_alone_in_the_order_of_the_values(store: Store) -> None:
    for key in ("b", "é", "a", "🦊", "z" * 300, "%"):
        await store.state.write_state(ANN, "prefs", key, key)
    await store.state.write_state(BOB, "prefs", "bobs", 1)
    await store.state.write_state(ANN, "prefs2", "other", 1)

    keys = await store.state.state_keys(ANN, "prefs")

    assert keys == tuple(entry.key for entry in await store.state.list_state(ANN, "prefs")) == tuple(sorted(keys))
    assert await store.state.state_keys(ANN, "prefs", after=keys[1], limit=2) == keys[2:4]
    assert await store.state.state_keys(ANN, "prefs", limit=0) == await store.state.state_keys(EVE, "prefs") == ()


async def test_a_write_on_another_version_is_refused(store: Store) -> None:
    await store.state.write_state(ANN, "prefs", "k", 1, if_version=0)

    with pytest.raises(VersionConflict):
        await store.state.write_state(ANN, "prefs", "k", 2, if_version=0)
    with pytest.raises(VersionConflict):
        await store.state.write_state(ANN, "prefs", "other", 2, if_version=3)
    await store.state.write_state(ANN, "prefs", "k", 3, if_version=1)

    entry = await store.state.read_state(ANN, "prefs", "k")
    assert entry is not None
    assert (entry.value, entry.version) == (3, 2)


async def test_of_many_writers_on_one_version_one_wins(store: Store) -> None:
    async def attempt(n: int) -> bool:
        try:
            await store.state.write_state(ANN, "prefs", "k", n, if_version=0)
        except VersionConflict:
            return False
        return True

    assert sum(await asyncio.gather(*(attempt(n) for n in range(10)))) == 1


async def test_a_deleted_value_is_gone_and_counts_anew(store: Store) -> None:
    await store.state.write_state(ANN, "prefs", "k", 1)

    assert await store.state.delete_state(ANN, "prefs", "k") is True
    assert await store.state.read_state(ANN, "prefs", "k") is None
    assert (await store.state.write_state(ANN, "prefs", "k", 2, if_version=0)).version == 1


async def test_a_removal_on_another_version_is_refused(store: Store) -> None:
    """What has expired is removed, unless it was written again since it was read."""
    await store.state.write_state(ANN, "prefs", "k", 1)
    await store.state.write_state(ANN, "prefs", "k", 2)

    for key, version in (("k", 1), ("k", 0), ("other", 1)):
        with pytest.raises(VersionConflict) as excinfo:
            await store.state.delete_state(ANN, "prefs", key, if_version=version)
        assert (excinfo.value.expected, excinfo.value.actual) == (version, 2 if key == "k" else 0)
    assert await store.state.delete_state(ANN, "prefs", "other", if_version=0) is False
    assert await store.state.delete_state(ANN, "prefs", "k", if_version=2) is True
    assert await store.state.state_keys(ANN, "prefs") == ()


async def test_many_changes_are_one_step_all_or_none(store: Store) -> None:
    """Also the last value of a namespace goes with others that come, and what a batch wrote is found everywhere."""
    state = store.state
    await state.write_state(ANN, "prefs", "gone", "1")
    await state.write_state(ANN, "prefs", "kept", "1")
    puts = [StateChange(key=f"k{n}", value={"n": n}, if_version=0) for n in range(40)]
    mixed = [*puts, StateChange(key="gone", removes=True), StateChange(key="kept", value=None, if_version=1)]

    other = StateChange(key="kept", value=2, if_version=7)
    for conflict in (other, StateChange(key="none", removes=True, if_version=7)):
        for refused in ([*puts, conflict], [conflict, *puts]):
            with pytest.raises(VersionConflict) as excinfo:
                await state.change_states(ANN, "prefs", refused)
            assert (excinfo.value.expected, excinfo.value.actual) == (7, int(conflict.key == "kept"))
    with pytest.raises(Invalid):
        await state.change_states(ANN, "prefs", [StateChange(key="k0", value=1), StateChange(key="k0", removes=True)])
    assert await state.state_keys(ANN, "prefs") == ("gone", "kept")

    assert await state.change_states(ANN, "prefs", mixed) == (*[1] * 40, 1, 2)
    found = await state.read_states(ANN, "prefs", ["k3", "gone", "kept", "k3", ""])
    assert [entry and (entry.key, entry.value, entry.version) for entry in found] == [
        ("k3", {"n": 3}, 1), None, ("kept", None, 2), ("k3", {"n": 3}, 1), None
    ]  # fmt: skip
    assert len(await state.list_state_locations(ANN)) == 41
    assert await state.change_states(ANN, "prefs", ()) == ()
    assert await state.read_states(ANN, "prefs", ()) == ()
    for scope in (ACME, BOB, EVE, ANN_ELSEWHERE):
        assert await state.read_states(scope, "prefs", ["k3"]) == (None,)
        assert await state.change_states(scope, "prefs", [StateChange(key="k3", removes=True)]) == (0,)
    everything = [StateChange(key=key, removes=True) for key in await state.state_keys(ANN, "prefs")]
    assert await state.change_states(ANN, "prefs", everything) == (1,) * 41
    assert await state.list_state_locations(ANN) == ()


async def test_batches_that_meet_never_wait_for_each_other(store: Store) -> None:
    """Each key is written in another order by two callers at once; every write counts."""
    keys = [f"k{n}" for n in range(12)]

    async def write(number: int) -> None:
        order = keys if number % 2 else keys[::-1]
        await store.state.change_states(ANN, "prefs", [StateChange(key=key, value=number) for key in order])

    await asyncio.gather(*map(write, range(8)))

    found = await store.state.read_states(ANN, "prefs", keys)
    assert {entry.version for entry in found if entry is not None} == {8}
    assert len({str(entry and entry.value) for entry in found}) == 1


async def test_keys_are_listed_in_order_and_in_pages(store: Store) -> None:
    keys = ["b", "a", "c", "B", "é", "中", "😀", "\uffee", "a b", "*"]
    for key in keys:
        await store.state.write_state(ANN, "prefs", key, key)

    first = await store.state.list_state(ANN, "prefs", limit=4)
    rest = await store.state.list_state(ANN, "prefs", after=first[-1].key, limit=100)

    assert [entry.key for entry in first + rest] == sorted(keys)


async def test_what_no_store_can_keep_is_refused(store: Store, subtests: pytest.Subtests) -> None:
    for key, value in [("", 1), ("k\0", 1), ("k", float("nan")), ("k", "\ud800"), ("k", 2**70)]:
        with subtests.test(key=key, value=value), pytest.raises(Invalid):
            await store.state.write_state(ANN, "prefs", key, value)
    for key in ("", "k\0", "k\ud800"):
        with subtests.test("is not there", key=key):
            assert await store.state.read_state(ANN, "prefs", key) is None
            assert await store.state.read_states(ANN, "prefs", ["k", key]) == (None, None)
            assert not await store.state.delete_state(ANN, "prefs", key)


@pytest.mark.parametrize("namespace", ["", "n" * (MAX_ID_BYTES + 1)], ids=["empty", "long"])
async def test_a_namespace_is_named_and_no_longer_than_an_id(store: Store, namespace: str) -> None:
    """It stands beside every value."""
    with pytest.raises(Invalid, match="the namespace is"):
        await store.state.write_state(ANN, namespace, "k", 1)

    await store.state.write_state(ANN, "n" * MAX_ID_BYTES, "k", 1)
    [name] = await store.state.list_state_locations(ANN)
    assert name.namespace == "n" * MAX_ID_BYTES
