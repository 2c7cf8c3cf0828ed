"""A talk goes on in the journal with all that a turn should see of it, or not at all; little is in doubt."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from tenuto.errors import CircuitOpen, StoreUnavailable
from tenuto.model import BeginTurn, Changes, OpenTurn, Page, Scope, Truncation, TurnState
from tenuto.model.turn import ONCE
from tests.outages import Process
from tests.peek import held_rows
from tests.samples import ANN, BOB, SENT_AT, batch, begin, closing, once, says, talk, texts

_MARKED = (says("one", metadata={ONCE: "mark"}),)
ROOM = Scope(tenant="acme", user="ann", channel="lark", chat="room")


# What a turn sees


async def test_a_page_of_one_message_is_not_the_talk(here: Process) -> None:
    """T7: who has read the last message only does not know what was said before it."""
    for number in range(5):
        await talk(here.memory, ANN, "s", f"q{number}", f"a{number}")
    await here.store.sessions.messages(ANN, "s", Page(limit=1))
    here.goes_away()

    for create in ({"create": None}, {}):
        with pytest.raises(StoreUnavailable):
            await here.begin(ANN, "s", "and now?", **create)
    turn = await here.begin(ANN, "s", "and now?", window=2)

    assert [message.text for message in turn.window] == ["a4", "and now?"]


async def test_after_a_reset_the_talk_is_what_was_said_since(talked: Process) -> None:
    await talked.store.sessions.reset(ANN, "s")
    await talked.turn(ANN, "s", "two", "2")
    talked.goes_away()

    turn = await talked.begin(ANN, "s", "three", create=None)

    assert [message.text for message in turn.window] == ["two", "2", "three"]


async def test_what_lies_before_the_window_is_not_asked_for(here: Process) -> None:
    """A summary stands for it."""
    for number in range(5):
        await talk(here.memory, ANN, "s", f"q{number}", f"a{number}")
    await here.memory.sessions.patch(ANN, "s", Changes(window_start=9))
    await here.turn(ANN, "s", "one", "1")
    here.goes_away()

    turn = await here.begin(ANN, "s", "two", create=None)

    assert [message.text for message in turn.window] == ["q4", "a4", "one", "1", "two"]


@pytest.mark.parametrize("erases", [False, True])
async def test_a_talk_whose_beginning_is_replayed_is_not_gone_on_with_without_it(alone: Process, erases: bool) -> None:
    """T7: the store took the first turn and went away again; after a restart what was before is not known here."""
    await alone.turn(ANN, "s", "two", "2")
    await alone.turn(ANN, "s", "three", "3")
    alone.comes_back()
    _begins_once(alone)
    await alone.replay()
    if erases:
        await alone.store.upkeep.erase(BOB)
    alone.goes_away()
    if not erases:
        await alone.restart()

    if erases:
        turn = await alone.begin(ANN, "s", "four", create=None)
        assert [message.text for message in turn.window] == ["one", "1", "two", "2", "three", "3", "four"]
    else:
        for create in ({"create": None}, {}):
            with pytest.raises(StoreUnavailable):
                await alone.begin(ANN, "s", "four", **create)
        with pytest.raises(StoreUnavailable):
            await texts(alone.store, ANN, "s")


async def test_a_group_goes_on_after_a_restart_only_with_the_store(here: Process) -> None:
    """Its rows hold no words of other users, so the talk before them is not here."""
    await here.turn(ROOM, "g", "one", "1")
    here.goes_away()
    await here.turn(ROOM, "g", "two", "2")
    await here.restart()

    with pytest.raises(StoreUnavailable):
        await here.begin(ROOM, "g", "three", create=None)
    here.comes_back()
    await here.turn(ROOM, "g", "three", "3")

    assert await here.log(ROOM, "g") == ["one", "1", "two", "2", "three", "3"]


# What may be there already


async def test_a_turn_that_was_not_even_sent_is_brought_whatever_was_taken_away(talked: Process) -> None:
    """T7, A21: behind an open breaker nothing is in doubt."""
    _rests(talked)
    await talked.turn(ANN, "s", "two", "2")
    await _answered_anew_elsewhere(talked, "s", after=3)

    _answers(talked)
    await talked.replay()

    assert await talked.log(ANN, "s") == ["one", "1", "elsewhere", "anew", "two", "2"]
    assert talked.store.status.quarantined == 0


@pytest.mark.parametrize("resting", [False, True])
async def test_a_replay_that_was_plainly_refused_puts_nothing_in_doubt(away: Process, resting: bool) -> None:
    """T7: a session that is busy, or a breaker that is open: the store has none of it."""
    await away.turn(ANN, "s", "two", "2")
    away.comes_back()
    await talk(away.memory, ANN, "s", "one", "1")
    other = await begin(away.memory, ANN, "s")
    if resting:
        _rests(away, "begin_turn")
    await away.replay()
    assert away.store.status.waiting == 1
    await away.memory.sessions.finish_turn(other, closing())
    await _answered_anew_elsewhere(away, "s", after=3)

    _answers(away)
    await away.replay()

    assert await away.log(ANN, "s") == ["one", "1", "elsewhere", "anew", "two", "2"]
    assert away.store.status.quarantined == 0


async def test_a_replay_that_was_not_answered_stays_in_doubt_after_a_refusal(away: Process) -> None:
    """T7: the words may have been there, and another process removed something since."""
    await away.turn(ANN, "s", "two", "2")
    away.comes_back()
    await talk(away.memory, ANN, "s", "one", "1")
    _begins_once(away, times=0)
    await away.replay()
    _answers(away)
    other = await begin(away.memory, ANN, "s")
    await away.replay()
    await away.memory.sessions.finish_turn(other, closing())
    await _answered_anew_elsewhere(away, "s", after=3)

    await away.replay()

    assert (away.store.status.waiting, away.store.status.quarantined) == (0, 1)


async def test_who_was_erased_and_is_back_may_date_words_as_they_like(here: Process) -> None:
    """When a turn began, the store tells, not its caller."""
    await here.store.upkeep.erase(ANN)
    here.clock.advance(timedelta(days=2))
    words = (says("hello", sent_at=SENT_AT - timedelta(days=1)),)
    turn = await begin(here.store, ANN, "s", journaled=True, user_messages=words)
    here.goes_away()
    await here.finish(turn, "acknowledged")

    await here.catch_up()

    assert await here.log(ANN, "s") == ["hello", "acknowledged"]


async def _answered_elsewhere(here: Process) -> None:
    turn = await begin(here.memory, ANN, "s", user_messages=_MARKED, idempotency_key=once("k"))
    await here.memory.sessions.finish_turn(turn, closing("1"))
    await texts(here.store, ANN, "s")


async def _answered_before_a_restart(here: Process) -> None:
    turn = await here.begin(ANN, "s", user_messages=_MARKED, idempotency_key=once("k"))
    await here.finish(turn, "1")
    here.goes_away()
    await here.turn(ANN, "s", "two", "2")
    await here.restart()


@pytest.mark.parametrize("answered", [_answered_elsewhere, _answered_before_a_restart])
async def test_a_retry_whose_answer_is_not_known_here_is_refused(
    here: Process, answered: Callable[[Process], Awaitable[None]]
) -> None:
    """T7: its words are in the log, so it is not answered a second time."""
    await answered(here)
    here.goes_away()

    with pytest.raises(StoreUnavailable):
        await here.begin(ANN, "s", user_messages=_MARKED, idempotency_key=once("k"))
    another = await here.begin(
        ANN, "s", user_messages=(says("next", metadata={ONCE: "another"}),), idempotency_key=once("l")
    )

    assert another.state is TurnState.OPENED


async def test_a_retry_is_answered_though_a_summary_came_behind_its_answer(here: Process) -> None:
    turn = await here.begin(ANN, "s", user_messages=_MARKED, idempotency_key=once("k"))
    await here.finish(turn, "1")
    await here.store.sessions.append(ANN, "s", batch("note"))
    here.goes_away()

    again = await here.begin(ANN, "s", user_messages=_MARKED, idempotency_key=once("k"))

    assert (again.state, [message.text for message in again.reply]) == (TurnState.FINISHED, ["1"])


async def test_a_retry_of_a_turn_that_waits_here_goes_on_with_it(away: Process) -> None:
    turn = await away.begin(ANN, "s", user_messages=_MARKED, idempotency_key=once("k"))
    await away.finish(turn, "1")

    again = await away.begin(ANN, "s", user_messages=_MARKED, idempotency_key=once("k"))

    assert (again.state, [message.text for message in again.reply]) == (TurnState.FINISHED, ["1"])


# What stays in memory


async def test_a_retry_that_was_answered_here_leaves_nothing(here: Process) -> None:
    await here.turn(ANN, "s", "one", "1", idempotency_key=once("k"))
    here.goes_away()

    again = await here.begin(ANN, "s", "one", idempotency_key=once("k"))

    assert again.state is TurnState.FINISHED
    assert held_rows(here.store) == 0


async def test_an_open_turn_of_a_deleted_session_leaves_nothing(alone: Process) -> None:
    await alone.begin(ANN, "s", "two")
    alone.comes_back()
    await begin(alone.memory, ANN, "s", "busy elsewhere")

    await alone.store.sessions.delete(ANN, "s")

    assert held_rows(alone.store) == 0


# What these tests share


_TURNS = ("begin_turn", "finish_turn", "renew_turn")


def _rests(here: Process, *names: str) -> None:
    """The breaker refuses: nothing is sent."""

    async def refused(*_: Any) -> Any:
        raise CircuitOpen(timedelta(seconds=30))

    for name in names or (*_TURNS, "messages", "ping"):
        setattr(here.wire, name, refused)


def _answers(here: Process) -> None:
    for name in (*_TURNS, "messages", "ping"):
        here.wire.__dict__.pop(name, None)
    here.comes_back()


def _begins_once(here: Process, times: int = 1) -> None:
    """The store takes so many beginnings, and does not answer the next ones."""
    left = times

    async def begin_turn(scope: Scope, opening: BeginTurn) -> OpenTurn:
        nonlocal left
        left -= 1
        if left < 0:
            raise StoreUnavailable
        turn: OpenTurn = await here.memory.sessions.begin_turn(scope, opening)
        return turn

    here.wire.begin_turn = begin_turn  # type: ignore[attr-defined]


async def _answered_anew_elsewhere(here: Process, session_id: str, after: int) -> None:
    await talk(here.memory, ANN, session_id, "elsewhere", "there")
    turn = await begin(here.memory, ANN, session_id)
    await here.memory.sessions.truncate(ANN, session_id, Truncation(after=after, within_turn=turn))
    await here.memory.sessions.finish_turn(turn, closing("anew"))
