"""Whose news are: taken for our own while a call of ours is under way and for a moment after, but never a loss."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tenuto.errors import SessionBusy, StoreUnavailable
from tenuto.model import Changes, NewSession, Retention, Touch, Truncation
from tenuto.model.scope import session_key
from tenuto.stores.session_cache import MOMENT
from tests.outages import Fate, Process, Told, process
from tests.peek import last_seen, recent_calls
from tests.samples import ANN, batch, closing, once, talk, texts

_Deed: TypeAlias = Callable[[Process], Awaitable[object]]
KEY = session_key(ANN, "s")


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Process]:
    async with process(tmp_path / "journal", echoing=False) as running:
        yield running


async def _deleted_elsewhere(here: Process) -> None:
    await here.memory.sessions.delete(ANN, "s")
    here.feed.tell([KEY], taken_away=True)


def _instead(here: Process, name: str, step: Callable[..., Awaitable[Any]]) -> None:
    """The next call of this name does something else."""

    async def once_only(*args: Any) -> Any:
        del here.wire.__dict__[name]
        return await step(*args)

    here.wire.__dict__[name] = once_only


async def test_news_that_come_within_a_moment_of_our_own_change_cost_nothing(here: Process) -> None:
    """T7: however many."""
    turn = await here.begin(ANN, "s", "one")
    here.now += MOMENT * 0.9
    here.feed.tell([KEY])
    await here.finish(turn, "1")
    here.now += MOMENT * 0.9
    for _ in range(3):
        here.feed.tell([KEY])
    here.goes_away()

    assert [message.text for message in (await here.begin(ANN, "s", "two")).window] == ["one", "1", "two"]


_LOOKS: dict[str, _Deed] = {
    "at once": lambda here: asyncio.sleep(0),
    "after a look": lambda here: texts(here.store, ANN, "s"),
    "after a retry that was answered": lambda here: here.begin(ANN, "s", "one", idempotency_key=once("k")),
}


@pytest.mark.parametrize("look", _LOOKS.values(), ids=_LOOKS.keys())
async def test_later_news_are_of_other_changes(here: Process, look: _Deed) -> None:
    """Also where a client looks again and again at a session that reading does not touch."""
    await here.turn(ANN, "s", "one", "1", idempotency_key=once("k"))
    here.now += MOMENT
    await look(here)
    here.feed.tell([KEY])

    assert await here.is_unknown(ANN, "s")


async def test_what_somebody_says_within_the_moment_shows_with_our_next_answer(talked: Process) -> None:
    """It is taken for ours, and the version of our next change tells that it was not."""
    await talk(talked.memory, ANN, "s", "elsewhere", "there")
    talked.feed.tell([KEY])
    await talked.store.sessions.patch(ANN, "s", Changes(title="Numbers"))
    talked.goes_away()

    with pytest.raises(StoreUnavailable):
        await talked.begin(ANN, "s", "two", create=None)


async def test_what_is_taken_away_after_two_changes_told_as_one_is_not_taken_for_ours(here: Process) -> None:
    turn = await here.begin(ANN, "s", "secret")
    await asyncio.gather(here.store.sessions.patch(ANN, "s", Changes(title="t")), here.finish(turn, "1"))
    here.feed.tell([KEY])
    await texts(here.store, ANN, "s")
    await _deleted_elsewhere(here)

    assert await here.is_unknown(ANN, "s")


async def test_what_is_taken_away_while_our_call_is_under_way_is_not_shown_with_its_answer(here: Process) -> None:
    await here.turn(ANN, "s", "secret", "1")

    async def overtaken(*args: Any) -> Any:
        found = await here.memory.sessions.messages(*args)
        await _deleted_elsewhere(here)
        return found

    _instead(here, "messages", overtaken)
    await texts(here.store, ANN, "s")

    assert await here.is_unknown(ANN, "s")


@pytest.mark.parametrize("step", ["begin_turn", "finish_turn"])
async def test_what_is_taken_away_while_a_call_fails_does_not_come_back_with_it(here: Process, step: str) -> None:
    """Promise 1: what was known before the call was sent counts only if it was not changed since."""
    await here.turn(ANN, "s", "secret", "1")
    turn = await here.begin(ANN, "s", "two") if step == "finish_turn" else None

    async def gone(*_: Any) -> Any:
        await _deleted_elsewhere(here)
        raise StoreUnavailable

    _instead(here, step, gone)
    here.goes_away()
    if turn is not None:
        assert (await here.store.sessions.finish_turn(turn, closing("2"))).journaled
    else:
        with pytest.raises(StoreUnavailable):
            await here.begin(ANN, "s", "two", create=None)

    with pytest.raises(StoreUnavailable):
        await texts(here.store, ANN, "s")


async def _nothing(here: Process) -> None:
    """The deletion comes right behind our own change, and a server may tell both at once."""


async def _refused(here: Process) -> None:
    here.wire.strike(0, Fate.REFUSED)
    with pytest.raises(StoreUnavailable):
        await here.begin(ANN, "s", "x", journaled=False)


async def _not_renewed(here: Process) -> None:
    turn = await here.begin(ANN, "s", "x")
    here.wire.strike(0, Fate.REFUSED)
    with pytest.raises(StoreUnavailable):
        await here.store.sessions.renew_turn(turn)


async def _given_up(here: Process) -> None:
    """As a turn's end gives up its renewal."""
    turn = await here.begin(ANN, "s", "x")
    begun = asyncio.Event()

    async def hangs(*_: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    _instead(here, "renew_turn", hangs)
    renewal = asyncio.create_task(here.store.sessions.renew_turn(turn))
    await begun.wait()
    renewal.cancel()
    await asyncio.wait([renewal])
    await here.finish(turn, "y")


async def _read_while_lost(here: Process) -> None:
    async def lost(*args: Any) -> Any:
        here.feed.lose_track()
        return await here.memory.sessions.get(*args)

    _instead(here, "get", lost)
    await here.store.sessions.get(ANN, "s")


async def _forgotten_while_read(here: Process) -> None:
    async def forgotten(*args: Any) -> Any:
        last_seen(here.store).drop_session(KEY)
        return await here.memory.sessions.get(*args)

    _instead(here, "get", forgotten)
    await here.store.sessions.get(ANN, "s")
    await texts(here.store, ANN, "s")


_DEEDS = [_nothing, _refused, _not_renewed, _given_up, _read_while_lost, _forgotten_while_read]


@pytest.mark.parametrize("deed", _DEEDS, ids=lambda deed: deed.__name__)
async def test_no_call_of_ours_hides_a_deletion(here: Process, deed: _Deed) -> None:
    """Also one that was never carried out, or was never told."""
    keeping = Retention(idle=timedelta(hours=1), touch=Touch.READ)
    await here.turn(ANN, "s", "secret", "1", create=NewSession(retention=keeping))
    await deed(here)
    await _deleted_elsewhere(here)

    assert await here.is_unknown(ANN, "s")


async def test_a_turn_that_was_refused_hides_nothing(here: Process) -> None:
    await here.begin(ANN, "s", "one")
    here.now += MOMENT
    with pytest.raises(SessionBusy):
        await here.begin(ANN, "s", "two")
    here.feed.tell([KEY])

    assert await here.is_unknown(ANN, "s")


async def test_a_first_look_at_a_session_that_reading_touches_costs_nothing(here: Process) -> None:
    """Its deadline moves, and the feed tells of it behind the answer."""
    keeping = Retention(idle=timedelta(hours=1), touch=Touch.READ)
    await here.memory.sessions.append(ANN, "s", batch("one", create=NewSession(retention=keeping)))
    await texts(here.store, ANN, "s")
    here.feed.tell([KEY])

    assert not await here.is_unknown(ANN, "s")


async def test_a_feed_that_knows_whose_changes_are_is_believed(talked: Process) -> None:
    """Postgres: ours may be told late, and others' right behind ours."""
    talked.now += 60
    talked.feed.tell([KEY], ours=True)
    known = last_seen(talked.store).get(KEY)
    await talked.store.sessions.patch(ANN, "s", Changes(title="Numbers"))
    talked.feed.tell([KEY], ours=False)

    assert known is not None
    assert await talked.is_unknown(ANN, "s")


async def test_a_turn_that_makes_room_for_its_own_answer_outlives_the_news_of_it(talked: Process) -> None:
    """T7: an edit or an answer made anew, and the store goes away before its end."""
    turn = await talked.begin(ANN, "s", "two")
    await talked.store.sessions.truncate(ANN, "s", Truncation(after=3, within_turn=turn))
    talked.feed.tell([KEY], taken_away=True)
    talked.goes_away()

    assert (await talked.store.sessions.finish_turn(turn, closing("2"))).journaled


async def test_an_appended_message_of_our_own_does_not_blind_the_turn_that_runs(here: Process) -> None:
    turn = await here.begin(ANN, "s", "one")
    here.now += MOMENT
    await here.store.sessions.append(ANN, "s", batch("note"))
    here.feed.tell([KEY])
    await texts(here.store, ANN, "s")
    here.goes_away()
    await here.finish(turn, "1")

    assert await texts(here.store, ANN, "s") == ["one", "1"]


async def test_a_turn_that_moves_to_the_store_is_not_blinded_by_the_news_of_that(away: Process) -> None:
    turn = await away.begin(ANN, "s", "one")
    await away.catch_up()
    away.feed.tell([KEY])
    away.goes_away()
    await away.finish(turn, "1")

    assert await texts(away.store, ANN, "s") == ["one", "1"]


async def test_a_turn_that_was_overtaken_when_it_began_ends_blind(here: Process) -> None:
    """What its beginning brought may be older than what another process did meanwhile."""

    async def overtaken(*args: Any) -> Any:
        turn = await here.memory.sessions.begin_turn(*args)
        here.feed.tell([KEY], ours=False)
        return turn

    _instead(here, "begin_turn", overtaken)
    turn = await here.begin(ANN, "s", "one")
    await texts(here.store, ANN, "s")
    here.goes_away()
    done = await here.store.sessions.finish_turn(turn, closing("1"))

    assert done.journaled
    with pytest.raises(StoreUnavailable):
        await texts(here.store, ANN, "s")


async def test_calls_are_remembered_for_a_moment_only(here: Process) -> None:
    for number in range(20):
        await here.turn(ANN, f"s{number}", "one", "1")
    here.now += MOMENT
    await here.turn(ANN, "s", "one", "1")

    assert recent_calls(here.store) == [KEY]


async def test_a_take_away_of_our_own_that_was_given_up_is_heard(here: Process) -> None:
    """X5: Postgres says whose it was, and its caller went without knowing that it was carried out."""
    await here.turn(ANN, "s", "secret", "1")
    here.now += 10 * MOMENT

    async def carried_out(*_: object) -> None:
        await here.memory.sessions.delete(ANN, "s")
        here.feed.tell([KEY], taken_away=True, ours=True)
        raise StoreUnavailable

    _instead(here, "evict", carried_out)
    with pytest.raises(StoreUnavailable):
        await here.store.upkeep.evict(ANN, 1)

    assert await here.is_unknown(ANN, "s")


async def test_news_that_arrived_before_a_call_count_before_it(here: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """X5: a feed that is asked whether it hears takes in what lies in its socket."""
    await here.turn(ANN, "s", "secret", "1")
    here.now += 10 * MOMENT
    await here.memory.sessions.delete(ANN, "s")
    arrived = [KEY]

    def listening(_: object) -> bool:
        while arrived:
            here.feed.tell([arrived.pop()], taken_away=True)
        return True

    monkeypatch.setattr(Told, "listening", property(listening), raising=False)
    here.goes_away()

    with pytest.raises(StoreUnavailable):
        await here.begin(ANN, "s", "two", create=None)


async def test_what_came_into_doubt_during_a_call_is_not_gone_on_with(here: Process) -> None:
    """X5: it was deleted while the feed was away, and the store has answered others since."""
    await here.turn(ANN, "s", "secret", "1")
    await here.turn(ANN, "other", "x", "y")
    here.now += 10 * MOMENT

    async def long(*_: object) -> None:
        here.feed.lose_track()
        await here.memory.sessions.delete(ANN, "s")
        await here.store.sessions.get(ANN, "other")
        raise StoreUnavailable

    _instead(here, "begin_turn", long)

    with pytest.raises(StoreUnavailable):
        await here.begin(ANN, "s", "two", create=None)
