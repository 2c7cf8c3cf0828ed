"""A law of the journal: whatever two processes, their store and their luck do, what was acknowledged is there once.

Promise 1: nothing acknowledged is lost, doubled or reordered.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Awaitable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.errors import TenutoError
from tenuto.model import FinishTurn, OpenTurn, Page
from tenuto.stores.memory import MemoryStore
from tests.clock import FakeClock
from tests.outages import Fate, Killed, Process
from tests.samples import ANN, closing, fresh, once

WHO = st.integers(0, 1)
SESSIONS = st.sampled_from(["s", "t"])
Step: TypeAlias = tuple[Any, ...]
# Talk twice as often as trouble.
_TALK = st.tuples(st.just("turn"), WHO, SESSIONS, st.booleans())
STEPS = st.one_of(
    _TALK,
    _TALK,
    st.tuples(st.just("begin"), WHO, SESSIONS, st.booleans()),
    st.tuples(st.just("end"), WHO, SESSIONS, st.booleans()),
    st.tuples(st.just("cut"), WHO),
    st.tuples(st.just("mend"), WHO),
    st.tuples(st.just("strike"), WHO, st.integers(0, 6), st.sampled_from(Fate)),
    st.tuples(st.just("replay"), WHO),
    st.tuples(st.just("kill"), WHO),
    st.tuples(st.just("look"), WHO, SESSIONS),
    st.tuples(st.just("wait")),
)


class World:
    """Two processes on one store, each with a journal and a wire of its own."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self.memory = MemoryStore(clock=self.clock)
        self.processes = [Process(folder / f"{n}", store=self.memory, clock=self.clock) for n in range(2)]
        self.open: dict[tuple[int, str], OpenTurn] = {}
        # What was acknowledged, in order, by process and session; and everything that was ever said.
        self.acknowledged: dict[tuple[int, str], list[str]] = {}
        self.said: set[str] = set()

    # What may happen

    async def begin(self, who: int, session: str, keyed: bool) -> None:
        words = fresh("w")
        self.said.add(words)
        key = once(fresh("key")) if keyed else None
        begun = await self._tried(who, self.processes[who].begin(ANN, session, words, idempotency_key=key))
        if begun is not None:
            self.acknowledged.setdefault((who, session), []).append(words)
            self.open[who, session] = begun

    async def end(self, who: int, session: str, given_up: bool) -> None:
        turn = self.open.pop((who, session), None)
        if turn is None:
            return
        reply = fresh("r")
        self.said.add(reply)
        end = FinishTurn(abandoned=True) if given_up else closing(reply)
        done = await self._tried(who, self.processes[who].store.sessions.finish_turn(turn, end))
        if done is not None and not given_up:
            self.acknowledged[who, session].append(reply)

    async def turn(self, who: int, session: str, keyed: bool) -> None:
        await self.begin(who, session, keyed)
        await self.end(who, session, False)

    async def cut(self, who: int) -> None:
        self.processes[who].goes_away()

    async def mend(self, who: int) -> None:
        self.processes[who].comes_back()

    async def strike(self, who: int, at: int, fate: Fate) -> None:
        self.processes[who].wire.strike(at, fate)

    async def replay(self, who: int) -> None:
        await self._tried(who, self.processes[who].replay())

    async def kill(self, who: int) -> None:
        self.open = {place: turn for place, turn in self.open.items() if place[0] != who}
        await self.processes[who].restart()

    async def look(self, who: int, session: str) -> None:
        await self._tried(who, self.processes[who].store.sessions.messages(ANN, session, Page()))

    async def wait(self) -> None:
        self.clock.advance(timedelta(minutes=3))

    # What follows

    async def live(self, steps: list[Step]) -> None:
        for each in self.processes:
            await each.start()
        try:
            for name, *rest in steps:
                await getattr(self, name)(*rest)
            await self._settled()
            await self._judged()
        finally:
            for each in self.processes:
                await each.die()

    async def _tried(self, who: int, step: Awaitable[Any]) -> Any:
        try:
            return await step
        except TenutoError:
            return None
        except Killed:
            await self.kill(who)
            return None

    async def _settled(self) -> None:
        """The store comes back for everybody, and leases that nobody holds run out."""
        for each in self.processes:
            each.wire.spare()
            each.comes_back()
        for _ in range(4):
            self.clock.advance(timedelta(minutes=3))
            if all([await each.replay() for each in self.processes]):
                return
        raise AssertionError("turns wait on although the store is back")

    async def _judged(self) -> None:
        for session in ("s", "t"):
            log = await self._log(session)
            assert all(many == 1 for many in Counter(log).values()), "something is there twice"
            assert set(log) <= self.said
            for (_, where), words in self.acknowledged.items():
                if where == session:
                    assert [text for text in log if text in words] == words
        assert all(each.store.status.quarantined == 0 for each in self.processes)

    async def _log(self, session: str) -> list[str]:
        try:
            page = await self.memory.sessions.messages(ANN, session, Page(limit=10_000))
        except TenutoError:
            return []
        return [message.text for message in page.messages]


@given(steps=st.lists(STEPS, min_size=40, max_size=60))
@settings(max_examples=100)
def test_what_was_acknowledged_is_there_once_and_in_order(steps: list[Step]) -> None:
    """Promise 1, T7."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(World(Path(folder)).live(steps))
