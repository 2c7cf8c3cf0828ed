"""What is known of a session outlives the news of our own changes, and no change of anybody else's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from tenuto.errors import StoreAway, VersionConflict
from tenuto.model import Appended, Changes, Closing, Keeping, NewSession, OpenTurn, Scope, Session, Touch
from tenuto.model.scope import session_key
from tenuto.stores.memory import MemoryStore
from tests.clock import FakeClock
from tests.outages import Process, process
from tests.samples import ANN, batch, once


async def test_a_new_title_does_not_cost_the_talk_before_an_outage(tmp_path: Path) -> None:
    """T7."""
    async with process(tmp_path / "journal") as here:
        await here.turn(ANN, "s", "one", "1")
        await here.store.patch(ANN, "s", Changes(title="Numbers"))

        here.goes_away()
        turn = await here.begin(ANN, "s", "two")

        assert [message.text for message in turn.window] == ["one", "1", "two"]
        assert turn.session.title == "Numbers"


async def test_a_head_that_somebody_else_changed_is_no_longer_known(tmp_path: Path) -> None:
    """A version that does not fit says that what is known here is old."""
    async with process(tmp_path / "journal") as here:
        await here.turn(ANN, "s", "one", "1")
        with pytest.raises(VersionConflict):
            await here.store.patch(ANN, "s", Changes(title="Numbers", if_version=99))

        here.goes_away()
        turn = await here.begin(ANN, "s", "two")

        assert [message.text for message in turn.window] == ["two"]


class Telling(MemoryStore):
    """Tells its feed of each change before it answers, as servers may; `meanwhile` happens just before that."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self.tell: Callable[[list[bytes]], None] = lambda _: None
        self.meanwhile: Callable[[], Awaitable[object]] | None = None

    async def finish_turn(self, turn: OpenTurn, closing: Closing) -> Appended:
        await self._happens()
        done = await super().finish_turn(turn, closing)
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


@asynccontextmanager
async def _told_early(folder: Path) -> AsyncIterator[tuple[Process, Telling]]:
    clock = FakeClock()
    store = Telling(clock)
    async with process(folder / "journal", store=store, clock=clock, echoing=False) as here:
        store.tell = here.feed.tell
        yield here, store


async def _window(here: Process) -> list[str]:
    """What a turn that begins during an outage shows the model."""
    here.goes_away()
    return [message.text for message in (await here.begin(ANN, "s", "two")).window]


async def test_news_of_our_own_turn_that_overtake_its_answer_cost_nothing(tmp_path: Path) -> None:
    """T7: a model takes its minutes, and the feed tells of the turn's end before the store has answered."""
    async with _told_early(tmp_path) as (here, _):
        turn = await here.begin(ANN, "s", "one")
        here.now += 60
        turn = await here.store.renew_turn(turn)
        here.now += 60
        await here.finish(turn, "1")

        assert await _window(here) == ["one", "1", "two"]


async def test_a_title_whose_news_overtake_its_answer_costs_nothing(tmp_path: Path) -> None:
    async with _told_early(tmp_path) as (here, _):
        await here.turn(ANN, "s", "one", "1")
        here.now += 60
        await here.store.patch(ANN, "s", Changes(title="Numbers"))

        assert await _window(here) == ["one", "1", "two"]


async def test_news_that_come_after_the_answer_cost_nothing_either(tmp_path: Path) -> None:
    """Each change is told once; on a machine that stands still, seconds later."""
    async with process(tmp_path / "journal", echoing=False) as here:
        turn = await here.begin(ANN, "s", "one")
        here.now += 5
        here.feed.tell([session_key(ANN, "s")])
        await here.finish(turn, "1")
        here.now += 5
        here.feed.tell([session_key(ANN, "s")])

        assert await _window(here) == ["one", "1", "two"]


async def test_what_comes_beyond_our_own_news_is_somebody_elses(tmp_path: Path) -> None:
    """However soon after our own change."""
    async with process(tmp_path / "journal") as here:
        await here.turn(ANN, "s", "one", "1")
        for _ in range(3):
            here.feed.tell([session_key(ANN, "s")])

        assert await _window(here) == ["two"]


@pytest.mark.parametrize("change", ["finish", "patch"])
async def test_words_of_somebody_else_during_our_change_are_heeded(tmp_path: Path, change: str) -> None:
    """Though the news are one: the version of our answer shows that the change was not ours alone."""
    async with _told_early(tmp_path) as (here, store):
        turn = await here.begin(ANN, "s", "one")
        if change == "patch":
            await here.finish(turn, "1")
        store.meanwhile = lambda: MemoryStore.append(store, ANN, "s", batch("meanwhile"))
        if change == "finish":
            await here.finish(turn, "1")
        else:
            await here.store.patch(ANN, "s", Changes(title="Numbers"))

        assert "one" not in await _window(here)


async def test_a_feed_that_begins_during_a_turn_does_not_cost_its_beginning(tmp_path: Path) -> None:
    """It may have missed anything before; the version of the turn's end shows that it has missed nothing."""
    async with process(tmp_path / "journal") as here:
        turn = await here.begin(ANN, "s", "one")
        here.feed.tell(None)
        await here.finish(turn, "1")

        assert await _window(here) == ["one", "1", "two"]


async def test_what_a_feed_missed_during_a_turn_is_heeded(tmp_path: Path) -> None:
    async with process(tmp_path / "journal") as here:
        turn = await here.begin(ANN, "s", "one")
        await here.memory.append(ANN, "s", batch("meanwhile"))
        here.feed.tell(None)
        await here.finish(turn, "1")

        assert await _window(here) == ["1", "two"]


async def test_what_a_feed_may_have_missed_is_not_known_until_the_store_says_so(tmp_path: Path) -> None:
    async with process(tmp_path / "journal") as here:
        await here.turn(ANN, "s", "one", "1")
        here.feed.tell(None)
        await here.turn(ANN, "t", "other", "2")
        here.goes_away()
        with pytest.raises(StoreAway):
            await here.begin(ANN, "s", "two", create=None)

        here.comes_back()
        await here.store.get(ANN, "s")

        assert await _window(here) == ["one", "1", "two"]


async def test_reading_a_session_that_reads_touch_costs_nothing(tmp_path: Path) -> None:
    """Its deadline moves, and the feed tells of it."""
    async with _told_early(tmp_path) as (here, _):
        keeping = Keeping(idle=timedelta(hours=1), touch=Touch.READ)
        turn = await here.begin(ANN, "s", "one", create=NewSession(keeping=keeping))
        await here.finish(turn, "1")
        here.now += 60
        here.clock.advance(timedelta(minutes=20))
        await here.store.get(ANN, "s")

        assert await _window(here) == ["one", "1", "two"]


async def test_a_store_that_answers_is_away_no_more(tmp_path: Path) -> None:
    """Promise 8: whoever asks whether it is ready ends what is shown of the outage."""
    async with process(tmp_path / "journal") as here:
        await here.turn(ANN, "s", "one", "1")
        here.goes_away()
        await here.store.get(ANN, "s")
        away = here.store.state.away

        here.comes_back()
        await here.store.ping()

        assert (away, here.store.state.away) == (True, False)


async def _unknown(here: Process) -> bool:
    """Whether nothing of the session is shown when the store goes away now."""
    here.goes_away()
    try:
        await here.store.get(ANN, "s")
    except StoreAway:
        return True
    return False


async def test_an_answered_retry_does_not_hide_what_somebody_else_does(tmp_path: Path) -> None:
    """It changes nothing, so the next news are not ours."""
    async with process(tmp_path / "journal") as here:
        await here.turn(ANN, "s", "one", "1", once=once("k"))
        await here.begin(ANN, "s", "one", once=once("k"))
        here.feed.tell([session_key(ANN, "s")])

        assert await _unknown(here)


async def test_the_news_of_a_new_session_are_expected_before_it_is_known(tmp_path: Path) -> None:
    """They may overtake the store's answer; the next news are somebody else's."""
    async with process(tmp_path / "journal") as here:
        await here.turn(ANN, "s", "one", "1")
        here.feed.tell([session_key(ANN, "s")])

        assert await _unknown(here)


async def test_a_renewal_that_is_not_told_does_not_hide_what_somebody_else_does(tmp_path: Path) -> None:
    """Some stores tell of renewals, some do not."""
    async with process(tmp_path / "journal") as here:
        turn = await here.begin(ANN, "s", "one")
        await here.store.renew_turn(turn)
        here.feed.tell([session_key(ANN, "s")])

        assert await _unknown(here)


async def test_a_session_whose_own_news_do_not_come_is_in_doubt(tmp_path: Path) -> None:
    """Somebody else's may have been taken for them; our next change shows it by the version."""
    async with process(tmp_path / "journal", echoing=False) as here:
        turn = await here.begin(ANN, "s", "one")
        here.now += 11
        doubted = here.store._known.get(session_key(ANN, "s")) is None
        here.wire.tell = here.feed.tell
        await here.finish(turn, "1")

        assert doubted
        assert await _window(here) == ["one", "1", "two"]


async def test_an_outage_that_begins_before_our_own_news_came_costs_nothing(tmp_path: Path) -> None:
    """T7: the store dies right behind a turn, and the talk goes on."""
    async with process(tmp_path / "journal", echoing=False) as here:
        await here.turn(ANN, "s", "one", "1")
        here.feed.tell(None)

        assert await _window(here) == ["one", "1", "two"]


async def test_a_feed_that_begins_late_does_not_hide_what_somebody_else_does(tmp_path: Path) -> None:
    """What it did not tell of our own changes before, it never will."""
    async with process(tmp_path / "journal", echoing=False) as here:
        await here.turn(ANN, "s", "one", "1")
        here.feed.tell(None)
        await here.store.get(ANN, "s")
        here.feed.tell([session_key(ANN, "s")])

        assert await _unknown(here)


async def test_what_was_last_seen_long_ago_is_not_known(tmp_path: Path) -> None:
    async with process(tmp_path / "journal") as here:
        await here.turn(ANN, "s", "one", "1")
        here.now += 15 * 60

        assert await _unknown(here)


async def test_a_page_that_was_overtaken_by_news_is_not_kept(tmp_path: Path) -> None:
    async with _told_early(tmp_path) as (here, store):
        await MemoryStore.append(store, ANN, "s", batch("one"))
        await here.store.get(ANN, "s")

        assert await _unknown(here)


async def test_a_turn_that_was_overtaken_by_news_is_not_kept(tmp_path: Path) -> None:
    """Two news of one change: one of them is somebody else's."""
    async with process(tmp_path / "journal") as here:
        here.wire.tell = lambda keys: here.feed.tell([*keys, *keys])
        await here.begin(ANN, "s", "one")

        assert await _unknown(here)
