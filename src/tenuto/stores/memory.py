"""Records in this process's memory: for tests and for transient state."""

from __future__ import annotations

from asyncio import Future, get_running_loop
from collections.abc import Sequence
from typing import Final, TypeVar

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
from tenuto.stores.engine.record_table import RecordTable

_Answer = TypeVar("_Answer")


class InMemoryRecords:
    """The `RecordStore` port over a table that only this process can change: there is no feed."""

    feed: Final = None

    def __init__(self) -> None:
        self.table = RecordTable()

    def load(self, key: bytes, tail: int, known: Known | None = None) -> Future[StoredRecord | None]:
        return _done(self.table.load(key, tail, known))

    def commit(self, changes: Sequence[RecordChange]) -> Future[Refused | None]:
        return _done(self.table.commit(changes))

    def page(self, key: bytes, part: Part, first: int, last: int, limit: int) -> Future[EntryPage]:
        return _done(self.table.page(key, part, first, last, limit))

    def touch(self, key: bytes, deadline: int) -> Future[None]:
        self.table.touch(key, deadline)
        return _done(None)

    async def load_all(self, keys: Sequence[bytes]) -> tuple[StoredRecord | None, ...]:
        return tuple(self.table.load(key, 0) for key in keys)

    async def list(self, query: IndexQuery) -> tuple[FoundRecord, ...]:
        return self.table.list(query)

    async def totals(self, space: bytes, owner: bytes | None, now: int) -> Totals:
        return self.table.totals(space, owner, now)

    async def sites(self, after: bytes, limit: int) -> tuple[Scope, ...]:
        return self.table.sites(after, limit)

    async def scan(self, after: bytes, limit: int) -> tuple[FoundRecord, ...]:
        return self.table.scan(after, limit)

    async def list_aside(self) -> tuple[IndexColumns, ...]:
        return self.table.list_aside()

    async def forget_aside(self, owner: bytes) -> AsideRecords:
        return self.table.forget_aside(owner)

    async def compact(self) -> CompactionResult:
        return CompactionResult(cleared=True)

    async def ping(self) -> None:
        return None

    async def close(self) -> None:
        return None


def _done(answer: _Answer) -> Future[_Answer]:
    future: Future[_Answer] = get_running_loop().create_future()
    future.set_result(answer)
    return future
