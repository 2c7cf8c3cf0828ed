"""A store whose server may stop answering: after a few calls in vain nobody waits for it any more.

Only a server that does not answer counts as a failure. One that knows no such session, is full or takes no writes has
answered.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import timedelta
from typing import Final, ParamSpec, TypeVar

from tenuto.errors import CircuitOpen, Invalid, LimitReached, StoreUnavailable, TenutoError
from tenuto.model import (
    Appended,
    Batch,
    Changes,
    Closing,
    Compaction,
    Erased,
    Forking,
    Gone,
    MessagePage,
    Opening,
    OpenTurn,
    Page,
    Rewriting,
    Scope,
    Session,
    SessionPage,
    SessionQuery,
    StateEntry,
    StateName,
    Stats,
    Truncating,
)
from tenuto.model.trace import Trace
from tenuto.model.values import Json
from tenuto.ports import SessionStore, Sharded, StateStore, Store, StoreUpkeep, TraceStore
from tenuto.stores.breaker import Breaker, BreakerPolicy, BreakerState

log = logging.getLogger(__name__)

_SOON: Final = timedelta(seconds=1)
_ALL: Final = ""
_P = ParamSpec("_P")
_Answer = TypeVar("_Answer")


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
        self.circuit = circuit = Circuit(sharded=sharded, policy=policy or BreakerPolicy(), now=now, first=first)
        self.sessions = _Sessions(store.sessions, circuit)
        self.traces = _Traces(store.traces, circuit)
        self.state = _State(store.state, circuit)
        self.upkeep = _Upkeep(store.upkeep, circuit)


class Circuit:
    """The breakers of one store, and what they decide for every call.

    Where sessions are sharded over several servers, each server has a breaker of its own, so that one that is away
    does not block the sessions of the others. Calls that concern no single session pass freely there.

    `first` is what must be done before anything is asked of a server that was away when its store was opened.
    """

    def __init__(
        self,
        *,
        sharded: Sharded | None,
        policy: BreakerPolicy,
        now: Callable[[], float],
        first: Callable[[], Awaitable[None]] | None,
    ) -> None:
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
        """Where the breaker stands; of several, the one that is furthest from closed."""
        states = {breaker.state for breaker in self._in_use()}
        order = (BreakerState.OPEN, BreakerState.HALF_OPEN)
        return next((state for state in order if state in states), BreakerState.CLOSED)

    @property
    def refused(self) -> int:
        """How many calls were turned away."""
        return sum(breaker.refused for breaker in self._breakers.values())

    async def close(self) -> None:
        """Stop what is done first, if it is under way."""
        if self._preparing is not None:
            self._preparing.cancel()
            await asyncio.wait((self._preparing,))

    def _in_use(self) -> Iterator[Breaker]:
        """The breakers of the servers that there are now: one that was replaced is never asked again."""
        if self._sharded is None:
            return iter(self._breakers.values())
        shards = self._sharded.shards
        return (breaker for shard, breaker in self._breakers.items() if shard in shards)

    def at(self, scope: Scope, session_id: str) -> Breaker | None:
        """The breaker of the server that keeps the session."""
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
        """Make a call, if the breaker lets it through.

        Raises:
            CircuitOpen: it does not.
        """
        if self._first is not None:
            call = self._prepared(call)
        if at is None:
            return await call(*args, **named)
        generation = at.admit()
        if generation is None:
            raise CircuitOpen(max(at.rest, _SOON))
        try:
            answer = await call(*args, **named)
        except BaseException as ended:
            self._judge(at, generation, ended)
            raise
        if at.state is BreakerState.CLOSED:
            at.answered(generation)
        else:
            self._heard(at, generation)
        return answer

    def _prepared(self, call: Callable[_P, Awaitable[_Answer]]) -> Callable[_P, Awaitable[_Answer]]:
        """The same call, after what is to be done first; calls that come together share one attempt and its failure."""

        async def after(*args: _P.args, **named: _P.kwargs) -> _Answer:
            if self._first is not None:
                if self._preparing is None:
                    self._preparing = asyncio.create_task(self._prepare(self._first))
                    self._preparing.add_done_callback(self._is_prepared)
                # Whoever goes meanwhile takes nobody else's attempt along.
                await asyncio.shield(self._preparing)
            return await call(*args, **named)

        return after

    async def _prepare(self, first: Callable[[], Awaitable[None]]) -> None:
        await first()
        self._first = None

    def _is_prepared(self, attempt: asyncio.Task[None]) -> None:
        self._preparing = None
        if not attempt.cancelled():
            attempt.exception()  # Those who waited have it; perhaps all of them had gone.

    def _judge(self, at: Breaker, generation: int, ended: BaseException) -> None:
        """What a call that raised tells of the server; some are turned away, or given up, before it is asked."""
        if isinstance(ended, StoreUnavailable):
            self._unheard(at, generation)
        elif isinstance(ended, TenutoError) and not isinstance(ended, Invalid | LimitReached):
            self._heard(at, generation)
        else:
            at.left(generation)

    def _heard(self, at: Breaker, generation: int) -> None:
        was = at.state
        at.answered(generation)
        if at.state is not was:
            log.warning("the session store answers again")

    def _unheard(self, at: Breaker, generation: int) -> None:
        was = at.state
        at.failed(generation)
        if at.state is not was:
            rest = self._policy.reset.total_seconds()
            log.warning("the session store does not answer: it is left alone for %g s", rest)


class _Sessions:
    """The `SessionStore` port behind a circuit."""

    def __init__(self, inner: SessionStore, circuit: Circuit) -> None:
        self._inner = inner
        self._ask, self._at, self._whole = circuit.ask, circuit.at, circuit.whole

    # Turns

    async def begin_turn(self, scope: Scope, opening: Opening) -> OpenTurn:
        return await self._ask(self._at(scope, opening.session_id), self._inner.begin_turn, scope, opening)

    async def finish_turn(self, turn: OpenTurn, closing: Closing) -> Appended:
        return await self._ask(self._at(turn.scope, turn.session.id), self._inner.finish_turn, turn, closing)

    async def renew_turn(self, turn: OpenTurn) -> OpenTurn:
        return await self._ask(self._at(turn.scope, turn.session.id), self._inner.renew_turn, turn)

    async def append(self, scope: Scope, session_id: str, batch: Batch) -> Appended:
        return await self._ask(self._at(scope, session_id), self._inner.append, scope, session_id, batch)

    # Reading

    async def get(self, scope: Scope, session_id: str) -> Session:
        return await self._ask(self._at(scope, session_id), self._inner.get, scope, session_id)

    async def messages(self, scope: Scope, session_id: str, page: Page) -> MessagePage:
        return await self._ask(self._at(scope, session_id), self._inner.messages, scope, session_id, page)

    async def list(self, scope: Scope, query: SessionQuery) -> SessionPage:
        return await self._ask(self._whole, self._inner.list, scope, query)

    # Changing

    async def patch(self, scope: Scope, session_id: str, changes: Changes) -> Session:
        return await self._ask(self._at(scope, session_id), self._inner.patch, scope, session_id, changes)

    async def reset(self, scope: Scope, session_id: str, *, sparing: Sequence[str] = ()) -> Session:
        return await self._ask(self._at(scope, session_id), self._inner.reset, scope, session_id, sparing=sparing)

    async def fork(self, scope: Scope, session_id: str, forking: Forking) -> Session:
        return await self._ask(self._at(scope, session_id), self._inner.fork, scope, session_id, forking)

    async def truncate(self, scope: Scope, session_id: str, truncating: Truncating) -> Session:
        return await self._ask(self._at(scope, session_id), self._inner.truncate, scope, session_id, truncating)

    async def rewrite(self, scope: Scope, session_id: str, rewriting: Rewriting) -> Session:
        return await self._ask(self._at(scope, session_id), self._inner.rewrite, scope, session_id, rewriting)

    async def delete(self, scope: Scope, session_id: str) -> None:
        await self._ask(self._at(scope, session_id), self._inner.delete, scope, session_id)


class _Traces:
    """The `TraceStore` port behind a circuit."""

    def __init__(self, inner: TraceStore, circuit: Circuit) -> None:
        self._inner = inner
        self._ask, self._at = circuit.ask, circuit.at

    async def trace(self, scope: Scope, session_id: str, number: int) -> Trace | None:
        return await self._ask(self._at(scope, session_id), self._inner.trace, scope, session_id, number)

    async def traces(
        self, scope: Scope, session_id: str, limit: int = 20, before: int | None = None
    ) -> tuple[Trace, ...]:
        return await self._ask(self._at(scope, session_id), self._inner.traces, scope, session_id, limit, before)


class _State:
    """The `StateStore` port behind a circuit."""

    def __init__(self, inner: StateStore, circuit: Circuit) -> None:
        self._inner = inner
        self._ask, self._whole = circuit.ask, circuit.whole

    async def read_state(self, scope: Scope, namespace: str, key: str) -> StateEntry | None:
        return await self._ask(self._whole, self._inner.read_state, scope, namespace, key)

    async def write_state(
        self, scope: Scope, namespace: str, key: str, value: Json, if_version: int | None = None
    ) -> StateEntry:
        return await self._ask(self._whole, self._inner.write_state, scope, namespace, key, value, if_version)

    async def delete_state(self, scope: Scope, namespace: str, key: str) -> bool:
        return await self._ask(self._whole, self._inner.delete_state, scope, namespace, key)

    async def list_state(
        self, scope: Scope, namespace: str, after: str = "", limit: int = 100
    ) -> tuple[StateEntry, ...]:
        return await self._ask(self._whole, self._inner.list_state, scope, namespace, after, limit)

    async def state_keys(self, scope: Scope, namespace: str, after: str = "", limit: int = 100) -> tuple[str, ...]:
        return await self._ask(self._whole, self._inner.state_keys, scope, namespace, after, limit)

    async def state_names(
        self, scope: Scope, after: StateName | None = None, limit: int = 100
    ) -> tuple[StateName, ...]:
        return await self._ask(self._whole, self._inner.state_names, scope, after, limit)


class _Upkeep:
    """The `StoreUpkeep` port behind a circuit."""

    def __init__(self, inner: StoreUpkeep, circuit: Circuit) -> None:
        self._inner = inner
        self._ask, self._whole = circuit.ask, circuit.whole

    async def sweep(self, limit: int = 1000) -> tuple[Gone, ...]:
        return await self._ask_at_length(self._inner.sweep, limit)

    async def evict(self, scope: Scope, keep: int, sparing: str | None = None) -> tuple[Gone, ...]:
        return await self._ask_at_length(self._inner.evict, scope, keep, sparing)

    async def erase(self, scope: Scope, limit: int = 100) -> Erased:
        return await self._ask_at_length(self._inner.erase, scope, limit)

    async def spaces(self, after: Scope | None = None, limit: int = 100) -> tuple[Scope, ...]:
        return await self._ask(self._whole, self._inner.spaces, after, limit)

    async def compact(self) -> Compaction:
        # It may take an hour, and nobody else could ask for so long if it were the probe.
        await self.ping()
        return await self._inner.compact()

    async def stats(self, scope: Scope) -> Stats:
        return await self._ask(self._whole, self._inner.stats, scope)

    async def ping(self) -> None:
        await self._ask(self._whole, self._inner.ping)

    async def _ask_at_length(
        self, call: Callable[_P, Awaitable[_Answer]], *args: _P.args, **named: _P.kwargs
    ) -> _Answer:
        """Ask for what may take long. It is never the probe: nobody else could ask for as long as it takes."""
        if self._whole is not None and self._whole.state is not BreakerState.CLOSED:
            await self.ping()
        return await self._ask(self._whole, call, *args, **named)
