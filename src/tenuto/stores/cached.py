"""L1: a cache of sessions in front of a store, never staler than the store's change feed.

A hit serves heads and newest pages. Writes go to the store and evict the entry. Before a hit the feed is caught up, but
once in an iteration of the event loop, within which no report can arrive. If that fails, nothing is served from here.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeAlias, TypeVar

import msgspec

from tenuto.model import (
    AppendBatch,
    AppendResult,
    BeginTurn,
    Changes,
    EraseResult,
    FinishTurn,
    ForkRequest,
    Message,
    MessagePage,
    OpenTurn,
    Page,
    RemovedSession,
    Rewrite,
    Scope,
    Session,
    Truncation,
)
from tenuto.model.message import memory_bytes
from tenuto.model.scope import session_key
from tenuto.model.store_reports import Invalidation
from tenuto.ports import ChangeFeed, Clock, SessionStore, Store, StoreUpkeep, utc_now

_HEAD_BYTES = 2048
_Answer = TypeVar("_Answer")
_Name: TypeAlias = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class _CachedSession:
    """A session's head, and its newest messages where a page brought them; `whole` when none stand before them."""

    key: bytes
    session: Session
    tail: tuple[Message, ...]
    whole: bool
    size: int


def _make_entry(session: Session, tail: tuple[Message, ...] = (), *, whole: bool = False) -> _CachedSession:
    key = session_key(session.scope, session.id)
    values = len(msgspec.json.encode((session.context, session.attributes, session.metadata)))
    return _CachedSession(key, session, tail, whole, _HEAD_BYTES + values + sum(map(memory_bytes, tail)))


class _PendingLoad:
    """A read of the store that is under way; other callers may await its `result`."""

    def __init__(self, key: bytes, wanted: int) -> None:
        self.key = key
        self.wanted = wanted
        # `None` if it failed, so that each caller must ask for itself.
        self.result: asyncio.Future[_CachedSession | None] = asyncio.get_running_loop().create_future()


class CachedStore:
    """A store with an L1 in front: LRU, bounded by sessions and by bytes."""

    def __init__(
        self,
        *,
        store: Store,
        feed: ChangeFeed,
        clock: Clock = utc_now,
        max_sessions: int = 10_000,
        max_bytes: int = 256 * 1024 * 1024,
    ) -> None:
        self.inner = store
        self._feed = feed
        self._stack = AsyncExitStack()
        self.sessions = CachedSessions(store.sessions, feed, clock, max_sessions, max_bytes)
        self.traces = store.traces
        self.state = store.state
        self.upkeep = _CachedUpkeep(store.upkeep, self.sessions.evict_removed)

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._feed.watch(self.sessions.drop))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()
        self.sessions.drop(None)


class CachedSessions:
    """The `SessionStore` port with the cache."""

    def __init__(self, inner: SessionStore, feed: ChangeFeed, clock: Clock, max_sessions: int, max_bytes: int) -> None:
        self._inner = inner
        self._feed = feed
        self._clock = clock
        self._max_sessions = max_sessions
        self._max_bytes = max_bytes
        self._bytes = 0
        self._entries: OrderedDict[_Name, _CachedSession] = OrderedDict()
        self._flights: dict[_Name, _PendingLoad] = {}
        # The feed reports keys; hits go by name, which is cheaper than computing a key.
        self._names: dict[bytes, _Name] = {}
        self._caught_up = False
        self.hits = 0
        self.misses = 0
        self.list, self.renew_turn = inner.list, inner.renew_turn

    def __len__(self) -> int:
        return len(self._entries)

    # Reading

    async def get(self, scope: Scope, session_id: str) -> Session:
        return (await self._lookup(scope, session_id, 0)).session

    async def messages(self, scope: Scope, session_id: str, query: Page) -> MessagePage:
        if query.before is not None or query.after is not None or not query.touch:
            return await self._inner.messages(scope, session_id, query)
        entry = await self._lookup(scope, session_id, query.limit)
        return MessagePage(
            session=entry.session,
            messages=entry.tail[-query.limit :],
            more_before=len(entry.tail) > query.limit or not entry.whole,
            more_after=False,
        )

    # Turns

    async def begin_turn(self, scope: Scope, request: BeginTurn) -> OpenTurn:
        return await self._write_through(scope, request.session_id, self._inner.begin_turn(scope, request))

    async def finish_turn(self, turn: OpenTurn, request: FinishTurn) -> AppendResult:
        return await self._write_through(turn.scope, turn.session.id, self._inner.finish_turn(turn, request))

    async def append(self, scope: Scope, session_id: str, batch: AppendBatch) -> AppendResult:
        return await self._write_through(scope, session_id, self._inner.append(scope, session_id, batch))

    # Changing

    async def patch(self, scope: Scope, session_id: str, changes: Changes) -> Session:
        return await self._write_through(scope, session_id, self._inner.patch(scope, session_id, changes))

    async def reset(self, scope: Scope, session_id: str, *, keep_metadata: Sequence[str] = ()) -> Session:
        return await self._write_through(
            scope, session_id, self._inner.reset(scope, session_id, keep_metadata=keep_metadata)
        )

    async def fork(self, scope: Scope, session_id: str, request: ForkRequest) -> Session:
        return await self._write_through(scope, request.new_id, self._inner.fork(scope, session_id, request))

    async def truncate(self, scope: Scope, session_id: str, request: Truncation) -> Session:
        return await self._write_through(scope, session_id, self._inner.truncate(scope, session_id, request))

    async def rewrite(self, scope: Scope, session_id: str, request: Rewrite) -> Session:
        return await self._write_through(scope, session_id, self._inner.rewrite(scope, session_id, request))

    async def delete(self, scope: Scope, session_id: str) -> None:
        await self._write_through(scope, session_id, self._inner.delete(scope, session_id))

    def evict_removed(self, gone: tuple[RemovedSession, ...]) -> None:
        """Evict sessions that upkeep removed."""
        for item in gone:
            self._evict((item.scope.tenant, item.scope.site, item.session_id))

    # Entries

    async def _lookup(self, scope: Scope, session_id: str, wanted: int) -> _CachedSession:
        """The session with at least `wanted` newest messages, from the cache or the store."""
        if not self._caught_up:
            if not self._feed.drain_invalidations():
                return await self._fetch(scope, session_id, wanted)
            self._caught_up = True
            asyncio.get_running_loop().call_soon(setattr, self, "_caught_up", False)
        name = (scope.tenant, scope.site, session_id)
        entry = self._entries.get(name)
        if entry is not None and self._can_serve(scope, entry, wanted):
            self._entries.move_to_end(name)
            self.hits += 1
            return entry
        self.misses += 1
        flight = self._flights.get(name)
        if flight is not None and flight.wanted >= wanted:
            joined = await asyncio.shield(flight.result)  # A cancelled caller must not cancel it for the others.
            if joined is not None and self._can_serve(scope, joined, wanted):
                return joined
        return await self._load_once(scope, session_id, name, wanted)

    def _can_serve(self, scope: Scope, entry: _CachedSession, wanted: int) -> bool:
        """Whether the store would answer the same. A foreign scope goes there, too, so that timing reveals nothing."""
        now = self._clock()
        session = entry.session
        return (
            scope.reaches(session.scope)
            and not session.expired(now)
            and session.deadline_after_read(now) is None
            and (not wanted or entry.whole or len(entry.tail) >= wanted)
        )

    async def _load_once(self, scope: Scope, session_id: str, name: _Name, wanted: int) -> _CachedSession:
        """Read from the store, once for all concurrent callers; cached unless the session changes meanwhile."""
        flight = self._flights[name] = _PendingLoad(session_key(scope, session_id), wanted)
        self._names[flight.key] = name
        entry: _CachedSession | None = None
        try:
            entry = await self._fetch(scope, session_id, wanted)
            return entry
        finally:
            # A change removes the flight: its answer is then out of date and not cached.
            if self._flights.get(name) is flight:
                self._evict(name)
                if entry is not None:
                    self._put(name, entry)
            flight.result.set_result(entry)

    async def _fetch(self, scope: Scope, session_id: str, wanted: int) -> _CachedSession:
        if not wanted:
            return _make_entry(await self._inner.get(scope, session_id))
        page = await self._inner.messages(scope, session_id, Page(limit=wanted))
        return _make_entry(page.session, page.messages, whole=not page.more_before)

    async def _write_through(self, scope: Scope, session_id: str, write: Awaitable[_Answer]) -> _Answer:
        """Write to the store, and evict the session whether that succeeded or not."""
        try:
            return await write
        finally:
            self._evict((scope.tenant, scope.site, session_id))

    def _put(self, name: _Name, entry: _CachedSession) -> None:
        if entry.size > self._max_bytes:
            return
        self._names[entry.key] = name
        self._entries[name] = entry
        self._bytes += entry.size
        while self._bytes > self._max_bytes or len(self._entries) > self._max_sessions:
            self._evict(next(iter(self._entries)))

    def _evict(self, name: _Name) -> None:
        flight = self._flights.pop(name, None)
        old = self._entries.pop(name, None)
        if old is not None:
            self._bytes -= old.size
            self._names.pop(old.key, None)
        elif flight is not None:
            self._names.pop(flight.key, None)

    def drop(self, news: Invalidation | None) -> None:
        """The feed reports that these sessions changed elsewhere, or that any may have."""
        if news is None:
            self._entries.clear()
            self._flights.clear()
            self._names.clear()
            self._bytes = 0
            return
        for key in news.keys:
            name = self._names.get(key)
            if name is not None:
                self._evict(name)


class _CachedUpkeep:
    """The `StoreUpkeep` port before a cache: removed sessions are evicted."""

    def __init__(self, inner: StoreUpkeep, evict_removed: Callable[[tuple[RemovedSession, ...]], None]) -> None:
        self._inner = inner
        self._evict_removed = evict_removed
        self.list_sites, self.compact, self.stats, self.ping = inner.list_sites, inner.compact, inner.stats, inner.ping

    async def sweep(self, limit: int = 1000) -> tuple[RemovedSession, ...]:
        gone = await self._inner.sweep(limit)
        self._evict_removed(gone)
        return gone

    async def evict(self, scope: Scope, keep: int, keep_session: str | None = None) -> tuple[RemovedSession, ...]:
        gone = await self._inner.evict(scope, keep, keep_session)
        self._evict_removed(gone)
        return gone

    async def erase(self, scope: Scope, limit: int = 100) -> EraseResult:
        erased = await self._inner.erase(scope, limit)
        self._evict_removed(erased.removed_sessions)
        return erased
