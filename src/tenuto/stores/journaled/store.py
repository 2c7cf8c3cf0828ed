"""The journal: a store that goes on acknowledging turns while the store behind it is down.

A journaled turn is on this machine's disk before the call returns. While a session has turns in the outbox, calls about
it are served here or replay those turns first, so that the order of messages is kept.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Self, TypeVar

from msgspec.structs import replace

from tenuto.errors import (
    SessionBusy,
    SessionCorrupt,
    SessionElsewhere,
    SessionForeign,
    SessionNotFound,
    StoreUnavailable,
    TurnLost,
)
from tenuto.model import (
    AppendBatch,
    AppendResult,
    BeginTurn,
    Changes,
    EraseResult,
    FinishTurn,
    ForkRequest,
    MessagePage,
    OpenTurn,
    Page,
    RemovedSession,
    Rewrite,
    Scope,
    Session,
    Truncation,
)
from tenuto.model.scope import session_key, site_scope, user_digest, user_scope
from tenuto.model.turn import Trace
from tenuto.ports import Ciphers, Clock, SessionStore, TraceStore, utc_now
from tenuto.stores.cached import CachedStore, is_outcome_unknown
from tenuto.stores.codec import to_micros
from tenuto.stores.journaled.journal import Journal, JournalState
from tenuto.stores.journaled.local_replica import View
from tenuto.stores.journaled.outbox import Outbox
from tenuto.stores.journaled.own_changes import OwnChanges
from tenuto.stores.journaled.replay import ERASURES, rename_trace
from tenuto.stores.session_cache import cache_key

_Answer = TypeVar("_Answer")


class JournaledStore:
    """A store over one that may be down.

    During an outage, turns whose opening is `journaled` begin and end here, and cached sessions can be read; every
    other call raises `StoreUnavailable`. With `auto_replay` the outbox is replayed about once per `replay_interval`,
    and the order of turns is kept across processes. `probe` asks the store itself, past a circuit breaker. Of a
    `sharded` store one server may be down alone.
    """

    def __init__(
        self,
        *,
        store: CachedStore,
        outbox: Outbox,
        ciphers: Ciphers | None = None,
        clock: Clock = utc_now,
        replay_interval: float = 1.0,
        auto_replay: bool = True,
        monotonic: Callable[[], float] = time.monotonic,
        probe: Callable[[], Awaitable[None]] | None = None,
        sharded: bool = False,
    ) -> None:
        self.inner = store
        self._by_itself = auto_replay
        own = OwnChanges(store.sessions, monotonic)
        self._journal = Journal(
            store=store,
            own=own,
            outbox=outbox,
            ciphers=ciphers,
            clock=clock,
            every=replay_interval,
            ticks=monotonic,
            probe=probe or store.upkeep.ping,
            sharded=sharded,
        )
        self._work = _ShieldedSteps()
        self._stack = AsyncExitStack()
        self.sessions = _JournaledSessions(own, self._journal, self._work)
        self.traces = _JournaledTraces(store.traces, self._journal, self._work)
        self.state = store.state
        self.upkeep = _JournaledUpkeep(store, self._journal, clock)

    async def __aenter__(self) -> Self:
        for on_invalidate in (self._journal.peers.on_invalidate, self._journal.own.on_invalidate):
            await self._stack.enter_async_context(self.inner.feed.watch(on_invalidate))
        if self._by_itself:
            self._stack.push_async_callback(self._journal.peers.close)
            await self._stack.enter_async_context(_background(self._journal.peers.run(), "tenuto journal peers"))
            await self._stack.enter_async_context(_background(self._journal.run_replay(), "tenuto journal"))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._work.drain()
        await self._stack.aclose()

    @property
    def status(self) -> JournalState:
        """The journal's state."""
        return self._journal.state

    async def replay(self) -> bool:
        """Replay the outbox now; returns whether nothing waits any more."""
        return await self._journal.round()


class _ShieldedSteps:
    """Steps that come to their end even if their caller is cancelled."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    async def complete(self, work: Coroutine[Any, Any, _Answer]) -> _Answer:
        """Shield a step from cancellation, so that disk and replica stay consistent."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def is_pending(self, journal: Journal, scope: Scope, key: bytes) -> bool:
        """Whether turns of a session wait that this caller may see; to others it is like any absent session."""
        return journal.has_pending(key) and await self.complete(journal.reaches_pending(scope, key))

    async def drain(self) -> None:
        """Wait for running steps."""
        if self._tasks:
            await asyncio.wait(self._tasks)


class _JournaledSessions:
    """The `SessionStore` port before the journal."""

    def __init__(self, inner: SessionStore, journal: Journal, work: _ShieldedSteps) -> None:
        self._inner = inner
        self._journal = journal
        self._work = work
        self._uncut = work.complete
        self.list = inner.list

    # Turns

    async def begin_turn(self, scope: Scope, request: BeginTurn) -> OpenTurn:
        journal, key = self._journal, cache_key(scope, request.session_id)
        # A session that is created under a foreign id gets another one, so there the reason must be known.
        creates = request.create is not None
        if (creates and journal.has_pending(key)) or await self._work.is_pending(journal, scope, key):
            begun = await self._uncut(journal.begin_after_pending(scope, request, key))
            if begun is not None:
                return begun
        with journal.cache.follow(key) as call:
            try:
                if not journal.peers.settled:
                    await journal.peers.admit(scope, request, key)
                turn = await self._find(key, self._inner.begin_turn(scope, request), creates=creates)
            except SessionElsewhere:
                raise
            except StoreUnavailable as away:
                journal.observe_unavailable(away)
                if not request.journaled:
                    raise
                with journal.peers.journaling(key):
                    try:
                        return await self._uncut(journal.begin_locally(scope, request, call, away))
                    except SessionNotFound:
                        if creates:
                            raise
                        raise away from None
            journal.observe_begin(key, request, turn)
        if request.journaled and journal.seals.sealing:
            await journal.seals.cache_cipher(scope)
        return turn

    async def finish_turn(self, turn: OpenTurn, request: FinishTurn) -> AppendResult:
        journal, key = self._journal, cache_key(turn.scope, turn.session.id)
        if journal.has_pending(key):
            ended = await self._uncut(journal.finish_after_pending(turn, request, key))
            if ended is not None:
                return ended
        turn, request = self._as_in_store(turn, request)
        with journal.cache.follow(key) as call:
            try:
                done = await self._inner.finish_turn(turn, request)
            except StoreUnavailable as away:
                journal.observe_unavailable(away)
                with journal.peers.journaling(key):
                    return await self._uncut(journal.finish(turn.id, request, call, away))
            except (TurnLost, SessionNotFound):
                journal.running.drop(turn.id)
                raise
            journal.running.drop(turn.id)
        return done

    async def renew_turn(self, turn: OpenTurn) -> OpenTurn:
        renewed = await self._journal.renew(turn)
        if renewed is not None:
            return renewed
        there, _ = self._as_in_store(turn, FinishTurn())
        try:
            renewed = await self._inner.renew_turn(there)
        except (TurnLost, SessionNotFound):
            self._journal.running.drop(turn.id)
            raise
        self._journal.running.update_lease(renewed)
        return renewed

    async def append(self, scope: Scope, session_id: str, batch: AppendBatch) -> AppendResult:
        await self._replay_pending(scope, session_id)
        append = self._inner.append(scope, session_id, batch)
        return await self._find(cache_key(scope, session_id), append, creates=batch.create is not None)

    # Reading

    async def get(self, scope: Scope, session_id: str) -> Session:
        key = cache_key(scope, session_id)
        if (view := await self._replica_if_pending(scope, key)) is not None:
            return await view.sessions.get(scope, session_id)
        try:
            return await self._find(key, self._inner.get(scope, session_id))
        except SessionElsewhere:
            raise
        except StoreUnavailable as away:
            return await _or_unavailable(self._journal.last_seen_replica(key, away).sessions.get(scope, session_id))

    async def messages(self, scope: Scope, session_id: str, query: Page) -> MessagePage:
        key = cache_key(scope, session_id)
        if (view := await self._replica_if_pending(scope, key)) is not None:
            return await view.page(scope, session_id, query)
        try:
            return await self._find(key, self._inner.messages(scope, session_id, query))
        except SessionElsewhere:
            raise
        except StoreUnavailable as away:
            return await _or_unavailable(self._journal.last_seen_replica(key, away).page(scope, session_id, query))

    # Changing

    async def patch(self, scope: Scope, session_id: str, changes: Changes) -> Session:
        await self._replay_pending(scope, session_id)
        return await self._find(cache_key(scope, session_id), self._inner.patch(scope, session_id, changes))

    async def reset(self, scope: Scope, session_id: str, *, keep_metadata: Sequence[str] = ()) -> Session:
        await self._replay_pending(scope, session_id)
        reset = self._inner.reset(scope, session_id, keep_metadata=keep_metadata)
        return await self._remove_content(scope, session_id, reset)

    async def fork(self, scope: Scope, session_id: str, request: ForkRequest) -> Session:
        await self._replay_pending(scope, session_id)
        await self._replay_pending(scope, request.new_id)
        return await self._find(cache_key(scope, session_id), self._inner.fork(scope, session_id, request))

    async def truncate(self, scope: Scope, session_id: str, request: Truncation) -> Session:
        await self._replay_pending(scope, session_id)
        within, truncate = request.within_turn, self._inner.truncate(scope, session_id, request)
        return await self._remove_content(scope, session_id, truncate, by=within.id if within is not None else None)

    async def rewrite(self, scope: Scope, session_id: str, request: Rewrite) -> Session:
        await self._replay_pending(scope, session_id)
        return await self._find(cache_key(scope, session_id), self._inner.rewrite(scope, session_id, request))

    async def delete(self, scope: Scope, session_id: str) -> None:
        with suppress(SessionBusy):  # A turn that runs is lost with its session.
            await self._replay_pending(scope, session_id)
        await self._remove_content(scope, session_id, self._inner.delete(scope, session_id))
        await self._journal.forget_session(cache_key(scope, session_id))

    # What the methods share

    async def _replica_if_pending(self, scope: Scope, key: bytes) -> View | None:
        pending = await self._work.is_pending(self._journal, scope, key)
        return await self._uncut(self._journal.replica_for(key)) if pending else None

    async def _replay_pending(self, scope: Scope, session_id: str) -> None:
        key = cache_key(scope, session_id)
        if await self._work.is_pending(self._journal, scope, key):
            await self._uncut(self._journal.settle(key))

    async def _find(self, key: bytes, asked: Awaitable[_Answer], *, creates: bool = False) -> _Answer:
        """Await a call about a session, which it may create.

        Raises:
            SessionElsewhere: the store does not have it for this caller, but another process may.
        """
        try:
            return await asked
        except SessionNotFound as error:
            # An absent session and a foreign one look alike, but for a call that then creates one under another id.
            decided = isinstance(error, SessionCorrupt) or (creates and isinstance(error, SessionForeign))
            if not decided and self._journal.peers.may_hold(key):
                raise SessionElsewhere from error
            raise

    async def _remove_content(
        self, scope: Scope, session_id: str, change: Awaitable[_Answer], by: str | None = None
    ) -> _Answer:
        """Delete messages of a session; a failed call counts as done if it may have been.

        The session's open turns, except the one it was done `by`, must not be journaled then.
        """
        key, running = cache_key(scope, session_id), self._journal.running
        foreign = self._journal.is_foreign(scope, key)
        try:
            said = await self._find(key, change)
        except BaseException as failed:
            if is_outcome_unknown(failed) and not foreign:
                running.drop_session(key, sparing=by)
            raise
        running.drop_session(key, sparing=by)
        return said

    def _as_in_store(self, turn: OpenTurn, closing: FinishTurn) -> tuple[OpenTurn, FinishTurn]:
        """A turn and its end as the store has it: a turn that was replayed while open may have another number."""
        begun = self._journal.running.get(turn.id)
        if begun is None:
            return turn, closing
        here, there = turn.session, begun.turn.session
        if (turn.number, here.incarnation, here.id) == (begun.turn.number, there.incarnation, there.id):
            return turn, closing
        return begun.turn, rename_trace(closing, begun.turn)


class _JournaledTraces:
    """The `TraceStore` port before the journal."""

    def __init__(self, inner: TraceStore, journal: Journal, work: _ShieldedSteps) -> None:
        self._inner = inner
        self._journal = journal
        self._work = work
        self._uncut = work.complete

    async def trace(self, scope: Scope, session_id: str, number: int) -> Trace | None:
        return await (await self._trace_store(scope, session_id)).trace(scope, session_id, number)

    async def traces(
        self, scope: Scope, session_id: str, limit: int = 20, before: int | None = None
    ) -> tuple[Trace, ...]:
        return await (await self._trace_store(scope, session_id)).traces(scope, session_id, limit, before)

    async def _trace_store(self, scope: Scope, session_id: str) -> TraceStore:
        """Where the session's traces are: in the local view while its turns wait, else in the store."""
        key = cache_key(scope, session_id)
        pending = await self._work.is_pending(self._journal, scope, key)
        view = await self._uncut(self._journal.replica_for(key)) if pending else None
        return self._inner if view is None else view.traces


class _JournaledUpkeep:
    """The `StoreUpkeep` port before the journal."""

    def __init__(self, store: CachedStore, journal: Journal, clock: Clock) -> None:
        self._inner = inner = store.upkeep
        self._state = store.state
        self._journal = journal
        self._clock = clock
        self.list_sites, self.compact, self.stats, self.ping = inner.list_sites, inner.compact, inner.stats, inner.ping

    async def sweep(self, limit: int = 1000) -> tuple[RemovedSession, ...]:
        return self._forget_removed(await self._inner.sweep(limit))

    async def evict(self, scope: Scope, keep: int, keep_session: str | None = None) -> tuple[RemovedSession, ...]:
        return self._forget_removed(await self._inner.evict(scope, keep, keep_session))

    async def erase(self, scope: Scope, limit: int = 100) -> EraseResult:
        person = user_scope(scope)
        assert person.user is not None
        # First for the journals of other machines: all they hold of this user began before now.
        digest, now = user_digest(person.tenant, person.user), to_micros(self._clock())
        await self._state.write_state(site_scope(person), ERASURES, digest, now)
        turns = await self._journal.forget_user(person)
        erased = await self._inner.erase(scope, limit)
        self._journal.forget_open_turns(person)
        return replace(erased, journal=turns)

    def _forget_removed(self, gone: tuple[RemovedSession, ...]) -> tuple[RemovedSession, ...]:
        for item in gone:
            self._journal.running.drop_session(session_key(item.scope, item.session_id))
        return gone


async def _or_unavailable(read: Awaitable[_Answer]) -> _Answer:
    """Await a read of a replica. It knows some sessions and not others, so it cannot tell that there is none.

    Raises:
        StoreUnavailable: the caller has no such session here, be it absent, foreign or expired.
    """
    try:
        return await read
    except SessionNotFound:
        raise StoreUnavailable from None


@asynccontextmanager
async def _background(work: Coroutine[Any, Any, None], name: str) -> AsyncIterator[None]:
    """Work that goes on until the block ends."""
    task = asyncio.create_task(work, name=name)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
