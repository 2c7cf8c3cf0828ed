"""Traces: written with a turn's end, found by its number, gone with the words they are about."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tenuto.errors import SessionNotFound, TurnLost
from tenuto.model import ForkRequest, IdempotencyKey, NewSession, Retention, Truncation
from tenuto.model.turn import TRACES_KEPT, FinishTurn
from tenuto.ports import Store
from tests.clock import FakeClock
from tests.contract.full_traces import full_trace_of, traced_turn
from tests.samples import ANN, BOB, EVE, batch, begin, closing, fresh, opening, talk

pytestmark = pytest.mark.requirement("C9")


async def test_a_trace_comes_back_as_it_was_written(store: Store) -> None:
    turn = await traced_turn(store, "s")

    assert await store.traces.trace(ANN, "s", turn.number) == full_trace_of(turn)


async def test_a_turn_without_a_trace_has_none(store: Store) -> None:
    turn = await talk(store, ANN, "s", "hello", "hi")

    assert await store.traces.trace(ANN, "s", turn.number) is None
    assert await store.traces.trace(ANN, "s", 99) is None
    assert await store.traces.traces(ANN, "s") == ()


async def test_traces_come_newest_first_and_page_backwards(store: Store) -> None:
    turns = [await traced_turn(store, "s") for _ in range(5)]

    first = await store.traces.traces(ANN, "s", limit=2)
    rest = await store.traces.traces(ANN, "s", limit=10, before=first[-1].number)

    assert [trace.number for trace in (*first, *rest)] == [turn.number for turn in reversed(turns)]


async def test_only_the_newest_turns_keep_their_traces(store: Store) -> None:
    """A session of any length keeps the traces of a hundred turns."""
    uncapped = NewSession(retention=Retention(max_messages=None))
    turns = []
    for _ in range(TRACES_KEPT + 3):
        turn = await store.sessions.begin_turn(ANN, opening("s", "hello", create=uncapped, window=0))
        await store.sessions.finish_turn(turn, closing("hi", trace=full_trace_of(turn)))
        turns.append(turn)

    kept = await store.traces.traces(ANN, "s", limit=1000)

    assert [trace.number for trace in kept] == [turn.number for turn in reversed(turns[3:])]


async def test_an_abandoned_turn_may_leave_a_trace_and_its_retry_replaces_it(store: Store) -> None:
    turn = await begin(store, ANN, "s", "hello", idempotency_key=IdempotencyKey(key="k", fingerprint="f"))
    failed = full_trace_of(turn, error="model_failed", answer="")
    await store.sessions.finish_turn(turn, FinishTurn(abandoned=True, trace=failed))
    assert await store.traces.trace(ANN, "s", turn.number) == failed

    again = await begin(store, ANN, "s", "hello", idempotency_key=IdempotencyKey(key="k", fingerprint="f"))
    await store.sessions.finish_turn(again, closing("hi", trace=full_trace_of(again)))

    assert again.number == turn.number
    assert await store.traces.traces(ANN, "s") == (full_trace_of(again),)


async def test_a_lost_or_repeated_end_of_a_turn_changes_no_trace(store: Store, clock: FakeClock) -> None:
    lost = await begin(store, ANN, "s", "hello", lease=timedelta(seconds=1))
    clock.advance(timedelta(seconds=2))
    turn = await traced_turn(store, "s")

    with pytest.raises(TurnLost):
        await store.sessions.finish_turn(lost, closing("late", trace=full_trace_of(lost)))
    repeated = await store.sessions.finish_turn(turn, closing("again", trace=full_trace_of(turn, answer="other")))

    assert repeated.duplicate
    assert await store.traces.traces(ANN, "s") == (full_trace_of(turn),)


async def test_a_number_that_no_turn_has_is_no_trace(store: Store) -> None:
    turn = await begin(store, ANN, "s", "hello")
    await store.sessions.finish_turn(turn, closing("hi", trace=full_trace_of(turn)))

    assert [await store.traces.trace(ANN, "s", number) for number in (0, -1, 2, 2**80)] == [None] * 4
    assert await store.traces.traces(ANN, "s", limit=2**80, before=2**80) == (full_trace_of(turn),)
    assert await store.traces.traces(ANN, "s", before=0) == await store.traces.traces(ANN, "s", limit=-1) == ()


@pytest.mark.requirement("A25", "T1")
async def test_a_trace_exists_for_nobody_but_the_session_s_owner(store: Store, clock: FakeClock) -> None:
    """For traces: foreign, absent, expired and deleted are one answer."""
    turn = await traced_turn(store, "s")

    for stranger in (BOB, EVE):
        with pytest.raises(SessionNotFound):
            await store.traces.trace(stranger, "s", turn.number)
        with pytest.raises(SessionNotFound):
            await store.traces.traces(stranger, "s")
    with pytest.raises(SessionNotFound):
        await store.traces.traces(ANN, "absent")
    await store.sessions.delete(ANN, "s")
    with pytest.raises(SessionNotFound):
        await store.traces.trace(ANN, "s", turn.number)
    await store.sessions.append(ANN, "s", batch("anew"))
    assert await store.traces.traces(ANN, "s") == ()


async def test_a_session_made_anew_after_expiry_has_no_old_traces(store: Store, clock: FakeClock) -> None:
    """Whether it was swept meanwhile or not."""
    day = NewSession(retention=Retention(idle=timedelta(days=1)))
    for session, swept in (("s", False), ("swept", True)):
        turn = await store.sessions.begin_turn(ANN, opening(session, "hello", create=day))
        await store.sessions.finish_turn(turn, closing("hi", trace=full_trace_of(turn)))
        clock.advance(timedelta(days=2))

        if swept:
            await store.upkeep.sweep()
        with pytest.raises(SessionNotFound):
            await store.traces.traces(ANN, session)
        await store.sessions.append(ANN, session, batch("anew", create=day))

        assert await store.traces.traces(ANN, session) == ()
        assert await store.traces.trace(ANN, session, turn.number) is None


async def test_a_reset_forgets_the_traces(store: Store) -> None:
    turn = await traced_turn(store, "s")

    await store.sessions.reset(ANN, "s")

    assert await store.traces.trace(ANN, "s", turn.number) is None


async def test_a_truncation_takes_the_traces_of_the_turns_it_touches(store: Store) -> None:
    """A turn of which any message goes loses its trace, and so do all later ones."""
    first, second, third = [await traced_turn(store, "s") for _ in range(3)]
    words_of_second = second.user_messages[-1].seq

    await store.sessions.truncate(ANN, "s", Truncation(after=words_of_second))

    assert [trace.number for trace in await store.traces.traces(ANN, "s")] == [first.number]
    assert await store.traces.trace(ANN, "s", third.number) is None


async def test_a_fork_begins_without_traces(store: Store) -> None:
    turn = await traced_turn(store, "s")

    await store.sessions.fork(ANN, "s", ForkRequest(new_id="branch"))

    assert await store.traces.traces(ANN, "branch") == ()
    assert await store.traces.trace(ANN, "s", turn.number) == full_trace_of(turn)


async def test_reading_a_trace_moves_no_deadline(store: Store, clock: FakeClock) -> None:
    turn = await traced_turn(store, fresh("s"))
    before = (await store.sessions.get(ANN, turn.session.id)).expires_at
    clock.advance(timedelta(days=10))

    await store.traces.trace(ANN, turn.session.id, turn.number)
    await store.traces.traces(ANN, turn.session.id)

    assert (await store.sessions.get(ANN, turn.session.id)).expires_at == before


async def test_a_trace_counts_as_nothing_but_a_trace(store: Store) -> None:
    turn = await begin(store, ANN, "s", "hello")
    done = await store.sessions.finish_turn(turn, closing("hi", tokens=5, cost_nanos=7, trace=full_trace_of(turn)))

    assert (done.session.messages, done.session.tokens, done.session.cost_nanos) == (2, 5, 7)
