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
from tenuto.model import (
    Changes,
    FinishTurn,
    ForkRequest,
    NewSession,
    Page,
    Producer,
    Retention,
    SessionQuery,
    TurnState,
)
from tenuto.model.scope import session_key
from tenuto.stores.journaled import count_journal
from tests.outages import Fate, Process, full_disk
from tests.samples import ANN, BOB, EVE, begin, closing, once, texts, trace_of


async def test_a_turn_goes_on_while_the_store_is_away_and_is_there_afterwards(alone: Process) -> None:
    """T7, X5: with the talk before it in sight, and behind it in the store."""
    turn = await alone.begin(ANN, "s", "two")
    done = await alone.store.sessions.finish_turn(turn, closing("2"))
    shown = await texts(alone.store, ANN, "s")
    alone.comes_back()
    replayed = await alone.replay()

    assert (turn.journaled, turn.number, done.journaled) == (True, 2, True)
    assert [message.text for message in turn.window] == ["one", "1", "two"]
    assert shown == ["one", "1", "two", "2"] == await alone.log(ANN, "s")
    assert replayed
    assert (alone.store.status.away, alone.store.status.waiting, alone.store.status.replayed) == (False, 0, 1)


async def test_what_is_acknowledged_is_on_disk(away: Process) -> None:
    turn = await away.begin(ANN, "s", "one")
    begun = count_journal(away.folder)
    await away.finish(turn, "1")
    await away.restart()

    assert begun.waiting == 1
    assert await texts(away.store, ANN, "s") == ["one", "1"]


async def test_what_cannot_be_written_is_not_acknowledged(alone: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    turn = await alone.begin(ANN, "s", "two")

    with monkeypatch.context() as broken:
        broken.setattr(alone.outbox, "close_turn", full_disk)
        with pytest.raises(Unavailable):
            await alone.finish(turn, "lost")
    with monkeypatch.context() as broken:
        broken.setattr(alone.outbox, "add", full_disk)
        with pytest.raises(Unavailable):
            await alone.begin(BOB, "b", "lost")
    await alone.finish(turn, "2")

    assert await texts(alone.store, ANN, "s") == ["one", "1", "two", "2"]
    with pytest.raises(StoreUnavailable):
        await alone.store.sessions.get(BOB, "b")


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


async def test_a_session_nobody_here_has_seen_is_not_made_up(away: Process) -> None:
    """S6: same id and empty history would be another session."""
    with pytest.raises(StoreUnavailable):
        await away.begin(ANN, "unseen", "hello", create=None)
    with pytest.raises(StoreUnavailable):
        await away.store.sessions.get(ANN, "unseen")


async def test_outside_its_scope_a_known_session_is_like_an_unseen_one(here: Process) -> None:
    """Promise 2, A7, S6: while the store cannot be asked; a caller that creates gets another id."""
    await here.turn(ANN, "s", "one", "1", create=NewSession(retention=Retention(idle=timedelta(hours=1))))
    here.goes_away()

    for step in ("seen", "journaled", "restarted"):
        if step == "journaled":
            await here.turn(ANN, "s", "two", "2")
        elif step == "restarted":
            await here.restart()
        sessions = here.store.sessions
        for session_id, scope in (("s", BOB), ("s", EVE), ("unseen", BOB)):
            for refused in (
                sessions.get(scope, session_id),
                sessions.messages(scope, session_id, Page()),
                sessions.delete(scope, session_id),
                sessions.fork(scope, "unseen", ForkRequest(new_id=session_id)),
                here.begin(scope, session_id, "mine?", create=None),
            ):
                with pytest.raises(StoreUnavailable):
                    await refused
        with pytest.raises(SessionForeign):
            await here.begin(BOB, "s", "mine?")
    here.clock.advance(timedelta(hours=2))
    with pytest.raises(SessionExpired):
        await here.store.sessions.messages(ANN, "s", Page())


async def test_a_running_turn_keeps_others_out_and_its_key_resumes_it(away: Process) -> None:
    turn = await away.begin(ANN, "s", "one", idempotency_key=once("k"))

    with pytest.raises(SessionBusy):
        await away.begin(ANN, "s", "two")
    away.clock.advance(timedelta(seconds=100))
    await away.store.sessions.renew_turn(turn)
    away.clock.advance(timedelta(seconds=100))
    with pytest.raises(SessionBusy):
        await away.begin(ANN, "s", "two")
    await away.store.sessions.finish_turn(turn, FinishTurn(abandoned=True))
    resumed = await away.begin(ANN, "s", "one", idempotency_key=once("k"))
    await away.finish(resumed, "1")
    await away.catch_up()

    assert (resumed.state, resumed.number) == (TurnState.RESUMED, 1)
    assert await away.log(ANN, "s") == ["one", "1"]
    assert (await begin(away.memory, ANN, "s", "one", idempotency_key=once("k"))).state is TurnState.FINISHED


async def test_a_turn_that_is_open_when_the_store_comes_back_goes_on_there(alone: Process) -> None:
    turn = await alone.begin(ANN, "s", "two")
    await begin(alone.memory, ANN, "s", "elsewhere", lease=timedelta(seconds=1))
    alone.clock.advance(timedelta(seconds=2))

    alone.comes_back()
    assert await alone.replay()
    await alone.store.sessions.renew_turn(turn)
    with pytest.raises(SessionBusy):
        await alone.begin(ANN, "s", "three")
    done = await alone.store.sessions.finish_turn(turn, closing("2", trace=trace_of(turn)))

    assert not done.journaled
    assert await alone.log(ANN, "s") == ["one", "1", "elsewhere", "two", "2"]
    traced = await alone.memory.traces.trace(ANN, "s", 3)
    assert traced is not None
    assert (traced.turn_id, traced.number) == (turn.id, 3)
    assert await alone.memory.traces.trace(ANN, "s", 2) is None


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


async def test_an_open_turn_is_journaled_again_when_the_store_goes_once_more(away: Process) -> None:
    turn = await away.begin(ANN, "s", "one")
    await away.catch_up()

    away.goes_away()
    done = await away.store.sessions.finish_turn(turn, closing("1"))
    await away.catch_up()

    assert done.journaled
    assert await away.log(ANN, "s") == ["one", "1"]


async def test_a_call_brings_what_was_said_before_to_the_store_first(away: Process) -> None:
    await away.turn(ANN, "s", "one", "1")
    away.comes_back()

    turn = await away.begin(ANN, "s", "two", create=None)
    await away.store.sessions.finish_turn(turn, closing("2"))
    await away.store.sessions.patch(ANN, "s", Changes(title="Numbers"))

    assert not turn.journaled
    assert await away.log(ANN, "s") == ["one", "1", "two", "2"]
    assert away.store.status.waiting == 0


async def test_a_session_that_is_deleted_leaves_no_turns_behind(alone: Process) -> None:
    await alone.turn(ANN, "s", "two", "2")
    await begin(alone.memory, ANN, "s", "elsewhere")
    alone.comes_back()

    with pytest.raises(SessionBusy):
        await alone.store.sessions.reset(ANN, "s")
    await alone.store.sessions.delete(ANN, "s")

    assert count_journal(alone.folder).waiting == 0
    with pytest.raises(SessionNotFound):
        await alone.store.sessions.get(ANN, "s")


async def test_while_somebody_elses_turn_runs_in_the_store_what_waits_can_be_read(alone: Process) -> None:
    await alone.turn(ANN, "s", "two", "2")
    other = await begin(alone.memory, ANN, "s", "elsewhere")
    alone.comes_back()

    with pytest.raises(SessionBusy):
        await alone.begin(ANN, "s", "three")
    seen = await texts(alone.store, ANN, "s")
    await alone.memory.sessions.finish_turn(other, closing("there"))
    await alone.replay()

    assert seen == ["one", "1", "two", "2"]
    assert await alone.log(ANN, "s") == ["one", "1", "elsewhere", "there", "two", "2"]


async def test_after_a_restart_in_the_middle_the_talk_goes_on(alone: Process) -> None:
    await alone.turn(ANN, "s", "two", "2", idempotency_key=once("k2"))
    lost = await alone.begin(ANN, "s", "three", idempotency_key=once("k3"))

    await alone.restart()
    answered = await alone.begin(ANN, "s", "two", idempotency_key=once("k2"), create=None)
    resumed = await alone.begin(ANN, "s", "three", idempotency_key=once("k3"), create=None)
    with pytest.raises(StoreUnavailable):
        await alone.finish(lost, "too late")
    await alone.finish(resumed, "3")
    shown = await texts(alone.store, ANN, "s")
    await alone.catch_up()

    assert (answered.state, resumed.state) == (TurnState.FINISHED, TurnState.RESUMED)
    assert [message.text for message in resumed.window] == ["one", "1", "two", "2", "three"]
    assert shown == ["one", "1", "two", "2", "three", "3"] == await alone.log(ANN, "s")


async def test_a_turn_nobody_ended_leaves_its_words_and_can_be_resumed(away: Process) -> None:
    await away.begin(ANN, "s", "one", idempotency_key=once("k"))

    await away.restart()
    await away.catch_up()
    resumed = await away.begin(ANN, "s", "one", idempotency_key=once("k"), create=None)

    assert (resumed.state, resumed.number) == (TurnState.RESUMED, 1)
    assert await away.log(ANN, "s") == ["one"]


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


async def test_what_others_change_is_not_known_any_more(talked: Process) -> None:
    await talked.turn(ANN, "t", "one", "1")
    talked.now += 60
    talked.feed.tell([session_key(ANN, "s")])
    talked.feed.lose_track()

    talked.goes_away()
    with pytest.raises(StoreUnavailable):
        await talked.store.sessions.get(ANN, "s")
    known = await talked.store.sessions.get(ANN, "t")

    talked.comes_back()
    await talked.store.sessions.list(ANN, SessionQuery())
    await talked.turn(ANN, "u", "one", "1")
    talked.goes_away()
    with pytest.raises(StoreUnavailable):
        await talked.store.sessions.get(ANN, "t")
    assert known.id == "t"
    assert (await talked.store.sessions.get(ANN, "u")).turns == 1


async def test_a_session_that_was_not_found_is_not_known_any_more(talked: Process) -> None:
    await talked.memory.sessions.delete(ANN, "s")
    with pytest.raises(SessionNotFound):
        await talked.store.sessions.get(ANN, "s")
    talked.goes_away()

    with pytest.raises(StoreUnavailable):
        await talked.begin(ANN, "s", "two", create=None)


async def test_state_tells_since_when_the_store_is_away(away: Process) -> None:
    """Promise 8."""
    since = away.clock()
    await away.turn(ANN, "s", "one", "1")
    away.clock.advance(timedelta(minutes=5))
    with pytest.raises(StoreUnavailable):
        await away.store.sessions.list(ANN, SessionQuery())

    assert (away.store.status.away, away.store.status.since, away.store.status.waiting) == (True, since, 1)


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
