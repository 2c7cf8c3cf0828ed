"""The cache of an engine: what it answers, what it lets go of, and never an answer that the store would not give."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from random import Random

import pytest

from tenuto.errors import SessionNotFound
from tenuto.model import Changes, NewSession, Page, Retention, Touch, Truncation
from tenuto.stores.engine import Engine
from tests.clock import FakeClock
from tests.samples import ANN, BOB, EVE, batch, begin, closing, talk, texts
from tests.simulation.store import Fate, SimClient, SimServer


class Harness:
    """Processes on one store, which counts the calls of the first of them."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.server = SimServer(Random(1))
        self.server.fate = self._count
        self.calls: list[str] = []
        self._stack = AsyncExitStack()

    def _count(self, process: str, kind: str) -> Fate:
        if process == "here":
            self.calls.append(kind)
        return Fate.FINE

    async def start(self, name: str, max_sessions: int = 10_000, max_bytes: int = 2**28) -> Engine:
        engine = Engine(
            SimClient(self.server, name),
            clock=self.clock,
            chance=Random(name),
            max_sessions=max_sessions,
            max_bytes=max_bytes,
        )
        return await self._stack.enter_async_context(engine)

    async def close(self) -> None:
        await self._stack.aclose()


@pytest.fixture
async def harness(clock: FakeClock) -> AsyncIterator[Harness]:
    harness = Harness(clock)
    yield harness
    await harness.close()


async def _renewal(engine: Engine) -> None:
    turn = await begin(engine, ANN, "s", "long")
    await engine.sessions.renew_turn(turn)
    await engine.sessions.finish_turn(turn, closing("a"))


CHANGES: list[Callable[[Engine], Awaitable[object]]] = [
    lambda engine: talk(engine, ANN, "s", "q", "a"),
    lambda engine: engine.sessions.append(ANN, "s", batch("note")),
    lambda engine: engine.sessions.patch(ANN, "s", Changes(title="t")),
    lambda engine: engine.sessions.truncate(ANN, "s", Truncation(after=3)),
    _renewal,
]


@pytest.mark.requirement("A2")
async def test_what_was_read_or_written_is_answered_without_the_store(harness: Harness) -> None:
    """Whatever the process did itself; and it is what another one reads."""
    here, there = await harness.start("here"), await harness.start("there")
    await talk(here, ANN, "s", "q", "a", create=NewSession(retention=Retention(max_messages=6)))
    for change in CHANGES:
        await change(here)
        harness.calls.clear()

        session = await here.sessions.get(ANN, "s")
        page = await here.sessions.messages(ANN, "s", Page(limit=5))

        assert harness.calls == []
        assert (session, page) == (
            await there.sessions.get(ANN, "s"),
            await there.sessions.messages(ANN, "s", Page(limit=5)),
        )


@pytest.mark.requirement("A2", "T6")
async def test_the_least_recently_used_goes_first(harness: Harness) -> None:
    """Exactly the least recently used one, and never the newest."""
    here = await harness.start("here", max_sessions=100)
    for number in range(100):
        await here.sessions.append(ANN, f"s{number}", batch())
    await here.sessions.get(ANN, "s0")
    await here.sessions.append(ANN, "s100", batch())
    harness.calls.clear()

    for number in [0, *range(2, 101)]:
        await here.sessions.get(ANN, f"s{number}")
    assert (harness.calls, len(here.cache)) == ([], 100)
    await here.sessions.get(ANN, "s1")

    assert (harness.calls, len(here.cache)) == (["load"], 100)


async def test_bytes_are_bounded_too(harness: Harness) -> None:
    here = await harness.start("here", max_bytes=60_000)
    for number in range(10):
        await here.sessions.append(ANN, f"s{number}", batch("x" * 10_000))
    held = len(here.cache)
    await here.sessions.append(ANN, "huge", batch("x" * 70_000))

    assert (held, len(here.cache)) == (4, 0)
    assert here.cache.held_bytes == 0
    assert await texts(here, ANN, "huge") == ["x" * 70_000]


async def test_records_that_grow_are_bounded_by_bytes(harness: Harness) -> None:
    """Each is weighed now and then only: what it is found to weigh then is about what was reckoned."""
    here = await harness.start("here", max_bytes=1_000_000)
    for number in range(10):
        for _ in range(40):
            await here.sessions.append(ANN, f"s{number}", batch("x" * 5_000))
    assert len(here.cache) == 4
    here.cache.clear()
    for _ in range(200):
        await here.sessions.append(ANN, "s", batch("x" * 5_000))

    assert len(here.cache) == 1
    assert 300_000 < here.cache.held_bytes < 400_000


async def test_many_askers_share_loads_and_one_who_gives_up_takes_no_answer_along(harness: Harness) -> None:
    there = await harness.start("there")
    await there.sessions.append(ANN, "s", batch("q"))
    here = await harness.start("here")

    asking = [asyncio.create_task(here.sessions.get(ANN, "s")) for _ in range(20)]
    await asyncio.sleep(0)
    asking[0].cancel()
    sessions = await asyncio.gather(*asking[1:])

    assert len({session.version for session in sessions}) == 1
    assert len(harness.calls) <= 2


@pytest.mark.requirement("T1")
async def test_a_refusal_asks_the_store_whatever_is_cached(harness: Harness) -> None:
    """The scope is checked on a hit, and a stranger's question takes the same road as any miss."""
    here = await harness.start("here")
    await talk(here, ANN, "s", "q", "a")
    roads = []

    for stranger, session_id in ((BOB, "s"), (EVE, "s"), (BOB, "absent")):
        harness.calls.clear()
        with pytest.raises(SessionNotFound):
            await here.sessions.get(stranger, session_id)
        roads.append(tuple(harness.calls))

    assert set(roads) == {("load",)}


@pytest.mark.requirement("T4")
@pytest.mark.parametrize("how", ["changed", "deleted", "feed lost", "feed away"])
async def test_what_others_did_shows_at_the_next_question(harness: Harness, how: str) -> None:
    """Before anything is answered from here; and while the feed is in doubt, nothing is."""
    here, there = await harness.start("here"), await harness.start("there")
    await talk(here, ANN, "s", "q", "a")
    feed = harness.server.clients[0].feed
    if how.startswith("feed"):
        feed.disconnect()
    if how == "deleted":
        await there.sessions.delete(ANN, "s")
    else:
        await there.sessions.append(ANN, "s", batch("elsewhere"))
    if how == "feed lost":
        feed.reconnect()

    if how == "deleted":
        with pytest.raises(SessionNotFound):
            await here.sessions.get(ANN, "s")
    else:
        assert await texts(here, ANN, "s") == ["q", "a", "elsewhere"]


@pytest.mark.requirement("T5")
async def test_what_is_read_from_here_lives_on_where_reads_touch_and_expires_elsewhere(harness: Harness) -> None:
    here = await harness.start("here")
    kept = NewSession(retention=Retention(idle=timedelta(minutes=30), touch=Touch.READ))
    await here.sessions.append(ANN, "read", batch("q", create=kept))
    await here.sessions.append(ANN, "s", batch("q", create=NewSession(retention=Retention(idle=timedelta(hours=1)))))

    for _ in range(5):
        harness.clock.advance(timedelta(minutes=20))
        await here.sessions.get(ANN, "read")

    with pytest.raises(SessionNotFound):
        await here.sessions.get(ANN, "s")
