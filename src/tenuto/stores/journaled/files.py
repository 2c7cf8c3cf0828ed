"""The files of the outbox: one slot for each process, with a lock file and a database of rows.

The lock is a separate database that its process holds locked: SQLite locks work on every system, and end with the
process. So another process can still erase rows. The database is created for the first row and removed with the last
one, while the lock file stays; deleted rows are overwritten.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from tenuto.errors import Unavailable
from tenuto.model.values import Value
from tenuto.stores.codec import from_micros, to_micros
from tenuto.stores.journaled.rows import JournalRow

_OWNER_ONLY: Final = 0o600
_FOLDER_MODE: Final = 0o700
_MOST_SLOTS: Final = 1000
_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PATIENCE: Final = 5.0
_VERSION: Final = 1
_SCHEMA: Final = """
CREATE TABLE turn (
    number INTEGER PRIMARY KEY,
    session BLOB NOT NULL,
    tenant TEXT NOT NULL,
    site TEXT NOT NULL,
    persons TEXT NOT NULL,
    begun_at INTEGER NOT NULL,
    beginning TEXT NOT NULL,
    closing TEXT,
    incarnation TEXT NOT NULL,
    tried INTEGER,
    aside TEXT,
    aside_at INTEGER
) STRICT;
CREATE INDEX turn_by_session ON turn (session);
"""
# A damaged row may be about any user: it is deleted with the first user of its tenant that is erased.
_OF_PERSON: Final = """
DELETE FROM turn WHERE tenant = ? AND site = ? AND CASE WHEN json_valid(persons)
THEN EXISTS (SELECT 1 FROM json_each(turn.persons) AS said WHERE said.value = ?) ELSE 1 END
"""
_DAMAGES: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_COLUMNS: Final = "number, session, tenant, site, persons, begun_at, beginning, closing, incarnation, tried"


class JournalCounts(Value, frozen=True, kw_only=True):
    """A journal's turns that wait for the store, turns that it can never take, and unreadable files."""

    waiting: int = 0
    quarantined: int = 0
    unreadable: int = 0


INSERT_ROW: Final = (
    # Later rows of a session inherit its incarnation in the store.
    f"INSERT INTO turn ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, "  # noqa: S608 (a constant)
    "(SELECT coalesce(max(incarnation), '') FROM turn WHERE session = ?2 AND aside IS NULL), NULL)"
)
DELETE_ROW: Final = "DELETE FROM turn WHERE number = ?"
UPDATE_FINISH: Final = "UPDATE turn SET closing = ? WHERE number = ? AND aside IS NULL"
# The end of the session's log at the first attempt stays.
RECORD_ATTEMPT: Final = "UPDATE turn SET tried = coalesce(tried, ?) WHERE number = ? AND aside IS NULL"
CLEAR_ATTEMPT: Final = "UPDATE turn SET tried = NULL WHERE number = ?"
RECORD_INCARNATION: Final = "UPDATE turn SET incarnation = ? WHERE session = ? AND aside IS NULL"
QUARANTINE_ROW: Final = "UPDATE turn SET aside = ?, aside_at = ? WHERE number = ?"
DELETE_QUARANTINED: Final = "DELETE FROM turn WHERE aside_at < ?"


class RowWrite(NamedTuple):
    """One change to a slot's rows."""

    sql: str
    values: tuple[object, ...]


def row_values(raw: JournalRow) -> tuple[object, ...]:
    """The values of `INSERT_ROW`."""
    persons, begun_at = json.dumps(raw.persons), to_micros(raw.begun_at)
    return raw.number, raw.session, raw.tenant, raw.site, persons, begun_at, raw.beginning, raw.closing


class Slot:
    """A file of rows that this process holds. Used by one thread at a time."""

    def __init__(self, folder: Path, number: int, lock: sqlite3.Connection) -> None:
        self.number = number
        self._path = folder / f"{number}.db"
        self._lock = lock
        self._db: sqlite3.Connection | None = None

    @property
    def exists(self) -> bool:
        """Whether there is a file."""
        return self._path.exists()

    @property
    def readable(self) -> bool:
        """Whether its rows can be read, if there are any."""
        try:
            return not self.exists or self._connection().execute("PRAGMA quick_check(1)").fetchone() == ("ok",)
        except (sqlite3.Error, OSError, Unavailable):
            return False

    def write(self, writes: list[RowWrite]) -> list[int]:
        """Write the changes to disk, all or none; returns the number of rows that each one affected."""
        db = self._connection()
        with db:
            db.execute("BEGIN IMMEDIATE")
            return [db.execute(write.sql, write.values).rowcount for write in writes]

    def waiting(self) -> list[tuple[int, bytes, int]]:
        """The rows that wait, by number, with their sessions' keys and the times of their begin."""
        return self._select("SELECT number, session, begun_at FROM turn WHERE aside IS NULL ORDER BY number")

    def numbers(self, session: bytes) -> list[int]:
        """The numbers of a session's rows that wait."""
        found = self._select("SELECT number FROM turn WHERE session = ? AND aside IS NULL", session)
        return [number for (number,) in found]

    def rows(self, session: bytes) -> list[JournalRow]:
        """A session's rows that wait, oldest first."""
        return self._select_rows("session = ? AND aside IS NULL ORDER BY number", session)

    def quarantined(self, after: int, limit: int) -> list[JournalRow]:
        """The next quarantined rows."""
        return self._select_rows("number > ? AND aside IS NOT NULL ORDER BY number LIMIT ?", after, limit)

    def counts(self) -> JournalCounts:
        """How many rows there are."""
        return _count_rows(self._connection()) if self.exists else JournalCounts()

    def last(self) -> int:
        """The highest number of a row."""
        rows = self._select("SELECT coalesce(max(number), 0) FROM turn")
        return int(rows[0][0]) if rows else 0

    def tidy(self) -> bool:
        """Remove the file if it has no rows; returns whether there is no file now."""
        if self.exists and self._connection().execute("SELECT 1 FROM turn LIMIT 1").fetchone() is None:
            self._close()
            self._path.unlink(missing_ok=True)
            self._path.with_name(f"{self._path.name}-journal").unlink(missing_ok=True)
        return not self.exists

    def release(self) -> None:
        """Close the file and its lock."""
        self._close()
        self._lock.close()

    def _select(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        return self._connection().execute(sql, values).fetchall() if self.exists else []

    def _select_rows(self, where: str, *values: object) -> list[JournalRow]:
        found = self._select(f"SELECT {_COLUMNS} FROM turn WHERE {where}", *values)  # noqa: S608 (constants)
        return [_to_row(self.number, row) for row in found]

    def _connection(self) -> sqlite3.Connection:
        if self._db is None:
            self._db = _connect(self._path)
        return self._db

    def _close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None


def make_folder(folder: Path) -> None:
    """Create the folder, for its owner alone, and sync it to disk.

    Raises:
        OSError: it cannot be made or written.
    """
    if not folder.is_dir():
        for each in [*reversed(folder.parents), folder]:
            if not each.is_dir():
                each.mkdir(mode=_FOLDER_MODE, exist_ok=True)
                _sync_folder(each.parent)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"{folder} cannot be written")


def acquire_free_file(folder: Path) -> Slot:
    """Lock the first free slot whose file is readable."""
    for number in range(1, _MOST_SLOTS + 1):
        try:
            slot = acquire_file(folder, number)
        except sqlite3.Error:
            continue
        if slot is not None and slot.readable:
            return slot
        if slot is not None:
            slot.release()
    raise Unavailable("journal", "has no free slot left")


def acquire_file(folder: Path, number: int) -> Slot | None:
    """Lock a slot; `None` if another process holds it.

    Raises:
        sqlite3.Error, OSError: its lock cannot be used.
    """
    path = folder / f"{number}.lock"
    _create_file(path)
    lock = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.Error as failed:
        lock.close()
        if _error_code(failed) == sqlite3.SQLITE_BUSY:
            return None
        raise
    return Slot(folder, number, lock)


def erase_user_rows(folder: Path, tenant: str, site: str, person: str, damaged: Callable[[int], None]) -> int:
    """Delete a user's rows in every slot, of other processes too; returns their number, calls `damaged` for bad files.

    Raises:
        sqlite3.Error, OSError, Unavailable: a file could not be changed now; the others were.
    """
    count, failed = 0, None
    for number in file_numbers(folder):
        try:
            count += _erase_user_rows_in(folder / f"{number}.db", (tenant, site, person))
        except (sqlite3.Error, OSError, Unavailable) as met:
            if is_corruption(met):
                damaged(number)
            else:
                failed = met
    if failed is not None:
        raise failed
    return count


def _erase_user_rows_in(path: Path, whose: tuple[str, str, str]) -> int:
    db = _connect_existing(path)
    if db is None:
        return 0
    with closing(db), db:
        db.execute("BEGIN IMMEDIATE")
        return db.execute(_OF_PERSON, whose).rowcount


def count_journal(folder: Path) -> JournalCounts:
    """Count a journal's rows, without opening a store or locking a slot."""
    waiting = aside = unreadable = 0
    for number in file_numbers(folder):
        try:
            db = _connect_existing(folder / f"{number}.db")
            if db is None:
                continue
            with closing(db):
                found = _count_rows(db)
        except (sqlite3.Error, OSError, Unavailable):
            unreadable += 1
            continue
        waiting, aside = waiting + found.waiting, aside + found.quarantined
    return JournalCounts(waiting=waiting, quarantined=aside, unreadable=unreadable)


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise errors of files and SQLite as `Unavailable`."""
    try:
        yield
    except (sqlite3.Error, OSError) as failed:
        raise Unavailable("journal", "cannot be read or written") from failed


def is_corruption(failed: BaseException) -> bool:
    """Whether a file is damaged, so that trying again does not help."""
    return _error_code(failed) in _DAMAGES


def _error_code(failed: BaseException) -> int:
    return int(getattr(failed, "sqlite_errorcode", 0)) & 0xFF


def file_numbers(folder: Path) -> list[int]:
    """The slots that have a file."""
    return sorted(int(file.stem) for file in folder.glob("*.db") if file.stem.isdecimal())


def _connect_existing(path: Path) -> sqlite3.Connection | None:
    """Connect to a file of another process; `None` if that has just removed it."""
    try:
        return _connect(path, "rw")
    except sqlite3.OperationalError:
        if path.exists():
            raise
        return None


def _connect(path: Path, mode: str = "rwc") -> sqlite3.Connection:
    if mode == "rwc":
        _create_file(path)
    address = f"{path.absolute().as_uri()}?mode={mode}"
    db = sqlite3.connect(address, uri=True, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
    try:
        db.execute("PRAGMA journal_mode = TRUNCATE")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA secure_delete = ON")
        _ensure_schema(db)
    except BaseException:
        db.close()
        raise
    return db


def _ensure_schema(db: sqlite3.Connection) -> None:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version > _VERSION:
        raise Unavailable("journal", "was written by a later release")
    if version < _VERSION:
        with db:
            db.execute("BEGIN EXCLUSIVE")
            if db.execute("PRAGMA user_version").fetchone() == (0,):
                for statement in _SCHEMA.split(";"):
                    db.execute(statement)
                db.execute(f"PRAGMA user_version = {_VERSION}")


def _create_file(path: Path) -> None:
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, _OWNER_ONLY))
    except FileExistsError:
        return
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Sync the names in a folder to disk, where the system can."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        return
    finally:
        os.close(handle)


def _to_row(slot: int, row: tuple[Any, ...]) -> JournalRow:
    number, session, tenant, site, persons, begun_at, beginning, closing, incarnation, tried = row
    try:
        whose, when = msgspec.json.decode(persons, type=tuple[str, ...]), from_micros(begun_at)
    except (ValueError, OverflowError):
        whose, when, beginning, closing = (), _LONG_AGO, "", None  # Treated as one that cannot be decrypted.
    return JournalRow(
        slot=slot,
        number=number,
        session=session,
        tenant=tenant,
        site=site,
        persons=whose,
        begun_at=when,
        beginning=beginning,
        closing=closing,
        incarnation=incarnation,
        tried=tried,
    )


def _count_rows(db: sqlite3.Connection) -> JournalCounts:
    waiting, aside = db.execute("SELECT count(*) - count(aside), count(aside) FROM turn").fetchone()
    return JournalCounts(waiting=waiting, quarantined=aside)
