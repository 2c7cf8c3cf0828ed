"""The logs of running turns, on every backend: what is appended comes back, and what is asked for is kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from random import Random

import pytest

from tenuto.errors import DecryptionFailed
from tenuto.model.scope import site_key
from tenuto.model.stored import IndexOrder, IndexQuery, Kind, Part
from tenuto.ports import LogPlace, RecordStore, TurnAddress, TurnAsks
from tenuto.stores.engine import Engine
from tenuto.stores.engine.codec import Codec
from tenuto.stores.engine.turn_logs import EngineTurnLogs
from tests.clock import FakeClock
from tests.record_stores import RECORD_STORES, RecordBackend
from tests.samples import ANN, BOB, EVE
from tests.simulation.hosts import CheckingSealer, OneCodec

TURN = TurnAddress(ANN, "s", "t-1")


class Silence:
    """A feed that tells nothing."""

    @asynccontextmanager
    async def watch(self, on_change: object) -> AsyncIterator[None]:
        yield

    def look(self) -> bool:
        return False


@pytest.fixture(params=RECORD_STORES, ids=lambda backend: backend.name)
async def records(request: pytest.FixtureRequest) -> AsyncIterator[RecordStore]:
    backend: RecordBackend = request.param
    async with backend.open(request.getfixturevalue) as opened:
        yield opened


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def logs(records: RecordStore, clock: FakeClock) -> EngineTurnLogs:
    return EngineTurnLogs(records, OneCodec(Codec(CheckingSealer())), Random(1), clock, Silence())


async def entries_of(logs: EngineTurnLogs, turn: TurnAddress, after: int = 0) -> list[tuple[int, bytes]]:
    return [(one.number, one.body) for one in await logs.read(turn, after)]


async def test_entries_come_back_in_order_behind_any_event(logs: EngineTurnLogs) -> None:
    place = LogPlace()
    for body, count in ((b"one", 1), (b"two three four", 3), (b"five", 1)):
        place, made = await logs.append(TURN, place, body, count)
        assert made

    assert place.through == 5
    assert await entries_of(logs, TURN) == [(1, b"one"), (2, b"two three four"), (5, b"five")]
    assert await entries_of(logs, TURN, 4) == [(5, b"five")]
    assert await entries_of(logs, TURN, 5) == []


async def test_an_entry_whose_answer_was_lost_is_not_appended_again(logs: EngineTurnLogs) -> None:
    first, _ = await logs.append(TURN, LogPlace(), b"one", 1)
    second, _ = await logs.append(TURN, first, b"two", 1)

    assert await logs.append(TURN, first, b"two", 1) == (second, False)
    assert await logs.append(TURN, LogPlace(), b"one", 1) == (second, False)
    assert await entries_of(logs, TURN) == [(1, b"one"), (2, b"two")]


async def test_the_end_may_have_no_event(logs: EngineTurnLogs) -> None:
    first, _ = await logs.append(TURN, LogPlace(), b"one", 1)
    ended, _ = await logs.append(TURN, first, b"end", 0, ends=True)

    assert ended.through == 1
    assert await entries_of(logs, TURN, 1) == [(2, b"end")]


async def test_everything_that_is_asked_at_once_counts(logs: EngineTurnLogs) -> None:
    assert await logs.asked(TURN) == TurnAsks()

    await asyncio.gather(*(logs.ask(TURN, stop=number == 1) for number in range(4)))

    assert await logs.asked(TURN) == TurnAsks(count=4, stop=True)


@pytest.mark.parametrize(
    "other", [TURN._replace(turn_id="t-2"), TURN._replace(session_id="s-2"), TURN._replace(scope=EVE)]
)
async def test_a_log_is_found_by_its_own_turn_alone(logs: EngineTurnLogs, other: TurnAddress) -> None:
    await logs.append(TURN, LogPlace(), b"one", 1)
    await logs.ask(TURN, stop=True)

    assert await entries_of(logs, other) == []
    assert await logs.asked(other) == TurnAsks()
    assert logs.log_key(TURN) == logs.log_key(TURN._replace(scope=BOB))


@pytest.mark.parametrize("way", ["removed", "swept", "erased"])
async def test_nothing_stays_of_a_log(logs: EngineTurnLogs, records: RecordStore, clock: FakeClock, way: str) -> None:
    engine = Engine(records, chance=Random(2), clock=clock)
    place, _ = await logs.append(TURN, LogPlace(), b"one", 1)
    await logs.ask(TURN)
    await logs.append(TURN, place, b"end", 0, ends=True)
    await engine.upkeep.sweep()
    assert await entries_of(logs, TURN)

    if way == "removed":
        await logs.remove(TURN)
    elif way == "swept":
        clock.advance(timedelta(hours=3))
        await engine.upkeep.sweep()
    else:
        await engine.upkeep.erase(ANN)

    assert await entries_of(logs, TURN) == []
    values = IndexQuery(order=IndexOrder.PLACE, kind=Kind.VALUE, space=site_key(ANN), named=True)
    assert await records.list(values) == ()
    assert (await records.page(logs.log_key(TURN), Part.EVENTS, 0, 9, 9)).revision == 0
    assert await logs.append(TURN, place, b"two", 1) == (LogPlace(), False)


async def test_what_is_stored_is_sealed(logs: EngineTurnLogs, records: RecordStore, clock: FakeClock) -> None:
    await logs.append(TURN, LogPlace(), b"said", 1)
    keyless = EngineTurnLogs(records, OneCodec(Codec(None)), Random(3), clock, Silence())

    with pytest.raises(DecryptionFailed):
        await keyless.read(TURN, 0)
