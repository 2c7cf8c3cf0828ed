"""Records behind circuit breakers: after a few failed calls no caller waits for a server that is down.

Only a server that does not answer counts as a failure; "full", "read-only" and a refused commit are answers.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import Future
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Final, Protocol, TypeVar, runtime_checkable

from tenuto.errors import CircuitOpen, Invalid, LimitReached, StoreUnavailable, TenutoError
from tenuto.model import CompactionResult, Scope
from tenuto.model.stored import (
    AsideRecords,
    EntryPage,
    FoundRecord,
    IndexColumns,
    IndexQuery,
    Known,
    Part,
    RecordChange,
    Refused,
    StoredRecord,
    Totals,
)
from tenuto.ports import RecordFeed, RecordStore
from tenuto.stores.breaker import Breaker, BreakerPolicy, BreakerState

_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")
_SHORTEST_REST: Final = timedelta(seconds=1)
_WHOLE: Final = ""


@runtime_checkable
class ShardedRecords(Protocol):
    """Records on several servers, of which some can be unavailable."""

    @property
    def shards(self) -> frozenset[str]:
        """The known servers."""
        ...

    def shard_of(self, key: bytes) -> str:
        """The server that holds a record, by present knowledge."""
        ...

    async def ping_shards(self) -> frozenset[str]:
        """The servers that answer.

        Raises:
            Unavailable: that is no majority of them; then the store as a whole counts as away.
        """
        ...


class BreakerRecords:
    """The `RecordStore` port; rejected calls raise `CircuitOpen` at once.

    Where records are on several servers each has its own breaker, and calls that concern no single record are not
    guarded. `prepare` must succeed before any call to a store that was down when it was opened. `now` is a monotonic
    clock.
    """

    def __init__(
        self,
        records: RecordStore,
        *,
        now: Callable[[], float],
        policy: BreakerPolicy | None = None,
        prepare: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.inner = records
        self._sharded = records if isinstance(records, ShardedRecords) else None
        self._policy = policy or BreakerPolicy()
        self._now = now
        self._breakers = {} if self._sharded else {_WHOLE: Breaker(self._policy, now=now)}
        self._prepare = prepare
        self._preparing: asyncio.Task[None] | None = None
        self._pings = set[asyncio.Task[None]]()

    # State

    @property
    def state(self) -> BreakerState:
        """The breaker's state; of several, the one that is furthest from closed."""
        # A server that was replaced is never asked again, so its breaker does not count.
        shards = self._breakers if self._sharded is None else self._sharded.shards
        states = [breaker.state for shard, breaker in self._breakers.items() if shard in shards]
        return next((one for one in (BreakerState.OPEN, BreakerState.HALF_OPEN) if one in states), BreakerState.CLOSED)

    @property
    def closed(self) -> bool:
        """Whether every call goes through."""
        return self.state is BreakerState.CLOSED

    @property
    def is_resting(self) -> bool:
        """Whether calls are rejected for a while yet."""
        return any(breaker.rest for breaker in self._breakers.values())

    @property
    def rejected(self) -> int:
        """The number of rejected calls."""
        return sum([breaker.refused for breaker in self._breakers.values()])

    # The port

    @property
    def feed(self) -> RecordFeed | None:
        return self.inner.feed

    def load(self, key: bytes, tail: int, known: Known | None = None) -> Future[StoredRecord | None]:
        return self._send(key, lambda: self.inner.load(key, tail, known))

    def commit(self, changes: Sequence[RecordChange]) -> Future[Refused | None]:
        return self._send(changes[0].key, lambda: self.inner.commit(changes))

    def page(self, key: bytes, part: Part, first: int, last: int, limit: int) -> Future[EntryPage]:
        return self._send(key, lambda: self.inner.page(key, part, first, last, limit))

    def touch(self, key: bytes, deadline: int) -> Future[None]:
        return self._send(key, lambda: self.inner.touch(key, deadline))

    async def load_all(self, keys: Sequence[bytes]) -> tuple[StoredRecord | None, ...]:
        return await self._ask(lambda: self.inner.load_all(keys))

    async def list(self, query: IndexQuery) -> tuple[FoundRecord, ...]:
        return await self._ask(lambda: self.inner.list(query))

    async def totals(self, space: bytes, owner: bytes | None, now: int) -> Totals:
        return await self._ask(lambda: self.inner.totals(space, owner, now))

    async def sites(self, after: bytes, limit: int) -> tuple[Scope, ...]:
        return await self._ask(lambda: self.inner.sites(after, limit))

    async def scan(self, after: bytes, limit: int) -> tuple[FoundRecord, ...]:
        return await self._ask(lambda: self.inner.scan(after, limit))

    async def list_aside(self) -> tuple[IndexColumns, ...]:
        return await self._ask(self.inner.list_aside)

    async def forget_aside(self, owner: bytes) -> AsideRecords:
        return await self._ask(lambda: self.inner.forget_aside(owner))

    async def compact(self) -> CompactionResult:
        # It may take an hour, too long for a probe.
        await self._ask(self.inner.ping)
        return await self.inner.compact()

    async def ping(self) -> None:
        # It goes on without a caller that has given up: else a silent server would keep each of them waiting anew.
        ping = asyncio.create_task(self._ask(self.inner.ping))
        self._pings.add(ping)
        ping.add_done_callback(self._on_pinged)
        await asyncio.shield(ping)

    def _on_pinged(self, ping: asyncio.Task[None]) -> None:
        self._pings.discard(ping)
        if not ping.cancelled():
            ping.exception()  # Marks it as retrieved: the caller may have been cancelled.

    async def probe(self) -> None:
        """Ping the servers, open or not; once one answers, the next call may close its breaker."""
        await self._make_ready()
        if self._sharded is None:
            await self.inner.ping()
        answering = frozenset({_WHOLE}) if self._sharded is None else await self._sharded.ping_shards()
        for shard, breaker in self._breakers.items():
            if shard in answering:
                breaker.expire()

    async def close(self) -> None:
        for task in (self._preparing, *self._pings):
            if task is not None:
                task.cancel()
                await asyncio.wait((task,))
        await self.inner.close()

    # Guarded calls

    def _breaker_of(self, key: bytes) -> Breaker:
        shard = _WHOLE if self._sharded is None else self._sharded.shard_of(key)
        breaker = self._breakers.get(shard)
        if breaker is None:
            breaker = self._breakers[shard] = Breaker(self._policy, now=self._now)
        return breaker

    def _send(self, key: bytes, call: Callable[[], Future[_Answer]]) -> Future[_Answer]:
        """Send a call before returning, if the breaker of the record's server admits it."""
        loop, breaker = asyncio.get_running_loop(), self._breaker_of(key)
        generation = breaker.admit()
        if generation is None:
            rejected: Future[_Answer] = loop.create_future()
            rejected.set_exception(_rejection(breaker))
            return rejected
        if self._prepare is not None:
            return loop.create_task(self._await(breaker, generation, call))
        try:
            sent = call()
        except BaseException as error:
            self._record(breaker, generation, error)
            raise
        if sent.done():
            # A callback would come after the caller has gone on.
            self._record(breaker, generation, _end_of(sent))
        else:
            sent.add_done_callback(lambda done: self._record(breaker, generation, _end_of(done)))
        return sent

    async def _ask(self, call: Callable[[], Awaitable[_Answer]]) -> _Answer:
        """Make a call that concerns no single record."""
        breaker = self._breakers.get(_WHOLE)
        if breaker is None:
            await self._make_ready()
            return await call()
        generation = breaker.admit()
        if generation is None:
            raise _rejection(breaker)
        return await self._await(breaker, generation, call)

    async def _await(self, breaker: Breaker, generation: int, call: Callable[[], Awaitable[_Answer]]) -> _Answer:
        try:
            await self._make_ready()
            answer = await call()
        except BaseException as error:
            self._record(breaker, generation, error)
            raise
        self._record(breaker, generation, None)
        return answer

    async def _make_ready(self) -> None:
        """Run `prepare` once; concurrent calls share one attempt and its failure."""
        if self._prepare is None:
            return
        if self._preparing is None:
            self._preparing = asyncio.create_task(self._run_prepare(self._prepare))
            self._preparing.add_done_callback(self._on_prepared)
        # Shield: one cancelled caller must not cancel the shared attempt.
        await asyncio.shield(self._preparing)

    async def _run_prepare(self, prepare: Callable[[], Awaitable[None]]) -> None:
        await prepare()
        self._prepare = None

    def _on_prepared(self, attempt: asyncio.Task[None]) -> None:
        self._preparing = None
        if not attempt.cancelled():
            attempt.exception()  # Marks it as retrieved: all callers may have been cancelled.

    def _record(self, breaker: Breaker, generation: int, ended: BaseException | None) -> None:
        """Record what the end of a call means for its server; some errors are raised before it is asked."""
        before = breaker.state
        if isinstance(ended, StoreUnavailable):
            breaker.record_failure(generation)
        elif ended is None or (isinstance(ended, TenutoError) and not isinstance(ended, Invalid | LimitReached)):
            breaker.record_success(generation)
        else:
            breaker.release_probe(generation)
            return
        if breaker.state is not before:
            self._log_state(breaker.state)

    def _log_state(self, state: BreakerState) -> None:
        if state is BreakerState.CLOSED:
            _log.warning("the session store answers again")
        else:
            rest = self._policy.reset.total_seconds()
            _log.warning("the session store does not answer: calls are rejected for %g s", rest)


def are_sharded(records: RecordStore) -> bool:
    """Whether some records can be unavailable while others are not."""
    return isinstance(records.inner if isinstance(records, BreakerRecords) else records, ShardedRecords)


def _rejection(breaker: Breaker) -> CircuitOpen:
    return CircuitOpen(max(breaker.rest, _SHORTEST_REST))


def _end_of(call: Future[_Answer]) -> BaseException | None:
    return asyncio.CancelledError() if call.cancelled() else call.exception()
