"""`SimStore`: a table of records behind a network that fails as the plan says, with a feed.

Each process has a client of its own. Without faults it keeps the contract of `RecordStore`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import Context, copy_context
from enum import StrEnum
from random import Random
from typing import Any, TypeVar

from tenuto.errors import StoreUnavailable
from tenuto.model import CompactionResult, Scope
from tenuto.model.stored import (
    Action,
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
from tenuto.stores.engine.record_table import RecordTable

_Result = TypeVar("_Result")
DEADLINE = 1.0
_LATEST = 5.0


class Fate(StrEnum):
    """What becomes of one call."""

    FINE = "fine"
    REFUSED = "refused"
    REQUEST_LOST = "request lost"
    ANSWER_LOST = "answer lost"
    LATE = "late"


class SimServer:
    """The store itself. `on_commit` hears of each change that was made; `fate` decides about each call."""

    def __init__(self, chance: Random, latency: float = 0.0) -> None:
        self.table = RecordTable()
        self.chance = chance
        self.latency = latency
        self.clients: list[SimClient] = []
        self.fate: Callable[[str, str], Fate] = lambda _process, _kind: Fate.FINE
        self.on_commit: Callable[[str, Sequence[RecordChange]], None] = lambda _process, _changes: None
        self.context = Context()

    def delay(self) -> float:
        return self.latency * (0.5 + self.chance.random())

    def commit(self, process: str, changes: Sequence[RecordChange]) -> Refused | None:
        refused = self.table.commit(changes)
        if refused is None:
            for client in self.clients:
                client.feed.tell(changes)
            self.on_commit(process, changes)
        return refused


class SimFeed:
    """Changes on their way to one process. What was acknowledged is delivered at the latest when it is asked for."""

    def __init__(self) -> None:
        self._waiting: list[tuple[bytes, int]] = []
        self._on_change: Callable[[bytes | None, int], None] | None = None
        self.is_connected = True

    def tell(self, changes: Sequence[RecordChange]) -> None:
        for change in changes:
            if change.replaces or change.action is not Action.WRITE:
                self._waiting.append((change.key, 0))
            if change.action is Action.WRITE:
                # Several changes of a record may be told as one.
                self._waiting = [told for told in self._waiting if told[0] != change.key or told[1] == 0]
                self._waiting.append((change.key, change.revision))

    def caught_up(self) -> bool:
        if not self.is_connected or self._on_change is None:
            return False
        waiting, self._waiting = self._waiting, []
        for key, revision in waiting:
            self._on_change(key, revision)
        return True

    def disconnect(self) -> None:
        """As a real one does, it says at both ends of a gap that something may be missing."""
        self.is_connected = False
        if self._on_change is not None:
            self._on_change(None, 0)

    def reconnect(self) -> None:
        """What was told meanwhile is lost."""
        self.is_connected, self._waiting = True, []
        if self._on_change is not None:
            self._on_change(None, 0)

    @asynccontextmanager
    async def watch(self, on_change: Callable[[bytes | None, int], None]) -> AsyncIterator[None]:
        self._on_change = on_change
        yield
        self._on_change = None


class SimClient:
    """The `RecordStore` of one process."""

    def __init__(self, server: SimServer, process: str) -> None:
        self.server = server
        self.process = process
        self.feed = SimFeed()
        server.clients.append(self)

    def load(self, key: bytes, tail: int, known: Known | None = None) -> asyncio.Future[StoredRecord | None]:
        return self._call("load", lambda: self.server.table.load(key, tail, known))

    def commit(self, changes: Sequence[RecordChange]) -> asyncio.Future[Refused | None]:
        return self._call("commit", lambda: self.server.commit(self.process, changes))

    def page(self, key: bytes, part: Part, first: int, last: int, limit: int) -> asyncio.Future[EntryPage]:
        return self._call("page", lambda: self.server.table.page(key, part, first, last, limit))

    def touch(self, key: bytes, deadline: int) -> asyncio.Future[None]:
        return self._call("touch", lambda: self.server.table.touch(key, deadline))

    async def load_all(self, keys: Sequence[bytes]) -> tuple[StoredRecord | None, ...]:
        return await self._call("load", lambda: tuple(self.server.table.load(key, 0) for key in keys))

    async def list(self, query: IndexQuery) -> tuple[FoundRecord, ...]:
        return await self._call("list", lambda: self.server.table.list(query))

    async def totals(self, space: bytes, owner: bytes | None, now: int) -> Totals:
        return await self._call("list", lambda: self.server.table.totals(space, owner, now))

    async def sites(self, after: bytes, limit: int) -> tuple[Scope, ...]:
        return await self._call("list", lambda: self.server.table.sites(after, limit))

    async def scan(self, after: bytes, limit: int) -> tuple[FoundRecord, ...]:
        return await self._call("list", lambda: self.server.table.scan(after, limit))

    async def list_aside(self) -> tuple[IndexColumns, ...]:
        return await self._call("list", self.server.table.list_aside)

    async def forget_aside(self, owner: bytes) -> AsideRecords:
        return await self._call("list", lambda: self.server.table.forget_aside(owner))

    async def compact(self) -> CompactionResult:
        return CompactionResult(cleared=True)

    async def ping(self) -> None:
        await self._call("ping", lambda: None)

    async def close(self) -> None:
        self.server.clients.remove(self)

    def _call(self, kind: str, work: Callable[[], _Result]) -> asyncio.Future[_Result]:
        """Send a request; the server works outside any process, and the answer comes back into this one."""
        loop, server = asyncio.get_running_loop(), self.server
        future: asyncio.Future[_Result] = loop.create_future()
        fate = server.fate(self.process, kind)
        if fate is Fate.REFUSED:
            loop.call_later(server.delay(), _end, future, StoreUnavailable(why="refuses"))
            return future
        deadline = loop.call_later(DEADLINE, _end, future, StoreUnavailable())
        if fate is Fate.REQUEST_LOST:
            return future

        def answer(result: _Result) -> None:
            deadline.cancel()
            _end(future, result)

        def serve() -> None:
            result = work()
            if fate is Fate.FINE:
                loop.call_later(server.delay(), answer, result, context=caller)

        caller = copy_context()
        delay = server.delay() + (DEADLINE + server.chance.random() * _LATEST if fate is Fate.LATE else 0.0)
        loop.call_later(delay, serve, context=server.context)
        return future


def _end(future: asyncio.Future[Any], result: Any) -> None:
    if future.done():
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
