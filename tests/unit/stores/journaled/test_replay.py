"""How the outbox gets to the store: each turn exactly once, in order, whatever happens on the way."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from msgspec.structs import replace

from tenuto.errors import IdempotencyKeyReused, SessionExpired, SessionNotFound, TenutoError
from tenuto.model import (
    BeginTurn,
    FinishTurn,
    Message,
    MessagePage,
    NewSession,
    OpenTurn,
    Page,
    Retention,
    Scope,
    TurnState,
)
from tenuto.stores.journaled import count_journal
from tests.outages import Fate, Killed, Process, full_disk, process
from tests.samples import ANN, BOB, batch, begin, closing, once, says, talk, trace_of

Story: TypeAlias = Callable[[Process], Awaitable[list[str]]]
"""Something that is said until the store is away; brings what shall be in the log at the end."""


# Every interruption


async def _several_turns(here: Process) -> list[str]:
    await here.turn(ANN, "s", "one", "1")
    here.goes_away()
    await here.turn(ANN, "s", "two", "2")
    await talk(here.memory, ANN, "s", "elsewhere", "there")
    await here.turn(ANN, "s", "three", "3", idempotency_key=once("k"))
    return ["one", "1", "elsewhere", "there", "two", "2", "three", "3"]


async def _opened_here(here: Process) -> list[str]:
    here.goes_away()
    await here.turn(ANN, "s", "one", "1")
    await here.turn(ANN, "s", "two", "2", create=None)
    return ["one", "1", "two", "2"]


async def _ended_here(here: Process) -> list[str]:
    turn = await here.begin(ANN, "s", "one")
    here.goes_away()
    await here.finish(turn, "1")
    return ["one", "1"]


async def _ended_here_after_others(here: Process, **fields: Any) -> list[str]:
    """The lease ran out, and another process has taken the session."""
    turn = await here.begin(ANN, "s", "one", lease=timedelta(seconds=1), **fields)
    here.goes_away()
    here.clock.advance(timedelta(seconds=2))
    await talk(here.memory, ANN, "s", "elsewhere", "there")
    await here.finish(turn, "1")
    return ["one", "elsewhere", "there", "1"]


async def _keyed_and_ended_here_after_others(here: Process) -> list[str]:
    return await _ended_here_after_others(here, idempotency_key=once("k"))


async def _given_up(here: Process) -> list[str]:
    here.goes_away()
    turn = await here.begin(ANN, "s", "one", idempotency_key=once("k"))
    await here.store.sessions.finish_turn(turn, FinishTurn(abandoned=True))
    resumed = await here.begin(ANN, "s", "one", idempotency_key=once("k"))
    await here.finish(resumed, "1")
    return ["one", "1"]


async def _never_ended(here: Process) -> list[str]:
    here.goes_away()
    await here.turn(ANN, "s", "one", "1")
    await here.begin(ANN, "s", "two")
    await here.restart()
    return ["one", "1", "two"]


async def _unanswered_beginning(here: Process) -> list[str]:
    await here.turn(ANN, "s", "one", "1")
    here.wire.strike(0, Fate.UNANSWERED)
    turn = await here.begin(ANN, "s", "two")
    here.goes_away()
    await here.finish(turn, "2")
    return ["one", "1", "two", "2"]


async def _unanswered_end(here: Process) -> list[str]:
    here.wire.strike(1, Fate.UNANSWERED)
    await here.turn(ANN, "s", "one", "1", idempotency_key=once("k"))
    here.goes_away()
    await here.turn(ANN, "s", "two", "2")
    return ["one", "1", "two", "2"]


async def _unanswered_opening(here: Process) -> list[str]:
    here.wire.strike(0, Fate.UNANSWERED)
    await here.turn(ANN, "s", "one", "1")
    here.goes_away()
    return ["one", "1"]


STORIES = [
    _several_turns,
    _opened_here,
    _ended_here,
    _ended_here_after_others,
    _keyed_and_ended_here_after_others,
    _given_up,
    _never_ended,
    _unanswered_beginning,
    _unanswered_end,
    _unanswered_opening,
]


async def _replayed(here: Process) -> None:
    """Replay as often as it takes; leases of turns that were cut off run out meanwhile."""
    for _ in range(5):
        here.clock.advance(timedelta(minutes=3))
        if await here.replay():
            return
    raise AssertionError("it does not end")


@pytest.mark.parametrize("fate", Fate, ids=lambda fate: fate.value)
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__.strip("_"))
async def test_an_interrupted_replay_stores_each_message_once(story: Story, fate: Fate, tmp_path: Path) -> None:
    """Promise 1: at every call to the store, refused, unanswered, or the process killed before or after it."""
    for at in count():
        async with process(tmp_path / f"{at}") as here:
            expected = await story(here)
            here.comes_back()
            here.wire.strike(at, fate)
            before = len(here.wire.calls)
            try:
                await here.replay()
            except Killed:
                await here.restart()
            struck = len(here.wire.calls) - before > at
            here.wire.spare()
            await _replayed(here)

            assert await here.log(ANN, "s") == expected, f"call {at}: {here.wire.calls[before:]}"
            assert (await here.memory.sessions.get(ANN, "s")).last_seq == len(expected)
            assert count_journal(here.folder).waiting == here.store.status.quarantined == 0
            if not struck:
                assert at > 2
                return


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__.strip("_"))
async def test_a_process_killed_before_it_notes_what_the_store_took_doubles_nothing(
    story: Story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with process(tmp_path / "journal") as here:
        expected = await story(here)
        here.comes_back()
        rows = here.store.status.waiting
        for _ in range(rows):

            async def killed(_: object) -> None:
                raise Killed

            monkeypatch.setattr(here.outbox, "remove", killed)
            with pytest.raises(Killed):
                await here.replay()
            await here.restart()
            here.clock.advance(timedelta(minutes=3))
        await _replayed(here)

        assert await here.log(ANN, "s") == expected


# What the replay decides


async def test_a_session_that_is_gone_is_not_revived(talked: Process, caplog: pytest.LogCaptureFixture) -> None:
    """S6: its turns are set aside, told with ids only, and let go after a month."""
    await talked.turn(ANN, "t", "one", "1")
    talked.goes_away()
    await talked.turn(ANN, "s", "secret", "2")
    await talked.turn(ANN, "t", "secret", "2")
    await talked.memory.sessions.delete(ANN, "s")
    await talked.memory.sessions.delete(ANN, "t")
    await talk(talked.memory, ANN, "t", "another", "session")

    await talked.catch_up()
    await talked.restart()

    assert await talked.log(ANN, "t") == ["another", "session"]
    with pytest.raises(SessionNotFound):
        await talked.memory.sessions.get(ANN, "s")
    assert (talked.store.status.quarantined, talked.store.status.waiting) == (2, 0)
    assert (count_journal(talked.folder).quarantined, "secret" in caplog.text) == (2, False)
    assert sum("quarantined: session_not_found" in line for line in caplog.messages) == 2

    talked.clock.advance(timedelta(days=31))
    talked.goes_away()
    await talked.turn(ANN, "u", "one", "1")
    await talked.catch_up()
    assert (talked.store.status.quarantined, count_journal(talked.folder).quarantined) == (0, 0)


async def test_a_reset_by_others_does_not_lose_what_was_said_here(alone: Process) -> None:
    await alone.turn(ANN, "s", "two", "2")
    await alone.memory.sessions.reset(ANN, "s")

    await alone.catch_up()

    assert await alone.log(ANN, "s") == ["two", "2"]


async def test_a_session_that_expired_meanwhile_is_not_revived(here: Process) -> None:
    hour = NewSession(retention=Retention(idle=timedelta(hours=1)))
    await here.turn(ANN, "s", "one", "1", create=hour)
    here.goes_away()
    await here.turn(ANN, "s", "two", "2", create=None)
    here.clock.advance(timedelta(hours=2))

    await here.catch_up()

    with pytest.raises(SessionExpired):
        await here.memory.sessions.get(ANN, "s")
    assert here.store.status.quarantined == 1


async def test_an_id_that_is_somebody_elses_is_left_alone(here: Process, caplog: pytest.LogCaptureFixture) -> None:
    """S6, A8: the turns go to a session of their own, and a warning names both."""
    await talk(here.memory, BOB, "s", "bob's", "own")
    here.goes_away()
    first = await here.turn(ANN, "s", "one", "1")
    await here.turn(ANN, "s", "two", "2")

    await here.catch_up()

    assert await here.log(BOB, "s") == ["bob's", "own"]
    assert await here.log(ANN, first.id) == ["one", "1", "two", "2"]
    assert any("session s " in line and first.id in line for line in caplog.messages)
    assert here.store.status.quarantined == 0


async def test_an_id_that_is_the_callers_own_is_gone_on_with(here: Process) -> None:
    await talk(here.memory, ANN, "s", "older", "history")
    here.goes_away()
    await here.turn(ANN, "s", "one", "1")
    await here.turn(ANN, "s", "two", "2")

    await here.catch_up()

    assert await here.log(ANN, "s") == ["older", "history", "one", "1", "two", "2"]


async def test_a_message_id_that_somebody_used_again_is_no_proof(alone: Process) -> None:
    """Clients choose ids of messages."""
    turn = await alone.begin(ANN, "s", user_messages=(says("two", id="mine"),))
    await alone.finish(turn, "2")
    other = says("elsewhere", id="mine")
    await alone.memory.sessions.append(
        ANN, "s", replace(batch(), messages=(replace(other, sent_at=other.sent_at + timedelta(1)),))
    )

    await alone.catch_up()

    assert await alone.log(ANN, "s") == ["one", "1", "elsewhere", "two", "2"]


async def test_a_turn_that_was_answered_elsewhere_is_set_aside(alone: Process) -> None:
    await alone.turn(ANN, "s", "two", "from here", idempotency_key=once("k"))
    await alone.turn(ANN, "s", "three", "3")
    await talk(alone.memory, ANN, "s", "two", "from there", idempotency_key=once("k"))

    await alone.catch_up()

    assert await alone.log(ANN, "s") == ["one", "1", "two", "from there", "three", "3"]
    assert alone.store.status.quarantined == 1


async def test_a_turn_refused_for_good_does_not_stop_the_next(away: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    await away.turn(ANN, "s", "one", "1")
    await away.turn(ANN, "s", "bad", "b")
    await away.turn(ANN, "s", "two", "2")
    begin_turn = away.memory.sessions.begin_turn

    async def picky(scope: Scope, opening: BeginTurn) -> OpenTurn:
        if "bad" in str(opening):
            raise IdempotencyKeyReused
        return await begin_turn(scope, opening)

    monkeypatch.setattr(away.memory.sessions, "begin_turn", picky)
    await away.catch_up()

    assert await away.log(ANN, "s") == ["one", "1", "two", "2"]
    assert away.store.status.quarantined == 1


async def test_what_stops_one_session_does_not_stop_the_others(alone: Process) -> None:
    await alone.turn(ANN, "s", "two", "2")
    await alone.turn(ANN, "t", "one", "1")
    await begin(alone.memory, ANN, "s", "elsewhere")

    alone.comes_back()
    done = await alone.replay()

    assert not done
    assert await alone.log(ANN, "s") == ["one", "1", "elsewhere"]
    assert await alone.log(ANN, "t") == ["one", "1"]


async def test_a_trace_is_found_under_the_number_its_turn_has_in_the_store(alone: Process) -> None:
    turn = await alone.begin(ANN, "s", "two")
    trace = trace_of(turn)
    reply = replace(closing("2", trace=trace), reply=(says("2", metadata={"trace": trace.id}),))
    await alone.store.sessions.finish_turn(turn, reply)
    await talk(alone.memory, ANN, "s", "elsewhere", "there")

    await alone.catch_up()

    stored = await alone.memory.traces.trace(ANN, "s", 3)
    [answer] = [message for message in await _messages(alone) if message.text == "2"]
    assert stored is not None
    assert (stored.number, stored.turn_id, answer.metadata["trace"], answer.turn) == (3, turn.id, stored.id, 3)
    assert await alone.memory.traces.trace(ANN, "s", 2) is None


async def _messages(here: Process) -> tuple[Message, ...]:
    page: MessagePage = await here.memory.sessions.messages(ANN, "s", Page(limit=100))
    return page.messages


async def test_after_the_replay_a_key_is_answered_as_it_was(away: Process) -> None:
    await away.turn(ANN, "s", "one", "1", idempotency_key=once("k"))
    await away.catch_up()

    again = await away.begin(ANN, "s", "one", idempotency_key=once("k"))

    assert (again.state, again.journaled) == (TurnState.FINISHED, False)
    assert [message.text for message in again.reply] == ["1"]


# What goes wrong on this side


async def test_an_open_turn_goes_on_though_its_row_stays(away: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    turn = await away.begin(ANN, "s", "one")
    away.comes_back()

    with monkeypatch.context() as patch:
        patch.setattr(away.outbox, "remove", full_disk)
        await away.replay()
    assert await away.replay()
    await away.finish(turn, "1")

    assert await away.log(ANN, "s") == ["one", "1"]


async def test_whatever_one_session_meets_the_others_are_brought(
    away: Process, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await away.turn(ANN, "s", "one", "1")
    await away.turn(ANN, "t", "two", "2")
    away.comes_back()
    messages = away.memory.sessions.messages

    async def odd(scope: Scope, session_id: str, page: Page) -> MessagePage:
        if session_id == "s":
            raise ZeroDivisionError("one")
        return await messages(scope, session_id, page)

    monkeypatch.setattr(away.memory.sessions, "messages", odd)
    assert not await away.replay()

    assert await away.log(ANN, "t") == ["two", "2"]
    assert "kept for later: ZeroDivisionError" in caplog.text


async def test_a_store_that_comes_and_goes_is_logged_sparsely(here: Process, caplog: pytest.LogCaptureFixture) -> None:
    """One server of several is away: calls fail and succeed by turns."""
    await here.turn(ANN, "good", "one", "1")
    with caplog.at_level(logging.WARNING):
        for _ in range(50):
            here.goes_away()
            with pytest.raises(TenutoError):
                await here.store.sessions.get(ANN, "bad")
            here.wire.cut = False
            await here.store.sessions.get(ANN, "good")
            here.now += 0.5
        away = here.store.status.away
        here.now += 60
        await here.store.sessions.get(ANN, "good")

    assert (away, here.store.status.away) == (True, False)
    assert len(caplog.messages) == 2


async def test_a_replayed_turn_of_a_dead_process_holds_its_lease(talked: Process) -> None:
    """Another process must not take the replay's lease for that of the process that was killed."""
    talked.goes_away()
    await talked.turn(ANN, "s", "two", "2", turn_id="turn.0badc0de")
    await talked.restart()
    begun: list[str] = []
    store = talked.memory.sessions.begin_turn

    async def noted(scope: Scope, request: BeginTurn) -> OpenTurn:
        begun.append(request.turn_id)
        return await store(scope, request)

    talked.memory.sessions.begin_turn = noted  # type: ignore[method-assign]
    talked.comes_back()

    assert await talked.replay()
    assert begun == ["turn"]
    assert (await talked.log(ANN, "s"))[-2:] == ["two", "2"]
