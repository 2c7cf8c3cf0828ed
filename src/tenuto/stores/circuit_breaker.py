"""A store behind circuit breakers: after a few failed calls no caller waits for a server that is down.

Only a server that does not answer counts as a failure; "not found", "full" and "read-only" are answers.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final, ParamSpec, TypeVar, cast

from tenuto.errors import CircuitOpen, Invalid, LimitReached, StoreUnavailable, TenutoError
from tenuto.model import AppendResult, BeginTurn, CompactionResult, FinishTurn, OpenTurn, Scope
from tenuto.ports import SessionStore, Sharded, StateStore, Store, StoreUpkeep, TraceStore
from tenuto.stores.breaker import Breaker, BreakerPolicy, BreakerState

log = logging.getLogger(__name__)

_SOON: Final = timedelta(seconds=1)
_ALL: Final = ""
_P = ParamSpec("_P")
_Answer = TypeVar("_Answer")
_Call = TypeVar("_Call", bound=Callable[..., Awaitable[Any]])


class CircuitBreakerStore:
    """A store behind circuit breakers; rejected calls raise `CircuitOpen` at once."""

    def __init__(
        self,
        *,
        store: Store,
        policy: BreakerPolicy | None = None,
        now: Callable[[], float] = time.monotonic,
        first: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.inner = store
        sharded = store if isinstance(store, Sharded) and store.sharded else None
        self.circuit = circuit = Circuit(
            sharded=sharded, policy=policy or BreakerPolicy(), now=now, first=first, ping=store.upkeep.ping
        )
        self.sessions = _BreakerSessions(store.sessions, circuit)
        self.traces = _BreakerTraces(store.traces, circuit)
        self.state = _BreakerStateStore(store.state, circuit)
        self.upkeep = _BreakerUpkeep(store.upkeep, circuit)


class Circuit:
    """The breakers of one store.

    Where sessions are sharded over several servers, each server has its own breaker, so that one that is down does not
    block the sessions of the others. Calls that concern no single session are not guarded there.

    `first` must succeed before any call to a server that was down when its store was opened.
    """

    def __init__(
        self,
        *,
        sharded: Sharded | None,
        policy: BreakerPolicy,
        now: Callable[[], float],
        first: Callable[[], Awaitable[None]] | None,
        ping: Callable[[], Awaitable[None]],
    ) -> None:
        self._ping = ping
        self._sharded = sharded
        self._policy = policy
        self._now = now
        self._first = first
        self._preparing: asyncio.Task[None] | None = None
        self._breakers = {} if sharded else {_ALL: Breaker(policy, now=now)}
        self.whole = self._breakers.get(_ALL)

    @property
    def closed(self) -> bool:
        """Whether every call goes through."""
        return self.state is BreakerState.CLOSED

    @property
    def state(self) -> BreakerState:
        """The breaker's state; of several, the one that is furthest from closed."""
        # A server that was replaced is never asked again, so its breaker does not count.
        shards = self._breakers if self._sharded is None else self._sharded.shards
        states = {breaker.state for shard, breaker in self._breakers.items() if shard in shards}
        order = (BreakerState.OPEN, BreakerState.HALF_OPEN)
        return next((state for state in order if state in states), BreakerState.CLOSED)

    @property
    def rejected(self) -> int:
        """The number of rejected calls."""
        return sum(breaker.refused for breaker in self._breakers.values())

    async def probe(self) -> None:
        """Ping the server, open or not; once it answers, the next call may close the breaker.

        Raises:
            StoreUnavailable: it does not answer.
        """
        await self._ping()
        for breaker in self._breakers.values():
            breaker.expire()

    async def close(self) -> None:
        """Cancel a running `first`."""
        if self._preparing is not None:
            self._preparing.cancel()
            await asyncio.wait((self._preparing,))

    def at(self, scope: Scope, session_id: str) -> Breaker | None:
        """The breaker of the session's server."""
        if self._sharded is None:
            return self.whole
        shard = self._sharded.shard_of(scope, session_id)
        breaker = self._breakers.get(shard)
        if breaker is None:
            breaker = self._breakers[shard] = Breaker(self._policy, now=self._now)
        return breaker

    async def ask(
        self, at: Breaker | None, call: Callable[_P, Awaitable[_Answer]], *args: _P.args, **named: _P.kwargs
    ) -> _Answer:
        """Make a call, if the breaker admits it.

        Raises:
            CircuitOpen: it was rejected.
        """
        if self._first is not None:
            call = self._after_prepare(call)
        if at is None:
            return await call(*args, **named)
        generation = at.admit()
        if generation is None:
            raise CircuitOpen(max(at.rest, _SOON))
        try:
            answer = await call(*args, **named)
        except BaseException as ended:
            self._record_error(at, generation, ended)
            raise
        if at.state is BreakerState.CLOSED:
            at.record_success(generation)
        else:
            self._record_success(at, generation)
        return answer

    def guard(self, call: _Call) -> _Call:
        """The same call, behind the breaker of the whole store."""

        async def guarded(*args: Any, **named: Any) -> Any:
            return await self.ask(self.whole, call, *args, **named)

        return cast(_Call, guarded)  # The signature is the call's own.

    def guard_session(self, call: _Call) -> _Call:
        """The same call, which begins with a scope and a session's id, behind the breaker of the session's server."""

        async def guarded(scope: Scope, session_id: str, *args: Any, **named: Any) -> Any:
            return await self.ask(self.at(scope, session_id), call, scope, session_id, *args, **named)

        return cast(_Call, guarded)  # The signature is the call's own.

    def _after_prepare(self, call: Callable[_P, Awaitable[_Answer]]) -> Callable[_P, Awaitable[_Answer]]:
        """The same call after `first`; concurrent calls share one attempt and its failure."""

        async def after(*args: _P.args, **named: _P.kwargs) -> _Answer:
            if self._first is not None:
                if self._preparing is None:
                    self._preparing = asyncio.create_task(self._run_prepare(self._first))
                    self._preparing.add_done_callback(self._on_prepare_done)
                # Shield: one cancelled caller must not cancel the shared attempt.
                await asyncio.shield(self._preparing)
            return await call(*args, **named)

        return after

    async def _run_prepare(self, first: Callable[[], Awaitable[None]]) -> None:
        await first()
        self._first = None

    def _on_prepare_done(self, attempt: asyncio.Task[None]) -> None:
        self._preparing = None
        if not attempt.cancelled():
            attempt.exception()  # Marks it as retrieved: all callers may have been cancelled.

    def _record_error(self, at: Breaker, generation: int, ended: BaseException) -> None:
        """Record what an error means for the server; some are raised before it is asked."""
        if isinstance(ended, StoreUnavailable):
            self._record_failure(at, generation)
        elif isinstance(ended, TenutoError) and not isinstance(ended, Invalid | LimitReached):
            self._record_success(at, generation)
        else:
            at.release_probe(generation)

    def _record_success(self, at: Breaker, generation: int) -> None:
        was = at.state
        at.record_success(generation)
        if at.state is not was:
            log.warning("the session store answers again")

    def _record_failure(self, at: Breaker, generation: int) -> None:
        was = at.state
        at.record_failure(generation)
        if at.state is not was:
            rest = self._policy.reset.total_seconds()
            log.warning("the session store does not answer: calls are rejected for %g s", rest)


class _BreakerSessions:
    """The `SessionStore` port behind a circuit."""

    def __init__(self, inner: SessionStore, circuit: Circuit) -> None:
        self._inner = inner
        self._circuit = circuit
        guard = circuit.guard_session
        self.append, self.get, self.messages = guard(inner.append), guard(inner.get), guard(inner.messages)
        self.patch, self.reset, self.fork = guard(inner.patch), guard(inner.reset), guard(inner.fork)
        self.truncate, self.rewrite, self.delete = guard(inner.truncate), guard(inner.rewrite), guard(inner.delete)
        self.list = circuit.guard(inner.list)

    async def begin_turn(self, scope: Scope, request: BeginTurn) -> OpenTurn:
        at = self._circuit.at(scope, request.session_id)
        return await self._circuit.ask(at, self._inner.begin_turn, scope, request)

    async def finish_turn(self, turn: OpenTurn, request: FinishTurn) -> AppendResult:
        at = self._circuit.at(turn.scope, turn.session.id)
        return await self._circuit.ask(at, self._inner.finish_turn, turn, request)

    async def renew_turn(self, turn: OpenTurn) -> OpenTurn:
        at = self._circuit.at(turn.scope, turn.session.id)
        return await self._circuit.ask(at, self._inner.renew_turn, turn)


class _BreakerTraces:
    """The `TraceStore` port behind a circuit."""

    def __init__(self, inner: TraceStore, circuit: Circuit) -> None:
        self.trace, self.traces = circuit.guard_session(inner.trace), circuit.guard_session(inner.traces)


class _BreakerStateStore:
    """The `StateStore` port behind a circuit."""

    def __init__(self, inner: StateStore, circuit: Circuit) -> None:
        guard = circuit.guard
        self.read_state, self.write_state = guard(inner.read_state), guard(inner.write_state)
        self.delete_state, self.list_state = guard(inner.delete_state), guard(inner.list_state)
        self.state_keys, self.list_state_locations = guard(inner.state_keys), guard(inner.list_state_locations)
        self.read_states, self.change_states = guard(inner.read_states), guard(inner.change_states)


class _BreakerUpkeep:
    """The `StoreUpkeep` port behind a circuit."""

    def __init__(self, inner: StoreUpkeep, circuit: Circuit) -> None:
        self._inner = inner
        self._circuit = circuit
        guard, guard_long = circuit.guard, self._guard_long
        self.ping, self.stats, self.list_sites = guard(inner.ping), guard(inner.stats), guard(inner.list_sites)
        self.sweep, self.evict, self.erase = guard_long(inner.sweep), guard_long(inner.evict), guard_long(inner.erase)

    async def compact(self) -> CompactionResult:
        # It may take an hour, too long for a probe.
        await self.ping()
        return await self._inner.compact()

    def _guard_long(self, call: _Call) -> _Call:
        """The same call, which may take long: a ping before it serves as the probe."""

        async def guarded(*args: Any, **named: Any) -> Any:
            whole = self._circuit.whole
            if whole is not None and whole.state is not BreakerState.CLOSED:
                await self.ping()
            return await self._circuit.ask(whole, call, *args, **named)

        return cast(_Call, guarded)  # The signature is the call's own.
