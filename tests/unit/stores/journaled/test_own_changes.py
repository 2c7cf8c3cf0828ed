"""Which sessions this process was the last to change, by a feed that does not name who changed one."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from tenuto.errors import SessionBusy, StoreUnavailable
from tenuto.model import NewSession, Page, Retention, Touch
from tenuto.model.scope import session_key
from tenuto.model.store_reports import Invalidation
from tenuto.ports import Store
from tenuto.stores.journaled.own_changes import OwnChanges
from tenuto.stores.memory import MemoryStore
from tests.outages import Wire
from tests.samples import ANN, closing, opening

KEY = session_key(ANN, "s")
REPORT = Invalidation(keys=(KEY,))


class Here:
    """A store whose reports a test sends itself."""

    def __init__(self) -> None:
        self.now = 0.0
        self.wire = Wire(MemoryStore())
        self.own = OwnChanges(cast(Store, self.wire).sessions, lambda: self.now)

    async def turn(self, **fields: Any) -> None:
        """A turn with the report of each of its two changes."""
        turn = await self.own.begin_turn(ANN, opening("s", "one", create=NewSession(**fields)))
        self.own.on_invalidate(REPORT)
        await self.own.finish_turn(turn, closing("1"))
        self.own.on_invalidate(REPORT)


@pytest.fixture
def here() -> Here:
    return Here()


async def test_reports_of_our_own_changes_leave_a_session_ours(here: Here) -> None:
    await here.turn()

    assert here.own.is_last(KEY)


async def test_the_next_report_is_of_another_process_however_soon_it_comes(here: Here) -> None:
    """Clients may send their next turn to another process within a millisecond."""
    await here.turn()
    here.own.on_invalidate(REPORT)

    assert not here.own.is_last(KEY)


async def test_our_next_change_makes_it_ours_again(here: Here) -> None:
    await here.turn()
    here.own.on_invalidate(REPORT)
    await here.turn()

    assert here.own.is_last(KEY)


async def test_two_changes_reported_at_once_excuse_no_later_one(here: Here) -> None:
    turn = await here.own.begin_turn(ANN, opening("s", "one"))
    await here.own.finish_turn(turn, closing("1"))
    here.own.on_invalidate(REPORT)
    here.now += 1
    here.own.on_invalidate(REPORT)

    assert not here.own.is_last(KEY)


async def test_a_change_of_another_process_during_our_call_is_noticed(here: Here) -> None:
    await here.turn()
    turn = await here.own.begin_turn(ANN, opening("s", "two"))
    here.own.on_invalidate(REPORT)
    ending = asyncio.create_task(here.own.finish_turn(turn, closing("2")))
    await asyncio.sleep(0)
    for _ in range(2):
        here.own.on_invalidate(REPORT)
    await ending
    here.own.on_invalidate(REPORT)

    assert not here.own.is_last(KEY)


async def test_a_refused_call_excuses_no_report(here: Here) -> None:
    await here.turn()
    await here.own.begin_turn(ANN, opening("s", "two"))
    here.own.on_invalidate(REPORT)
    with pytest.raises(SessionBusy):
        await here.own.begin_turn(ANN, opening("s", "three"))
    here.own.on_invalidate(REPORT)

    assert not here.own.is_last(KEY)


async def test_an_unanswered_call_leaves_a_session_as_it_was(here: Here) -> None:
    await here.turn()
    here.wire.cut = True
    with pytest.raises(StoreUnavailable):
        await here.own.begin_turn(ANN, opening("s", "two"))

    assert here.own.is_last(KEY)


async def test_a_feed_that_names_the_writer_is_believed(here: Here) -> None:
    await here.turn()
    here.own.on_invalidate(Invalidation(keys=(KEY,), local=True))
    assert here.own.is_last(KEY)

    turn = await here.own.begin_turn(ANN, opening("s", "two"))
    here.own.on_invalidate(Invalidation(keys=(KEY,), local=False))

    assert turn.number == 2
    assert not here.own.is_last(KEY)


async def test_reads_that_move_the_expiry_are_our_own_changes(here: Here) -> None:
    await here.turn(retention=Retention(touch=Touch.READ))
    await here.own.get(ANN, "s")
    here.own.on_invalidate(REPORT)
    await here.own.messages(ANN, "s", Page())
    here.own.on_invalidate(REPORT)

    assert here.own.is_last(KEY)


async def test_a_session_that_was_only_read_is_not_ours(here: Here) -> None:
    await here.turn()
    other = OwnChanges(cast(Store, here.wire).sessions, lambda: here.now)
    await other.messages(ANN, "s", Page())

    assert not other.is_last(KEY)
