"""Turns while the store is away: acknowledged on disk, shown as any other, and brought to the store once it is back."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tenuto.errors import (
    SessionBusy,
    SessionExpired,
    SessionForeign,
    SessionNotFound,
    StoreUnavailable,
    TurnLost,
    Unavailable,
)
from tenuto.model import Changes, FinishTurn, NewSession, Page, Producer, Retention, SessionQuery, TurnState
from tenuto.model.scope import session_key
from tenuto.stores.journaled import count_journal
from tests.outages import Fate, Process
from tests.samples import ANN, BOB, EVE, begin, closing, once, texts, trace_of


async def test_a_turn_goes_on_while_the_store_is_away_and_is_there_afterwards(here: Process) -> None:
    """T7, X5: with the talk before it in sight, and behind it in the store."""
    await here.turn(ANN, "s", "one", "1")

    here.goes_away()
    turn = await here.begin(ANN, "s", "two")
    done = await here.store.sessions.finish_turn(turn, closing("2"))
    shown = await texts(here.store, ANN, "s")
    here.comes_back()
    replayed = await here.replay()

    assert (turn.journaled, turn.number, done.journaled) == (True, 2, True)
    assert [message.text for message in turn.window] == ["one", "1", "two"]
    assert shown == ["one", "1", "two", "2"] == await here.log(ANN, "s")
    assert replayed
    assert (here.store.status.away, here.store.status.waiting, here.store.status.replayed) == (False, 0, 1)


async def test_what_is_acknowledged_is_on_disk(here: Process) -> None:
    here.goes_away()

    turn = await here.begin(ANN, "s", "one")
    begun = count_journal(here.folder)
    await here.finish(turn, "1")
    await here.restart()

    assert begun.waiting == 1
    assert await texts(here.store, ANN, "s") == ["one", "1"]


async def test_what_cannot_be_written_is_not_acknowledged(here: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    await here.turn(ANN, "s", "one", "1")
    here.goes_away()
    turn = await here.begin(ANN, "s", "two")

    async def full(*_: object) -> bool:
        raise Unavailable("journal", "cannot be written")

    with monkeypatch.context() as broken:
        broken.setattr(here.outbox, "close_turn", full)
        with pytest.raises(Unavailable):
            await here.finish(turn, "lost")
    with monkeypatch.context() as broken:
        broken.setattr(here.outbox, "add", full)
        with pytest.raises(Unavailable):
            await here.begin(BOB, "b", "lost")
    await here.finish(turn, "2")

    assert await texts(here.store, ANN, "s") == ["one", "1", "two", "2"]
    with pytest.raises(StoreUnavailable):
        await here.store.sessions.get(BOB, "b")


async def test_a_turn_that_began_in_the_store_ends_in_the_journal(here: Process) -> None:
    turn = await here.begin(ANN, "s", "one", idempotency_key=once("k"))

    here.goes_away()
    done = await here.store.sessions.finish_turn(turn, closing("1", tokens=7, trace=trace_of(turn)))
    again = await here.store.sessions.finish_turn(turn, closing("another"))
    answered = await here.begin(ANN, "s", "one", idempotency_key=once("k"))
    traced = await here.store.traces.trace(ANN, "s", 1)
    await here.catch_up()

    assert (turn.journaled, done.journaled, again.duplicate) == (False, True, True)
    assert (answered.state, [message.text for message in answered.reply]) == (TurnState.FINISHED, ["1"])
    assert traced == trace_of(turn) == await here.memory.traces.trace(ANN, "s", 1)
    assert await here.log(ANN, "s") == ["one", "1"]
    assert (await here.memory.sessions.get(ANN, "s")).tokens == 7
    assert (await begin(here.memory, ANN, "s", "one", idempotency_key=once("k"))).reply[0].text == "1"


async def test_who_may_not_be_journaled_is_refused_as_ever(here: Process) -> None:
    """X5: `raise` and `stateless` stay what they are."""
    turn = await here.begin(ANN, "s", "one", journaled=False)
    here.goes_away()

    with pytest.raises(StoreUnavailable):
        await here.store.sessions.finish_turn(turn, closing("1"))
    with pytest.raises(StoreUnavailable):
        await here.begin(ANN, "s", "two", journaled=False)
    with pytest.raises(StoreUnavailable):
        await here.begin(ANN, "s", "two", producer=Producer(id="p", seq=1))
    for refused in (
        here.store.sessions.list(ANN, SessionQuery()),
        here.store.sessions.patch(ANN, "s", Changes(title="t")),
        here.store.sessions.reset(ANN, "s"),
        here.store.sessions.delete(ANN, "s"),
    ):
        with pytest.raises(StoreUnavailable):
            await refused
    assert count_journal(here.folder).waiting == 0


async def test_a_session_nobody_here_has_seen_is_not_made_up(here: Process) -> None:
    """S6: same id and empty history would be another session."""
    here.goes_away()

    with pytest.raises(StoreUnavailable):
        await here.begin(ANN, "unseen", "hello", create=None)
    with pytest.raises(StoreUnavailable):
        await here.store.sessions.get(ANN, "unseen")


async def test_outside_its_scope_a_known_session_does_not_exist(here: Process) -> None:
    """Promise 2, S6: also while the store cannot be asked."""
    await here.turn(ANN, "s", "one", "1", create=NewSession(retention=Retention(idle=timedelta(hours=1))))
    here.goes_away()

    for journaled in (False, True):
        if journaled:
            await here.turn(ANN, "s", "two", "2")
        with pytest.raises(SessionForeign):
            await here.store.sessions.get(BOB, "s")
        with pytest.raises(SessionForeign):
            await here.begin(BOB, "s", "mine?")
        with pytest.raises(StoreUnavailable):
            await here.store.sessions.get(EVE, "s")
    here.clock.advance(timedelta(hours=2))
    with pytest.raises(SessionExpired):
        await here.store.sessions.messages(ANN, "s", Page())


async def test_a_running_turn_keeps_others_out_and_its_key_resumes_it(here: Process) -> None:
    here.goes_away()
    turn = await here.begin(ANN, "s", "one", idempotency_key=once("k"))

    with pytest.raises(SessionBusy):
        await here.begin(ANN, "s", "two")
    here.clock.advance(timedelta(seconds=100))
    await here.store.sessions.renew_turn(turn)
    here.clock.advance(timedelta(seconds=100))
    with pytest.raises(SessionBusy):
        await here.begin(ANN, "s", "two")
    await here.store.sessions.finish_turn(turn, FinishTurn(abandoned=True))
    resumed = await here.begin(ANN, "s", "one", idempotency_key=once("k"))
    await here.finish(resumed, "1")
    await here.catch_up()

    assert (resumed.state, resumed.number) == (TurnState.RESUMED, 1)
    assert await here.log(ANN, "s") == ["one", "1"]
    assert (await begin(here.memory, ANN, "s", "one", idempotency_key=once("k"))).state is TurnState.FINISHED


async def test_a_turn_that_is_open_when_the_store_comes_back_goes_on_there(here: Process) -> None:
    await here.turn(ANN, "s", "one", "1")
    here.goes_away()
    turn = await here.begin(ANN, "s", "two")
    await begin(here.memory, ANN, "s", "elsewhere", lease=timedelta(seconds=1))
    here.clock.advance(timedelta(seconds=2))

    here.comes_back()
    assert await here.replay()
    await here.store.sessions.renew_turn(turn)
    with pytest.raises(SessionBusy):
        await here.begin(ANN, "s", "three")
    done = await here.store.sessions.finish_turn(turn, closing("2", trace=trace_of(turn)))

    assert not done.journaled
    assert await here.log(ANN, "s") == ["one", "1", "elsewhere", "two", "2"]
    traced = await here.memory.traces.trace(ANN, "s", 3)
    assert traced is not None
    assert (traced.turn_id, traced.number) == (turn.id, 3)
    assert await here.memory.traces.trace(ANN, "s", 2) is None


async def test_a_turn_that_is_open_in_the_store_keeps_others_out_here_too(here: Process) -> None:
    """Until its lease runs out: then another may begin, and the first is lost, as it would be there."""
    turn = await here.begin(ANN, "s", "one")
    here.goes_away()

    with pytest.raises(SessionBusy):
        await here.begin(ANN, "s", "two")
    here.clock.advance(timedelta(minutes=3))
    second = await here.begin(ANN, "s", "two")
    with pytest.raises(TurnLost):
        await here.finish(turn, "1")
    await here.finish(second, "2")
    await here.catch_up()

    assert await here.log(ANN, "s") == ["one", "two", "2"]


async def test_an_open_turn_is_journaled_again_when_the_store_goes_once_more(here: Process) -> None:
    here.goes_away()
    turn = await here.begin(ANN, "s", "one")
    await here.catch_up()

    here.goes_away()
    done = await here.store.sessions.finish_turn(turn, closing("1"))
    await here.catch_up()

    assert done.journaled
    assert await here.log(ANN, "s") == ["one", "1"]


async def test_a_call_brings_what_was_said_before_to_the_store_first(here: Process) -> None:
    here.goes_away()
    await here.turn(ANN, "s", "one", "1")
    here.comes_back()

    turn = await here.begin(ANN, "s", "two", create=None)
    await here.store.sessions.finish_turn(turn, closing("2"))
    await here.store.sessions.patch(ANN, "s", Changes(title="Numbers"))

    assert not turn.journaled
    assert await here.log(ANN, "s") == ["one", "1", "two", "2"]
    assert here.store.status.waiting == 0


async def test_a_session_that_is_deleted_leaves_no_turns_behind(here: Process) -> None:
    await here.turn(ANN, "s", "one", "1")
    here.goes_away()
    await here.turn(ANN, "s", "two", "2")
    await begin(here.memory, ANN, "s", "elsewhere")
    here.comes_back()

    with pytest.raises(SessionBusy):
        await here.store.sessions.reset(ANN, "s")
    await here.store.sessions.delete(ANN, "s")

    assert count_journal(here.folder).waiting == 0
    with pytest.raises(SessionNotFound):
        await here.store.sessions.get(ANN, "s")


async def test_while_somebody_elses_turn_runs_in_the_store_what_waits_can_be_read(here: Process) -> None:
    await here.turn(ANN, "s", "one", "1")
    here.goes_away()
    await here.turn(ANN, "s", "two", "2")
    other = await begin(here.memory, ANN, "s", "elsewhere")
    here.comes_back()

    with pytest.raises(SessionBusy):
        await here.begin(ANN, "s", "three")
    seen = await texts(here.store, ANN, "s")
    await here.memory.sessions.finish_turn(other, closing("there"))
    await here.replay()

    assert seen == ["one", "1", "two", "2"]
    assert await here.log(ANN, "s") == ["one", "1", "elsewhere", "there", "two", "2"]


async def test_after_a_restart_in_the_middle_the_talk_goes_on(here: Process) -> None:
    await here.turn(ANN, "s", "one", "1")
    here.goes_away()
    await here.turn(ANN, "s", "two", "2", idempotency_key=once("k2"))
    lost = await here.begin(ANN, "s", "three", idempotency_key=once("k3"))

    await here.restart()
    answered = await here.begin(ANN, "s", "two", idempotency_key=once("k2"), create=None)
    resumed = await here.begin(ANN, "s", "three", idempotency_key=once("k3"), create=None)
    with pytest.raises(StoreUnavailable):
        await here.finish(lost, "too late")
    await here.finish(resumed, "3")
    shown = await texts(here.store, ANN, "s")
    await here.catch_up()

    assert (answered.state, resumed.state) == (TurnState.FINISHED, TurnState.RESUMED)
    assert [message.text for message in resumed.window] == ["one", "1", "two", "2", "three"]
    assert shown == ["one", "1", "two", "2", "three", "3"] == await here.log(ANN, "s")


async def test_a_turn_nobody_ended_leaves_its_words_and_can_be_resumed(here: Process) -> None:
    here.goes_away()
    await here.begin(ANN, "s", "one", idempotency_key=once("k"))

    await here.restart()
    await here.catch_up()
    resumed = await here.begin(ANN, "s", "one", idempotency_key=once("k"), create=None)

    assert (resumed.state, resumed.number) == (TurnState.RESUMED, 1)
    assert await here.log(ANN, "s") == ["one"]


async def test_pages_that_are_not_here_are_not_made_up(here: Process) -> None:
    for number in range(4):
        await here.turn(ANN, "s", f"q{number}", f"a{number}", window=2)
    here.goes_away()
    await here.turn(ANN, "s", "q4", "a4", window=2)

    newest = await here.store.sessions.messages(ANN, "s", Page(limit=4))
    behind = await here.store.sessions.messages(ANN, "s", Page(limit=4, after=newest.messages[0].seq))

    assert [message.text for message in newest.messages] == ["q3", "a3", "q4", "a4"]
    assert (newest.more_before, newest.session.messages, newest.session.turns) == (True, 10, 5)
    assert [message.text for message in behind.messages] == ["a3", "q4", "a4"]
    for elsewhere in (Page(limit=4, before=newest.messages[1].seq), Page(limit=4, after=0)):
        with pytest.raises(StoreUnavailable):
            await here.store.sessions.messages(ANN, "s", elsewhere)


async def test_what_others_change_is_not_known_any_more(here: Process) -> None:
    await here.turn(ANN, "s", "one", "1")
    await here.turn(ANN, "t", "one", "1")
    here.now += 60
    here.feed.tell([session_key(ANN, "s")])
    here.feed.lose_track()

    here.goes_away()
    with pytest.raises(StoreUnavailable):
        await here.store.sessions.get(ANN, "s")
    known = await here.store.sessions.get(ANN, "t")

    here.comes_back()
    await here.store.sessions.list(ANN, SessionQuery())
    await here.turn(ANN, "u", "one", "1")
    here.goes_away()
    with pytest.raises(StoreUnavailable):
        await here.store.sessions.get(ANN, "t")
    assert known.id == "t"
    assert (await here.store.sessions.get(ANN, "u")).turns == 1


async def test_a_session_that_was_not_found_is_not_known_any_more(here: Process) -> None:
    await here.turn(ANN, "s", "one", "1")
    await here.memory.sessions.delete(ANN, "s")
    with pytest.raises(SessionNotFound):
        await here.store.sessions.get(ANN, "s")
    here.goes_away()

    with pytest.raises(StoreUnavailable):
        await here.begin(ANN, "s", "two", create=None)


async def test_state_tells_since_when_the_store_is_away(here: Process) -> None:
    """Promise 8."""
    here.goes_away()
    since = here.clock()
    await here.turn(ANN, "s", "one", "1")
    here.clock.advance(timedelta(minutes=5))
    with pytest.raises(StoreUnavailable):
        await here.store.sessions.list(ANN, SessionQuery())

    assert (here.store.status.away, here.store.status.since, here.store.status.waiting) == (True, since, 1)


@pytest.mark.parametrize("seen", [False, True], ids=["by nobody", "by another call"])
@pytest.mark.parametrize("at", [2, 3], ids=["beginning", "end"])
async def test_an_answer_that_got_lost_is_not_stored_twice(here: Process, at: int, seen: bool) -> None:
    """Also when another call has seen it in the store before this one gave up."""
    here.wire.strike(at, Fate.UNANSWERED)
    here.wire.meanwhile = (lambda: here.store.sessions.messages(ANN, "s", Page())) if seen else None

    await here.turn(ANN, "s", "one", "1")
    await here.turn(ANN, "s", "two", "2")
    shown = await texts(here.store, ANN, "s")
    await here.replay()

    assert shown == ["one", "1", "two", "2"] == await here.log(ANN, "s")
    assert (here.store.status.waiting, here.store.status.replayed) == (0, 1)
