"""The files of the outbox: one slot for each process, a lock that tells whose it is, and rows that are there once told.

A slot's lock is a database of its own that its process keeps locked: SQLite does that on every system, and a process
that dies lets go. The rows lie beside it, where an erasure of another process can get at them too. A file is made for
the first row and goes with the last one, while its lock's stays; what is deleted in between is overwritten.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

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
# Who a damaged row is about, nobody can tell, nor read it: it goes with whoever of its tenant is erased first.
_OF_PERSON: Final = """
DELETE FROM turn WHERE tenant = ? AND site = ? AND CASE WHEN json_valid(persons)
THEN EXISTS (SELECT 1 FROM json_each(turn.persons) AS said WHERE said.value = ?) ELSE 1 END
"""
_DAMAGES: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_COLUMNS: Final = "number, session, tenant, site, persons, begun_at, beginning, closing, incarnation, tried"


class JournalCounts(Value, frozen=True, kw_only=True):
    """What lies in a journal: turns that wait for the store, turns that it can never take, files nobody can read."""

    waiting: int = 0
    aside: int = 0
    unreadable: int = 0


class RowWrite(NamedTuple):
    """One change to a slot's rows."""

    sql: str
    values: tuple[object, ...]


def insert_row(raw: JournalRow) -> RowWrite:
    """Put a row in."""
    return RowWrite(
        # Where the session has come to the store, its next rows know.
        f"INSERT INTO turn ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, "  # noqa: S608 (a constant)
        "(SELECT coalesce(max(incarnation), '') FROM turn WHERE session = ? AND aside IS NULL), NULL)",
        (
            raw.number,
            raw.session,
            raw.tenant,
            raw.site,
            json.dumps(raw.persons),
            to_micros(raw.begun_at),
            raw.beginning,
            raw.closing,
            raw.session,
        ),
    )


def update_finish(number: int, closing: str) -> RowWrite:
    """Add how a turn ended."""
    return RowWrite("UPDATE turn SET closing = ? WHERE number = ? AND aside IS NULL", (closing, number))


def update_attempt(number: int, seq: int) -> RowWrite:
    """Note that the store is asked for a turn, for the first time where its session's log ends."""
    return RowWrite("UPDATE turn SET tried = coalesce(tried, ?) WHERE number = ? AND aside IS NULL", (seq, number))


def reset_attempt(number: int) -> RowWrite:
    """Note that the store has refused a turn: it has nothing of it."""
    return RowWrite("UPDATE turn SET tried = NULL WHERE number = ?", (number,))


def standing(session: bytes, incarnation: str) -> RowWrite:
    """Note that a session which was opened here has come to the store."""
    return RowWrite("UPDATE turn SET incarnation = ? WHERE session = ? AND aside IS NULL", (incarnation, session))


def delete_row(number: int) -> RowWrite:
    """Take a row out."""
    return RowWrite("DELETE FROM turn WHERE number = ?", (number,))


def update_quarantined(number: int, why: str, when: datetime) -> RowWrite:
    """Keep a row that the store can never take."""
    return RowWrite("UPDATE turn SET aside = ?, aside_at = ? WHERE number = ?", (why, to_micros(when), number))


def delete_quarantined(before: datetime) -> RowWrite:
    """Take out what was put aside long ago."""
    return RowWrite("DELETE FROM turn WHERE aside_at < ?", (to_micros(before),))


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
        """Carry the changes out, all or none, and return when they are on disk; tells how many rows each one met."""
        db = self._connection()
        with db:
            db.execute("BEGIN IMMEDIATE")
            return [db.execute(write.sql, write.values).rowcount for write in writes]

    def waiting(self) -> list[tuple[int, bytes]]:
        """The rows that wait, by number, with their sessions' keys."""
        if not self.exists:
            return []
        return (
            self._connection()
            .execute("SELECT number, session FROM turn WHERE aside IS NULL ORDER BY number")
            .fetchall()
        )

    def numbers(self, session: bytes) -> list[int]:
        """A session's rows that wait, by their numbers."""
        if not self.exists:
            return []
        found = self._connection().execute("SELECT number FROM turn WHERE session = ? AND aside IS NULL", (session,))
        return [number for (number,) in found]

    def rows(self, session: bytes) -> list[JournalRow]:
        """A session's rows that wait, oldest first."""
        if not self.exists:
            return []
        found = self._connection().execute(
            f"SELECT {_COLUMNS} FROM turn WHERE session = ? AND aside IS NULL ORDER BY number",  # noqa: S608
            (session,),
        )
        return [_to_row(self.number, *row) for row in found]

    def row(self, number: int) -> JournalRow | None:
        """A row that waits, as it is now."""
        if not self.exists:
            return None
        found = self._connection().execute(
            f"SELECT {_COLUMNS} FROM turn WHERE number = ? AND aside IS NULL",  # noqa: S608 (a constant)
            (number,),
        )
        row = found.fetchone()
        return _to_row(self.number, *row) if row is not None else None

    def aside(self, after: int, limit: int) -> list[JournalRow]:
        """The next rows that were put aside."""
        if not self.exists:
            return []
        found = self._connection().execute(
            f"SELECT {_COLUMNS} FROM turn WHERE number > ? AND aside IS NOT NULL "  # noqa: S608 (a constant)
            "ORDER BY number LIMIT ?",
            (after, limit),
        )
        return [_to_row(self.number, *row) for row in found]

    def counts(self) -> JournalCounts:
        """How many rows there are."""
        return _count_rows(self._connection()) if self.exists else JournalCounts()

    def last(self) -> int:
        """The highest number of a row."""
        if not self.exists:
            return 0
        (number,) = self._connection().execute("SELECT coalesce(max(number), 0) FROM turn").fetchone()
        return int(number)

    def tidy(self) -> bool:
        """Remove the file if nothing is in it; tells whether there is none now."""
        if self.exists and self._connection().execute("SELECT 1 FROM turn LIMIT 1").fetchone() is None:
            self._close()
            self._path.unlink(missing_ok=True)
            self._path.with_name(f"{self._path.name}-journal").unlink(missing_ok=True)
        return not self.exists

    def release(self) -> None:
        """Let go of it."""
        self._close()
        self._lock.close()

    def _connection(self) -> sqlite3.Connection:
        if self._db is None:
            self._db = _connect(self._path)
        return self._db

    def _close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None


def make_folder(folder: Path) -> None:
    """Have the folder, for its owner alone, and on disk.

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
    """The first slot that nobody holds, and whose file can be used."""
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
    """Hold a slot from now on; `None` when somebody else does.

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
    """Delete a person's rows in every slot, whoever holds it; tells how many there were, and which files are damaged.

    Raises:
        sqlite3.Error, OSError, Unavailable: some file could not be got at for now; the others were.
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
    """What lies in a journal, for an operator's look; opens no store and takes nobody's slot."""
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
        waiting, aside = waiting + found.waiting, aside + found.aside
    return JournalCounts(waiting=waiting, aside=aside, unreadable=unreadable)


@contextmanager
def translate_errors() -> Iterator[None]:
    """What a file or SQLite complains of, in our words."""
    try:
        yield
    except (sqlite3.Error, OSError) as failed:
        raise Unavailable("journal", "cannot be read or written") from failed


def is_corruption(failed: BaseException) -> bool:
    """Whether a file holds something else than it should, and will tomorrow."""
    return _error_code(failed) in _DAMAGES


def _error_code(failed: BaseException) -> int:
    """What SQLite complains of, without the details."""
    return int(getattr(failed, "sqlite_errorcode", 0)) & 0xFF


def file_numbers(folder: Path) -> list[int]:
    """The slots that have a file."""
    return sorted(int(file.stem) for file in folder.glob("*.db") if file.stem.isdecimal())


def _connect_existing(path: Path) -> sqlite3.Connection | None:
    """A connection to a file that another process may hold, and may have removed in this moment."""
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
    """Have the names in a folder on disk, where the system can do that."""
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


def _to_row(
    slot: int,
    number: int,
    session: bytes,
    tenant: str,
    site: str,
    persons: str,
    begun_at: int,
    beginning: str,
    closing: str | None,
    incarnation: str,
    tried: int | None,
) -> JournalRow:
    try:
        whose, when = msgspec.json.decode(persons, type=tuple[str, ...]), from_micros(begun_at)
    except (ValueError, OverflowError):
        # As one that cannot be opened.
        whose, when, beginning, closing = (), _LONG_AGO, "", None
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
    return JournalCounts(waiting=waiting, aside=aside)
