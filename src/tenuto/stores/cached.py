"""A store with the cache of sessions in front: reads are served from it where nothing newer can exist.

Before a hit the feed is caught up, but once in an iteration of the event loop, within which no report can arrive. If
that fails, nothing is served from here. Every answer of the store is written through to the cache.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import Self, TypeVar

from msgspec.structs import replace

from tenuto.errors import (
    CircuitOpen,
    SessionForeign,
    SessionNotFound,
    TenutoError,
    TurnLost,
    Unavailable,
    VersionConflict,
)
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
    TurnState,
)
from tenuto.model.scope import session_key
from tenuto.model.store_reports import Invalidation
from tenuto.ports import ChangeFeed, Clock, SessionStore, Store, StoreUpkeep, utc_now
from tenuto.stores.session_cache import Call, SessionCache, cache_key

_Answer = TypeVar("_Answer")


class CachedStore:
    """A store over another one, with a `cache` of its sessions; without `serves_reads` only the journal reads it.

    With `names_known` the store is told which windows are cached, and may leave them out.
    """

    def __init__(
        self,
        *,
        store: Store,
        feed: ChangeFeed,
        clock: Clock = utc_now,
        max_sessions: int = 10_000,
        max_bytes: int = 256 * 1024 * 1024,
        serves_reads: bool = True,
        names_known: bool = True,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.inner = store
        self.feed = feed
        self.cache = SessionCache(feed, max_sessions=max_sessions, max_bytes=max_bytes, ticks=monotonic)
        self._stack = AsyncExitStack()
        self.sessions = CachedSessions(
            store.sessions, self.cache, feed, clock, serves_reads=serves_reads, names_known=names_known
        )
        self.traces = store.traces
        self.state = store.state
        self.upkeep = _CachedUpkeep(store.upkeep, self.cache)

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self.feed.watch(self.cache.on_invalidate))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()
        self.cache.clear()


class SessionFeed:
    """The `ElsewhereFeed` port over the feed of a backend."""

    def __init__(self, feed: ChangeFeed) -> None:
        self._feed = feed

    def watch(self, on_change: Callable[[bytes | None], None]) -> AbstractAsyncContextManager[None]:
        def tell(news: Invalidation | None) -> None:
            if news is None:
                on_change(None)
            elif not news.local:
                for key in news.keys:
                    on_change(key)

        return self._feed.watch(tell)

    def look(self) -> None:
        self._feed.drain_invalidations()


class _PendingLoad:
    """A read of the store that is under way; other callers may await its `result`."""

    def __init__(self, call: Call, wanted: int) -> None:
        self.call = call
        self.wanted = wanted
        # `None` if it failed, so that each caller must ask for itself.
        self.result: asyncio.Future[MessagePage | None] = asyncio.get_running_loop().create_future()


class CachedSessions:
    """The `SessionStore` port with the cache."""

    def __init__(
        self,
        inner: SessionStore,
        cache: SessionCache,
        feed: ChangeFeed,
        clock: Clock,
        *,
        serves_reads: bool,
        names_known: bool,
    ) -> None:
        self._inner = inner
        self._cache = cache
        self._feed = feed
        self._clock = clock
        self._serves_reads = serves_reads
        self._names_known = serves_reads and names_known
        self._loads: dict[bytes, _PendingLoad] = {}
        self._caught_up = False
        self.hits = 0
        self.misses = 0
        self.list = inner.list

    def __len__(self) -> int:
        return len(self._cache)

    @property
    def held_bytes(self) -> int:
        """The approximate memory use of the cache."""
        return self._cache.bytes

    # Reading

    async def get(self, scope: Scope, session_id: str) -> Session:
        return (await self._newest(scope, session_id, 0)).session

    async def messages(self, scope: Scope, session_id: str, query: Page) -> MessagePage:
        if not query.touch:
            return await self._inner.messages(scope, session_id, query)
        if query.before is None and query.after is None:
            return await self._newest(scope, session_id, query.limit)
        with self._cache.reads(cache_key(scope, session_id)) as call:
            page = await self._ask(scope, call, self._inner.messages(scope, session_id, query))
            self._cache.observe_page(call, page.session, (), 0)
        return page

    async def _newest(self, scope: Scope, session_id: str, wanted: int) -> MessagePage:
        """The session with at most `wanted` newest messages, from the cache or the store."""
        key = cache_key(scope, session_id)
        if not self._serves_reads or not self._catch_up():
            return await self._load(scope, session_id, key, wanted)
        entry = self._cache.current(key)
        if entry is not None and self._can_serve(scope, entry.session):
            held = len(entry.tail)
            if not wanted or held >= wanted or entry.whole:
                self.hits += 1
                messages = entry.tail[max(0, held - wanted) :] if wanted else ()
                more = held > wanted or not entry.whole
                return MessagePage(session=entry.session, messages=messages, more_before=more, more_after=False)
        self.misses += 1
        load = self._loads.get(key)
        if load is not None and load.wanted >= wanted and load.call.certain:
            page = await asyncio.shield(load.result)  # A cancelled caller must not cancel it for the others.
            if page is not None and self._can_serve(scope, page.session):
                return _newest_of(page, wanted)
        return await self._load(scope, session_id, key, wanted)

    def _catch_up(self) -> bool:
        if not self._caught_up and self._feed.drain_invalidations():
            self._caught_up = True
            asyncio.get_running_loop().call_soon(setattr, self, "_caught_up", False)
        return self._caught_up

    def _can_serve(self, scope: Scope, session: Session) -> bool:
        """Whether the store would answer the same. A foreign scope goes there, too, so that timing reveals nothing."""
        now = self._clock()
        return scope.reaches(session.scope) and not session.expired(now) and session.deadline_after_read(now) is None

    async def _load(self, scope: Scope, session_id: str, key: bytes, wanted: int) -> MessagePage:
        """Read from the store, once for all concurrent callers."""
        with self._cache.reads(key) as call:
            load = self._loads[key] = _PendingLoad(call, wanted)
            page: MessagePage | None = None
            try:
                if wanted:
                    page = await self._ask(scope, call, self._inner.messages(scope, session_id, Page(limit=wanted)))
                else:
                    head = await self._ask(scope, call, self._inner.get(scope, session_id))
                    page = MessagePage(session=head, messages=(), more_before=True, more_after=False)
                self._cache.observe_page(call, page.session, page.messages, wanted)
                return page
            finally:
                if self._loads.get(key) is load:
                    del self._loads[key]
                load.result.set_result(page)

    # Turns

    async def begin_turn(self, scope: Scope, request: BeginTurn) -> OpenTurn:
        key = cache_key(scope, request.session_id)
        held = self._cache.current(key) if self._names_known else None
        if held is not None and held.reaches(request.window):
            request = replace(request, known=(held.session.incarnation, held.session.version))
        tail = held.tail if held is not None else ()
        with self._cache.changes(key) as call:
            turn = await self._ask(scope, call, self._inner.begin_turn(scope, request))
            if request.known == (turn.session.incarnation, turn.session.version - 1):
                turn = _add_known(turn, tail, request.window)
            if turn.state is TurnState.FINISHED:
                call.changing = False
            else:
                self._cache.observe_begin(call, turn, request.idempotency_key, request.window)
        return turn

    async def finish_turn(self, turn: OpenTurn, request: FinishTurn) -> AppendResult:
        with self._cache.changes(cache_key(turn.scope, turn.session.id)) as call:
            return self._add(call, await self._ask(turn.scope, call, self._inner.finish_turn(turn, request)), turn.id)

    async def renew_turn(self, turn: OpenTurn) -> OpenTurn:
        with self._cache.changes(cache_key(turn.scope, turn.session.id)) as call:
            renewed = await self._ask(turn.scope, call, self._inner.renew_turn(turn))
            self._cache.observe_renewal(call.key)
        return renewed

    # Changing

    async def append(self, scope: Scope, session_id: str, batch: AppendBatch) -> AppendResult:
        with self._cache.changes(cache_key(scope, session_id)) as call:
            done = await self._ask(scope, call, self._inner.append(scope, session_id, batch), drops=True)
            return self._add(call, done)

    async def patch(self, scope: Scope, session_id: str, changes: Changes) -> Session:
        with self._cache.changes(cache_key(scope, session_id)) as call:
            patched = await self._ask(scope, call, self._inner.patch(scope, session_id, changes), drops=True)
            self._cache.observe_added(call, patched)
        return patched

    async def reset(self, scope: Scope, session_id: str, *, keep_metadata: Sequence[str] = ()) -> Session:
        return await self._replace(scope, session_id, self._inner.reset(scope, session_id, keep_metadata=keep_metadata))

    async def fork(self, scope: Scope, session_id: str, request: ForkRequest) -> Session:
        return await self._replace(scope, request.new_id, self._inner.fork(scope, session_id, request))

    async def truncate(self, scope: Scope, session_id: str, request: Truncation) -> Session:
        return await self._replace(scope, session_id, self._inner.truncate(scope, session_id, request))

    async def rewrite(self, scope: Scope, session_id: str, request: Rewrite) -> Session:
        return await self._replace(scope, session_id, self._inner.rewrite(scope, session_id, request))

    async def delete(self, scope: Scope, session_id: str) -> None:
        await self._replace(scope, session_id, self._inner.delete(scope, session_id))

    # What the methods share

    async def _ask(self, scope: Scope, call: Call, asked: Awaitable[_Answer], *, drops: bool = False) -> _Answer:
        """Await an answer of the store. Without one the session may have changed, and is not served.

        It `drops` the session then, except for steps of a turn, which the journal continues from what was cached.
        """
        cache, key = self._cache, call.key
        try:
            answer = await asked
        except BaseException as failed:
            if not is_outcome_unknown(failed):
                call.changing = False
                if isinstance(failed, TurnLost | VersionConflict) or (
                    isinstance(failed, SessionNotFound) and not isinstance(failed, SessionForeign)
                ):
                    cache.drop_session(key)
            elif call.changing:
                head = cache.head(key)
                if head is None or scope.reaches(head.scope):
                    cache.observe_unanswered(key)
                    if drops:
                        cache.drop_session(key)
            raise
        call.exact = cache.observe_answer(call.since) and call.exact
        if call.changing:
            self._loads.pop(key, None)  # What it reads may be older than this answer.
        return answer

    def _add(self, call: Call, done: AppendResult, turn_id: str | None = None) -> AppendResult:
        """Write added messages through."""
        if done.duplicate:
            call.changing = False
        else:
            self._cache.observe_added(call, done.session, done.messages, turn_id)
        return done

    async def _replace(self, scope: Scope, session_id: str, change: Awaitable[_Answer]) -> _Answer:
        """Change or remove messages of a session, which is then read again."""
        with self._cache.changes(cache_key(scope, session_id)) as call:
            answer = await self._ask(scope, call, change, drops=True)
            self._cache.drop_session(call.key)
        return answer


class _CachedUpkeep:
    """The `StoreUpkeep` port before the cache: removed sessions are dropped."""

    def __init__(self, inner: StoreUpkeep, cache: SessionCache) -> None:
        self._inner = inner
        self._cache = cache
        self.list_sites, self.compact, self.stats = inner.list_sites, inner.compact, inner.stats

    async def sweep(self, limit: int = 1000) -> tuple[RemovedSession, ...]:
        return self._drop(await self._ask(self._inner.sweep(limit)))

    async def evict(self, scope: Scope, keep: int, keep_session: str | None = None) -> tuple[RemovedSession, ...]:
        return self._drop(await self._ask(self._inner.evict(scope, keep, keep_session)))

    async def erase(self, scope: Scope, limit: int = 100) -> EraseResult:
        erased = await self._ask(self._inner.erase(scope, limit))
        self._drop(erased.removed_sessions)
        return erased

    async def ping(self) -> None:
        since = self._cache.losses
        await self._inner.ping()
        self._cache.observe_answer(since)

    async def _ask(self, asked: Awaitable[_Answer]) -> _Answer:
        try:
            return await asked
        except BaseException as failed:
            if is_outcome_unknown(failed):
                self._cache.observe_unanswered(None)
            raise

    def _drop(self, gone: tuple[RemovedSession, ...]) -> tuple[RemovedSession, ...]:
        for item in gone:
            self._cache.drop_session(session_key(item.scope, item.session_id))
        return gone


def is_outcome_unknown(failed: BaseException) -> bool:
    """Whether a failed call may have been applied: it was sent, and the store did not refuse it."""
    return not isinstance(failed, TenutoError) or (
        isinstance(failed, Unavailable) and not isinstance(failed, CircuitOpen)
    )


def _add_known(turn: OpenTurn, tail: tuple[Message, ...], size: int) -> OpenTurn:
    """The turn with its window, of which the store may have left out the cached messages."""
    if turn.state is not TurnState.OPENED or len(turn.window) > len(turn.user_messages):
        return turn
    start, most = turn.session.window_start, min(size, turn.session.messages)
    window = (*(message for message in tail if message.seq >= start), *turn.window)
    return replace(turn, window=window[max(0, len(window) - most) :])


def _newest_of(page: MessagePage, wanted: int) -> MessagePage:
    messages = page.messages[max(0, len(page.messages) - wanted) :] if wanted else ()
    more = page.more_before or len(page.messages) > wanted
    return MessagePage(session=page.session, messages=messages, more_before=more, more_after=False)
