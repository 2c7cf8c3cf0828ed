"""Servers that stand still behind a breaker: each call ends by itself, and after five no call waits at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from random import Random
from typing import Any, TypeAlias

import pytest

from tenuto.errors import CircuitOpen, StoreUnavailable
from tenuto.model import Changes, Page, SessionQuery
from tenuto.ports import RecordStore, Store, utc_now
from tenuto.stores.breaker import BreakerPolicy, BreakerState
from tenuto.stores.engine import Engine
from tenuto.stores.engine.breaker_records import BreakerRecords
from tenuto.stores.postgres import PostgresRecords
from tenuto.stores.postgres._client import ConnectionPool
from tenuto.stores.redis import ConnectionPolicy, RedisRecords
from tests.clock import Ticks
from tests.samples import ANN, batch, begin, talk, texts
from tests.servers import PostgresServer, RedisServer
from tests.shared_stores import until_it_answers
from tests.timeouts import LONG

# For calls that are to end without an answer.
SHORT = 0.5
_TURNS = 20
_Ask: TypeAlias = Callable[[Store], Coroutine[Any, Any, Any]]
REFUSED_IN_OUTAGES: list[_Ask] = [
    lambda store: begin(store, ANN, "s", "hello"),
    lambda store: store.sessions.append(ANN, "s", batch("hello")),
    lambda store: store.sessions.get(ANN, "s"),
    lambda store: store.sessions.messages(ANN, "s", Page()),
    lambda store: store.sessions.list(ANN, SessionQuery()),
    lambda store: store.sessions.patch(ANN, "s", Changes(title="title")),
    lambda store: store.sessions.reset(ANN, "s"),
    lambda store: store.sessions.delete(ANN, "s"),
    lambda store: store.traces.traces(ANN, "s"),
    lambda store: store.state.read_state(ANN, "drawer", "key"),
    lambda store: store.state.write_state(ANN, "drawer", "key", 1),
    lambda store: store.state.list_state(ANN, "drawer"),
    lambda store: store.state.state_keys(ANN, "drawer"),
    lambda store: store.state.list_state_locations(ANN),
    lambda store: store.upkeep.sweep(),
    lambda store: store.upkeep.evict(ANN, 10),
    lambda store: store.upkeep.erase(ANN),
    lambda store: store.upkeep.list_sites(),
    lambda store: store.upkeep.stats(ANN),
    lambda store: store.upkeep.compact(),
    lambda store: store.upkeep.ping(),
]


@asynccontextmanager
async def _opened(server: RedisServer | PostgresServer, seconds: float) -> AsyncIterator[RecordStore]:
    records: RecordStore
    if isinstance(server, RedisServer):
        records = RedisRecords(server.url, policy=ConnectionPolicy(call_timeout=seconds, connect_timeout=seconds))
    else:
        await (await PostgresRecords.open(server.app_url)).close()
        pool = ConnectionPool(server.app_url, schema="tenuto", connections=8, timeout=seconds, connect_timeout=seconds)
        records = PostgresRecords(pool, batches=2)
    try:
        yield records
    finally:
        await records.close()


def _engine(records: RecordStore) -> Engine:
    return Engine(records, clock=utc_now, chance=Random(1))


@pytest.mark.requirement("T7", "A21")
async def test_every_call_to_a_frozen_server_ends_by_itself(server: RedisServer | PostgresServer) -> None:
    """Whatever is asked, however many ask at once, and on connections that stand or are still to be made."""
    async with _opened(server, SHORT) as records:
        store = _engine(records)
        await until_it_answers(store)
        server.freeze()

        # The server stays frozen: a call without an end of its own would never end.
        async with asyncio.timeout(LONG):
            crowd = [*(ask for ask in REFUSED_IN_OUTAGES), *([REFUSED_IN_OUTAGES[0]] * 100)]
            outcomes = await asyncio.gather(*(ask(store) for ask in crowd), return_exceptions=True)

        server.thaw()
        assert {type(outcome) for outcome in outcomes if not isinstance(outcome, StoreUnavailable)} == set()
        await until_it_answers(store)


@pytest.mark.requirement("T7", "T8", "A21")
async def test_after_five_calls_in_vain_nobody_waits(server: RedisServer | PostgresServer) -> None:
    """Refused within the same step; a probe that fails leaves it so; one that is answered ends it."""
    ticks = Ticks()
    async with _opened(server, SHORT) as short, _opened(server, LONG) as long:
        impatient, patient = _engine(short), _engine(long)
        await talk(patient, ANN, "s", "one", "two")
        breaker = BreakerRecords(short, now=ticks, policy=BreakerPolicy(reset=timedelta(seconds=30)))
        guarded = _engine(breaker)
        await until_it_answers(guarded)
        server.freeze()

        for _ in range(5):
            with pytest.raises(StoreUnavailable):
                await guarded.sessions.get(ANN, "s")
        for ask in REFUSED_IN_OUTAGES:
            await _refused_at_once(ask(guarded))
        ticks.now += 30
        with pytest.raises(StoreUnavailable):
            await guarded.sessions.get(ANN, "s")
        await _refused_at_once(guarded.sessions.get(ANN, "s"))

        server.thaw()
        await until_it_answers(patient)
        await until_it_answers(impatient)
        ticks.now += 30
        await _until_closed(guarded, breaker, ticks)
        assert await texts(patient, ANN, "s") == ["one", "two"]


async def _refused_at_once(call: Coroutine[Any, Any, Any]) -> None:
    """A call that waits for nothing ends within a few turns of the loop."""
    task = asyncio.ensure_future(call)
    for _ in range(_TURNS):
        await asyncio.sleep(0)
    assert task.done()
    with pytest.raises(CircuitOpen):
        await task


async def _until_closed(guarded: Store, breaker: BreakerRecords, ticks: Ticks) -> None:
    """Asked until a probe is answered; on a machine that stands still, one may be too late."""
    async with asyncio.timeout(LONG):
        while breaker.state is not BreakerState.CLOSED:
            try:
                await guarded.sessions.get(ANN, "s")
            except StoreUnavailable:
                ticks.now += 30
                await asyncio.sleep(0.02)
