"""Laws of boards: nothing is lost, tokens only grow, and what is refused changes nothing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tenuto.errors import TenutoError, VersionConflict
from tenuto.model import Scope, StateEntry
from tenuto.model.task import BoardLock
from tenuto.model.values import Json
from tenuto.task_errors import KeyLocked, KeyProtected, LockLost
from tests.clock import FakeClock
from tests.doubles import FlatMemoryStore, MemoryStore
from tests.samples import ANN
from tests.second_board import add_one
from tests.tasks import opened, tasks_over

pytestmark = pytest.mark.requirement("E10", "E19", "T17")


AGENTS = st.sampled_from(["x", "y", "decision-agent"])
KEYS = st.sampled_from(["a", "b", "final_decision"])
VALUES = st.integers(0, 9)
LEASES = st.sampled_from([timedelta(seconds=5), timedelta(minutes=1)])


@dataclass
class Kept:
    """What a key must be like, by the rules as they are told."""

    value: int | None = None
    version: int = 0
    tokens: int = 0
    holder: str | None = None
    token: int = 0
    until: datetime | None = None
    writers: list[str] = field(default_factory=list)

    def refusal(self, now: datetime, key: str, agent: str, token: int | None) -> type[TenutoError] | None:
        """Why this agent may not write now, if it may not."""
        if key == "final_decision" and agent != "decision-agent":
            return KeyProtected
        if token is not None:
            return None if (self.holder, self.token) == (agent, token) else LockLost
        return KeyLocked if self.until is not None and self.until > now else None

    def pass_by(self, token: int | None) -> None:
        """What was changed without its token is no longer the lock's, though it had run out."""
        if token is None:
            self.holder, self.token, self.until = None, 0, None


class Agents(RuleBasedStateMachine):
    """Agents write, delete, lock and unlock, with tokens and versions good and bad, while the clock goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = FakeClock()
        tasks = tasks_over(MemoryStore(clock=self.clock), self.clock)
        self.board = tasks.board(ANN, self.runner.run(opened(tasks, ANN)).id)
        self.kept: dict[str, Kept] = {}
        self.given: dict[str, list[int]] = {}

    def teardown(self) -> None:
        self.runner.close()

    def of(self, key: str) -> Kept:
        return self.kept.setdefault(key, Kept())

    def token(self, key: str, age: int | None) -> int | None:
        """None, or one of the tokens that were given for the key, the newest first; or one that never was."""
        known = self.given.get(key, [])[::-1]
        return None if age is None else [*known, 99][min(age, len(known))]

    def outcome(self, call: Any) -> Any:
        try:
            return self.runner.run(call)
        except TenutoError as error:
            return type(error)

    @rule(key=KEYS, agent=AGENTS, value=VALUES, age=st.none() | st.integers(0, 2), off=st.sampled_from([None, 0, 0, 1]))
    def write(self, key: str, agent: str, value: int, age: int | None, off: int | None) -> None:
        kept, token = self.of(key), self.token(key, age)
        stands = kept.version if kept.value is not None else 0
        due = kept.refusal(self.clock(), key, agent, token) or (VersionConflict if off else None)

        done = self.outcome(
            self.board.write(key, value, agent=agent, token=token, if_version=None if off is None else stands + off)
        )

        if due is not None:
            assert done is due
            return
        assert (done.value, done.version, done.writer) == (value, kept.version + 1, agent)
        kept.value, kept.version = value, done.version
        kept.pass_by(token)
        others = [writer for writer in kept.writers if writer != agent]
        assert done.previous_writer == (others[-1] if others else None)
        kept.writers.append(agent)

    @rule(key=KEYS, agent=AGENTS, age=st.none() | st.integers(0, 2))
    def delete(self, key: str, agent: str, age: int | None) -> None:
        kept, token = self.of(key), self.token(key, age)
        due = kept.refusal(self.clock(), key, agent, token)

        done = self.outcome(self.board.delete(key, agent=agent, token=token))

        assert done is (due if due is not None else kept.value is not None)
        if due is None:
            kept.pass_by(token)
        if due is None and kept.value is not None:
            kept.value, kept.version = None, kept.version + 1

    @rule(key=KEYS, agent=AGENTS, lease=LEASES, age=st.none() | st.integers(0, 2))
    def lock(self, key: str, agent: str, lease: timedelta, age: int | None) -> None:
        kept, token = self.of(key), self.token(key, age)
        due = kept.refusal(self.clock(), key, agent, token)
        if due is KeyLocked and kept.holder == agent:
            due = None

        done = self.outcome(self.board.lock(key, agent=agent, lease=lease, token=token))

        if due is not None:
            assert done is due
            return
        assert isinstance(done, BoardLock)
        assert done.token == token if token is not None else done.token > kept.tokens
        kept.tokens = max(kept.tokens, done.token)
        kept.holder, kept.token, kept.until = agent, done.token, self.clock() + lease
        assert done.expires_at == kept.until
        self.given.setdefault(key, []).append(done.token)

    @rule(key=KEYS, agent=AGENTS, age=st.integers(0, 2))
    def unlock(self, key: str, agent: str, age: int) -> None:
        kept, token = self.of(key), self.token(key, age)
        due = kept.refusal(self.clock(), key, agent, token)
        assert token is not None

        done = self.outcome(self.board.unlock(key, agent=agent, token=token))

        assert done is due
        if due is None:
            kept.holder, kept.token, kept.until = None, 0, None

    @rule(seconds=st.sampled_from([1, 5, 90]))
    def wait(self, seconds: int) -> None:
        self.clock.advance(timedelta(seconds=seconds))

    @invariant()
    def the_board_is_as_it_was_left(self) -> None:
        """After each call, also after one that was refused."""
        view = self.runner.run(self.board.view())

        stands = {key: (kept.value, kept.version) for key, kept in self.kept.items() if kept.value is not None}
        held = {key for key, kept in self.kept.items() if kept.until is not None and kept.until > self.clock()}
        assert {entry.key: (entry.value, entry.version) for entry in view.entries} == stands
        assert {lock.key for lock in view.locks} == held


def test_a_board_does_what_its_rules_say() -> None:
    run_state_machine_as_test(Agents, settings=settings(max_examples=40, stateful_step_count=25, deadline=None))


class Interleaved(FlatMemoryStore):
    """Lets others go first, as often as it is told, before each look and each write."""

    def __init__(self, clock: FakeClock, pauses: list[int]) -> None:
        super().__init__(clock=clock)
        self.pauses = pauses
        self._calls = 0

    async def _let_others_go(self) -> None:
        self._calls += 1
        for _ in range(self.pauses[self._calls % len(self.pauses)] if self.pauses else 0):
            await asyncio.sleep(0)

    async def read_state(self, scope: Scope, namespace: str, key: str) -> StateEntry | None:
        await self._let_others_go()
        return await super().read_state(scope, namespace, key)

    async def write_state(
        self, scope: Scope, namespace: str, key: str, value: Json, if_version: int | None = None
    ) -> StateEntry:
        await self._let_others_go()
        return await super().write_state(scope, namespace, key, value, if_version)


@given(
    pauses=st.lists(st.integers(0, 4), min_size=1, max_size=12),
    work=st.lists(st.tuples(AGENTS, st.sampled_from(["sum", "lock", "own"])), min_size=2, max_size=12),
)
@settings(max_examples=60, deadline=None)
def test_whoever_goes_first_nothing_is_lost(pauses: list[int], work: list[tuple[str, str]]) -> None:
    """Additions by compare-and-set, blind writes under locks whose leases are nothing to rely on, and own keys."""
    asyncio.run(_interleaved(pauses, work))


async def _interleaved(pauses: list[int], work: list[tuple[str, str]]) -> None:
    clock = FakeClock()
    store = Interleaved(clock, [])
    tasks = tasks_over(store, clock)
    board = tasks.board(ANN, (await opened(tasks, ANN)).id)
    store.pauses = pauses
    fenced: list[tuple[int, int]] = []

    async def hold(agent: str, number: int) -> None:
        try:
            lock = await board.lock("held", agent=f"{agent}{number}", lease=timedelta(seconds=1))
            clock.advance(timedelta(seconds=number % 3))
            entry = await board.write("held", number, agent=f"{agent}{number}", token=lock.token)
            fenced.append((entry.version, lock.token))
        except (KeyLocked, LockLost):
            return

    async with asyncio.TaskGroup() as group:
        for number, (agent, kind) in enumerate(work):
            if kind == "sum":
                group.create_task(add_one(board, agent))
            elif kind == "lock":
                group.create_task(hold(agent, number))
            else:
                group.create_task(board.write(f"own-{number}", number, agent=agent))

    entries = {entry.key: entry.value for entry in (await board.view()).entries}
    sums = sum(kind == "sum" for _, kind in work)
    assert entries.get("sum", 0) == sums
    assert {key for key in entries if key.startswith("own-")} == {
        f"own-{number}" for number, (_, kind) in enumerate(work) if kind == "own"
    }
    tokens = [token for _, token in sorted(fenced)]
    assert tokens == sorted(tokens)
