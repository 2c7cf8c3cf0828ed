"""A store behind its breaker: what counts as a failure, who is refused, and what is told of it."""

from __future__ import annotations

import asyncio
import inspect
import logging
from datetime import timedelta
from typing import Any
from unittest.mock import MagicMock

import pytest

from tenuto.errors import (
    CircuitOpen,
    DecryptionFailed,
    InvalidText,
    SessionNotFound,
    StateCorrupt,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    TenutoError,
    TooLarge,
    Unavailable,
    VersionConflict,
)
from tenuto.model import CompactionResult, Scope, Session
from tenuto.ports import SessionStore, StateStore, StoreUpkeep, TraceStore
from tenuto.stores.breaker import BreakerPolicy, BreakerState
from tenuto.stores.circuit_breaker import CircuitBreakerStore
from tests.clock import Ticks
from tests.doubles import FlatMemoryStore
from tests.samples import ANN, batch

AWAY = StoreUnavailable()
# What a server says, or what is refused before it is asked: neither means that it does not answer.
NO_FAILURES = [
    SessionNotFound("s"),
    VersionConflict(1, 2),
    TooLarge("message", 1),
    InvalidText("no"),
    StoreFull(),
    StoreReadOnly(),
    StateCorrupt("session store", "holds a value that cannot be read"),
    DecryptionFailed("needs another key"),
    Unavailable("session store", "is closed"),
]


class Moody(FlatMemoryStore):
    """A store that fails as long as a test wants, and counts how often it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.mood: BaseException | None = None
        self.asked = 0
        self.holding: asyncio.Event | None = None

    async def get(self, scope: Scope, session_id: str) -> Session:
        self.asked += 1
        if self.holding is not None:
            await self.holding.wait()
        if self.mood is not None:
            raise self.mood
        return await super().get(scope, session_id)

    async def ping(self) -> None:
        self.asked += 1
        if self.mood is not None:
            raise self.mood


class Clustered(Moody):
    """One whose sessions lie on two servers, told apart by the first letter of their ids."""

    sharded = True

    def __init__(self) -> None:
        super().__init__()
        self.shards = frozenset("ab")

    def shard_of(self, scope: Scope, session_id: str) -> str:
        return session_id[0] if session_id[0] in self.shards else "a"

    async def get(self, scope: Scope, session_id: str) -> Session:
        if session_id.startswith("b"):
            raise AWAY
        return await super().get(scope, session_id)


def _guarded(store: Moody | None = None) -> tuple[CircuitBreakerStore, Moody, Ticks]:
    inner, ticks = store or Moody(), Ticks()
    return CircuitBreakerStore(store=inner, now=ticks), inner, ticks


async def _ends(guarded: CircuitBreakerStore, times: int = 1, session_id: str = "s") -> list[type[object]]:
    outcomes = await asyncio.gather(
        *(guarded.sessions.get(ANN, session_id) for _ in range(times)), return_exceptions=True
    )
    return [type(outcome) for outcome in outcomes]


async def _opened(store: Moody | None = None) -> tuple[CircuitBreakerStore, Moody, Ticks]:
    """Five calls were made in vain."""
    guarded, inner, ticks = _guarded(store)
    inner.mood = AWAY
    await _ends(guarded, 5)
    return guarded, inner, ticks


async def test_after_five_calls_in_vain_none_is_made() -> None:
    """A21, T7: refused at once, with an error of its own that says when to come back."""
    guarded, inner, ticks = _guarded()
    inner.mood = AWAY

    ends = [(await _ends(guarded))[0] for _ in range(8)]
    ticks.now += 12
    with pytest.raises(CircuitOpen) as refused:
        await guarded.sessions.get(ANN, "s")

    assert ends == [StoreUnavailable] * 5 + [CircuitOpen] * 3
    assert inner.asked == 5
    assert (refused.value.code, refused.value.retry_after) == ("circuit_open", timedelta(seconds=18))
    assert (guarded.circuit.state, guarded.circuit.closed, guarded.circuit.rejected) == (BreakerState.OPEN, False, 4)


@pytest.mark.parametrize("told", NO_FAILURES, ids=lambda told: type(told).__name__)
async def test_a_server_that_says_no_has_answered(told: TenutoError) -> None:
    """T8: a miss, a conflict, a limit, bad input, a full or read-only store, an unreadable value are no failures."""
    guarded, inner, _ = _guarded()
    inner.mood = told

    assert await _ends(guarded, 20) == [type(told)] * 20

    assert guarded.circuit.closed


async def test_a_miss_between_failures_zeroes_the_count() -> None:
    """T8."""
    guarded, inner, _ = _guarded()

    for _ in range(3):
        inner.mood = AWAY
        await _ends(guarded, 4)
        inner.mood = SessionNotFound("s")
        await _ends(guarded)

    assert guarded.circuit.closed


async def test_bad_input_proves_nothing_of_the_server() -> None:
    """It is refused before the server is asked: neither does it zero the count, nor close as the probe."""
    guarded, inner, ticks = _guarded()

    inner.mood = AWAY
    await _ends(guarded, 4)
    inner.mood = InvalidText("no")
    await _ends(guarded)
    inner.mood = AWAY
    await _ends(guarded)
    assert guarded.circuit.state is BreakerState.OPEN
    ticks.now += 30
    inner.mood = InvalidText("no")
    await _ends(guarded)

    assert guarded.circuit.state is BreakerState.OPEN


async def test_only_the_probe_waits_for_a_server_that_is_still_away() -> None:
    """T8: of a crowd that comes when the time is up, one asks."""
    guarded, inner, ticks = await _opened()
    inner.asked, inner.holding = 0, asyncio.Event()
    ticks.now += 30

    crowd = asyncio.gather(_ends(guarded), *(_ends(guarded) for _ in range(9)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    inner.holding.set()

    assert await crowd == [[StoreUnavailable]] + [[CircuitOpen]] * 9
    assert inner.asked == 1


async def test_a_probe_that_is_cancelled_makes_room_for_another() -> None:
    guarded, inner, ticks = _guarded()
    await guarded.sessions.append(ANN, "s", batch("hello"))
    inner.mood = AWAY
    await _ends(guarded, 5)
    ticks.now += 30
    inner.mood, inner.holding = None, asyncio.Event()
    probe = asyncio.ensure_future(guarded.sessions.get(ANN, "s"))
    await asyncio.sleep(0)
    assert await _ends(guarded) == [CircuitOpen]

    probe.cancel()
    await asyncio.wait([probe])
    inner.holding.set()

    assert await _ends(guarded) == [Session]
    assert guarded.circuit.closed


async def test_renewing_files_is_no_probe() -> None:
    """It may take an hour; a ping that goes before it tells whether the server answers."""
    guarded, inner, ticks = await _opened()
    ticks.now += 30
    inner.mood = None

    assert isinstance(await guarded.upkeep.compact(), CompactionResult)

    assert guarded.circuit.closed


async def test_a_server_of_a_cluster_takes_no_others_sessions_along() -> None:
    guarded, inner, _ = _guarded(Clustered())
    await inner.append(ANN, "a1", batch("hello"))

    lost = [(await _ends(guarded, session_id="b1"))[0] for _ in range(7)]
    inner.mood = None

    assert lost == [StoreUnavailable] * 5 + [CircuitOpen] * 2
    assert await _ends(guarded, session_id="a1") == [Session]
    assert (guarded.circuit.state, guarded.circuit.rejected) == (BreakerState.OPEN, 2)


async def test_a_server_that_a_cluster_has_no_more_does_not_count() -> None:
    """A21: its sessions lie on another one since a failover, and no call will ever reach it again."""
    store = Clustered()
    guarded, _, _ = _guarded(store)
    await store.append(ANN, "a1", batch("hello"))
    await _ends(guarded, 5, "b1")
    before = guarded.circuit.closed, guarded.circuit.state

    store.shards = frozenset("a")

    assert before == (False, BreakerState.OPEN)
    assert (guarded.circuit.closed, guarded.circuit.state) == (True, BreakerState.CLOSED)
    assert await _ends(guarded, session_id="a1") == [Session]


async def test_calls_about_no_session_pass_freely_in_a_cluster() -> None:
    guarded, inner, _ = _guarded(Clustered())
    inner.mood = AWAY

    for _ in range(10):
        with pytest.raises(StoreUnavailable) as refused:
            await guarded.upkeep.ping()
        assert not isinstance(refused.value, CircuitOpen)

    assert inner.asked == 10


async def test_what_changes_is_told_once_and_names_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """A22, promise 8."""
    caplog.set_level(logging.WARNING)
    guarded, inner, ticks = _guarded()
    await guarded.sessions.append(ANN, "s", batch("hello"))

    inner.mood = AWAY
    await _ends(guarded, 10)
    ticks.now += 30
    inner.mood = None
    await _ends(guarded, 3)

    assert [record.getMessage() for record in caplog.records] == [
        "the session store does not answer: calls are rejected for 30 s",
        "the session store answers again",
    ]


@pytest.mark.parametrize("port", ["sessions", "traces", "state", "upkeep"])
async def test_every_call_of_the_port_is_guarded(port: str) -> None:
    """A method that the port gains must not slip past the breaker."""
    protocol = {"sessions": SessionStore, "traces": TraceStore, "state": StateStore, "upkeep": StoreUpkeep}[port]
    methods = {name: call for name, call in inspect.getmembers(protocol, inspect.isfunction) if name[0] != "_"}
    guarded, _, _ = await _opened()

    for name, method in methods.items():
        required = [each for each in inspect.signature(method).parameters.values() if each.default is each.empty]
        with pytest.raises(CircuitOpen):
            await getattr(getattr(guarded, port), name)(*(MagicMock() for _ in required[1:]))

    assert methods


async def test_the_policy_is_the_settings() -> None:
    """X8."""
    inner = Moody()
    guarded = CircuitBreakerStore(store=inner, policy=BreakerPolicy(failures=2), now=Ticks())
    inner.mood = AWAY

    assert await _ends(guarded, 2) == [StoreUnavailable] * 2
    assert await _ends(guarded) == [CircuitOpen]


@pytest.mark.parametrize("method", ["sweep", "evict", "erase"])
async def test_what_may_take_long_is_no_probe(method: str) -> None:
    """T8: a ping goes before it, and others may ask while it works."""
    under_way, done = asyncio.Event(), asyncio.Event()

    async def slow(*_: object) -> None:
        under_way.set()
        await done.wait()

    inner = Moody()
    setattr(inner, method, slow)
    guarded, _, ticks = await _opened(inner)
    ticks.now += 30
    inner.mood = None
    args: dict[str, tuple[Any, ...]] = {"sweep": (), "evict": (ANN, 1), "erase": (ANN,)}
    work = asyncio.create_task(getattr(guarded.upkeep, method)(*args[method]))
    await under_way.wait()
    state = guarded.circuit.state
    done.set()
    await work

    assert state is BreakerState.CLOSED


async def test_what_may_take_long_is_refused_while_the_server_rests() -> None:
    guarded, inner, _ = await _opened()
    inner.mood = None

    with pytest.raises(CircuitOpen):
        await guarded.upkeep.sweep()

    assert inner.asked == 5


async def test_calls_that_come_together_share_what_is_done_first() -> None:
    """T8: no call waits for the attempts of all those before it; the next one tries anew."""
    attempts, away = 0, asyncio.Event()

    async def first() -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            await away.wait()
            raise AWAY

    guarded = CircuitBreakerStore(store=Moody(), now=Ticks(), first=first)
    calls = [asyncio.create_task(guarded.upkeep.ping()) for _ in range(4)]
    await asyncio.sleep(0)
    calls[0].cancel()
    await asyncio.sleep(0)
    away.set()
    ended = await asyncio.gather(*calls, return_exceptions=True)
    tried = attempts
    await guarded.upkeep.ping()
    await guarded.upkeep.ping()

    assert [type(each) for each in ended] == [asyncio.CancelledError, *[StoreUnavailable] * 3]
    assert (tried, attempts) == (1, 2)


async def test_closing_waits_for_nothing_that_is_done_first() -> None:
    async def first() -> None:
        await asyncio.Event().wait()

    guarded = CircuitBreakerStore(store=Moody(), now=Ticks(), first=first)
    call = asyncio.create_task(guarded.upkeep.ping())
    await asyncio.sleep(0)
    await guarded.circuit.close()

    with pytest.raises(asyncio.CancelledError):
        await call


async def test_a_probe_asks_past_an_open_breaker_and_lets_the_next_call_through() -> None:
    """A journal need not wait for the reset, half a minute, to learn that the server is back."""
    store = Moody()
    guarded = CircuitBreakerStore(store=store, policy=BreakerPolicy(failures=1), now=Ticks())
    await store.append(ANN, "s", batch("one"))
    store.mood = AWAY
    with pytest.raises(StoreUnavailable):
        await guarded.sessions.get(ANN, "s")
    with pytest.raises(StoreUnavailable):
        await guarded.circuit.probe()
    with pytest.raises(CircuitOpen):
        await guarded.sessions.get(ANN, "s")

    store.mood = None
    await guarded.circuit.probe()
    found = await guarded.sessions.get(ANN, "s")

    assert (found.id, guarded.circuit.state) == ("s", BreakerState.CLOSED)
