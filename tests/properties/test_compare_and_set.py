"""The laws of compare-and-set, over writers in virtual time whose store waits at random and loses answers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.compare_and_set import (
    REMOVE,
    Entry,
    Update,
    retry_on_conflict,
    update_state,
    update_states,
    write_if_unchanged,
)
from tenuto.errors import Invalid, StoreUnavailable, Unavailable, VersionConflict
from tenuto.model import StateChange, StateEntry
from tenuto.ports import StateStore
from tests.doubles import MemoryStore
from tests.samples import ANN
from tests.simulation.loop import SimLoop

T = TypeVar("T")
PLACE = (ANN, "counts", "sum")
ACCOUNTS = ("a", "b", "c")


class Distant:
    """A store some milliseconds away. Of its writes, a share `lost` is made, and answered by an error.

    The error is that of a timeout, or the conflict that a driver gets which has sent its write again.
    """

    def __init__(self, chance: random.Random, lost: float = 0.0) -> None:
        self._store: StateStore = MemoryStore().state
        self._chance = chance
        self._lost = lost
        self.calls: list[str] = []
        self.overtaken = False

    async def _after(self, call: Callable[[], Awaitable[T]], lost: float) -> T:
        await asyncio.sleep(self._chance.choice((0.0, 0.001, 0.003)))
        answer = await call()
        await asyncio.sleep(self._chance.choice((0.0, 0.001, 0.003)))
        if self._chance.random() < lost:
            raise self._chance.choice((StoreUnavailable("store"), VersionConflict(1, 2)))
        return answer

    def __getattr__(self, name: str) -> Any:
        async def call(*arguments: Any) -> Any:
            self.calls.append(name)
            reads = name.startswith("read")
            if self.overtaken and not reads:
                raise VersionConflict(1, 2)
            return await self._after(lambda: getattr(self._store, name)(*arguments), 0.0 if reads else self._lost)

        return call


def run(story: Callable[[], Awaitable[T]], seed: int) -> T:
    """A story in as long as it takes to compute."""
    random.seed(seed)
    loop = SimLoop(random.Random(seed))
    try:
        return loop.run_until_complete(_as_coroutine(story))
    finally:
        loop.close()


async def _as_coroutine(story: Callable[[], Awaitable[T]]) -> T:
    return await story()


async def until_answered(call: Callable[[], Awaitable[T]]) -> T:
    """As callers do whose answer was lost: they ask again."""
    while True:
        try:
            return await call()
        except StoreUnavailable:
            continue


def number(entry: Entry) -> int:
    return 0 if entry is None else int(entry.value)


def marks(entry: Entry) -> list[str]:
    return [] if entry is None else list(entry.value)


@given(st.integers(0, 2**32), st.integers(1, 24), st.integers(1, 4))
def test_writers_of_one_value_lose_nothing(seed: int, writers: int, times: int) -> None:
    """Each change is made of what stands: no two are made of the same value."""
    store: Any = Distant(random.Random(seed))
    made_of: list[int] = []

    async def write(_: int) -> None:
        for _ in range(times):
            made = await update_state(store, *PLACE, number, lambda stands: stands + 1)
            assert made.changed
            assert made.after == made.before + 1
            made_of.append(made.before)

    async def read_and_write(_: int) -> None:
        async def attempt() -> None:
            entry = await store.read_state(*PLACE)
            await store.write_state(*PLACE, number(entry) + 1, 0 if entry is None else entry.version)
            made_of.append(number(entry))

        for _ in range(times):
            await retry_on_conflict(attempt)

    async def story() -> Entry:
        await asyncio.gather(*map(write, range(writers)), *map(read_and_write, range(writers)))
        entry: Entry = await store.read_state(*PLACE)
        return entry

    stands = run(story, seed)

    assert number(stands) == 2 * writers * times
    assert sorted(made_of) == list(range(2 * writers * times))


@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(1, 4), st.floats(0.0, 0.4))
def test_a_write_whose_answer_is_lost_is_made_once(seed: int, writers: int, times: int, lost: float) -> None:
    """Where the value tells which writes are in it, as the rows of usage and the steps of tasks do."""
    store: Any = Distant(random.Random(seed), lost)

    async def add(mark: str) -> Update[list[str]]:
        return await update_state(store, *PLACE, marks, lambda held: None if mark in held else [*held, mark])

    async def write(writer: int) -> None:
        for n in range(times):
            mark = f"{writer}.{n}"
            made = await until_answered(partial(add, mark))
            assert mark in made.after

    async def story() -> Entry:
        await asyncio.gather(*map(write, range(writers)))
        entry: Entry = await store.read_state(*PLACE)
        return entry

    stands = run(story, seed)

    assert stands is not None
    assert sorted(stands.value) == sorted(f"{writer}.{n}" for writer in range(writers) for n in range(times))
    assert stands.version == writers * times


@given(st.integers(0, 2**32), st.lists(st.tuples(*[st.sampled_from(ACCOUNTS)] * 2, st.integers(1, 9)), max_size=20))
def test_several_values_change_together(seed: int, transfers: list[tuple[str, str, int]]) -> None:
    """Money moves between accounts, which are created and removed with it; none is made or lost, none is below zero."""
    store: Any = Distant(random.Random(seed))

    async def transfer(source: str, target: str, amount: int) -> None:
        def move(entries: Sequence[Entry]) -> Sequence[StateChange] | None:
            after = {source: number(entries[0]) - amount, target: number(entries[1]) + amount}
            if source == target or after[source] < 0:
                return None
            return [
                StateChange(
                    key=key,
                    value=after[key] or None,
                    removes=not after[key],
                    if_version=0 if entry is None else entry.version,
                )
                for key, entry in zip((source, target), entries, strict=True)
            ]

        await update_states(store, *PLACE[:2], (source, target), move)

    async def story() -> list[int]:
        await store.write_state(*PLACE[:2], ACCOUNTS[0], 10)
        await asyncio.gather(*[transfer(*one) for one in transfers])
        return [number(entry) for entry in await store.read_states(*PLACE[:2], ACCOUNTS)]

    stands = run(story, seed)

    assert sum(stands) == 10
    assert min(stands) >= 0


@pytest.mark.parametrize(
    ("stored", "change", "stands", "calls"),
    [
        (None, lambda value: 1, 1, ["read_state", "write_state"]),
        (None, lambda value: None, None, ["read_state"]),
        (None, lambda value: REMOVE, None, ["read_state", "delete_state"]),
        (7, lambda value: value + 1, 8, ["read_state", "write_state"]),
        (7, lambda value: 7, 7, ["read_state", "write_state"]),
        (7, lambda value: None, 7, ["read_state"]),
        (7, lambda value: REMOVE, None, ["read_state", "delete_state"]),
    ],
)
def test_a_change_creates_replaces_removes_or_leaves(
    stored: int | None, change: Callable[[Any], Any], stands: int | None, calls: list[str]
) -> None:
    store: Any = Distant(random.Random(0))

    async def story() -> tuple[Update[Any], Entry]:
        if stored is not None:
            await store.write_state(*PLACE, stored)
        store.calls.clear()
        made = await update_state(store, *PLACE, lambda entry: entry and entry.value, change)
        assert store.calls == calls
        return made, await store.read_state(*PLACE)

    made, after = run(story, 0)

    assert made == Update(stored, stands, changed=len(calls) > 1)
    assert (after.value if after is not None else None) == stands


@pytest.mark.parametrize(
    ("guess", "calls"),
    [
        ([None, None], ["change_states"]),
        ([None, StateEntry(key="b", value=0, version=3)], ["change_states", "read_states", "change_states"]),
        (..., ["read_states", "change_states"]),
    ],
)
def test_a_right_guess_saves_the_reading_and_a_wrong_one_does_no_harm(guess: Any, calls: list[str]) -> None:
    store: Any = Distant(random.Random(0))

    def add_one(entries: Sequence[Entry]) -> Sequence[StateChange]:
        versions = [0 if entry is None else entry.version for entry in entries]
        return [
            StateChange(key=key, value=number(entry) + 1, if_version=version)
            for key, entry, version in zip(("a", "b"), entries, versions, strict=True)
        ]

    async def story() -> list[int]:
        await update_states(store, *PLACE[:2], ("a", "b"), add_one, guess)
        assert store.calls == calls
        return [number(entry) for entry in await store.read_states(*PLACE[:2], ("a", "b"))]

    assert run(story, 0) == [1, 1]


def test_others_who_are_always_first_end_an_update_and_what_a_change_raises_ends_it_at_once() -> None:
    async def story() -> None:
        store: Any = Distant(random.Random(0))
        loop = asyncio.get_running_loop()
        store.overtaken = True
        tried: list[float] = []

        async def attempt() -> None:
            tried.append(loop.time())
            await store.write_state(*PLACE, 1, 0)

        for call in (lambda: update_state(store, *PLACE, number, lambda stands: 1), lambda: retry_on_conflict(attempt)):
            began = loop.time()
            with pytest.raises(Unavailable, match="keeps being changed") as excinfo:
                await call()
            assert type(excinfo.value) is Unavailable
            assert 1.0 < loop.time() - began < 10.0
        pauses = [later - earlier for earlier, later in pairwise(tried)]
        assert max(pauses[:3]) < 0.02 < 0.1 < max(pauses) < 0.3  # They grow, to a limit,
        assert len(set(pauses)) == len(pauses)  # and differ, so that two writers do not go on in step.
        assert await write_if_unchanged(store.write_state(*PLACE, 1, 0)) is None

        for raised in (VersionConflict(3, 4), Invalid("no")):
            store.calls.clear()
            with pytest.raises(type(raised)) as told:
                await update_state(store, *PLACE, number, failing(raised))
            assert told.value is raised
            assert store.calls == ["read_state"]

    run(story, 0)


def failing(error: Exception) -> Callable[[int], None]:
    def change(_: int) -> None:
        raise error

    return change
