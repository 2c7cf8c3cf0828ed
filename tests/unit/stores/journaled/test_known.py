"""What is known of a session outlives the news of our own changes, and no change by others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from tenuto.errors import StoreUnavailable, VersionConflict
from tenuto.model import AppendResult, Changes, FinishTurn, NewSession, OpenTurn, Retention, Scope, Session, Touch
from tenuto.model.scope import session_key
from tests.clock import FakeClock
from tests.doubles import FlatMemoryStore
from tests.outages import Process, process
from tests.peek import last_seen
from tests.samples import ANN, batch, texts


async def test_a_new_title_does_not_cost_the_talk_before_an_outage(talked: Process) -> None:
    """T7."""
    await talked.store.sessions.patch(ANN, "s", Changes(title="Numbers"))

    talked.goes_away()
    turn = await talked.begin(ANN, "s", "two")

    assert [message.text for message in turn.window] == ["one", "1", "two"]
    assert turn.session.title == "Numbers"


async def test_a_summary_does_not_cost_the_talk_before_an_outage(talked: Process) -> None:
    """T7: upkeep appends it behind a turn, and the store goes away."""
    await talked.store.sessions.append(ANN, "s", batch("summary"))

    assert await _window(talked) == ["one", "1", "summary", "two"]


async def test_a_session_that_was_imported_goes_on_in_an_outage(here: Process) -> None:
    await here.store.sessions.append(ANN, "s", batch("one", "1"))

    assert await _window(here) == ["one", "1", "two"]


async def test_a_head_that_somebody_else_changed_is_no_longer_known(talked: Process) -> None:
    """A version that does not fit says that what is known here is old."""
    with pytest.raises(VersionConflict):
        await talked.store.sessions.patch(ANN, "s", Changes(title="Numbers", if_version=99))

    assert await _window(talked) == ["two"]


class Telling(FlatMemoryStore):
    """Tells its feed of each change before it answers, as servers may; `meanwhile` happens just before that."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self.tell: Callable[[list[bytes]], None] = lambda _: None
        self.meanwhile: Callable[[], Awaitable[object]] | None = None

    async def finish_turn(self, turn: OpenTurn, request: FinishTurn) -> AppendResult:
        await self._happens()
        done = await super().finish_turn(turn, request)
        self.tell([session_key(turn.scope, turn.session.id)])
        return done

    async def renew_turn(self, turn: OpenTurn) -> OpenTurn:
        renewed = await super().renew_turn(turn)
        self.tell([session_key(turn.scope, turn.session.id)])
        return renewed

    async def patch(self, scope: Scope, session_id: str, changes: Changes) -> Session:
        await self._happens()
        patched = await super().patch(scope, session_id, changes)
        self.tell([session_key(scope, session_id)])
        return patched

    async def get(self, scope: Scope, session_id: str) -> Session:
        self.tell([session_key(scope, session_id)])
        return await super().get(scope, session_id)

    async def _happens(self) -> None:
        if self.meanwhile is not None:
            await self.meanwhile()


@pytest.fixture
def telling(clock: FakeClock) -> Telling:
    return Telling(clock)


@pytest.fixture
async def early(tmp_path: Path, telling: Telling, clock: FakeClock) -> AsyncIterator[Process]:
    """A process that is told of a change before its store has answered."""
    async with process(tmp_path / "journal", store=telling, clock=clock, echoing=False) as running:
        telling.tell = running.feed.tell
        yield running


async def _window(here: Process) -> list[str]:
    """What a turn that begins during an outage shows the model."""
    here.goes_away()
    return [message.text for message in (await here.begin(ANN, "s", "two")).window]


async def test_news_of_our_own_turn_that_overtake_its_answer_cost_nothing(early: Process) -> None:
    """T7: a model takes its minutes, and the feed tells of the turn's end before the store has answered."""
    turn = await early.begin(ANN, "s", "one")
    early.now += 60
    turn = await early.store.sessions.renew_turn(turn)
    early.now += 60
    await early.finish(turn, "1")

    assert await _window(early) == ["one", "1", "two"]


async def test_a_title_whose_news_overtake_its_answer_costs_nothing(early: Process) -> None:
    await early.turn(ANN, "s", "one", "1")
    early.now += 60
    await early.store.sessions.patch(ANN, "s", Changes(title="Numbers"))

    assert await _window(early) == ["one", "1", "two"]


@pytest.mark.parametrize("change", ["finish", "patch"])
async def test_words_of_somebody_else_during_our_change_are_heeded(
    early: Process, telling: Telling, change: str
) -> None:
    """Though the news are one: the version of our answer shows that the change was not ours alone."""
    turn = await early.begin(ANN, "s", "one")
    if change == "patch":
        await early.finish(turn, "1")
    telling.meanwhile = lambda: FlatMemoryStore.append(telling, ANN, "s", batch("meanwhile"))
    if change == "finish":
        await early.finish(turn, "1")
    else:
        await early.store.sessions.patch(ANN, "s", Changes(title="Numbers"))

    with pytest.raises(StoreUnavailable):
        await _window(early)


async def test_a_feed_that_begins_during_a_turn_does_not_cost_its_beginning(here: Process) -> None:
    """It may have missed anything before; the version of the turn's end shows that it has missed nothing."""
    turn = await here.begin(ANN, "s", "one")
    here.feed.lose_track()
    await here.finish(turn, "1")

    assert await _window(here) == ["one", "1", "two"]


async def test_what_a_feed_missed_during_a_turn_is_heeded(here: Process) -> None:
    turn = await here.begin(ANN, "s", "one")
    await here.memory.sessions.append(ANN, "s", batch("meanwhile"))
    here.feed.lose_track()
    await here.finish(turn, "1")

    with pytest.raises(StoreUnavailable):
        await _window(here)


async def test_what_a_feed_may_have_missed_is_not_known_until_the_store_says_so(talked: Process) -> None:
    talked.feed.lose_track()
    await talked.turn(ANN, "t", "other", "2")
    talked.goes_away()
    with pytest.raises(StoreUnavailable):
        await talked.begin(ANN, "s", "two", create=None)

    talked.comes_back()
    await talked.store.sessions.get(ANN, "s")

    assert await _window(talked) == ["one", "1", "two"]


async def test_reading_a_session_that_reads_touch_costs_nothing(early: Process) -> None:
    """Its deadline moves, and the feed tells of it."""
    keeping = Retention(idle=timedelta(hours=1), touch=Touch.READ)
    turn = await early.begin(ANN, "s", "one", create=NewSession(retention=keeping))
    await early.finish(turn, "1")
    early.now += 60
    early.clock.advance(timedelta(minutes=20))
    await early.store.sessions.get(ANN, "s")

    assert await _window(early) == ["one", "1", "two"]


async def test_a_store_that_answers_is_away_no_more(alone: Process) -> None:
    """Promise 8: a readiness probe that is answered ends the outage that is shown."""
    await alone.store.sessions.get(ANN, "s")
    away = alone.store.status.away

    alone.comes_back()
    await alone.store.upkeep.ping()

    assert (away, alone.store.status.away) == (True, False)


async def test_an_outage_that_begins_before_our_own_news_came_costs_nothing(tmp_path: Path) -> None:
    """T7: the store dies right behind a turn, and the talk goes on."""
    async with process(tmp_path / "journal", echoing=False) as here:
        await here.turn(ANN, "s", "one", "1")
        here.feed.lose_track()

        assert await _window(here) == ["one", "1", "two"]


async def test_what_was_last_seen_long_ago_is_not_known_and_not_begun_anew(talked: Process) -> None:
    """T7: a caller whose missing sessions are opened is refused as well: this one is not missing."""
    talked.now += 15 * 60

    assert await talked.is_unknown(ANN, "s")
    with pytest.raises(StoreUnavailable):
        await talked.begin(ANN, "s", "two")


async def test_a_turn_that_is_held_keeps_its_session_known(here: Process) -> None:
    """The store has just said that it is there."""
    turn = await here.begin(ANN, "s", "one")
    here.now += 14 * 60
    await here.store.sessions.renew_turn(turn)
    here.now += 14 * 60

    assert not await here.is_unknown(ANN, "s")


async def test_what_was_seen_without_a_feed_is_known_once_our_change_confirms_it(here: Process) -> None:
    """The store answers, and its feed cannot connect: a deletion would not be heard."""
    here.feed.listening = False
    turn = await here.begin(ANN, "s", "one")
    await texts(here.store, ANN, "s")
    deaf = last_seen(here.store).get(session_key(ANN, "s"))
    here.feed.lose_track()
    here.feed.listening = True
    await here.finish(turn, "1")

    assert deaf is None
    assert await _window(here) == ["one", "1", "two"]


async def test_what_was_known_before_an_outage_counts_until_the_store_answers(talked: Process) -> None:
    """T7: an outage takes the feed along. Once the store answers a later call, it is in doubt."""
    talked.feed.listening = False
    talked.feed.lose_track()
    talked.goes_away()
    known = await texts(talked.store, ANN, "s")
    talked.comes_back()
    await talked.store.upkeep.ping()

    assert known == ["one", "1"]
    assert await talked.is_unknown(ANN, "s")


async def test_the_last_answer_of_a_store_that_dies_puts_nothing_in_doubt(early: Process, telling: Telling) -> None:
    """T7: it was on its way when the feed broke."""
    await early.turn(ANN, "s", "one", "1")
    turn = await early.begin(ANN, "t", "one")
    telling.meanwhile = partial(_lost, early)
    await early.finish(turn, "1")

    assert await _window(early) == ["one", "1", "two"]
    assert await texts(early.store, ANN, "t") == ["one", "1"]


async def _lost(here: Process) -> None:
    here.feed.lose_track()


async def test_an_answer_that_comes_late_does_not_take_the_place_of_a_newer_one(
    early: Process, telling: Telling
) -> None:
    turn = await early.begin(ANN, "s", "one")
    old = await telling.get(ANN, "s")

    async def late(*_: object) -> Session:
        await early.finish(turn, "1")
        return old

    early.wire.__dict__["get"] = late
    await early.store.sessions.get(ANN, "s")

    assert await _window(early) == ["one", "1", "two"]


async def test_a_title_confirms_no_more_than_was_seen(talked: Process) -> None:
    """A feed lost track, and a message came meanwhile: the version tells."""
    talked.feed.lose_track()
    await talked.memory.sessions.append(ANN, "s", batch("meanwhile"))
    await talked.store.sessions.patch(ANN, "s", Changes(title="Numbers"))

    talked.goes_away()
    with pytest.raises(StoreUnavailable):
        await talked.begin(ANN, "s", "two", create=None)
