"""Records in a SQLite file: one writer thread with group commit, a few readers, a list of changes as the feed."""

from __future__ import annotations

import asyncio
import sqlite3
from asyncio import Future
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET

from tenuto.model import CompactionResult, Scope, Status
from tenuto.model.scope import site_scope
from tenuto.model.stored import (
    BESIDE,
    Action,
    AsideRecords,
    Entry,
    EntryPage,
    FoundRecord,
    IndexColumns,
    IndexOrder,
    IndexQuery,
    Kind,
    Known,
    Part,
    RecordChange,
    Refused,
    StoredRecord,
    Totals,
)
from tenuto.stores.engine import sqlite_schema
from tenuto.stores.engine.sqlite_feed import SqliteRecordFeed
from tenuto.stores.sqlite._database import ReaderThreads, WriterThread
from tenuto.stores.sqlite._file import Synchronous, check_path, compact, file_check, open_file
from tenuto.stores.sqlite._heads import Transaction

_Answer = TypeVar("_Answer")
_Execute = Callable[..., sqlite3.Cursor]
_COLUMNS: Final = "key, revision, head, profile, deadline"
_INDEX: Final = "space, owner, kind, scope, listed_at, status, title, drawer, namespace, name"
_TOTALS: Final = "sessions, messages, tokens, cost_nanos"
_OLDEST_ENTRIES: Final = (
    "SELECT number, body FROM entry WHERE record = ? AND part = ? AND number BETWEEN ? AND ? ORDER BY number LIMIT ?"
)
_NEWEST_ENTRIES: Final = _OLDEST_ENTRIES.replace("ORDER BY number", "ORDER BY number DESC")
_UPDATE: Final = (
    "UPDATE record SET revision = ?, head = ?, sessions = ?, messages = ?, tokens = ?, cost_nanos = ? WHERE id = ?"
)
_UPDATE_WITH_DEADLINE: Final = _UPDATE.replace(" WHERE", ", deadline = ? WHERE")
# The column of the index lags by up to an hour, so that turns in a row leave it alone.
_LAG: Final = 3_600_000_000
_UPDATE_DUE: Final = (
    "UPDATE record SET due = deadline WHERE id = ? "  # noqa: S608
    f"AND (deadline IS NULL OR due IS NULL OR deadline < due OR deadline > due + {_LAG})"
)
_ORDERS: Final = {
    IndexOrder.NEWEST: ("listed_at, key", "listed_at DESC, key DESC", "<"),
    IndexOrder.OLDEST: ("listed_at, key", "listed_at, key", ">"),
    IndexOrder.DEADLINE: ("deadline, key", "deadline, key", ">"),
    IndexOrder.PLACE: ("owner, drawer, name", "owner, drawer, name", ">"),
}


class SqliteRecords:
    """The `RecordStore` port over a file."""

    def __init__(self, path: Path, writer: WriterThread, readers: ReaderThreads, feed: SqliteRecordFeed) -> None:
        self.path = path
        self.feed = feed
        self._writer = writer
        self._readers = readers

    @classmethod
    async def open(
        cls,
        path: str | Path,
        *,
        synchronous: Synchronous = "full",
        readers: int = 2,
        lock_timeout: timedelta = timedelta(seconds=5),
        read_only: bool = False,
    ) -> SqliteRecords:
        """Open the file, and create it, for its owner alone, where there is none.

        `lock_timeout` is how long a call waits for other processes' locks before it raises `Unavailable`. With
        `read_only` a file in a read-only folder can be opened, too.

        Raises:
            InvalidSetting: the path or another setting cannot be right, or the file is not ours to read.
            Unavailable: the file cannot be opened now.
        """
        file = check_path(path)
        writing, *reading = await asyncio.to_thread(
            open_file, file, synchronous, readers, lock_timeout, read_only, schema=sqlite_schema
        )
        check = file_check(file)
        writer = WriterThread(writing, lock_timeout, check_file=check)
        return cls(file, writer, ReaderThreads(reading, check_file=check), SqliteRecordFeed(file))

    async def product_version(self) -> str:
        """The version of SQLite."""
        return f"SQLite {sqlite3.sqlite_version}"

    # One record

    def load(self, key: bytes, tail: int, known: Known | None = None) -> Future[StoredRecord | None]:
        return self._read(_load, key, tail, known or Known())

    def commit(self, changes: Sequence[RecordChange]) -> Future[Refused | None]:
        return _as_future(self._writer.run(_commit, changes))

    def page(self, key: bytes, part: Part, first: int, last: int, limit: int) -> Future[EntryPage]:
        return self._read(_page, key, part, first, last, limit)

    def touch(self, key: bytes, deadline: int) -> Future[None]:
        return _as_future(self._writer.run(_touch, key, deadline))

    async def load_all(self, keys: Sequence[bytes]) -> tuple[StoredRecord | None, ...]:
        return await self._readers.run(lambda db: tuple(_load(db, key, 0, Known()) for key in keys))

    # Many records

    async def list(self, query: IndexQuery) -> tuple[FoundRecord, ...]:
        return await self._readers.run(_list, query)

    async def totals(self, space: bytes, owner: bytes | None, now: int) -> Totals:
        return await self._readers.run(_totals, space, owner, now)

    async def sites(self, after: bytes, limit: int) -> tuple[Scope, ...]:
        return await self._readers.run(_sites, after, limit)

    async def scan(self, after: bytes, limit: int) -> tuple[FoundRecord, ...]:
        return await self._readers.run(_scan, after, limit)

    async def forget_aside(self, owner: bytes) -> AsideRecords:
        return await self._writer.run(_forget_aside, owner)

    async def compact(self) -> CompactionResult:
        await self._writer.run_outside_transaction(compact)
        return CompactionResult(cleared=True)

    async def ping(self) -> None:
        await self._readers.run(lambda db: db.execute("SELECT 1").fetchone())

    async def close(self) -> None:
        self.feed.close()
        await self._readers.close()
        await self._writer.close()

    def _read(self, step: Callable[..., _Answer], *args: Any) -> Future[_Answer]:
        return _as_future(self._readers.run(step, *args))


def _as_future(call: Awaitable[_Answer]) -> Future[_Answer]:
    return asyncio.ensure_future(call)


# Steps of the reader threads


def _load(db: Any, key: bytes, tail: int, known: Known) -> StoredRecord | None:
    row = db.execute(f"SELECT id, {_COLUMNS} FROM record WHERE key = ?", (key,)).fetchone()  # noqa: S608
    if row is None:
        return None
    newest = db.execute(
        "SELECT number, body FROM entry WHERE record = ? AND part = ? AND number > ? ORDER BY number DESC LIMIT ?",
        (row[0], Part.MESSAGES, known.message, tail),
    ).fetchall()
    beside = db.execute(
        "SELECT part, number, body FROM entry WHERE record = ? AND (part = ? AND number > ? OR part = ?) "
        "ORDER BY part, number",
        (row[0], BESIDE[0], known.page, BESIDE[1]),
    )
    return StoredRecord(
        key=row[1],
        revision=row[2],
        head=row[3],
        profile=row[4],
        deadline=row[5],
        entries=tuple([Entry(part=Part(part), number=number, body=body) for part, number, body in beside]),
        messages=tuple([Entry(part=Part.MESSAGES, number=number, body=body) for number, body in reversed(newest)]),
    )


def _page(db: Any, key: bytes, part: Part, first: int, last: int, limit: int) -> EntryPage:
    row = db.execute("SELECT id, revision FROM record WHERE key = ?", (key,)).fetchone()
    if row is None:
        return EntryPage(revision=0)
    text = _OLDEST_ENTRIES if limit >= 0 else _NEWEST_ENTRIES
    rows = db.execute(text, (row[0], part, first, last, abs(limit))).fetchall()
    found = [Entry(part=part, number=number, body=body) for number, body in rows]
    return EntryPage(revision=row[1], entries=tuple(found if limit >= 0 else found[::-1]))


def _list(db: Any, query: IndexQuery) -> tuple[FoundRecord, ...]:
    place, order, behind = _ORDERS[query.order]
    wanted: dict[str, Any] = {
        "kind = ?": query.kind,
        "space = ?": query.space,
        "owner = ?": query.owner,
        "drawer = ?": query.drawer,
        "status = ?": query.status,
        "instr(title, ?) > 0": query.title,
        "due <= ?": query.due,
    }
    conditions = {text: value for text, value in wanted.items() if value is not None}
    clauses = [*conditions, "aside IS NOT NULL" if query.set_aside else "key IS NOT NULL"]
    values = list(conditions.values())
    if query.due is not None:
        clauses.append("deadline <= ?")
        values.append(query.due)
    if query.named:
        clauses.append("scope IS NOT NULL")
    if query.order is IndexOrder.DEADLINE:
        clauses.append("deadline IS NOT NULL")
    if query.behind is not None:
        clauses.append(f"({place}) {behind} ({', '.join('?' * len(query.behind))})")
        values += query.behind
    text = f"SELECT {_COLUMNS}, {_INDEX}, {_TOTALS} FROM record WHERE {' AND '.join(clauses)} ORDER BY {order} LIMIT ?"  # noqa: S608
    return tuple(_found(row) for row in db.execute(text, (*values, max(0, query.limit))))


def _scan(db: Any, after: bytes, limit: int) -> tuple[FoundRecord, ...]:
    text = f"SELECT {_COLUMNS}, {_INDEX}, {_TOTALS} FROM record WHERE key > ? ORDER BY key LIMIT ?"  # noqa: S608
    return tuple(_found(row) for row in db.execute(text, (after, limit)))


def _found(row: Any) -> FoundRecord:
    key, revision, head, profile, deadline, space, owner, kind, scope, listed_at, status, *rest = row
    title, drawer, namespace, name, sessions, messages, tokens, cost_nanos = rest
    return FoundRecord(
        record=StoredRecord(key=key, revision=revision, head=head, profile=profile, deadline=deadline),
        index=IndexColumns(
            space=space,
            owner=owner,
            kind=Kind(kind),
            scope=None if scope is None else msgspec.msgpack.decode(scope, type=Scope),
            listed_at=listed_at,
            status=Status(status),
            title=title,
            drawer=drawer,
            namespace=namespace,
            name=name,
        ),
        totals=Totals(sessions=sessions, messages=messages, tokens=tokens, cost_nanos=cost_nanos),
    )


def _totals(db: Any, space: bytes, owner: bytes | None, now: int) -> Totals:
    sums = ", ".join(f"coalesce(sum({name}), 0)" for name in _TOTALS.split(", "))
    live = "key IS NOT NULL AND (deadline IS NULL OR deadline > ?)"
    text = f"SELECT {sums} FROM record WHERE kind = ? AND space = ? AND {live}"  # noqa: S608
    values: tuple[Any, ...] = (Kind.SESSION, space, now)
    if owner is not None:
        text, values = f"{text} AND owner = ?", (*values, owner)
    sessions, messages, tokens, cost_nanos = db.execute(text, values).fetchone()
    return Totals(sessions=sessions, messages=messages, tokens=tokens, cost_nanos=cost_nanos)


def _sites(db: Any, after: bytes, limit: int) -> tuple[Scope, ...]:
    rows = db.execute(
        "SELECT min(scope) FROM record WHERE space > ? AND scope IS NOT NULL AND key IS NOT NULL GROUP BY space "
        "ORDER BY space LIMIT ?",
        (after, max(0, limit)),
    )
    return tuple(site_scope(msgspec.msgpack.decode(scope, type=Scope)) for (scope,) in rows)


# Steps of the writer thread


def _commit(txn: Transaction, changes: Sequence[RecordChange]) -> Refused | None:
    rows = [_find(txn.execute, change.key) for change in changes]
    moved = any(
        change.copies is not None and _find(txn.execute, change.copies.source)[1] != change.copies.revision
        for change in changes
    )
    if moved or any(row[1] != change.if_revision for row, change in zip(rows, changes, strict=True)):
        standing = tuple(_load(txn, change.key, change.tail, change.known) for change in changes)
        return Refused(standing=standing, source_changed=moved)
    for row, change in zip(rows, changes, strict=True):
        _apply(txn.execute, row[0], change)
        told = change.revision if change.action is Action.WRITE else 0
        if change.replaces:
            txn.changed.append(change.key + bytes(8))
        txn.changed.append(change.key + told.to_bytes(8, "big"))
    return None


def _find(execute: _Execute, key: bytes) -> tuple[int, int]:
    """The row and the revision of a record, zeros if there is none."""
    found: tuple[int, int] | None = execute("SELECT id, revision FROM record WHERE key = ?", (key,)).fetchone()
    return found or (0, 0)


def _apply(execute: _Execute, row: int, change: RecordChange) -> None:
    if change.action is Action.REMOVE:
        execute("DELETE FROM entry WHERE record = ?", (row,))
        execute("DELETE FROM record WHERE id = ?", (row,))
        return
    if change.action is Action.SET_ASIDE:
        execute("UPDATE record SET key = NULL, aside = key, deadline = NULL, due = NULL WHERE id = ?", (row,))
        return
    row = _write_row(execute, row, change)
    if change.replaces:
        execute("DELETE FROM entry WHERE record = ?", (row,))
    for drop in change.drops:
        kept = "".join(f" AND number != {int(number)}" for number in drop.keep)
        execute(
            f"DELETE FROM entry WHERE record = ? AND part = ? AND number BETWEEN ? AND ?{kept}",  # noqa: S608
            (row, drop.part, drop.first, drop.last),
        )
    if change.copies is not None:
        source = _find(execute, change.copies.source)[0]
        execute(
            "INSERT INTO entry SELECT ?, part, number, body FROM entry WHERE record = ? AND part = ? AND number <= ?",
            (row, source, Part.MESSAGES, change.copies.through),
        )
    for entry in change.puts:
        execute("INSERT OR REPLACE INTO entry VALUES (?, ?, ?, ?)", (row, entry.part, entry.number, entry.body))


def _write_row(execute: _Execute, row: int, change: RecordChange) -> int:
    totals = change.totals
    sums = (totals.sessions, totals.messages, totals.tokens, totals.cost_nanos)
    index = None if change.index is None else _index_values(change.index)
    if not row:
        assert index is not None, "a new record has index columns"
        deadline = None if change.deadline is UNSET else change.deadline
        values = (change.key, change.revision, change.head, change.profile or b"", deadline, *index, *sums)
        marks = ", ".join("?" * len(values))
        made = execute(f"INSERT INTO record ({_COLUMNS}, {_INDEX}, {_TOTALS}) VALUES ({marks})", values).lastrowid  # noqa: S608
        assert made is not None
        execute(_UPDATE_DUE, (made,))
        return made
    if change.deadline is UNSET:
        execute(_UPDATE, (change.revision, change.head, *sums, row))
    else:
        execute(_UPDATE_WITH_DEADLINE, (change.revision, change.head, *sums, change.deadline, row))
        execute(_UPDATE_DUE, (row,))
    if change.profile is not None:
        execute("UPDATE record SET profile = ? WHERE id = ?", (change.profile, row))
    if index is not None:
        execute(f"UPDATE record SET ({_INDEX}) = ({', '.join('?' * len(index))}) WHERE id = ?", (*index, row))  # noqa: S608
    return row


def _index_values(index: IndexColumns) -> tuple[Any, ...]:
    scope = None if index.scope is None else msgspec.msgpack.encode(index.scope)
    place = (index.drawer, index.namespace, index.name)
    return (index.space, index.owner, index.kind, scope, index.listed_at, index.status, index.title, *place)


def _touch(txn: Transaction, key: bytes, deadline: int) -> None:
    txn.execute("UPDATE record SET deadline = max(deadline, ?) WHERE key = ?", (deadline, key))


def _forget_aside(txn: Transaction, owner: bytes) -> AsideRecords:
    rows = txn.execute("SELECT id, messages FROM record WHERE owner = ? AND aside IS NOT NULL", (owner,)).fetchall()
    traces = 0
    for row, _ in rows:
        (count,) = txn.execute(
            "SELECT count(*) FROM entry WHERE record = ? AND part = ?", (row, Part.TRACES)
        ).fetchone()
        traces += count
        txn.execute("DELETE FROM entry WHERE record = ?", (row,))
        txn.execute("DELETE FROM record WHERE id = ?", (row,))
    return AsideRecords(records=len(rows), messages=sum(messages for _, messages in rows), traces=traces)
