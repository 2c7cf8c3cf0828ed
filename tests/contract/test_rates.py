"""Rates of an installation: several processes that let callers pass, on one store."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

import pytest

from tenuto.errors import LimitReached, StoreUnavailable
from tenuto.model import Scope, StateChange
from tenuto.model.scope import SYSTEM
from tenuto.ports import StateStore, Store
from tenuto.server.open_streams import OpenStreams
from tenuto.server.rates import RateLimited, RateLimiter, SharedRates
from tests.clock import FakeClock, Ticks
from tests.doubles import FlatMemoryStore

ANN = ("acme", "ann")


class Installation:
    """Limiters of several processes on one store, whose clocks go together."""

    def __init__(self, state: StateStore, clock: FakeClock, per_minute: int, processes: int = 3) -> None:
        self.clock, self.ticks = clock, Ticks()
        self.limiters = [
            RateLimiter(per_minute, now=self.ticks, shared=SharedRates(state=state, clock=clock, ticks=self.ticks))
            for _ in range(processes)
        ]

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))
        self.ticks.now += seconds

    async def passes(self, process: int, caller: object = ANN) -> bool:
        try:
            await self.limiters[process].acquire(caller)
        except RateLimited:
            return False
        return True

    async def ask_everywhere(self, times: int, caller: object = ANN) -> int:
        """So many requests at once at each process; returns how many pass."""
        asked = [self.passes(number, caller) for _ in range(times) for number in range(len(self.limiters))]
        return sum(await asyncio.gather(*asked))


@pytest.mark.parametrize(("per_minute", "beyond"), [(60, 6), (20, 0)])
async def test_processes_together_let_a_minutes_worth_pass(
    store: Store, clock: FakeClock, per_minute: int, beyond: int
) -> None:
    """Each may let a batch but one pass beyond it: of 60 two, of 20 none."""
    installation = Installation(store.state, clock, per_minute)

    passed = await installation.ask_everywhere(per_minute)
    installation.pass_time(30)
    later = await installation.ask_everywhere(per_minute)

    assert per_minute <= passed <= per_minute + beyond
    # What passed beyond the limit is waited for.
    assert per_minute * 1.5 <= passed + later <= per_minute * 1.5 + beyond
    assert await installation.ask_everywhere(3, "another caller") == 9


class CountedState(FlatMemoryStore):
    """Counts the writes, or fails."""

    writes: Counter[str]
    fails = False

    def __init__(self) -> None:
        super().__init__()
        self.writes = Counter()

    async def change_states(self, scope: Scope, namespace: str, changes: Sequence[StateChange]) -> tuple[int, ...]:
        self.writes[changes[0].key] += 1
        if self.fails:
            raise StoreUnavailable(why="gone")
        return await super().change_states(scope, namespace, changes)


async def test_a_caller_costs_a_write_for_each_twentieth_of_the_limit(clock: FakeClock) -> None:
    state = CountedState()
    installation = Installation(state, clock, 6000)

    passed = await installation.ask_everywhere(2500)

    assert 6000 <= passed <= 6000 + 3 * 299
    assert state.writes.total() <= 30, "of 7,500 requests"


async def test_a_process_counts_alone_while_the_store_is_away(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    state = CountedState()
    installation = Installation(state, clock, 60)
    state.fails = True

    alone = await installation.ask_everywhere(100)
    tried = state.writes.total()
    installation.pass_time(30)
    state.fails = False
    again = await installation.ask_everywhere(100)

    assert (alone, tried) == (180, 3), "each process asks the store once, then not for five seconds"
    # What was let pass alone is told, so that it is a while until all is as it should be.
    assert again <= 6
    assert caplog.text.count("counted by this process alone") == 3


async def test_what_is_stored_is_bounded_and_names_no_caller(clock: FakeClock) -> None:
    state = CountedState()
    installation = Installation(state, clock, 20, processes=1)

    for caller in range(40):
        await installation.passes(0, f"ann-{caller}")
    installation.pass_time(60)
    for caller in range(400):
        await installation.passes(0, f"bob-{caller}")
    stored = await state.list_state(SYSTEM, "rates")

    buckets = [key for entry in stored for key in entry.value]
    assert len(buckets) == 400, "a full bucket tells nothing, and goes with the next write"
    assert "ann" not in repr(stored)
    assert "bob" not in repr(stored)


async def test_a_clock_that_is_wrong_locks_nobody_out(clock: FakeClock) -> None:
    """The clock of one machine is an hour ahead, and then another machine is asked."""
    state, ahead = CountedState(), FakeClock(clock.now() + timedelta(hours=1))
    wrong, right = Installation(state, ahead, 20, processes=1), Installation(state, clock, 20, processes=1)

    assert await wrong.ask_everywhere(30) == 20
    assert await right.ask_everywhere(30) <= 1
    right.pass_time(30)

    assert await right.ask_everywhere(30) >= 10


async def test_streams_are_counted_over_processes_in_fours(store: Store, clock: FakeClock) -> None:
    lasts = timedelta(minutes=15)
    one, other, third = (OpenStreams(lasts=lasts, state=store.state, clock=clock) for _ in range(3))

    async def opens(process: OpenStreams, times: int, owner: bytes = b"ann") -> int:
        opened = 0
        for _ in range(times):
            with suppress(LimitReached):
                await process.add(owner, 32)
                opened += 1
        return opened

    assert [await opens(one, 20), await opens(other, 20), await opens(third, 20)] == [20, 15, 3]
    assert await opens(third, 4, b"bob") == 4
    for _ in range(20):
        await one.remove(b"ann")
    assert await opens(third, 20) == 16, "with the other 15, three beyond 32 at most"
    clock.advance(lasts)
    assert await opens(one, 40) == 32, "what a killed process has told ends with its streams"
