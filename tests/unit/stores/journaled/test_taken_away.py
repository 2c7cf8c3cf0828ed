"""What the replay must not bring back: sessions that were deleted, words that were reset, persons who were erased."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from tenuto.errors import IdempotencyKeyReused, SessionNotFound, StoreUnavailable, TurnLost, Unavailable
from tenuto.model import NewSession, Retention, Scope, Truncation
from tenuto.model.scope import user_digest
from tenuto.stores.journaled import count_journal
from tests.doubles import port_with
from tests.outages import Fate, Killed, Process, process
from tests.samples import ANN, BOB, closing, talk, texts

ROOM_ANN = Scope(tenant="acme", chat="room", user="ann")
ROOM_BOB = Scope(tenant="acme", chat="room", user="bob")
SECRET = "the-word-nobody-says"


@asynccontextmanager
async def elsewhere(here: Process) -> AsyncIterator[Process]:
    """A process on another machine, with the same store."""
    async with process(here.folder.parent / "elsewhere", store=here.memory, clock=here.clock) as other:
        yield other


async def erased_elsewhere(here: Process) -> None:
    async with elsewhere(here) as other:
        await other.store.upkeep.erase(ANN)


def before(here: Process, name: str, monkeypatch: pytest.MonkeyPatch, step: Callable[[], Awaitable[Any]]) -> None:
    """Have something happen once, before the store's next call of this name is carried out."""
    _once(here, name, monkeypatch, step, first=True)


def after(here: Process, name: str, monkeypatch: pytest.MonkeyPatch, step: Callable[[], Awaitable[Any]]) -> None:
    _once(here, name, monkeypatch, step, first=False)


def _once(
    here: Process, name: str, monkeypatch: pytest.MonkeyPatch, step: Callable[[], Awaitable[Any]], *, first: bool
) -> None:
    port, done = port_with(here.memory, name), list[bool]()
    call = getattr(port, name)

    async def called(*args: Any, **rest: Any) -> Any:
        if not done and first:
            done.append(True)
            await step()
        answer = await call(*args, **rest)
        if not done:
            done.append(True)
            await step()
        return answer

    monkeypatch.setattr(port, name, called)


def disk(here: Process) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(here.folder.glob("*.db")))


async def gone(here: Process, scope: Scope, session_id: str) -> bool:
    try:
        await here.memory.sessions.get(scope, session_id)
    except SessionNotFound:
        return True
    return False


# Deleted, reset or cut off since the replay asked for it


async def _interrupted(here: Process, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replay once, and do not learn what became of the call."""

    async def unanswered() -> None:
        raise StoreUnavailable

    here.comes_back()
    after(here, call, monkeypatch, unanswered)
    await here.replay()
    assert here.store.status.waiting


@pytest.mark.parametrize("call", ["begin_turn", "finish_turn"])
async def test_a_session_that_was_replayed_and_then_deleted_is_not_opened_again(
    away: Process, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S6: this process did not hear that its first turn was stored."""
    await away.turn(ANN, "s", SECRET, "1")
    await away.turn(ANN, "s", "two", "2", create=None)
    await _interrupted(away, call, monkeypatch)
    await away.memory.sessions.delete(ANN, "s")
    await away.replay()

    assert await gone(away, ANN, "s")
    assert (away.store.status.waiting, away.store.status.quarantined) == (0, 2)


async def test_words_of_a_deleted_session_reach_no_namesake(away: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    await away.turn(ANN, "s", SECRET, "1")
    await _interrupted(away, "begin_turn", monkeypatch)
    await away.memory.sessions.delete(ANN, "s")
    await talk(away.memory, ANN, "s", "another", "session")
    await away.replay()

    assert await away.log(ANN, "s") == ["another", "session"]
    assert away.store.status.quarantined == 1


async def test_later_rows_know_that_their_session_was_stored(away: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    await away.turn(ANN, "s", SECRET, "1")
    await _interrupted(away, "finish_turn", monkeypatch)
    away.goes_away()
    await away.turn(ANN, "s", "two", "2")
    await away.memory.sessions.delete(ANN, "s")
    await away.catch_up()

    assert await gone(away, ANN, "s")
    assert away.store.status.quarantined == 2


@pytest.mark.parametrize("call", ["begin_turn", "finish_turn"])
async def test_words_that_were_replayed_and_then_reset_are_not_said_again(
    alone: Process, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await alone.turn(ANN, "s", SECRET, "2")
    await _interrupted(alone, call, monkeypatch)
    await alone.memory.sessions.reset(ANN, "s")
    await alone.replay()

    assert await alone.log(ANN, "s") == []
    assert (alone.store.status.waiting, alone.store.status.quarantined) == (0, 1)


async def test_stored_and_trimmed_words_are_not_stored_again(here: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    await here.turn(ANN, "s", "one", "1", create=NewSession(retention=Retention(max_messages=4)))
    here.goes_away()
    await here.turn(ANN, "s", "two", "2")
    await _interrupted(here, "finish_turn", monkeypatch)
    for number in range(2):
        await talk(here.memory, ANN, "s", f"b{number}", f"B{number}")
    await here.replay()

    assert await here.log(ANN, "s") == ["b0", "B0", "b1", "B1"]
    assert here.store.status.waiting == 0


async def test_an_unanswered_beginning_that_was_reset_is_not_said_again(talked: Process) -> None:
    talked.wire.strike(0, Fate.UNANSWERED)
    turn = await talked.begin(ANN, "s", SECRET)
    talked.goes_away()
    await talked.finish(turn, "2")
    await talked.memory.sessions.reset(ANN, "s")
    await talked.catch_up()

    assert await talked.log(ANN, "s") == []
    assert talked.store.status.quarantined == 1


async def test_a_call_that_arrives_late_says_nothing_twice(alone: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise 1: a turn without a key has one of its own on its way to the store."""
    await alone.turn(ANN, "s", "two", "2")
    alone.comes_back()
    begin_turn, late = alone.memory.sessions.begin_turn, list[Any]()

    async def slow(*args: Any) -> Any:
        if not late:
            late.append(args)
            raise Unavailable("session store", "did not answer")
        await begin_turn(*late[0])
        alone.clock.advance(timedelta(minutes=3))
        return await begin_turn(*args)

    monkeypatch.setattr(alone.memory.sessions, "begin_turn", slow)
    await alone.replay()
    await alone.replay()

    assert await alone.log(ANN, "s") == ["one", "1", "two", "2"]


@pytest.mark.parametrize("how", ["reset", "truncate"])
async def test_an_answer_whose_words_were_taken_away_elsewhere_is_set_aside(talked: Process, how: str) -> None:
    """A turn ends here; meanwhile another process reset the session, or cut its words off."""
    turn = await talked.begin(ANN, "s", "wrong words")
    talked.goes_away()
    await talked.finish(turn, "late")
    if how == "reset":
        await talked.memory.sessions.reset(ANN, "s")
    else:
        await talked.memory.sessions.truncate(ANN, "s", Truncation(after=2))
    await talked.catch_up()

    assert "late" not in await talked.log(ANN, "s")
    assert (talked.store.status.waiting, talked.store.status.quarantined) == (0, 1)


async def test_words_reset_during_their_replay_get_no_answer(alone: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    await alone.turn(ANN, "s", "two", "late")
    alone.comes_back()
    before(alone, "finish_turn", monkeypatch, lambda: alone.memory.sessions.reset(ANN, "s"))
    await alone.replay()

    assert await alone.log(ANN, "s") == []
    assert alone.store.status.quarantined == 1


# Erased while it is on its way


async def test_who_is_erased_here_is_on_no_way_to_the_store(away: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """The erasure waits for the turn that is being brought, and then finds it in the store."""
    await away.turn(ANN, "s", SECRET, "1")
    away.comes_back()
    erasing = list[asyncio.Task[Any]]()

    async def erase() -> None:
        erasing.append(asyncio.create_task(away.store.upkeep.erase(ANN)))
        await asyncio.wait(erasing, timeout=0.3)

    before(away, "messages", monkeypatch, erase)
    await away.replay()
    await erasing[0]

    assert await gone(away, ANN, "s")
    assert SECRET.encode() not in disk(away)


@pytest.mark.parametrize("call", ["messages", "append", "begin_turn", "finish_turn"])
async def test_who_is_erased_elsewhere_while_a_turn_is_brought_does_not_return(
    away: Process, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 4: what was stored behind the erasure's back is taken back, with the session it opened."""
    await away.turn(ANN, "s", SECRET, "1")
    away.comes_back()
    before(away, call, monkeypatch, lambda: erased_elsewhere(away))
    await away.replay()

    assert await gone(away, ANN, "s")
    assert (away.store.status.waiting, away.store.status.quarantined) == (0, 0)


async def test_in_a_group_only_the_erased_users_words_go(here: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    await talk(here.memory, ROOM_BOB, "g", "hello", "h")
    await texts(here.store, ROOM_BOB, "g")
    here.goes_away()
    for number in range(3):
        await here.turn(ROOM_ANN, "g", f"{SECRET} {number}", "1", create=None)
    await here.turn(ROOM_BOB, "g", "bob's", "2", create=None)
    here.comes_back()

    async def meanwhile() -> None:
        await erased_elsewhere(here)
        await talk(here.memory, ROOM_BOB, "g", "by the way", "b")

    after(here, "finish_turn", monkeypatch, meanwhile)
    await here.replay()

    assert await here.log(ROOM_BOB, "g") == ["hello", "h", "by the way", "b", "bob's", "2"]
    assert here.store.status.waiting == 0


async def test_erased_words_go_though_their_answer_is_refused(here: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    await talk(here.memory, ROOM_BOB, "g", "hello", "h")
    await texts(here.store, ROOM_BOB, "g")
    here.goes_away()
    await here.turn(ROOM_ANN, "g", SECRET, "1", create=None)
    here.comes_back()

    async def refused() -> None:
        await erased_elsewhere(here)
        raise IdempotencyKeyReused

    before(here, "finish_turn", monkeypatch, refused)
    await here.replay()

    assert await here.log(ROOM_BOB, "g") == ["hello", "h"]
    assert (here.store.status.waiting, here.store.status.quarantined) == (0, 0)


async def test_an_erasure_that_overtook_a_killed_replay_holds(away: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    await away.turn(ROOM_ANN, "g", SECRET, "1")
    away.comes_back()

    async def killed() -> None:
        await erased_elsewhere(away)
        raise Killed

    after(away, "finish_turn", monkeypatch, killed)
    with pytest.raises(Killed):
        await away.replay()
    await away.restart()
    await away.replay()

    assert await gone(away, ROOM_BOB, "g")
    assert (away.store.status.waiting, SECRET.encode() in disk(away)) == (0, False)


async def test_a_row_erased_while_it_is_read_is_not_replayed(alone: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process on this machine erases rows in every file."""
    await alone.turn(ANN, "s", SECRET, "2")
    alone.comes_back()

    async def erase() -> None:
        await alone.outbox.erase("acme", "", user_digest("acme", "ann"))

    before(alone, "messages", monkeypatch, erase)
    await alone.replay()

    assert await alone.log(ANN, "s") == ["one", "1"]
    assert (alone.store.status.waiting, alone.store.status.quarantined) == (0, 0)


async def test_an_open_turn_of_an_erased_person_is_lost(away: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    turn = await away.begin(ANN, "s", SECRET)
    away.comes_back()
    after(away, "begin_turn", monkeypatch, lambda: erased_elsewhere(away))
    await away.replay()

    with pytest.raises((TurnLost, SessionNotFound)):
        await away.store.sessions.finish_turn(turn, closing("late"))
    assert await gone(away, ANN, "s")
    assert away.store.status.waiting == 0


async def test_clocks_that_differ_do_not_save_anybody_from_being_erased(here: Process) -> None:
    here.clock.advance(timedelta(minutes=4))
    here.goes_away()
    await here.turn(ANN, "s", SECRET, "1")
    here.clock.advance(timedelta(minutes=-4))
    await erased_elsewhere(here)
    await here.catch_up()

    assert await gone(here, ANN, "s")
    assert here.store.status.waiting == 0


async def test_a_turn_that_began_before_the_erasure_is_of_before_it(here: Process) -> None:
    """However late it ends."""
    turn = await here.begin(ROOM_ANN, "g", "question")
    here.goes_away()
    await erased_elsewhere(here)
    here.clock.advance(timedelta(minutes=20))
    await here.finish(turn, SECRET)
    await here.catch_up()

    assert await here.log(ROOM_BOB, "g") == ["question"]
    assert (here.store.status.waiting, here.store.status.quarantined, SECRET.encode() in disk(here)) == (0, 0, False)


async def test_a_note_of_an_erasure_that_cannot_be_read_counts_and_stops_nobody_else(away: Process) -> None:
    await away.turn(ANN, "s", SECRET, "1")
    await away.turn(BOB, "b", "two", "2")
    away.comes_back()
    await away.memory.state.write_state(Scope(tenant="acme"), "erasures", user_digest("acme", "ann"), {"x": 1})
    await away.replay()

    assert await away.log(BOB, "b") == ["two", "2"]
    assert await gone(away, ANN, "s")
    assert away.store.status.waiting == 0


async def test_what_others_said_in_a_session_opened_by_the_erased_is_kept(away: Process) -> None:
    """Promise 1: it was acknowledged, and is not the erased user's."""
    await away.turn(ROOM_ANN, "g", SECRET, "1")
    await away.turn(ROOM_BOB, "g", "bob's", "2", create=None)
    await erased_elsewhere(away)
    await away.catch_up()

    assert await away.log(ROOM_BOB, "g") == ["bob's", "2"]
    assert (away.store.status.waiting, away.store.status.quarantined) == (0, 0)


# What was set aside


async def _set_aside(here: Process) -> None:
    await here.turn(ANN, "s", "one", "1")
    here.goes_away()
    await here.turn(ANN, "s", SECRET, "2")
    await here.memory.sessions.delete(ANN, "s")
    await here.catch_up()
    assert here.store.status.quarantined == 1


async def test_what_was_set_aside_goes_in_time_although_nothing_waits(here: Process) -> None:
    await _set_aside(here)
    here.clock.advance(timedelta(days=31))
    here.goes_away()
    await here.replay()

    assert (here.store.status.quarantined, count_journal(here.folder).quarantined) == (0, 0)
    assert SECRET.encode() not in disk(here)


async def test_what_was_set_aside_goes_with_its_person(here: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenuto.stores.journaled.journal._ASIDE_AT_ONCE", 1)
    await here.turn(BOB, "b", "one", "1")
    await _set_aside(here)
    here.goes_away()
    await here.turn(BOB, "b", "bob's", "2")
    await here.memory.sessions.delete(BOB, "b")
    await here.catch_up()
    await erased_elsewhere(here)
    for _ in range(3):
        await here.replay()

    assert here.store.status.quarantined == count_journal(here.folder).quarantined == 1
    assert SECRET.encode() not in disk(here)
