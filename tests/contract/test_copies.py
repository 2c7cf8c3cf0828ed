"""Copies of whole stores between any two backends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from itertools import permutations
from pathlib import Path
from typing import Any, cast

import pytest

from tenuto.errors import SequenceGap, SessionBusy
from tenuto.model import Changes, ForkRequest, NewSession, Producer, Retention, Touch, Truncation, TurnState
from tenuto.model.scope import SYSTEM
from tenuto.ports import Backend, Clock
from tenuto.privacy.crypto.tenant_ciphers import TenantCiphers
from tenuto.stores.comparison import Comparer
from tenuto.stores.copier import Copier
from tenuto.stores.copy_reports import CopyPolicy
from tenuto.stores.encrypted import EncryptedStore
from tests.backends import MEMORY, POSTGRES, REDIS, REDIS_CLUSTER, RING, SQLITE, Place
from tests.clock import FakeClock
from tests.samples import ACME, ANN, BOB, EVE, batch, begin, closing, once, talk, texts, trace_of, value_of

OPENED = (MEMORY, SQLITE, REDIS, POSTGRES, REDIS_CLUSTER)


def sealed(backend: Backend, clock: Clock) -> EncryptedStore:
    """The same store as its servers see it, with the key of all tests."""
    return EncryptedStore(store=backend, ciphers=TenantCiphers(store=backend.state, ring=RING, clock=clock))


@pytest.fixture
async def opened(request: pytest.FixtureRequest, clock: FakeClock, tmp_path: Path) -> AsyncIterator[dict[str, Backend]]:
    """An empty store of each backend, and a second file."""
    async with AsyncExitStack() as stack:
        stores: dict[str, Backend] = {}
        for number, backend in enumerate((*OPENED, SQLITE)):
            folder = tmp_path / str(number)
            folder.mkdir()
            place = Place(clock=clock, folder=folder, server=request.getfixturevalue)
            store = await stack.enter_async_context(backend.open(place))
            stores[backend.name if backend.name not in stores else "another file"] = cast(Backend, store)
        yield stores


async def fill(backend: Backend, clock: FakeClock) -> None:
    """Records of every kind, sealed as a server seals them; EVE's tenant has none of its own state."""
    store = sealed(backend, clock)
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
    await store.sessions.append(EVE, "long", batch(*map(str, range(1200)), create=NewSession(retention=keep)))
    await talk(store, EVE, "over", "q", "a", create=NewSession(retention=Retention(idle=timedelta(seconds=1))))
    for scope in (ANN, ACME, SYSTEM):
        for version in (1, 2):
            await store.state.write_state(scope, "prefs", "tone", {"version": version})
    clock.advance(timedelta(minutes=1))


async def copy(source: Backend, target: Backend, clock: FakeClock, **policy: Any) -> int:
    """Copy, and return how many records differ."""
    await Copier(source, target, name="here", policy=CopyPolicy(**policy), clock=clock).copy()
    compared = await Comparer(source, target, clock=clock).compare()
    assert [compared.named, *(here for here, there in compared.sites.values() if here != there)] == [[]]
    return compared.different


async def empty(store: Backend) -> None:
    async for heads in store.bulk.iter_heads():
        await store.bulk.delete_sessions(heads)
    async for records in store.bulk.iter_state():
        await store.bulk.delete_state(records)


async def test_a_copy_between_any_two_backends_differs_in_its_address_alone(
    opened: dict[str, Backend], clock: FakeClock
) -> None:
    """Sealed records, leases, keys, producers and versions arrive as they are, and the next store goes on with them
    (T19)."""
    await fill(opened["memory"], clock)
    last = opened["memory"]
    for target in ("sqlite", "redis", "postgres", "redis cluster", "another file"):
        await copy(last, opened[target], clock)
        last = opened[target]
    for source, target in permutations(opened, 2):
        await empty(opened[target])
        assert await copy(opened[source], opened[target], clock) == 0, f"{source} to {target}"

    for name, backend in opened.items():
        await check_goes_on(sealed(backend, clock), name)


async def check_goes_on(store: EncryptedStore, name: str) -> None:
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
    for scope in (ANN, ACME, SYSTEM):
        assert await value_of(store, scope, "prefs", "tone") == {"version": 2}
        assert (await store.state.write_state(scope, "prefs", "tone", {}, 2)).version == 3
    assert [where.key for where in await store.state.list_state_locations(ACME)] == ["tone"]
    assert len(await store.upkeep.list_sites()) == 2
