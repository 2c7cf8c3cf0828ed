"""A turn: words in, window out, lease held, reply stored; nothing lost, doubled or reordered."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from tenuto.errors import SessionBusy, SessionNotFound, TurnLost
from tenuto.model import Changes, FinishTurn, NewSession, OpenTurn, Page, Retention, Role, Truncation, TurnState, Usage
from tenuto.ports import Store
from tenuto.stores.engine import Engine
from tests.clock import FakeClock
from tests.samples import ANN, batch, begin, closing, talk, texts


@pytest.mark.requirement("D5")
async def test_a_turn_stores_words_and_reply_in_order(store: Store) -> None:
    turn = await begin(store, ANN, "s", "hello")
    done = await store.sessions.finish_turn(turn, closing("hi", tokens=7, cost_nanos=1500))

    assert (turn.state, turn.created, turn.number) == (TurnState.OPENED, True, 1)
    assert [message.text for message in turn.window] == ["hello"]
    assert [(message.seq, message.role, message.turn) for message in done.messages] == [(2, Role.ASSISTANT, 1)]
    assert await texts(store, ANN, "s") == ["hello", "hi"]
    session = await store.sessions.get(ANN, "s")
    assert (session.turns, session.messages, session.last_seq) == (1, 2, 2)
    assert (session.tokens, session.cost_nanos) == (7, 1500)
    assert session == done.session


async def test_the_window_brings_the_newest_messages_only(store: Store) -> None:
    await store.sessions.append(ANN, "s", batch(*(f"m{n}" for n in range(30))))

    turn = await begin(store, ANN, "s", "now", window=5)

    assert [message.text for message in turn.window] == ["m26", "m27", "m28", "m29", "now"]
    assert [message.seq for message in turn.window] == [27, 28, 29, 30, 31]


@pytest.mark.parametrize("before", [0, 3])
async def test_a_turn_that_brings_a_long_talk_has_all_of_it_in_its_window(store: Store, before: int) -> None:
    """More than the engine keeps in memory of a session, which may be new."""
    new = NewSession(retention=Retention(max_messages=None))
    if before:
        await store.sessions.append(ANN, "s", batch(*(f"m{n}" for n in range(before)), create=new))

    turn = await begin(store, ANN, "s", *(f"w{n}" for n in range(1_100)), window=2_000, create=new)

    assert [message.seq for message in turn.window] == list(range(1, before + 1_101))
    assert (turn.window[0].text, turn.window[-1].text) == ("m0" if before else "w0", "w1099")


async def test_a_window_of_zero_is_empty(store: Store) -> None:
    turn = await begin(store, ANN, "s", "now", window=0)

    assert turn.window == ()
    assert [message.text for message in turn.user_messages] == ["now"]


async def test_messages_before_the_window_start_are_kept_but_not_context(store: Store) -> None:
    await store.sessions.append(ANN, "s", batch("old", "older"))
    await store.sessions.patch(ANN, "s", Changes(window_start=3))

    turn = await begin(store, ANN, "s", "now")

    assert [message.text for message in turn.window] == ["now"]
    assert await texts(store, ANN, "s") == ["old", "older", "now"]


@pytest.mark.requirement("D17")
async def test_a_second_turn_on_a_busy_session_stores_nothing(store: Store, clock: FakeClock) -> None:
    first = await begin(store, ANN, "s", "one", lease=timedelta(seconds=60))
    clock.advance(timedelta(seconds=20))

    with pytest.raises(SessionBusy) as excinfo:
        await begin(store, ANN, "s", "two")

    assert excinfo.value.retry_after == timedelta(seconds=40)
    await store.sessions.finish_turn(first, closing("answer"))
    assert await texts(store, ANN, "s") == ["one", "answer"]


async def test_a_refusal_names_the_turn_to_abandon(store: Store) -> None:
    first = await begin(store, ANN, "s", "one")
    with pytest.raises(SessionBusy) as excinfo:
        await begin(store, ANN, "s", "two")
    named = OpenTurn.named(ANN, "s", excinfo.value.incarnation, excinfo.value.turn_id)

    await store.sessions.finish_turn(named, FinishTurn(abandoned=True))
    second = await begin(store, ANN, "s", "two")

    assert (named.id, named.session.incarnation) == (first.id, first.session.incarnation)
    with pytest.raises(TurnLost):
        await store.sessions.finish_turn(named, FinishTurn(abandoned=True))
    await store.sessions.finish_turn(second, closing("answer"))
    assert await texts(store, ANN, "s") == ["one", "two", "answer"]


async def test_a_lease_passes_on_when_it_has_run_out(store: Store, clock: FakeClock) -> None:
    first = await begin(store, ANN, "s", "one", lease=timedelta(seconds=60))
    clock.advance(timedelta(seconds=60))
    second = await begin(store, ANN, "s", "two")

    with pytest.raises(TurnLost):
        await store.sessions.finish_turn(first, closing("late"))
    await store.sessions.finish_turn(second, closing("in time"))

    assert await texts(store, ANN, "s") == ["one", "two", "in time"]


async def test_a_lease_that_ran_out_is_good_until_somebody_takes_it(store: Store, clock: FakeClock) -> None:
    turn = await begin(store, ANN, "s", "one", lease=timedelta(seconds=60))
    clock.advance(timedelta(hours=1))

    await store.sessions.finish_turn(turn, closing("slow"))

    assert await texts(store, ANN, "s") == ["one", "slow"]


async def test_a_renewed_lease_lasts_as_long_again(store: Store, clock: FakeClock) -> None:
    turn = await begin(store, ANN, "s", "one", lease=timedelta(seconds=60))
    clock.advance(timedelta(seconds=50))
    renewed = await store.sessions.renew_turn(turn)
    clock.advance(timedelta(seconds=50))

    assert renewed.lease_until == turn.lease_until + timedelta(seconds=50) if turn.lease_until else False
    with pytest.raises(SessionBusy):
        await begin(store, ANN, "s", "two")
    await store.sessions.finish_turn(renewed, closing("done"))
    with pytest.raises(TurnLost):
        await store.sessions.renew_turn(renewed)


async def test_finishing_twice_stores_the_reply_once(store: Store) -> None:
    turn = await begin(store, ANN, "s", "one")
    await store.sessions.finish_turn(turn, closing("reply", tokens=5))

    again = await store.sessions.finish_turn(turn, closing("reply", tokens=5))

    assert again.duplicate
    assert await texts(store, ANN, "s") == ["one", "reply"]
    assert (await store.sessions.get(ANN, "s")).tokens == 5


async def test_an_abandoned_turn_keeps_the_words_and_frees_the_session(store: Store) -> None:
    turn = await begin(store, ANN, "s", "one")
    await store.sessions.finish_turn(turn, FinishTurn(abandoned=True, usage=Usage(tokens=3)))

    following = await begin(store, ANN, "s", "two")

    assert [message.text for message in following.window] == ["one", "two"]
    assert following.session.tokens == 3


async def test_a_turn_without_words_answers_anew(store: Store) -> None:
    await talk(store, ANN, "s", "question", "first answer")
    await store.sessions.truncate(ANN, "s", Truncation(after=1))

    turn = await begin(store, ANN, "s")
    await store.sessions.finish_turn(turn, closing("second answer"))

    assert turn.user_messages == ()
    assert await texts(store, ANN, "s") == ["question", "second answer"]


async def test_a_turn_ends_with_its_changes(store: Store) -> None:
    turn = await begin(store, ANN, "s", "hello")

    done = await store.sessions.finish_turn(
        turn, closing("hi", changes=Changes(title="Greeting", context={"mood": "good"}))
    )

    assert (done.session.title, done.session.context) == ("Greeting", {"mood": "good"})


async def test_without_create_an_absent_session_is_not_found_and_not_made(store: Store) -> None:
    with pytest.raises(SessionNotFound):
        await begin(store, ANN, "nowhere", "hello", create=None)
    with pytest.raises(SessionNotFound):
        await store.sessions.get(ANN, "nowhere")


async def test_a_new_session_starts_with_what_it_was_given(store: Store) -> None:
    new = NewSession(
        title="Trip", context={"city": "Xi'an", "gone": None}, attributes={"vip": True}, metadata={"from": "web"}
    )

    turn = await begin(store, ANN, "s", "hello", create=new)

    assert turn.session == await store.sessions.get(ANN, "s")
    assert turn.session.title == "Trip"
    assert turn.session.context == {"city": "Xi'an"}
    assert turn.session.attributes == {"vip": True}
    assert turn.session.metadata == {"from": "web"}
    assert turn.session.scope == ANN


@pytest.mark.requirement("D5")
async def test_a_turn_tells_when_the_session_was_last_active(store: Store, clock: FakeClock) -> None:
    first = await talk(store, ANN, "s", "one", "reply")
    last_active = clock()
    clock.advance(timedelta(hours=49))

    second = await begin(store, ANN, "s", "two")

    assert first.last_active_at is None
    assert second.last_active_at == last_active
    assert second.session.updated_at == clock()


@pytest.mark.requirement("B1", "T3")
async def test_concurrent_appends_to_one_session_are_all_kept(store: Store) -> None:
    """Within one process: nothing lost, nothing doubled, the messages of a batch stay together, totals exact."""
    await store.sessions.append(ANN, "s", batch())

    async def work(worker: int) -> None:
        for n in range(5):
            await store.sessions.append(
                ANN, "s", batch(f"{worker}.{n}?", f"{worker}.{n}!", usage=Usage(tokens=2, cost_nanos=3))
            )

    async with asyncio.TaskGroup() as group:
        for worker in range(8):
            group.create_task(work(worker))
        group.create_task(store.sessions.patch(ANN, "s", Changes(title="renamed")))

    said = await texts(store, ANN, "s")
    assert sorted(said) == sorted(f"{w}.{n}{mark}" for w in range(8) for n in range(5) for mark in "?!")
    assert all(said[place + 1] == said[place][:-1] + "!" for place in range(0, len(said), 2))
    session = await store.sessions.get(ANN, "s")
    assert (session.tokens, session.cost_nanos, session.messages) == (80, 120, 80)
    assert session.title == "renamed"


@pytest.mark.requirement("B1", "D17")
async def test_only_one_of_many_concurrent_turns_gets_the_lease(store: Store) -> None:
    async def attempt(n: int, session: str = "s") -> bool:
        try:
            await begin(store, ANN, session, f"words {n}")
        except SessionBusy:
            return False
        return True

    won = await asyncio.gather(*(attempt(n) for n in range(10)))
    await store.sessions.append(ANN, "stands", batch())
    of_one_that_stands = await asyncio.gather(*(attempt(n, "stands") for n in range(20)))

    assert (sum(won), sum(of_one_that_stands)) == (1, 1)
    assert [len(await texts(store, ANN, session)) for session in ("s", "stands")] == [1, 1]


async def test_messages_page_both_ways(store: Store) -> None:
    await store.sessions.append(ANN, "s", batch(*(f"m{n}" for n in range(1, 11))))

    newest = await store.sessions.messages(ANN, "s", Page(limit=3))
    older = await store.sessions.messages(ANN, "s", Page(limit=3, before=8))
    first = await store.sessions.messages(ANN, "s", Page(limit=3, after=0))
    beyond = await store.sessions.messages(ANN, "s", Page(limit=3, after=10))

    assert [message.seq for message in newest.messages] == [8, 9, 10]
    assert (newest.more_before, newest.more_after) == (True, False)
    assert [message.seq for message in older.messages] == [5, 6, 7]
    assert (older.more_before, older.more_after) == (True, True)
    assert [message.seq for message in first.messages] == [1, 2, 3]
    assert (first.more_before, first.more_after) == (False, True)
    assert beyond.messages == ()
    assert (beyond.more_before, beyond.more_after) == (True, False)
    everything = await store.sessions.messages(ANN, "s", Page(limit=10, before=100))
    assert (everything.more_before, everything.more_after) == (False, False)


async def test_a_batch_of_several_turns_numbers_them(store: Store) -> None:
    appended = await store.sessions.append(ANN, "s", batch("q1", "a1", "q2", "a2"))
    turn = await begin(store, ANN, "s", "q3")

    assert [message.turn for message in appended.messages] == [1, 1, 2, 2]
    assert turn.number == 3


async def test_a_write_whose_caller_gave_up_is_whole_or_not_at_all(store: Store) -> None:
    """Cancelled at any point, the write happened or did not, and everybody sees the same, hot or cold."""
    await store.sessions.append(ANN, "s", batch("first"))
    for wait in (0, 0, 0.001, 0.003, 0.01):
        writing = asyncio.create_task(store.sessions.append(ANN, "s", batch("q", "a")))
        await asyncio.sleep(wait)
        writing.cancel()
        await asyncio.wait([writing])
        await store.sessions.messages(ANN, "s", Page())
    await _landed(store)
    head, page = await store.sessions.get(ANN, "s"), await store.sessions.messages(ANN, "s", Page())

    settled = await store.sessions.append(ANN, "s", batch())
    assert head.version + 1 == settled.session.version
    assert len(page.messages) == settled.session.messages
    assert settled.session.messages % 2 == 1


async def _landed(store: Store) -> None:
    """Wait until what cancelled callers sent is stored: a change of the same session comes after it."""
    engine: Any = store
    while not isinstance(engine, Engine):
        engine = engine.inner
    await store.sessions.append(ANN, "s", batch())
    engine.cache.clear()


async def test_an_append_of_nothing_is_no_turn(store: Store) -> None:
    made = await store.sessions.append(ANN, "s", batch())
    turn = await begin(store, ANN, "s", "hello")

    assert (made.session.turns, turn.number) == (0, 1)
