"""Upkeep: sweeping what expired, bounding how many there are, counting what is there."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tenuto.errors import SessionNotFound
from tenuto.model import NewSession, Retention, SessionStats, Touch, Usage
from tenuto.model.stored import FoundRecord, IndexQuery
from tenuto.ports import Store
from tenuto.stores.memory import InMemoryRecords
from tests.backends import engine_over
from tests.clock import FakeClock
from tests.samples import ACME, ANN, ANN_ELSEWHERE, BOB, EVE, batch, begin, closing, listed, texts

DAY = NewSession(retention=Retention(idle=timedelta(days=1)))
WEEK = NewSession(retention=Retention(idle=timedelta(days=7)))


@pytest.mark.requirement("B2", "B4")
async def test_a_sweep_removes_what_expired_in_all_tenants_and_tells(store: Store, clock: FakeClock) -> None:
    """Swept by age, with one line for each."""
    await store.sessions.append(ANN, "a", batch("hello", create=DAY))
    await store.sessions.append(EVE, "e", batch("hello", create=DAY))
    await store.sessions.append(ANN, "kept", batch("hello", create=WEEK))
    clock.advance(timedelta(days=1))

    gone = await store.upkeep.sweep()

    assert {(item.scope, item.session_id) for item in gone} == {(ANN, "a"), (EVE, "e")}
    assert await store.upkeep.sweep() == ()
    assert await texts(store, ANN, "kept") == ["hello"]


async def test_a_sweep_takes_no_more_than_its_limit(store: Store, clock: FakeClock) -> None:
    for n in range(5):
        await store.sessions.append(ANN, f"s{n}", batch("hello", create=DAY))
    clock.advance(timedelta(days=1))

    counts = [len(await store.upkeep.sweep(limit=2)) for _ in range(4)]

    assert counts == [2, 2, 1, 0]


@pytest.mark.requirement("B1")
async def test_a_sweep_leaves_what_was_touched_in_time(store: Store, clock: FakeClock) -> None:
    read = NewSession(retention=Retention(idle=timedelta(days=1), touch=Touch.READ))
    await store.sessions.append(ANN, "s", batch("hello", create=read))
    clock.advance(timedelta(hours=20))
    await store.sessions.get(ANN, "s")
    clock.advance(timedelta(hours=20))

    assert await store.upkeep.sweep() == ()
    assert await texts(store, ANN, "s") == ["hello"]


async def test_a_session_made_anew_on_an_expired_id_is_not_swept(store: Store, clock: FakeClock) -> None:
    await store.sessions.append(ANN, "s", batch("old", create=DAY))
    clock.advance(timedelta(days=2))
    await store.sessions.append(ANN, "s", batch("new", create=DAY))

    assert await store.upkeep.sweep() == ()
    assert await texts(store, ANN, "s") == ["new"]
    assert await store.upkeep.list_sites() == (ACME,)


@pytest.mark.requirement("B13")
async def test_evicting_removes_the_longest_unchanged_of_the_site(store: Store, clock: FakeClock) -> None:
    """Above the bound the oldest go; other sites and tenants are not counted."""
    for n in range(6):
        await store.sessions.append(BOB if n % 2 else ANN, f"s{n}", batch("hello"))
        clock.advance(timedelta(seconds=1))
    await store.sessions.append(ANN, "s0", batch("again"))
    await store.sessions.append(EVE, "e", batch("hello"))
    await store.sessions.append(ANN_ELSEWHERE, "m", batch("hello"))

    gone = await store.upkeep.evict(ANN, keep=4)

    assert [item.session_id for item in gone] == ["s1", "s2"]
    assert set(await listed(store, ACME)) == {"s0", "s3", "s4", "s5"}
    assert await store.upkeep.evict(ANN, keep=4) == ()
    assert await texts(store, EVE, "e") == ["hello"]
    with pytest.raises(SessionNotFound):
        await store.sessions.get(BOB, "s1")


async def test_evicting_passes_over_sessions_whose_turn_runs(store: Store, clock: FakeClock) -> None:
    """The next oldest go in their place; where none are left the site keeps more, until a lease ends."""
    turns = []
    for n in range(5):
        turns.append(await begin(store, ANN, f"s{n}", "hello"))
        clock.advance(timedelta(seconds=1))
    await store.sessions.finish_turn(turns[2], closing("answer"))

    assert [item.session_id for item in await store.upkeep.evict(ANN, keep=1)] == ["s2"]
    assert await store.upkeep.evict(ANN, keep=1) == ()
    for n in (0, 1):
        await store.sessions.finish_turn(turns[n], closing("answer"))
    assert [item.session_id for item in await store.upkeep.evict(ANN, keep=3, keep_session="s0")] == ["s1"]
    clock.advance(turns[3].lease)
    assert {item.session_id for item in await store.upkeep.evict(ANN, keep=0)} == {"s0", "s3", "s4"}


async def test_evicting_spares_the_newest_whatever_the_clock_says(store: Store, clock: FakeClock) -> None:
    """A clock that went backwards makes the session just created look the oldest."""
    await store.sessions.append(ANN, "a", batch("hello"))
    await store.sessions.append(ANN, "b", batch("hello"))
    clock.advance(timedelta(hours=-1))
    await store.sessions.append(ANN, "new", batch("hello"))

    gone = await store.upkeep.evict(ANN, keep=2, keep_session="new")

    assert len(gone) == 1
    assert gone[0].session_id in {"a", "b"}
    assert await texts(store, ANN, "new") == ["hello"]


async def test_stats_count_what_the_scope_reaches(store: Store) -> None:
    turn = await begin(store, ANN, "a", "q")
    await store.sessions.finish_turn(turn, closing("a", tokens=10, cost_nanos=7))
    await store.sessions.append(BOB, "b", batch("x", "y", "z", usage=Usage(tokens=5)))
    await store.sessions.append(EVE, "e", batch("x"))

    assert await store.upkeep.stats(ANN) == SessionStats(sessions=1, messages=2, tokens=10, cost_nanos=7)
    assert await store.upkeep.stats(ACME) == SessionStats(sessions=2, messages=5, tokens=15, cost_nanos=7)


async def test_a_healthy_store_answers(store: Store) -> None:
    await store.upkeep.ping()


@pytest.mark.parametrize("keep", [510, 505])
async def test_turns_during_an_eviction_cost_no_further_session(clock: FakeClock, keep: int) -> None:
    """A session that changes during the walk is met again at its end, and counts once."""
    records = InMemoryRecords()
    async with engine_over(records, clock) as store:
        for n in range(510):
            await store.sessions.append(ANN, f"s{n}", batch("hello"))
            clock.advance(timedelta(seconds=1))
        find, walked = records.list, list[IndexQuery]()

        async def find_while_turns_go_on(query: IndexQuery) -> tuple[FoundRecord, ...]:
            page = await find(query)
            walked.append(query)
            if len(walked) == 1:
                clock.advance(timedelta(minutes=5))
                for n in range(15, 25):
                    await store.sessions.append(ANN, f"s{n}", batch("again"))
            return page

        records.list = find_while_turns_go_on  # type: ignore[method-assign]

        gone = await store.upkeep.evict(ANN, keep)

        assert [item.session_id for item in gone] == [f"s{n}" for n in range(510 - keep)]
        assert bool(walked) == (keep < 510), "nothing is read where nothing is to go"
