"""L1: the hot sessions of this process in front of a store, never staler than the store's change feed.

A hit serves heads and newest pages. Everything that writes goes to the store and forgets the entry. Before each hit the
feed is caught up; while the feed cannot vouch for anything, nothing is answered from here.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeVar

from tenuto.model import (
    Appended,
    Batch,
    Changes,
    Closing,
    Forking,
    Gone,
    Message,
    MessagePage,
    Opening,
    OpenTurn,
    Page,
    Scope,
    Session,
    SessionPage,
    SessionQuery,
    StateEntry,
    Stats,
)
from tenuto.model.message import size_of
from tenuto.model.scope import session_key
from tenuto.model.values import Json
from tenuto.ports import ChangeFeed, Clock, Store, utc_now

_HEAD_BYTES = 2048
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class _Entry:
    """A session's head, and its newest messages where a page brought them; `whole` when none stand before them."""

    session: Session
    tail: tuple[Message, ...]
    whole: bool
    size: int


def _entry(session: Session, tail: tuple[Message, ...] = (), *, whole: bool = False) -> _Entry:
    return _Entry(session, tail, whole, _HEAD_BYTES + sum(size_of(message) for message in tail))


class _Flight:
    """A question to the store that is under way, for others to wait for."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self._answer: asyncio.Future[_Entry | None] = asyncio.get_running_loop().create_future()

    def land(self, entry: _Entry | None) -> None:
        """Tell those who wait; `None` when there is nothing to tell and each must ask for itself."""
        if not self._answer.done():
            self._answer.set_result(entry)

    async def landed(self) -> _Entry | None:
        """What came back. Giving up waiting leaves the flight to the others."""
        return await asyncio.shield(self._answer)


class Cached:
    """The `Store` port with an L1 in front: least recently used out first, bounded by sessions and by bytes."""

    def __init__(
        self,
        *,
        store: Store,
        feed: ChangeFeed,
        clock: Clock = utc_now,
        max_sessions: int = 10_000,
        max_bytes: int = 256 * 1024 * 1024,
    ) -> None:
        self._store = store
        self._feed = feed
        self._clock = clock
        self._max_sessions = max_sessions
        self._max_bytes = max_bytes
        self._bytes = 0
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        self._flights: dict[bytes, _Flight] = {}
        self._stack = AsyncExitStack()
        self.hits = 0
        self.misses = 0

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._feed.watch(self._drop))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()
        self._drop(None)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def inner(self) -> Store:
        """The store behind."""
        return self._store

    # Reading

    async def get(self, scope: Scope, session_id: str) -> Session:
        return (await self._look(scope, session_id, 0)).session

    async def messages(self, scope: Scope, session_id: str, page: Page) -> MessagePage:
        if page.before is not None or page.after is not None:
            return await self._store.messages(scope, session_id, page)
        entry = await self._look(scope, session_id, page.limit)
        return MessagePage(
            session=entry.session,
            messages=entry.tail[-page.limit :],
            more_before=len(entry.tail) > page.limit or not entry.whole,
            more_after=False,
        )

    async def list(self, scope: Scope, query: SessionQuery) -> SessionPage:
        return await self._store.list(scope, query)

    # Turns

    async def begin_turn(self, scope: Scope, opening: Opening) -> OpenTurn:
        key = session_key(scope, opening.session_id)
        return await self._written(key, self._store.begin_turn(scope, opening))

    async def finish_turn(self, turn: OpenTurn, closing: Closing) -> Appended:
        key = session_key(turn.scope, turn.session.id)
        return await self._written(key, self._store.finish_turn(turn, closing))

    async def renew_turn(self, turn: OpenTurn) -> OpenTurn:
        return await self._store.renew_turn(turn)

    async def append(self, scope: Scope, session_id: str, batch: Batch) -> Appended:
        return await self._written(session_key(scope, session_id), self._store.append(scope, session_id, batch))

    # Changing

    async def patch(self, scope: Scope, session_id: str, changes: Changes) -> Session:
        return await self._written(session_key(scope, session_id), self._store.patch(scope, session_id, changes))

    async def reset(self, scope: Scope, session_id: str) -> Session:
        return await self._written(session_key(scope, session_id), self._store.reset(scope, session_id))

    async def fork(self, scope: Scope, session_id: str, forking: Forking) -> Session:
        key = session_key(scope, forking.new_id)
        return await self._written(key, self._store.fork(scope, session_id, forking))

    async def truncate(self, scope: Scope, session_id: str, after: int) -> Session:
        return await self._written(session_key(scope, session_id), self._store.truncate(scope, session_id, after))

    async def delete(self, scope: Scope, session_id: str) -> None:
        await self._written(session_key(scope, session_id), self._store.delete(scope, session_id))

    # State and upkeep go straight through

    async def read_state(self, scope: Scope, namespace: str, key: str) -> StateEntry | None:
        return await self._store.read_state(scope, namespace, key)

    async def write_state(
        self, scope: Scope, namespace: str, key: str, value: Json, if_version: int | None = None
    ) -> StateEntry:
        return await self._store.write_state(scope, namespace, key, value, if_version)

    async def delete_state(self, scope: Scope, namespace: str, key: str) -> bool:
        return await self._store.delete_state(scope, namespace, key)

    async def list_state(
        self, scope: Scope, namespace: str, after: str = "", limit: int = 100
    ) -> tuple[StateEntry, ...]:
        return await self._store.list_state(scope, namespace, after, limit)

    async def sweep(self, limit: int = 1000) -> tuple[Gone, ...]:
        return self._forgotten(await self._store.sweep(limit))

    async def evict(self, scope: Scope, keep: int) -> tuple[Gone, ...]:
        return self._forgotten(await self._store.evict(scope, keep))

    async def stats(self, scope: Scope) -> Stats:
        return await self._store.stats(scope)

    async def ping(self) -> None:
        await self._store.ping()

    async def close(self) -> None:
        await self._store.close()

    # What is inside

    async def _look(self, scope: Scope, session_id: str, wanted: int) -> _Entry:
        """The session with at least `wanted` newest messages, from here or from the store."""
        if not self._feed.catch_up():
            return await self._fetch(scope, session_id, wanted)
        key = session_key(scope, session_id)
        entry = self._entries.get(key)
        if entry is not None and self._may_answer(scope, entry, wanted):
            self._entries.move_to_end(key)
            self.hits += 1
            return entry
        self.misses += 1
        flight = self._flights.get(key)
        if flight is not None and flight.wanted >= wanted:
            joined = await flight.landed()
            if joined is not None and self._may_answer(scope, joined, wanted):
                return joined
        return await self._load(scope, session_id, key, wanted)

    def _may_answer(self, scope: Scope, entry: _Entry, wanted: int) -> bool:
        """Whether the store would say the same. A stranger is sent there too, so that hot and cold take as long."""
        now = self._clock()
        session = entry.session
        return (
            scope.reaches(session.scope)
            and not session.expired(now)
            and session.read_deadline(now) is None
            and (not wanted or entry.whole or len(entry.tail) >= wanted)
        )

    async def _load(self, scope: Scope, session_id: str, key: bytes, wanted: int) -> _Entry:
        """Ask the store, once for all who ask meanwhile; the answer is kept unless the session changed on the way."""
        flight = self._flights[key] = _Flight(wanted)
        entry: _Entry | None = None
        try:
            entry = await self._fetch(scope, session_id, wanted)
            return entry
        finally:
            # Whoever changes the session takes the flight away: its answer is then out of date and not kept.
            if self._flights.get(key) is flight:
                self._forget(key)
                if entry is not None:
                    self._keep(key, entry)
            flight.land(entry)

    async def _fetch(self, scope: Scope, session_id: str, wanted: int) -> _Entry:
        if not wanted:
            return _entry(await self._store.get(scope, session_id))
        page = await self._store.messages(scope, session_id, Page(limit=wanted))
        return _entry(page.session, page.messages, whole=not page.more_before)

    async def _written(self, key: bytes, write: Awaitable[_Answer]) -> _Answer:
        """Let the store write. Whether it did or failed half-way, what was known of the session is no longer."""
        try:
            return await write
        finally:
            self._forget(key)

    def _forgotten(self, gone: tuple[Gone, ...]) -> tuple[Gone, ...]:
        for item in gone:
            self._forget(session_key(item.scope, item.session_id))
        return gone

    def _keep(self, key: bytes, entry: _Entry) -> None:
        self._forget(key)
        if entry.size > self._max_bytes:
            return
        self._entries[key] = entry
        self._bytes += entry.size
        while self._bytes > self._max_bytes or len(self._entries) > self._max_sessions:
            _, oldest = self._entries.popitem(last=False)
            self._bytes -= oldest.size

    def _forget(self, key: bytes) -> None:
        self._flights.pop(key, None)
        old = self._entries.pop(key, None)
        if old is not None:
            self._bytes -= old.size

    def _drop(self, keys: Iterable[bytes] | None) -> None:
        """What the feed tells: these sessions changed elsewhere, or any may have."""
        if keys is None:
            self._entries.clear()
            self._flights.clear()
            self._bytes = 0
            return
        for key in keys:
            self._forget(key)
