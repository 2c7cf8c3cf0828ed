"""What is written to a SQLite file of records: steps of the writer thread.

A commit is nearly always a head that advances and a few entries. Then it is one statement that compares and writes, by
a row id that the process remembers; the entries of all commits of a batch are inserted together.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import UNSET

from tenuto.model.stored import (
    OWNER_BYTES,
    Action,
    AsideRecords,
    Drop,
    IndexColumns,
    Part,
    RecordChange,
    Refused,
    Totals,
    WordChange,
)
from tenuto.stores.columns import split_words
from tenuto.stores.sqlite._reads import load_record, place_number
from tenuto.stores.sqlite._threads import Transaction

_Execute: TypeAlias = Callable[..., sqlite3.Cursor]
_Entry: TypeAlias = tuple[int, str, int, bytearray]
_MOST_ROWS: Final = 100_000
_ADVANCE: Final = (
    f"UPDATE head SET revision = ?, head = ?, {', '.join(f'{name} = ?' for name in Totals.__struct_fields__)} "  # noqa: S608
    "WHERE record = ? AND revision = ? AND key = ?"
)
_ADVANCE_WITH_DEADLINE: Final = _ADVANCE.replace(" WHERE", ", deadline = ? WHERE")
# Wraps blobs in statements that every turn runs: for `bytes` the driver spends a microsecond on looking for an adapter.
_blob: Final = bytearray
_PUT: Final = "INSERT OR REPLACE INTO entry VALUES (?, ?, ?, ?)"
_INDEX: Final = "space, owner, kind, scope, listed_at, status, title, drawer, namespace, name"
# The column to find expired records by lags by up to an hour, so that turns in a row leave its index alone.
_LAG: Final = 3_600_000_000
_UPDATE_DUE: Final = (
    "UPDATE record SET due = ?1 WHERE id = ?2 "  # noqa: S608
    f"AND (?1 IS NULL OR due IS NULL OR ?1 < due OR ?1 > due + {_LAG})"
)


class CommitSteps:
    """Commits batches of changes. It remembers the row ids of records in use; a wrong one matches no row."""

    def __init__(self) -> None:
        self._rows: dict[bytes, int] = {}

    def commit(self, txn: Transaction, commits: Sequence[Sequence[RecordChange]]) -> list[Refused | None]:
        """Make each commit, or say why not; later ones see what those before them made."""
        if len(self._rows) > _MOST_ROWS:
            self._rows.clear()
        puts = list[_Entry]()
        answers = [self._commit(txn, changes, puts) for changes in commits]
        _put_all(txn, puts)
        return answers

    def _commit(self, txn: Transaction, changes: Sequence[RecordChange], puts: list[_Entry]) -> Refused | None:
        if len(changes) == 1 and self._advance(txn, changes[0], puts):
            txn.changed.append(changes[0].key + changes[0].revision.to_bytes(8, "big"))
            return None
        _put_all(txn, puts)
        rows = [_find(txn.execute, change.key) for change in changes]
        moved = any(
            change.copies is not None and _find(txn.execute, change.copies.source)[1] != change.copies.revision
            for change in changes
        )
        if moved or any(row[1] != change.if_revision for row, change in zip(rows, changes, strict=True)):
            standing = tuple(load_record(txn, change.key, change.tail, change.known) for change in changes)
            return Refused(standing=standing, source_changed=moved)
        for row, change in zip(rows, changes, strict=True):
            self._apply(txn, row[0], change, puts)
            _put_all(txn, puts)
            if change.replaces:
                txn.changed.append(change.key + bytes(8))
            txn.changed.append(change.key + change.revision.to_bytes(8, "big"))
        return None

    def _advance(self, txn: Transaction, change: RecordChange, puts: list[_Entry]) -> bool:
        """Write a head and entries if it is at the expected revision; false if that takes more, or it is not."""
        row = self._rows.get(change.key)
        if row is None or change.profile is not None or change.index is not None or change.replaces:
            return False
        if change.action is not Action.WRITE or change.copies is not None or change.words is not None:
            return False
        if not _write_head(txn.execute, row, change):
            del self._rows[change.key]
            return False
        if change.drops:
            _put_all(txn, puts)
            _drop_all(txn.execute, row, change.drops)
        puts += [(row, entry.part.value, entry.number, _blob(entry.body)) for entry in change.puts]
        return True

    def _apply(self, txn: Transaction, row: int, change: RecordChange, puts: list[_Entry]) -> None:
        execute = txn.execute
        if change.action is Action.REMOVE:
            _remove(txn, row)
            return
        if change.action is Action.SET_ASIDE:
            execute("UPDATE record SET key = NULL, aside = key, due = NULL WHERE id = ?", (row,))
            execute("UPDATE head SET key = NULL, deadline = NULL WHERE record = ?", (row,))
            _forget_words(txn, row)
            return
        if change.replaces:
            execute("DELETE FROM entry WHERE record = ?", (row,))
            _forget_words(txn, row)
        row = self._rows[change.key] = _write_columns(execute, row, change)
        if change.words is not None:
            _write_words(txn, row, change.words)
        _drop_all(execute, row, change.drops)
        if change.copies is not None:
            source = _find(execute, change.copies.source)[0]
            execute(
                "INSERT INTO entry SELECT ?, part, number, body FROM entry WHERE record = ? AND part = ? "
                "AND number BETWEEN ? AND ?",
                (row, source, Part.MESSAGES, change.copies.first, change.copies.through),
            )
            for number in change.copies.attachments:
                execute(
                    "INSERT INTO entry SELECT ?, part, number, body FROM entry WHERE record = ? AND part = ? "
                    "AND number = ?",
                    (row, source, Part.ATTACHMENTS, number),
                )
        puts += [(row, entry.part.value, entry.number, _blob(entry.body)) for entry in change.puts]


def touch(txn: Transaction, key: bytes, deadline: int) -> None:
    """Move a deadline."""
    txn.execute(
        "UPDATE head SET deadline = max(deadline, ?) WHERE record = (SELECT id FROM record WHERE key = ?)",
        (deadline, key),
    )


def forget_aside(txn: Transaction, owner: bytes) -> AsideRecords:
    """Remove what was set aside."""
    found = "SELECT id, messages, attachments FROM whole WHERE owner = ? AND aside IS NOT NULL"
    rows = txn.execute(found, (owner,)).fetchall()
    traces = 0
    for row, *_ in rows:
        (count,) = txn.execute(
            "SELECT count(*) FROM entry WHERE record = ? AND part = ?", (row, Part.TRACES)
        ).fetchone()
        traces += count
        _remove(txn, row)
    return AsideRecords(
        records=len(rows),
        messages=sum(messages for _, messages, _ in rows),
        traces=traces,
        attachments=sum(attachments for _, _, attachments in rows),
    )


def _put_all(txn: Transaction, puts: list[_Entry]) -> None:
    if puts:
        txn.executemany(_PUT, puts)
        puts.clear()


def _drop_all(execute: _Execute, row: int, drops: Sequence[Drop]) -> None:
    for drop in drops:
        kept = "".join(f" AND number != {int(number)}" for number in drop.keep)
        execute(
            f"DELETE FROM entry WHERE record = ? AND part = ? AND number BETWEEN ? AND ?{kept}",  # noqa: S608
            (row, drop.part, drop.first, drop.last),
        )


def _write_words(txn: Transaction, row: int, change: WordChange) -> None:
    """Change the words of a record."""
    found = txn.execute("SELECT words FROM words_of WHERE record = ?", (row,)).fetchone()
    (key,) = txn.execute("SELECT owner FROM record WHERE id = ?", (row,)).fetchone()
    owner, before = place_number(key[:OWNER_BYTES]), split_words(found[0] if found else b"")
    kept = [word for word in before if not change.forgets and word not in change.removed]
    after = dict.fromkeys([*kept, *change.added])
    _drop_words(txn, row, owner, [word for word in before if word not in after])
    added = [(place_number(word), owner, row) for word in sorted(after.keys() - set(before))]
    txn.executemany("INSERT OR IGNORE INTO word VALUES (?, ?, ?)", added)
    txn.execute("INSERT OR REPLACE INTO words_of VALUES (?, ?, ?)", (row, owner, b"".join(after)))


def _forget_words(txn: Transaction, row: int) -> None:
    """Remove all words of a record, which may get another owner."""
    found = txn.execute("SELECT owner, words FROM words_of WHERE record = ?", (row,)).fetchone()
    if found is not None:
        _drop_words(txn, row, found[0], split_words(found[1]))
        txn.execute("DELETE FROM words_of WHERE record = ?", (row,))


def _drop_words(txn: Transaction, row: int, owner: int, words: Sequence[bytes]) -> None:
    places = [(place_number(word), owner, row) for word in words]
    txn.executemany("DELETE FROM word WHERE word = ? AND owner = ? AND record = ?", places)


def _find(execute: _Execute, key: bytes) -> tuple[int, int]:
    """The row and the revision of a record, zeros if there is none."""
    found: tuple[int, int] | None = execute("SELECT id, revision FROM whole WHERE key = ?", (key,)).fetchone()
    return found or (0, 0)


def _remove(txn: Transaction, row: int) -> None:
    execute = txn.execute
    execute("DELETE FROM entry WHERE record = ?", (row,))
    _forget_words(txn, row)
    execute("DELETE FROM head WHERE record = ?", (row,))
    execute("DELETE FROM record WHERE id = ?", (row,))


def _write_head(execute: _Execute, row: int, change: RecordChange) -> bool:
    """Advance a head; false if it was not at the expected revision."""
    written = (change.revision, _blob(change.head), *change.totals.numbers)
    place = (row, change.if_revision, _blob(change.key))
    if change.deadline is UNSET:
        return execute(_ADVANCE, written + place).rowcount == 1
    return execute(_ADVANCE_WITH_DEADLINE, (*written, change.deadline, *place)).rowcount == 1


def _write_columns(execute: _Execute, row: int, change: RecordChange) -> int:
    """Write a record's head and the columns that changed; the row, which may be new."""
    index = None if change.index is None else _index_values(change.index)
    deadline = None if change.deadline is UNSET else change.deadline
    if not row:
        assert index is not None, "a new record has index columns"
        values = (change.key, change.profile or b"", deadline, *index)
        marks = ", ".join("?" * len(values))
        made = execute(f"INSERT INTO record (key, profile, due, {_INDEX}) VALUES ({marks})", values).lastrowid  # noqa: S608
        assert made is not None
        head = (made, change.key, change.revision, change.head, deadline, *change.totals.numbers)
        execute(f"INSERT INTO head VALUES ({', '.join('?' * len(head))})", head)  # noqa: S608
        return made
    _write_head(execute, row, change)
    if change.deadline is not UNSET:
        execute(_UPDATE_DUE, (deadline, row))
    if change.profile is not None:
        execute("UPDATE record SET profile = ? WHERE id = ?", (change.profile, row))
    if index is not None:
        execute(f"UPDATE record SET ({_INDEX}) = ({', '.join('?' * len(index))}) WHERE id = ?", (*index, row))  # noqa: S608
    return row


def _index_values(index: IndexColumns) -> tuple[Any, ...]:
    scope = None if index.scope is None else msgspec.msgpack.encode(index.scope)
    place = (index.drawer, index.namespace, index.name)
    return (index.space, index.owner, index.kind, scope, index.listed_at, index.status, index.title, *place)
