"""The journal: a store that goes on acknowledging turns while the store behind it is away.

What it acknowledges is on this machine's disk before the call returns. While a session has turns in the outbox, calls
about it stay here, or bring those turns to the store first: so nothing said on this machine changes its order.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import lru_cache
from types import TracebackType
from typing import Any, Self, TypeVar

from msgspec.structs import replace

from tenuto.errors import (
    CircuitOpen,
    SessionBusy,
    SessionForeign,
    SessionNotFound,
    StoreUnavailable,
    TenutoError,
    TurnLost,
    Unavailable,
    VersionConflict,
)
from tenuto.model import (
    Appended,
    Batch,
    Changes,
    Closing,
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
    Truncating,
)
from tenuto.model.scope import person_digest, person_of, session_key, space_of
from tenuto.model.trace import Trace
from tenuto.ports import ChangeFeed, Ciphers, Clock, SessionStore, Store, TraceStore, utc_now
from tenuto.stores.codec import to_micros
from tenuto.stores.journaled.calls import Call
from tenuto.stores.journaled.journal import Journal, JournalState
from tenuto.stores.journaled.outbox import Outbox
from tenuto.stores.journaled.replay import ERASURES, retold
from tenuto.stores.journaled.view import View

_Answer = TypeVar("_Answer")


class JournaledStore:
    """A store over one that may be away.

    Turns whose opening is `journaled` begin and end here then; known sessions can be read. Everything else is
    `StoreUnavailable`, as without a journal. What waits is brought to the store `by_itself`, about `every` second.
    """

    def __init__(
        self,
        *,
        store: Store,
        outbox: Outbox,
        feed: ChangeFeed,
        ciphers: Ciphers | None = None,
        clock: Clock = utc_now,
        every: float = 1.0,
        by_itself: bool = True,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self.inner = store
        self._feed = feed
        self._by_itself = by_itself
        self._journal = Journal(
            store=store, outbox=outbox, feed=feed, ciphers=ciphers, clock=clock, every=every, ticks=ticks
        )
        self._work = _Work()
        self._stack = AsyncExitStack()
        self.sessions = _Sessions(store.sessions, self._journal, self._work)
        self.traces = _Traces(store.traces, self._journal, self._work)
        self.state = store.state
        self.upkeep = _Upkeep(store, self._journal, clock)

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._feed.watch(self._journal.heard))
        if self._by_itself:
            await self._stack.enter_async_context(self._replaying())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._work.drain()
        await self._stack.aclose()
        self._journal.known.forget_all()

    @property
    def status(self) -> JournalState:
        """How the journal stands."""
        return self._journal.state

    async def replay(self) -> bool:
        """Bring to the store what waits for it, now; tells whether nothing waits any more."""
        return await self._journal.round()

    @asynccontextmanager
    async def _replaying(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._journal.run(), name="tenuto journal")
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


class _Work:
    """Steps that come to their end even if their caller is cancelled."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    async def complete(self, work: Coroutine[Any, Any, _Answer]) -> _Answer:
        """Shield a step from cancellation: what is on disk and what is shown stay the same."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def drain(self) -> None:
        """Wait for the steps under way."""
        if self._tasks:
            await asyncio.wait(self._tasks)


class _Sessions:
    """The `SessionStore` port before the journal."""

    def __init__(self, inner: SessionStore, journal: Journal, work: _Work) -> None:
        self._inner = inner
        self._journal = journal
        self._known = journal.known
        self._uncut = work.complete
        self.list = inner.list

    # Turns

    async def begin_turn(self, scope: Scope, opening: Opening) -> OpenTurn:
        journal, key = self._journal, _key_of(scope, opening.session_id)
        if journal.holds(key):
            begun = await self._uncut(journal.begin_behind(scope, opening, key))
            if begun is not None:
                return begun
        with self._known.changes(key) as call:
            try:
                turn = await self._sent(call, self._inner.begin_turn(scope, opening))
            except StoreUnavailable as away:
                journal.saw_away()
                if not opening.journaled:
                    raise
                return await self._uncut(journal.begin(scope, opening, call, away))
            journal.saw_begun(call, opening, turn)
        if opening.journaled and journal.sealing:
            await journal.keep_keys(scope)
        return turn

    async def finish_turn(self, turn: OpenTurn, closing: Closing) -> Appended:
        journal, key = self._journal, _key_of(turn.scope, turn.session.id)
        if journal.holds(key):
            ended = await self._uncut(journal.finish_behind(turn, closing, key))
            if ended is not None:
                return ended
        turn, closing = self._as_there(turn, closing)
        with self._known.changes(key) as call:
            try:
                done = await self._sent(call, self._inner.finish_turn(turn, closing))
            except StoreUnavailable as away:
                journal.saw_away()
                return await self._uncut(journal.finish(turn.id, closing, call, away))
            except (TurnLost, SessionNotFound):
                journal.lost(key, turn.id)
                raise
            journal.saw_end(call, turn.id, done)
        return done

    async def renew_turn(self, turn: OpenTurn) -> OpenTurn:
        renewed = await self._journal.renew(turn)
        if renewed is not None:
            return renewed
        key = _key_of(turn.scope, turn.session.id)
        there, _ = self._as_there(turn, Closing())
        try:
            with self._known.changes(key) as call:
                renewed = await self._sent(call, self._inner.renew_turn(there))
        except (TurnLost, SessionNotFound):
            self._journal.lost(key, turn.id)
            raise
        self._known.saw_held(key)
        self._journal.saw_renewed(renewed)
        return renewed

    async def append(self, scope: Scope, session_id: str, batch: Batch) -> Appended:
        return await self._changed(scope, session_id, lambda: self._inner.append(scope, session_id, batch))

    # Reading

    async def get(self, scope: Scope, session_id: str) -> Session:
        key = _key_of(scope, session_id)
        if (view := await self._standing_in(key)) is not None:
            return await view.sessions.get(scope, session_id)
        try:
            with self._known.reads(key) as call:
                session = await self._sent(call, self._inner.get(scope, session_id))
                self._known.saw_page(call, session, ())
        except StoreUnavailable:
            return await self._seen(key).sessions.get(scope, session_id)
        return session

    async def messages(self, scope: Scope, session_id: str, page: Page) -> MessagePage:
        key = _key_of(scope, session_id)
        if (view := await self._standing_in(key)) is not None:
            return await view.page(scope, session_id, page)
        newest = page.before is None and page.after is None
        try:
            with self._known.reads(key) as call:
                found = await self._sent(call, self._inner.messages(scope, session_id, page))
                self._known.saw_page(call, found.session, found.messages if newest else ())
        except StoreUnavailable:
            return await self._seen(key).page(scope, session_id, page)
        return found

    # Changing

    async def patch(self, scope: Scope, session_id: str, changes: Changes) -> Session:
        key = _key_of(scope, session_id)
        await self._settled(key)
        with self._known.changes(key) as call:
            try:
                patched = await self._sent(call, self._inner.patch(scope, session_id, changes))
            except BaseException as failed:
                if isinstance(failed, VersionConflict) or self._may_be_done(scope, key, failed):
                    self._known.forget(key)
                raise
            # The messages are what they were: a title is written behind every first turn, and must not cost the talk.
            self._known.saw_patched(call, patched)
        return patched

    async def reset(self, scope: Scope, session_id: str, *, sparing: Sequence[str] = ()) -> Session:
        key = _key_of(scope, session_id)
        await self._settled(key)
        return await self._taking_away(scope, key, self._inner.reset(scope, session_id, sparing=sparing))

    async def fork(self, scope: Scope, session_id: str, forking: Forking) -> Session:
        await self._settled(_key_of(scope, session_id))
        return await self._changed(scope, forking.new_id, lambda: self._inner.fork(scope, session_id, forking))

    async def truncate(self, scope: Scope, session_id: str, truncating: Truncating) -> Session:
        key, within = _key_of(scope, session_id), truncating.within
        await self._settled(key)
        truncate = self._inner.truncate(scope, session_id, truncating)
        return await self._taking_away(scope, key, truncate, by=within.id if within is not None else None)

    async def rewrite(self, scope: Scope, session_id: str, rewriting: Rewriting) -> Session:
        return await self._changed(scope, session_id, lambda: self._inner.rewrite(scope, session_id, rewriting))

    async def delete(self, scope: Scope, session_id: str) -> None:
        key = _key_of(scope, session_id)
        with suppress(SessionBusy):  # A turn that runs is lost with its session.
            await self._settled(key)
        await self._taking_away(scope, key, self._inner.delete(scope, session_id))
        await self._journal.forget_session(key)

    # What the methods share

    async def _standing_in(self, key: bytes) -> View | None:
        return await self._uncut(self._journal.standing_in(key)) if self._journal.holds(key) else None

    def _seen(self, key: bytes) -> View:
        self._journal.saw_away()
        view = self._journal.seen(key)
        if view is None:
            raise StoreUnavailable
        return view

    async def _settled(self, key: bytes) -> None:
        if self._journal.holds(key):
            await self._uncut(self._journal.settle(key))

    async def _sent(self, call: Call, asked: Awaitable[_Answer]) -> _Answer:
        """What the store says to a call; who sent it tells what it brought."""
        try:
            said = await asked
        except TenutoError as failed:
            if not _unanswered(failed):
                call.changed_nothing()
            if isinstance(failed, SessionNotFound) and not isinstance(failed, SessionForeign):
                self._known.forget(call.key)
            raise
        self._journal.saw_answer(call.since)
        return said

    async def _changed(self, scope: Scope, session_id: str, change: Callable[[], Awaitable[_Answer]]) -> _Answer:
        """Change a session in the store, after what was said here before; what was known of it is no longer."""
        key = _key_of(scope, session_id)
        await self._settled(key)
        with self._known.changes(key) as call:
            try:
                said = await self._sent(call, change())
            except BaseException as failed:
                if self._may_be_done(scope, key, failed):
                    self._known.forget(key)
                raise
        self._known.forget(key)
        return said

    async def _taking_away(
        self, scope: Scope, key: bytes, change: Awaitable[_Answer], by: str | None = None
    ) -> _Answer:
        """Take away what was said in a session, as far as anybody can tell."""
        with self._known.changes(key) as call:
            try:
                said = await self._sent(call, change)
            except BaseException as failed:
                if self._may_be_done(scope, key, failed):
                    self._journal.took_away(key, by)
                raise
        self._journal.took_away(key, by)
        return said

    def _may_be_done(self, scope: Scope, key: bytes, failed: BaseException) -> bool:
        """Whether a change that failed may have been made all the same."""
        return _unanswered(failed) and not self._journal.is_foreign(scope, key)

    def _as_there(self, turn: OpenTurn, closing: Closing) -> tuple[OpenTurn, Closing]:
        """A turn and its end as the store has it: one that was open here when it came back may have another place."""
        begun = self._journal.begun(turn.id)
        if begun is None or not _has_moved(turn, begun.turn):
            return turn, closing
        return begun.turn, retold(closing, begun.turn)


class _Traces:
    """The `TraceStore` port before the journal."""

    def __init__(self, inner: TraceStore, journal: Journal, work: _Work) -> None:
        self._inner = inner
        self._journal = journal
        self._uncut = work.complete

    async def trace(self, scope: Scope, session_id: str, number: int) -> Trace | None:
        return await (await self._place_of(scope, session_id)).trace(scope, session_id, number)

    async def traces(
        self, scope: Scope, session_id: str, limit: int = 20, before: int | None = None
    ) -> tuple[Trace, ...]:
        return await (await self._place_of(scope, session_id)).traces(scope, session_id, limit, before)

    async def _place_of(self, scope: Scope, session_id: str) -> TraceStore:
        """Where the session's traces are: in the local view while its turns wait, else in the store."""
        key = _key_of(scope, session_id)
        view = await self._uncut(self._journal.standing_in(key)) if self._journal.holds(key) else None
        return self._inner if view is None else view.traces


class _Upkeep:
    """The `StoreUpkeep` port before the journal."""

    def __init__(self, store: Store, journal: Journal, clock: Clock) -> None:
        self._inner = inner = store.upkeep
        self._state = store.state
        self._journal = journal
        self._clock = clock
        self.spaces, self.compact, self.stats = inner.spaces, inner.compact, inner.stats

    async def sweep(self, limit: int = 1000) -> tuple[Gone, ...]:
        return self._forgotten(await self._inner.sweep(limit))

    async def evict(self, scope: Scope, keep: int, sparing: str | None = None) -> tuple[Gone, ...]:
        return self._forgotten(await self._inner.evict(scope, keep, sparing))

    async def erase(self, scope: Scope, limit: int = 100) -> Erased:
        person = person_of(scope)
        assert person.user is not None
        # First for the journals of other machines: what they hold of this person was said before now.
        digest, now = person_digest(person.tenant, person.user), to_micros(self._clock())
        await self._state.write_state(space_of(person), ERASURES, digest, now)
        turns = await self._journal.forget_person(person)
        erased = await self._inner.erase(scope, limit)
        self._journal.forget_running(person)
        return replace(erased, journal=turns)

    async def ping(self) -> None:
        since = self._journal.known.losses
        await self._inner.ping()
        self._journal.saw_answer(since)

    def _forgotten(self, gone: tuple[Gone, ...]) -> tuple[Gone, ...]:
        for item in gone:
            self._journal.took_away(session_key(item.scope, item.session_id))
        return gone


def _unanswered(failed: BaseException) -> bool:
    """Whether nobody knows what became of a call: the store has not refused it, and it was sent."""
    return not isinstance(failed, TenutoError) or (
        isinstance(failed, Unavailable) and not isinstance(failed, CircuitOpen)
    )


def _key_of(scope: Scope, session_id: str) -> bytes:
    return _key(scope.tenant, scope.site, session_id)


@lru_cache(maxsize=10_000)
def _key(tenant: str, site: str, session_id: str) -> bytes:
    """A session's key, which every call asks for, and each session's calls ask for again and again."""
    return session_key(Scope(tenant=tenant, site=site), session_id)


def _has_moved(turn: OpenTurn, there: OpenTurn) -> bool:
    """Whether a turn that was open here when the store came back has another place there."""
    here, now = turn.session, there.session
    return turn.number != there.number or here.incarnation != now.incarnation or here.id != now.id
