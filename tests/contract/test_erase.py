"""Erasing a person: everything they own on a site goes, counted, and no one else's data."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Sequence
from datetime import timedelta
from itertools import count

import pytest

from tenuto.errors import Invalid, SessionNotFound, StoreUnavailable, TurnLost
from tenuto.model import EraseResult, NewSession, RemovedSession, Retention, Scope, SessionQuery, SessionStats
from tenuto.model.stored import FoundRecord, IndexOrder, IndexQuery, RecordChange, Refused
from tenuto.ports import Store
from tenuto.stores.memory import InMemoryRecords
from tests.backends import Backend, engine_over
from tests.clock import FakeClock
from tests.contract.full_traces import full_trace_of
from tests.samples import ACME, ANN, ANN_ELSEWHERE, BOB, EVE, batch, begin, closing, listed, once, talk, texts, value_of

IN_A_CHAT = Scope(tenant="acme", user="ann", channel="lark", chat="team")


async def traced(store: Store, scope: Scope, session_id: str) -> None:
    """One whole turn with a trace."""
    turn = await begin(store, scope, session_id, "hello")
    await store.sessions.finish_turn(turn, closing("hi", trace=full_trace_of(turn)))


async def test_everything_the_user_owns_goes_and_is_counted(store: Store, clock: FakeClock) -> None:
    await traced(store, ANN, "first")
    clock.advance(timedelta(seconds=1))
    await store.sessions.append(ANN, "second", batch("a", "b", "c", idempotency_key=once("k")))
    await store.state.write_state(ANN, "prefs", "tone", "warm")
    await store.state.write_state(ANN, "prefs", "name", "Ann")
    await store.state.write_state(ANN, "vault", "first", {"EMAIL_1": "secret"})

    erased = await store.upkeep.erase(ANN)

    gone = (RemovedSession(scope=ANN, session_id="first"), RemovedSession(scope=ANN, session_id="second"))
    assert erased == EraseResult(removed_sessions=gone, messages=5, traces=1, states=3)
    for session_id in ("first", "second"):
        with pytest.raises(SessionNotFound):
            await store.sessions.get(ANN, session_id)
    assert (await store.sessions.list(ACME, SessionQuery())).sessions == ()
    assert await store.upkeep.stats(ANN) == SessionStats()
    assert await store.state.read_state(ANN, "vault", "first") is None
    assert await store.state.list_state(ANN, "prefs") == ()


async def test_erasing_again_finds_nothing(store: Store) -> None:
    await traced(store, ANN, "s")
    await store.state.write_state(ANN, "prefs", "k", 1)
    await store.upkeep.erase(ANN)

    assert await store.upkeep.erase(ANN) == EraseResult()


async def test_nobody_elses_goes_along(store: Store) -> None:
    """The same user id of another tenant or site is another person, and so is a chat the user speaks in."""
    others = (BOB, EVE, ANN_ELSEWHERE, ACME, IN_A_CHAT)
    for scope in (ANN, *others):
        await traced(store, scope, f"of {'/'.join(scope.owner)}")
        await store.state.write_state(scope, "prefs", "k", "kept")

    erased = await store.upkeep.erase(ANN)

    assert (len(erased.removed_sessions), erased.states) == (1, 1)
    for scope in others:
        assert await texts(store, scope, f"of {'/'.join(scope.owner)}") == ["hello", "hi"]
        assert len(await store.traces.traces(scope, f"of {'/'.join(scope.owner)}")) == 1
        assert await value_of(store, scope, "prefs", "k") == "kept"


async def test_a_user_is_erased_from_wherever_they_speak(store: Store) -> None:
    """The chat in a scope says where a user speaks, not whose the data is."""
    await store.sessions.append(ANN, "own", batch("a"))
    await store.sessions.append(IN_A_CHAT, "shared", batch("b"))

    erased = await store.upkeep.erase(IN_A_CHAT)

    assert [item.session_id for item in erased.removed_sessions] == ["own"]
    assert await texts(store, IN_A_CHAT, "shared") == ["b"]


async def test_a_scope_without_a_user_erases_nothing(store: Store, subtests: pytest.Subtests) -> None:
    for kind, scope in {"tenant": ACME, "chat": Scope(tenant="acme", chat="team")}.items():
        with subtests.test(kind):
            await store.sessions.append(scope, kind, batch("a"))
            await store.state.write_state(scope, "prefs", "k", 1)

            with pytest.raises(Invalid):
                await store.upkeep.erase(scope)

            assert await texts(store, scope, kind) == ["a"]
            assert await store.state.read_state(scope, "prefs", "k") is not None


async def test_many_sessions_go_step_by_step_and_state_goes_last(store: Store, clock: FakeClock) -> None:
    for n in range(5):
        await store.sessions.append(ANN, f"s{n}", batch("a", "b"))
        clock.advance(timedelta(seconds=1))
    await store.state.write_state(ANN, "prefs", "k", 1)

    steps = [await store.upkeep.erase(ANN, limit=2) for _ in range(4)]

    assert [[item.session_id for item in step.removed_sessions] for step in steps] == [
        ["s0", "s1"],
        ["s2", "s3"],
        ["s4"],
        [],
    ]
    assert [(step.messages, step.states, step.more) for step in steps] == [
        (4, 0, True), (4, 0, True), (2, 1, False), (0, 0, False),
    ]  # fmt: skip


async def test_exactly_as_many_as_the_limit_is_one_step(store: Store) -> None:
    for n in range(3):
        await store.sessions.append(ANN, f"s{n}", batch("a"))
    await store.state.write_state(ANN, "prefs", "k", 1)

    erased = await store.upkeep.erase(ANN, limit=3)

    assert (len(erased.removed_sessions), erased.states, erased.more) == (3, 1, False)


async def test_a_limit_of_none_only_looks(store: Store) -> None:
    await store.sessions.append(ANN, "s", batch("a"))
    await store.state.write_state(ANN, "prefs", "k", 1)

    assert await store.upkeep.erase(ANN, limit=0) == EraseResult(more=True)
    assert await store.upkeep.erase(ANN, limit=-1) == EraseResult(more=True)
    assert await texts(store, ANN, "s") == ["a"]


async def test_more_than_a_transaction_holds_goes_in_one_step(store: Store) -> None:
    for n in range(120):
        await store.sessions.append(ANN, f"s{n}", batch("a"))

    erased = await store.upkeep.erase(ANN, limit=1000)

    assert (len(erased.removed_sessions), erased.messages, erased.more) == (120, 120, False)


async def test_what_expired_and_was_not_swept_yet_goes_too(store: Store, clock: FakeClock) -> None:
    """No call reaches it any more, but its text is still there."""
    await store.sessions.append(
        ANN, "s", batch("a", "b", create=NewSession(retention=Retention(idle=timedelta(hours=1))))
    )
    clock.advance(timedelta(days=2))

    erased = await store.upkeep.erase(ANN)

    assert erased == EraseResult(removed_sessions=(RemovedSession(scope=ANN, session_id="s"),), messages=2)
    assert await store.upkeep.sweep() == ()


async def test_an_id_that_passed_to_another_is_not_taken_from_them(store: Store, clock: FakeClock) -> None:
    """Ann's session expired, and Bob's of the same id stands in its place."""
    brief = NewSession(retention=Retention(idle=timedelta(hours=1)))
    await store.sessions.append(ANN, "s", batch("ann's", create=brief))
    await store.sessions.append(ANN, "other", batch("ann's"))
    clock.advance(timedelta(hours=2))
    await store.sessions.append(BOB, "s", batch("bob's", create=brief))

    erased = await store.upkeep.erase(ANN, limit=1)

    assert [item.session_id for item in erased.removed_sessions] == ["other"]
    assert not erased.more
    assert await texts(store, BOB, "s") == ["bob's"]
    assert await listed(store, ACME) == ["s"]


async def test_a_running_turn_is_lost(store: Store) -> None:
    turn = await begin(store, ANN, "s", "hello")

    await store.upkeep.erase(ANN)

    with pytest.raises(TurnLost):
        await store.sessions.finish_turn(turn, closing("too late"))
    with pytest.raises(SessionNotFound):
        await store.sessions.get(ANN, "s")


async def test_the_ids_are_free_and_keys_are_forgotten(store: Store) -> None:
    asked = {"idempotency_key": once("k")}
    await talk(store, ANN, "s", "old", "old", **asked)
    await store.upkeep.erase(ANN)

    again = await talk(store, ANN, "s", "new", "new", **asked)

    assert again.created
    assert await texts(store, ANN, "s") == ["new", "new"]
    assert await store.traces.traces(ANN, "s") == ()


async def test_state_written_afterwards_starts_anew(store: Store) -> None:
    await store.state.write_state(ANN, "prefs", "k", 1)
    await store.state.write_state(ANN, "prefs", "k", 2)
    await store.upkeep.erase(ANN)

    assert (await store.state.write_state(ANN, "prefs", "k", 3, if_version=0)).version == 1
    assert (await store.upkeep.erase(ANN)).states == 1


async def test_state_that_was_deleted_before_is_not_counted(store: Store) -> None:
    await store.state.write_state(ANN, "prefs", "k", 1)
    await store.state.write_state(ANN, "prefs", "l", 1)
    await store.state.delete_state(ANN, "prefs", "k")

    assert (await store.upkeep.erase(ANN)).states == 1


async def test_a_copy_set_aside_as_unreadable_goes_too(store: Store, backend: Backend, clock: FakeClock) -> None:
    """Although a fresh session stands under its id."""
    if backend.damage is None:
        return  # Nothing in this process's memory can be damaged.
    for finder in (ANN, ACME):
        await traced(store, ANN, "s")
        await backend.damage(store, ANN, "s")
        with pytest.raises(SessionNotFound):
            await store.sessions.get(finder, "s")
        clock.advance(timedelta(seconds=1))
    await talk(store, ANN, "s", "fresh", "start")
    await traced(store, BOB, "t")

    erased = await store.upkeep.erase(ANN)

    gone = (RemovedSession(scope=ANN, session_id="s"),)
    assert erased == EraseResult(removed_sessions=gone, messages=6, traces=2, quarantined=2)
    assert await store.upkeep.erase(ANN) == EraseResult()
    assert await texts(store, BOB, "t") == ["hello", "hi"]


async def test_what_is_unreadable_and_was_not_met_yet_goes_too(store: Store, backend: Backend) -> None:
    if backend.damage is None:
        return  # Nothing in this process's memory can be damaged.
    await traced(store, ANN, "s")
    await backend.damage(store, ANN, "s")

    erased = await store.upkeep.erase(ANN)

    assert len(erased.removed_sessions) + erased.quarantined == 1
    assert (erased.messages, erased.traces, erased.more) == (2, 1, False)
    assert await store.upkeep.erase(ANN) == EraseResult()


async def test_an_id_of_a_copy_set_aside_may_be_anothers_by_now(store: Store, backend: Backend) -> None:
    if backend.damage is None:
        return  # Nothing in this process's memory can be damaged.
    await talk(store, ANN, "s", "ann's", "words")
    await backend.damage(store, ANN, "s")
    with pytest.raises(SessionNotFound):
        await store.sessions.get(ANN, "s")
    await talk(store, BOB, "s", "bob's", "words")

    erased = await store.upkeep.erase(ANN)

    assert erased == EraseResult(messages=2, quarantined=1)
    assert await texts(store, BOB, "s") == ["bob's", "words"]
    assert await listed(store, ACME) == ["s"]


async def test_compacting_changes_nothing_that_is_kept(store: Store) -> None:
    await traced(store, ANN, "s")
    await store.state.write_state(ANN, "prefs", "k", 1)
    turn = await begin(store, ANN, "s", "before")

    await store.upkeep.compact()

    await store.sessions.finish_turn(turn, closing("after"))
    assert await texts(store, ANN, "s") == ["hello", "hi", "before", "after"]
    assert (await store.state.write_state(ANN, "prefs", "k", 2)).version == 2
    assert len(await store.traces.traces(ANN, "s")) == 1


@pytest.mark.parametrize("order", [IndexOrder.OLDEST, IndexOrder.PLACE])
async def test_what_changes_while_it_is_to_go_is_not_left_behind(clock: FakeClock, order: IndexOrder) -> None:
    """A removal is refused where another writes in between: it is made again."""
    records = InMemoryRecords()
    async with engine_over(records, clock) as store:
        await store.sessions.append(ANN, "s", batch("a"))
        await store.state.write_state(ANN, "prefs", "k", 1)
        find, written = records.list, list[IndexQuery]()

        async def find_and_write(query: IndexQuery) -> tuple[FoundRecord, ...]:
            page = await find(query)
            if query.order is order and page and not written:
                written.append(query)
                await store.sessions.append(ANN, "s", batch("b"))
                await store.state.write_state(ANN, "prefs", "k", 2)
            return page

        records.list = find_and_write  # type: ignore[method-assign]

        erased = await store.upkeep.erase(ANN)

        assert not erased.more
        assert await listed(store, ACME) == []
        assert await store.state.read_state(ANN, "prefs", "k") is None


async def test_erasing_reads_each_session_once_or_so(clock: FakeClock) -> None:
    records = InMemoryRecords()
    async with engine_over(records, clock) as store:
        for n in range(500):
            await store.sessions.append(ANN, f"s{n}", batch("a"))
        find, read = records.list, list[FoundRecord]()

        async def find_counted(query: IndexQuery) -> tuple[FoundRecord, ...]:
            page = await find(query)
            read.extend(page)
            return page

        records.list = find_counted  # type: ignore[method-assign]

        assert len((await store.upkeep.erase(ANN, limit=500)).removed_sessions) == 500
        assert len(read) < 600


async def test_what_went_is_told_although_the_store_fails_for_others(clock: FakeClock) -> None:
    records = InMemoryRecords()
    async with engine_over(records, clock) as store:
        for n in range(4):
            await store.sessions.append(ANN, f"s{n}", batch("a"))
            clock.advance(timedelta(seconds=1))
        commit, asked = records.commit, count()

        def commit_by_halves(changes: Sequence[RecordChange]) -> Future[Refused | None]:
            if next(asked) % 2 == 0:
                return commit(changes)
            failed: Future[Refused | None] = Future()
            failed.set_exception(StoreUnavailable(why="gone"))
            return failed

        records.commit = commit_by_halves  # type: ignore[method-assign]

        gone = await store.upkeep.evict(ANN, keep=0)

        assert [item.session_id for item in gone] == ["s0", "s2"]
