"""Records in a SQLite file: one writer thread with group commit, a few readers, a list of changes as the feed."""

from __future__ import annotations

import asyncio
import sqlite3
from asyncio import Future
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

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
from tenuto.stores.sqlite._commits import CommitSteps, forget_aside, touch
from tenuto.stores.sqlite._feed import SqliteRecordFeed
from tenuto.stores.sqlite._file import Synchronous, can_be_written, check_path, compact, log_of, open_file
from tenuto.stores.sqlite._reads import (
    list_aside,
    list_records,
    list_sites,
    load_heads,
    load_records,
    read_page,
    scan_records,
    sum_totals,
)
from tenuto.stores.sqlite._threads import Gathered, ReaderThreads, WriterThread, file_check

_READERS: Final = 2


class SqliteRecords:
    """The `RecordStore` port over a file."""

    def __init__(self, path: Path, writer: WriterThread, readers: ReaderThreads, feed: SqliteRecordFeed | None) -> None:
        self.path = path
        self.feed = feed
        self._writer = writer
        self._readers = readers
        self._commits = Gathered[Sequence[RecordChange], Refused | None](writer, CommitSteps().commit)
        self._loads = Gathered[tuple[bytes, int, Known], StoredRecord | None](readers, load_records)

    @classmethod
    async def open(
        cls,
        path: str | Path,
        *,
        synchronous: Synchronous = "full",
        lock_timeout: timedelta = timedelta(seconds=5),
        read_only: bool = False,
    ) -> SqliteRecords:
        """Open the file, and create it, for its owner alone, where there is none.

        `lock_timeout` is how long a call waits for other processes' locks before it raises `Unavailable`. With
        `read_only` a file in a read-only folder can be opened, too.

        Raises:
            InvalidSetting: there can be no such file, or it is not ours to read.
            Unavailable: the file cannot be opened now.
        """
        file = check_path(path)
        writing, *reading = await asyncio.to_thread(open_file, file, synchronous, _READERS, lock_timeout, read_only)
        check = file_check(file, log_of(file))
        writer = WriterThread(writing, lock_timeout, check_file=check)
        # Where nothing can be written, nothing changes.
        feed = None if read_only and not can_be_written(file) else SqliteRecordFeed(file)
        return cls(file, writer, ReaderThreads(reading, check_file=check), feed)

    async def product_version(self) -> str:
        """The version of SQLite."""
        return f"SQLite {sqlite3.sqlite_version}"

    # One record

    def load(self, key: bytes, tail: int, known: Known | None = None) -> Future[StoredRecord | None]:
        return self._loads.ask((key, tail, known or Known()))

    def commit(self, changes: Sequence[RecordChange]) -> Future[Refused | None]:
        return self._commits.ask(changes)

    def page(self, key: bytes, part: Part, first: int, last: int, limit: int) -> Future[EntryPage]:
        return self._readers.run(read_page, key, part, first, last, limit)

    def touch(self, key: bytes, deadline: int) -> Future[None]:
        return self._writer.run(touch, key, deadline)

    async def load_all(self, keys: Sequence[bytes]) -> tuple[StoredRecord | None, ...]:
        return await self._readers.run(load_heads, keys)

    # Many records

    async def list(self, query: IndexQuery) -> tuple[FoundRecord, ...]:
        return await self._readers.run(list_records, query)

    async def totals(self, space: bytes, owner: bytes | None, now: int) -> Totals:
        return await self._readers.run(sum_totals, space, owner, now)

    async def sites(self, after: bytes, limit: int) -> tuple[Scope, ...]:
        return await self._readers.run(list_sites, after, limit)

    async def scan(self, after: bytes, limit: int) -> tuple[FoundRecord, ...]:
        return await self._readers.run(scan_records, after, limit)

    async def list_aside(self) -> tuple[IndexColumns, ...]:
        return await self._readers.run(list_aside)

    async def forget_aside(self, owner: bytes) -> AsideRecords:
        return await self._writer.run(forget_aside, owner)

    async def compact(self) -> CompactionResult:
        await self._writer.run_outside_transaction(compact)
        return CompactionResult(cleared=True)

    async def ping(self) -> None:
        await self._readers.run(lambda db: db.execute("SELECT 1").fetchone())

    async def close(self) -> None:
        self._loads.hand_over()
        self._commits.hand_over()
        if self.feed is not None:
            self.feed.close()
        await self._readers.close()
        await self._writer.close()
