"""What was deleted, reset, edited away or erased does not come back, whatever the store does meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeAlias

import pytest

from tenuto.errors import CircuitOpen, SessionBusy, StoreUnavailable, TenutoError, Unavailable
from tenuto.model import (
    Changes,
    ForkRequest,
    NewSession,
    OpenTurn,
    Page,
    Retention,
    Rewrite,
    Scope,
    Touch,
    Truncation,
    TurnState,
)
from tenuto.model.scope import session_key
from tenuto.stores.session_cache import MOMENT
from tests.outages import Fate, Process, full_disk
from tests.peek import held_turns
from tests.samples import ANN, BOB, batch, begin, closing, once, texts

_Deed: TypeAlias = Callable[[Process], Awaitable[object]]

_TAKEN_AWAY: dict[str, _Deed] = {
    "deleted": lambda here: here.store.sessions.delete(ANN, "s"),
    "reset": lambda here: here.store.sessions.reset(ANN, "s"),
    "edited": lambda here: here.store.sessions.truncate(ANN, "s", Truncation(after=2)),
    "erased": lambda here: here.store.upkeep.erase(ANN),
}
ANN_IN_ROOM = Scope(tenant="acme", chat="room", user="ann")
BOB_IN_ROOM = Scope(tenant="acme", chat="room", user="bob")


def _on_disk(here: Process) -> bytes:
    return b"".join(path.read_bytes() for path in here.folder.glob("*")) if here.folder.exists() else b""


@pytest.mark.parametrize("deed", _TAKEN_AWAY.values(), ids=_TAKEN_AWAY.keys())
async def test_a_running_turn_does_not_bring_back_what_was_taken_from_under_it(here: Process, deed: _Deed) -> None:
    """Promise 1, A21: its end is refused, and nothing of the old talk is shown or written."""
    await here.turn(ANN, "s", "old secret", "old answer")
    turn = await here.begin(ANN, "s", "question")
    await deed(here)
    here.goes_away()

    with pytest.raises(StoreUnavailable):
        await here.finish(turn, "late")
    with pytest.raises(StoreUnavailable):
        await texts(here.store, ANN, "s")
    with pytest.raises(StoreUnavailable):
        await here.begin(ANN, "s", "again", create=None)
    assert b"old secret" not in _on_disk(here)


_UNANSWERED = {name: _TAKEN_AWAY[name] for name in ("deleted", "reset", "edited")}


@pytest.mark.parametrize("deed", _UNANSWERED.values(), ids=_UNANSWERED.keys())
async def test_what_was_taken_away_counts_when_the_answer_got_lost(here: Process, deed: _Deed) -> None:
    turn = await here.begin(ANN, "s", "question")
    here.wire.strike(0, Fate.UNANSWERED)
    with pytest.raises(StoreUnavailable):
        await deed(here)
    here.goes_away()

    with pytest.raises(StoreUnavailable):
        await here.finish(turn, "late")
    with pytest.raises(StoreUnavailable):
        await here.store.sessions.get(ANN, "s")


async def test_a_deletion_that_its_caller_gave_up_counts(here: Process) -> None:
    turn = await here.begin(ANN, "s", "question")
    begun = asyncio.Event()

    async def hangs(*_: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    here.wire.__dict__["delete"] = hangs
    deletion = asyncio.create_task(here.store.sessions.delete(ANN, "s"))
    await begun.wait()
    deletion.cancel()
    await asyncio.wait([deletion])
    here.goes_away()

    with pytest.raises(StoreUnavailable):
        await here.finish(turn, "late")


_CHANGED: dict[str, Callable[[Process, Scope], Awaitable[object]]] = {
    "titled": lambda here, who: here.store.sessions.patch(who, "s", Changes(title="t")),
    "added to": lambda here, who: here.store.sessions.append(who, "s", batch("x")),
    "forked": lambda here, who: here.store.sessions.fork(who, "s", ForkRequest(new_id="t")),
    "rewritten": lambda here, who: here.store.sessions.rewrite(who, "s", Rewrite()),
    "deleted": lambda here, who: here.store.sessions.delete(who, "s"),
    "reset": lambda here, who: here.store.sessions.reset(who, "s"),
    "edited": lambda here, who: here.store.sessions.truncate(who, "s", Truncation(after=2)),
}


@pytest.mark.parametrize("deed", _CHANGED.values(), ids=_CHANGED.keys())
async def test_a_stranger_does_not_cost_a_talk(
    talked: Process, deed: Callable[[Process, Scope], Awaitable[object]]
) -> None:
    """Promise 2, T7: who could not change the session, has not, though the store does not say so."""
    turn = await talked.begin(ANN, "s", "two")
    talked.goes_away()

    with pytest.raises(StoreUnavailable):
        await deed(talked, BOB)
    await talked.finish(turn, "2")

    assert await texts(talked.store, ANN, "s") == ["one", "1", "two", "2"]


@pytest.mark.parametrize("deed", _CHANGED.values(), ids=_CHANGED.keys())
async def test_what_was_never_sent_does_not_cost_a_talk(
    talked: Process, deed: Callable[[Process, Scope], Awaitable[object]]
) -> None:
    """T7: the breaker refuses titles and the like during an outage; nothing has changed."""
    turn = await talked.begin(ANN, "s", "two")

    async def resting(*_: object, **__: object) -> None:
        raise CircuitOpen(timedelta(seconds=30))

    for name in ("patch", "append", "fork", "rewrite", "delete", "reset", "truncate"):
        talked.wire.__dict__[name] = resting
    talked.goes_away()
    with pytest.raises(CircuitOpen):
        await deed(talked, ANN)
    await talked.finish(turn, "2")

    assert await texts(talked.store, ANN, "s") == ["one", "1", "two", "2"]


@pytest.mark.parametrize("deed", ["renew", "say it twice", "look"])
async def test_a_call_that_fails_in_an_outage_does_not_cost_the_talk_later_on(here: Process, deed: str) -> None:
    """T7: however long the outage lasts by then."""
    keeping = Retention(idle=timedelta(hours=1), touch=Touch.READ)
    await here.turn(ANN, "s", "one", "1", create=NewSession(retention=keeping))
    turn = await here.begin(ANN, "s", "two")
    here.goes_away()
    here.feed.lose_track()
    if deed == "renew":
        with pytest.raises(StoreUnavailable):
            await here.store.sessions.renew_turn(turn)
    elif deed == "say it twice":
        with pytest.raises(SessionBusy):
            await here.begin(ANN, "s", "two")
    else:
        await texts(here.store, ANN, "s")
    here.now += 60
    await here.finish(turn, "2")

    assert await texts(here.store, ANN, "s") == ["one", "1", "two", "2"]


async def test_the_end_of_a_turn_is_kept_though_others_changed_the_session(here: Process) -> None:
    """Whether they deleted it is not known: after a restart neither."""
    await here.turn(ANN, "s", "old secret", "old answer")
    turn = await here.begin(ANN, "s", "question")
    await here.memory.sessions.append(ANN, "s", batch("elsewhere"))
    here.now += MOMENT
    here.feed.tell([session_key(ANN, "s")])
    await texts(here.store, ANN, "s")
    here.goes_away()
    done = await here.store.sessions.finish_turn(turn, closing("late"))

    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await here.store.sessions.get(ANN, "s")
        with pytest.raises(StoreUnavailable):
            await texts(here.store, ANN, "s")
        with pytest.raises(StoreUnavailable):
            await here.begin(ANN, "s", "again")
        await here.restart()
    assert done.journaled
    assert b"old secret" not in _on_disk(here)

    await here.catch_up()
    assert await here.log(ANN, "s") == ["old secret", "old answer", "question", "elsewhere", "late"]


async def test_somebody_who_looks_for_anothers_session_does_not_cost_its_turn(talked: Process) -> None:
    """S6."""
    turn = await talked.begin(ANN, "s", "two")
    with pytest.raises(TenutoError):
        await talked.store.sessions.get(BOB, "s")
    talked.goes_away()
    await talked.finish(turn, "2")

    assert await texts(talked.store, ANN, "s") == ["one", "1", "two", "2"]


async def test_in_a_group_erased_words_are_not_shown_while_somebody_elses_turn_is_open(here: Process) -> None:
    """Issue 4: nor is anything else, since rows hold no words of other users; the turn's end is kept."""
    await here.turn(BOB_IN_ROOM, "g", "hello", "h")
    here.goes_away()
    await here.turn(ANN_IN_ROOM, "g", "secret", "1", create=None)
    turn = await here.begin(BOB_IN_ROOM, "g", "bob", create=None)
    here.wire.cut = False
    await here.store.upkeep.erase(ANN)
    here.goes_away()

    with pytest.raises(StoreUnavailable):
        await texts(here.store, BOB_IN_ROOM, "g")
    await here.finish(turn, "b")
    with pytest.raises(StoreUnavailable):
        await texts(here.store, BOB_IN_ROOM, "g")
    await here.catch_up()

    assert (await here.log(BOB_IN_ROOM, "g"))[-2:] == ["bob", "b"]


async def test_a_turn_in_a_group_whose_first_speaker_was_erased_goes_on(away: Process) -> None:
    await away.turn(ANN_IN_ROOM, "g", "secret", "1")
    turn = await away.begin(BOB_IN_ROOM, "g", "bob", create=None)
    away.wire.cut = False
    await away.store.upkeep.erase(ANN)
    away.goes_away()

    await away.finish(turn, "b")

    assert await texts(away.store, BOB_IN_ROOM, "g") == ["bob", "b"]


async def test_the_head_alone_is_not_the_talk(here: Process) -> None:
    """S6: a turn that begins without what was said before would answer as if nothing had been."""
    await here.memory.sessions.append(ANN, "s", batch("one"))
    await here.store.sessions.get(ANN, "s")
    here.goes_away()

    with pytest.raises(StoreUnavailable):
        await here.begin(ANN, "s", "and now?", create=None)
    assert (await here.store.sessions.get(ANN, "s")).messages == 1


async def test_looking_at_the_head_does_not_cost_the_talk(talked: Process) -> None:
    await talked.store.sessions.get(ANN, "s")
    await talked.store.sessions.messages(ANN, "s", Page(limit=1, before=2))
    talked.goes_away()

    assert [message.text for message in (await talked.begin(ANN, "s", "two")).window] == ["one", "1", "two"]


async def test_a_key_is_not_answered_with_less_than_it_was(here: Process) -> None:
    """The answer has left what is known here."""
    await here.turn(ANN, "s", "q0", "the answer", idempotency_key=once("k0"), window=2)
    for number in range(1, 4):
        await here.turn(ANN, "s", f"q{number}", f"a{number}", window=2)
    here.goes_away()

    with pytest.raises(StoreUnavailable):
        await here.begin(ANN, "s", "q0", idempotency_key=once("k0"), window=2)


async def test_an_end_that_was_not_written_is_no_answer(here: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    turn = await here.begin(ANN, "s", "one", idempotency_key=once("k"))
    here.goes_away()

    with monkeypatch.context() as broken:
        broken.setattr(here.outbox, "add", full_disk)
        with pytest.raises(Unavailable):
            await here.finish(turn, "1")
    with pytest.raises(SessionBusy):
        await here.begin(ANN, "s", "one", idempotency_key=once("k"))
    await here.finish(turn, "1")
    again = await here.begin(ANN, "s", "one", idempotency_key=once("k"))

    assert (again.state, [message.text for message in again.reply]) == (TurnState.FINISHED, ["1"])


async def test_turns_that_are_lost_are_held_no_longer(here: Process) -> None:
    async def lost(session_id: str, step: Callable[[OpenTurn], Awaitable[object]]) -> None:
        turn = await here.begin(ANN, session_id, "one")
        await here.memory.sessions.delete(ANN, session_id)
        with pytest.raises(TenutoError):
            await step(turn)

    await lost("ended", lambda turn: here.finish(turn, "1"))
    await lost("renewed", here.store.sessions.renew_turn)
    here.goes_away()
    with pytest.raises(StoreUnavailable):
        await here.begin(ANN, "unknown", "one", create=None)

    assert held_turns(here.store) == 0


async def test_a_turn_that_runs_elsewhere_is_no_change_of_ours(here: Process) -> None:
    await begin(here.memory, ANN, "s", "elsewhere")
    await texts(here.store, ANN, "s")
    with pytest.raises(SessionBusy):
        await here.begin(ANN, "s", "two")
    await here.memory.sessions.delete(ANN, "s")
    here.feed.tell([session_key(ANN, "s")])
    here.goes_away()

    with pytest.raises(StoreUnavailable):
        await texts(here.store, ANN, "s")
