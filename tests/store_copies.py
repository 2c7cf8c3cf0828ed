"""Copies of stores: what is copied, and what must go on in the copy."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import Any

import pytest

from tenuto.errors import SequenceGap, SessionBusy
from tenuto.model import Changes, Content, ForkRequest, NewSession, Producer, Retention, Touch, Truncation, TurnState
from tenuto.model.scope import SYSTEM
from tenuto.ports import Clock, Store
from tenuto.stores.copy_reports import Comparison, CopyPolicy, CopyReport
from tenuto.stores.engine import Engine
from tenuto.stores.engine.comparing import RecordComparer
from tenuto.stores.engine.copying import RecordCopier
from tests.clock import FakeClock
from tests.samples import (
    ACME,
    ANN,
    BOB,
    EVE,
    appends,
    batch,
    begin,
    closing,
    once,
    shows,
    talk,
    texts,
    trace_of,
    value_of,
)

PICTURES = tuple(Content.of(BOB, bytes([n]) * 5000, "image/png", f"{n}.png") for n in range(3))


async def copy_store(source: Engine, target: Engine, clock: Clock, **policy: Any) -> CopyReport:
    """Copy one store into another."""
    wanted, chance = CopyPolicy(**policy), Random(7)
    copier = RecordCopier(source.records, target.records, name="source", policy=wanted, clock=clock, chance=chance)
    report = await copier.copy()
    target.cache.clear()  # A backend that other processes can reach has a feed.
    return report


async def compare_stores(source: Engine, target: Engine, clock: Clock) -> Comparison:
    """Compare two stores."""
    return await RecordComparer(source.records, target.records, clock=clock).compare()


async def fill(store: Store, clock: FakeClock) -> None:
    """Write records of every kind; EVE's tenant has none of its own state."""
    turn = await begin(store, ANN, "talk", "When?", idempotency_key=once("k1"))
    await store.sessions.finish_turn(turn, closing("At nine.", tokens=7, cost_nanos=3, trace=trace_of(turn)))
    changes = Changes(title="Ärger 茶", context={"x": 1.0, "y": [2**53]}, metadata={"m": {"b": 1, "a": None}})
    await store.sessions.patch(ANN, "talk", changes)
    await begin(store, ANN, "talk", "And now?", idempotency_key=once("k2"), lease=timedelta(minutes=5))
    keep = Retention(idle=timedelta(hours=8), touch=Touch.READ, max_turns=2, max_messages=None)
    for seq in (1, 2, 3):
        new = NewSession(retention=keep)
        words = batch(f"q{seq}", f"a{seq}", create=new, producer=Producer(id="p" * 300, seq=seq))
        await store.sessions.append(BOB, "fed", words)
    await store.sessions.fork(BOB, "fed", ForkRequest(new_id="branch"))
    await store.sessions.truncate(BOB, "branch", Truncation(after=4))
    await store.sessions.append(BOB, "album", appends(*map(shows, PICTURES)))
    await store.sessions.fork(BOB, "album", ForkRequest(new_id="first", at=2))
    await store.sessions.remove_attachment(BOB, "album", PICTURES[0].id)
    await store.sessions.append(EVE, "long", batch(*map(str, range(1200)), create=NewSession(retention=keep)))
    await talk(store, EVE, "over", "q", "a", create=NewSession(retention=Retention(idle=timedelta(seconds=1))))
    for scope in (ANN, ACME, SYSTEM):
        for version in (1, 2):
            await store.state.write_state(scope, "prefs", "tone", {"version": version})
    clock.advance(timedelta(minutes=1))


async def check_goes_on(store: Store, name: str) -> None:
    """Check that a server on the copy goes on where one on the source stopped."""
    assert await texts(store, ANN, "talk") == ["When?", "At nine.", "And now?"], name
    session = await store.sessions.get(ANN, "talk")
    assert (session.version, session.title, session.tokens, session.turns) == (4, "Ärger 茶", 7, 2)
    again = await begin(store, ANN, "talk", "When?", idempotency_key=once("k1"))
    assert (again.state, [reply.text for reply in again.reply]) == (TurnState.FINISHED, ["At nine."])
    assert [trace.number for trace in await store.traces.traces(ANN, "talk")] == [1]
    with pytest.raises(SessionBusy):
        await begin(store, ANN, "talk", "me too")
    with pytest.raises(SequenceGap):
        await store.sessions.append(BOB, "fed", batch("q", producer=Producer(id="p" * 300, seq=5)))
    await store.sessions.append(BOB, "fed", batch("q", producer=Producer(id="p" * 300, seq=4)))
    assert await texts(store, BOB, "fed") == ["q3", "a3", "q"]
    assert (await texts(store, EVE, "long"))[-1] == "1199"
    for session_id, pictures in (("album", PICTURES[1:]), ("first", PICTURES[:2])):
        attachments = await store.sessions.attachments(BOB, session_id)
        held = [await store.sessions.attachment(BOB, session_id, one.id) for one in attachments]
        assert held == [*pictures], name
    for scope in (ANN, ACME, SYSTEM):
        assert await value_of(store, scope, "prefs", "tone") == {"version": 2}
        assert (await store.state.write_state(scope, "prefs", "tone", {}, 2)).version == 3
    assert [where.key for where in await store.state.list_state_locations(ACME)] == ["tone"]
    assert len(await store.upkeep.list_sites()) == 2
