"""Opening the file: who may read it, how safely it is written, and what is refused."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from datetime import timedelta
from pathlib import Path
from typing import Final, Literal, TypeVar

from tenuto.errors import InvalidSetting, StoreReadOnly, TenutoError
from tenuto.stores.sqlite._faults import is_busy, is_foreign_file, translated
from tenuto.stores.sqlite._schema import is_current, migrate

T = TypeVar("T")

Synchronous = Literal["full", "normal"]

_OWNER_ONLY: Final = 0o600
_STATEMENTS_KEPT: Final = 128
_CACHE_KIB: Final = 64 * 1024
# Larger than SQLite's 1,000 pages: a checkpoint costs two more fsyncs, and recovery of 16 MiB is still a blink.
_CHECKPOINT_PAGES: Final = 4000
_WAL_BYTES_KEPT: Final = 64 * 1024 * 1024


def checked_path(path: str | Path) -> Path:
    """The file's absolute path.

    Raises:
        InvalidSetting: there can be no such file.
    """
    if str(path) in ("", ":memory:"):
        raise InvalidSetting("SQLite file", "it needs a path; for sessions in memory use the memory store")
    found = Path(path).absolute()
    if not found.parent.is_dir():
        raise InvalidSetting("SQLite file", f"the folder {found.parent} does not exist")
    if found.is_dir():
        raise InvalidSetting("SQLite file", f"{found} is a folder")
    return found


def open_file(
    path: Path, synchronous: Synchronous, readers: int, patience: timedelta
) -> tuple[sqlite3.Connection, ...]:
    """Create the file, for its owner alone, or bring it up to date; returns the writer's connection and the readers'.

    Raises:
        InvalidSetting: it is no database, another program's, or a newer release's.
        Unavailable: it cannot be opened now.
    """
    with suppress(FileExistsError, PermissionError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, _OWNER_ONLY))
    with ExitStack() as stack:
        try:
            writer = stack.enter_context(closing(_connect(path, patience)))
            _bring_up_to_date(writer, patience)
            _tune(writer, synchronous)
            others = [stack.enter_context(closing(open_reader(path, patience))) for _ in range(readers)]
        except sqlite3.Error as exc:
            raise _refusal(path, exc) from exc
        stack.pop_all()
    return writer, *others


def _refusal(path: Path, exc: sqlite3.Error) -> TenutoError:
    if is_foreign_file(exc):
        return InvalidSetting("SQLite file", f"{path} is not a SQLite database")
    # Without the right to write SQLite cannot even lay out the shared memory that readers need.
    if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        return StoreReadOnly()
    return translated(exc)


def _bring_up_to_date(db: sqlite3.Connection, patience: timedelta) -> None:
    current = insist(lambda: _looked_at(db), patience)
    if current and db.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
        return
    # Two processes that open a new file at once meet here, and SQLite does not wait on this switch by itself.
    insist(lambda: db.execute("PRAGMA journal_mode = WAL"), patience)
    insist(lambda: db.execute("BEGIN IMMEDIATE"), patience)
    if not is_current(db):
        migrate(db)
    db.execute("COMMIT")


def _looked_at(db: sqlite3.Connection) -> bool:
    """Whether the file is current, as of one moment: another process may be making it right now."""
    db.execute("BEGIN")
    try:
        return is_current(db)
    finally:
        db.execute("ROLLBACK")


def _tune(db: sqlite3.Connection, synchronous: Synchronous) -> None:
    db.execute(f"PRAGMA synchronous = {'FULL' if synchronous == 'full' else 'NORMAL'}")
    db.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
    db.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES_KEPT}")
    db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    # From now on `insist` waits for locks, with shorter pauses than SQLite's.
    db.execute("PRAGMA busy_timeout = 0")


def open_reader(path: Path, patience: timedelta) -> sqlite3.Connection:
    """A connection that only reads."""
    db = _connect(path, patience)
    db.execute("PRAGMA query_only = ON")
    return db


def insist(step: Callable[[], T], patience: timedelta) -> T:
    """Repeat a step while other processes hold its lock.

    SQLite's own waiting backs off to 100 ms, which loses against a neighbour that commits without pause.
    """
    deadline = time.monotonic() + patience.total_seconds()
    while True:
        try:
            return step()
        except sqlite3.OperationalError as exc:
            if not is_busy(exc) or time.monotonic() > deadline:
                raise
        time.sleep(random.uniform(0.0002, 0.003))


def _connect(path: Path, patience: timedelta) -> sqlite3.Connection:
    return sqlite3.connect(
        path,
        timeout=patience.total_seconds(),
        isolation_level=None,
        check_same_thread=False,
        cached_statements=_STATEMENTS_KEPT,
    )
