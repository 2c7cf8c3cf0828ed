"""A turn that ended while the store was away: its session is free as soon as the store is back."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from tenuto.errors import SessionBusy, StoreFull, TurnLost
from tenuto.model import FinishTurn, OpenTurn
from tenuto.model.policy import OnStoreDown
from tenuto.ports import TurnFollowUp
from tenuto.privacy.redactor import NO_REDACTION
from tenuto.privacy.turn_redaction import UpkeepRedaction
from tenuto.sessions import Sessions
from tenuto.upkeep import Upkeep
from tests.chats import Talk, ask, helper, hurried, talk
from tests.clock import FakeClock
from tests.doubles import FlatMemoryStore
from tests.samples import ANN, begin
from tests.unit.stored_talks import stored_messages

HOUR = timedelta(hours=1)


class Filling(FlatMemoryStore):
    """A store that begins turns, and has no room left for their ends until it gets some, or only for bare ones."""

    def __init__(self) -> None:
        super().__init__(clock=FakeClock())
        self.full = True
        self.takes_bare = False
        self.tried = asyncio.Event()
        self.given_up = asyncio.Event()

    async def finish_turn(self, turn: OpenTurn, request: FinishTurn) -> Any:
        if self.full and not (self.takes_bare and request.trace is None):
            self.tried.set()
            raise StoreFull
        done = await super().finish_turn(turn, request)
        if request.abandoned:
            self.given_up.set()
        return done


def _followed(*scripts: str, **policy: Any) -> tuple[Talk, Filling, Upkeep]:
    store, made = Filling(), []

    def upkeep(sessions: Sessions) -> TurnFollowUp:
        made.append(Upkeep(sessions=sessions, redaction=UpkeepRedaction(NO_REDACTION), sweep_every=HOUR))
        return made[0].after_turn

    assistant = helper(policies=hurried(**policy))
    t = talk(*scripts, store=store, assistants=[assistant], follow_up=upkeep)
    return t, store, made[0]


@pytest.mark.requirement("C13")
async def test_a_session_is_free_again_once_its_full_store_has_room() -> None:
    """No call waits for the lease of a turn that is known to have ended."""
    t, store, upkeep = _followed("Lost.", "Here.")
    with pytest.raises(StoreFull):
        await t.chat.take_turn(ANN, ask("Hello?", "s", idempotency_key="k"))
    with pytest.raises(SessionBusy):
        await t.chat.take_turn(ANN, ask("Hello?", "s", idempotency_key="k"))

    store.full = False
    await asyncio.wait_for(store.given_up.wait(), 60)

    assert (await t.chat.take_turn(ANN, ask("Hello?", "s", idempotency_key="k"))).text == "Here."
    assert await stored_messages(t, "s") == [("user", "Hello?"), ("assistant", "Here.")]
    await upkeep.drain()


async def test_a_store_without_room_for_a_trace_is_given_the_bare_lease_back() -> None:
    t, store, upkeep = _followed("Lost.", "Lost again.")
    store.takes_bare = True
    with pytest.raises(StoreFull):
        await t.chat.take_turn(ANN, ask("Hello?", "s"))

    await asyncio.wait_for(store.given_up.wait(), 60)

    with pytest.raises(StoreFull):
        await t.chat.take_turn(ANN, ask("Hello?", "s"))
    await upkeep.drain()


@pytest.mark.requirement("X5")
async def test_an_answer_given_without_its_store_does_not_hold_the_session() -> None:
    t, store, upkeep = _followed("Once.", "Twice.", on_store_down=OnStoreDown.STATELESS)
    assert (await t.chat.take_turn(ANN, ask("Hello?", "s"))).degraded == ("store",)

    store.full = False
    await asyncio.wait_for(store.given_up.wait(), 60)

    assert (await t.chat.take_turn(ANN, ask("And now?", "s"))).degraded == ()
    await upkeep.drain()


async def test_closing_tries_once_more_and_does_not_wait_for_a_store_that_is_away() -> None:
    t, store, upkeep = _followed("Lost.")
    with pytest.raises(StoreFull):
        await t.chat.take_turn(ANN, ask("Hello?", "s"))
    store.tried.clear()

    # The pauses in between would grow to two seconds, and the lease lasts two minutes.
    await asyncio.wait_for(upkeep.drain(), 60)

    assert store.tried.is_set()
    assert not store.given_up.is_set()


async def test_a_turn_that_another_one_followed_is_left_alone() -> None:
    """Its lease ran out, and somebody went on: what they hold stays theirs."""
    t, store, upkeep = _followed("Lost.")
    clock = store.clock
    assert isinstance(clock, FakeClock)
    with pytest.raises(StoreFull):
        await t.chat.take_turn(ANN, ask("Hello?", "s"))
    clock.advance(HOUR)
    other = await begin(store, ANN, "s", "Me now.")
    store.full = False

    await asyncio.wait_for(upkeep.drain(), 60)

    with pytest.raises(SessionBusy):
        await begin(store, ANN, "s", "Me, too.")
    await store.finish_turn(other, FinishTurn())
    with pytest.raises(TurnLost):
        await store.renew_turn(other)
