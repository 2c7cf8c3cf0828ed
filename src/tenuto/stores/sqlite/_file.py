"""Opening the file: its permissions, pragmas and migrations, and what is refused."""

from __future__ import annotations

import errno
import os
import random
import sqlite3
import time
from contextlib import ExitStack, closing
from datetime import timedelta
from pathlib import Path
from typing import Final, Literal

from tenuto.errors import ForeignStore, InvalidSetting, StoreFull, StoreReadOnly, TenutoError, Unavailable
from tenuto.stores.sqlite._errors import is_not_sqlite, store_error
from tenuto.stores.sqlite._schema import create_tables, is_current
from tenuto.stores.sqlite._threads import wait_for_lock

Synchronous = Literal["full", "normal"]

_OWNER_ONLY: Final = 0o600
_STATEMENTS_KEPT: Final = 128
# Room for the pages that turns write to, and no more: a commit that has split a page walks through the whole cache,
# and what is not in it comes from the system's cache in a microsecond or two.
_CACHE_KIB: Final = 8 * 1024
# Larger than SQLite's 1,000 pages: a checkpoint costs two more fsyncs, and recovery of 16 MiB is still a blink.
_CHECKPOINT_PAGES: Final = 4000
_WAL_BYTES_KEPT: Final = 64 * 1024 * 1024
_PRAGMA_PATIENCE: Final = timedelta(seconds=5)


def check_path(path: str | Path) -> Path:
    """The file's absolute path.

    Raises:
        InvalidSetting: there can be no such file.
    """
    if str(path) in ("", ":memory:"):
        raise InvalidSetting("store", "SQLite needs a path; for sessions in memory use the memory store")
    found = Path(path).absolute()
    if not found.parent.is_dir():
        raise InvalidSetting("store", f"the folder {found.parent} does not exist")
    if found.is_dir():
        raise InvalidSetting("store", f"{found} is a folder")
    return found


def open_to_read(path: Path, timeout: timedelta, *, is_store: bool = True) -> sqlite3.Connection:
    """A connection that reads an existing file, also where nothing can be written.

    Raises:
        InvalidSetting: it is no database; or it `is_store`, and it is another program's or a newer release's.
        Unavailable: it cannot be read now.
    """
    try:
        return _open_to_read(f"{path.as_uri()}?mode=ro", path, timeout, is_store)
    except sqlite3.Error as exc:
        refusal = _open_error(path, exc)
        if not isinstance(refusal, StoreReadOnly):
            raise refusal from exc
    _check_no_log(path)
    try:
        return _open_to_read(f"{path.as_uri()}?immutable=1", path, timeout, is_store)
    except sqlite3.Error as exc:
        raise store_error(exc) from exc


def read_pragma(path: Path, pragma: str) -> str | int:
    """What SQLite says of an existing file, also where nothing can be written; raises as `open_to_read` does."""
    with closing(open_to_read(path, _PRAGMA_PATIENCE, is_store=False)) as db:
        try:
            value: str | int = db.execute(pragma).fetchone()[0]
        except sqlite3.Error as exc:
            raise store_error(exc) from exc
    return value


def _open_to_read(uri: str, path: Path, timeout: timedelta, is_store: bool) -> sqlite3.Connection:
    with ExitStack() as stack:
        db = stack.enter_context(closing(_connect(uri, timeout)))
        try:
            is_current(db, path)
        except InvalidSetting:
            if is_store:
                raise
        stack.pop_all()
    return db


def can_be_written(path: Path) -> bool:
    """Whether this process may write the file and the ones that SQLite makes beside it."""
    return _is_writable(path) and _is_writable(path.parent)


def _holds_bytes(file: Path) -> bool:
    return file.exists() and file.stat().st_size > 0


def log_of(path: Path) -> Path:
    """The write-ahead log beside a file."""
    return path.with_name(f"{path.name}-wal")


def open_file(
    path: Path, synchronous: Synchronous, readers: int, timeout: timedelta, read_only: bool = False
) -> tuple[sqlite3.Connection, ...]:
    """Create the file, for its owner alone, or bring it up to date; returns the writer's connection and the readers'.

    With `read_only` a file is opened as well that lies where nothing can be written; writing there is refused.

    Raises:
        InvalidSetting: it is no database, another program's, or a newer release's; or there can be no file here.
        Unavailable: it cannot be opened now.
    """
    _create_file(path)
    with ExitStack() as stack:
        try:
            writer = stack.enter_context(closing(_connect(path, timeout)))
            _upgrade(writer, path, timeout)
            _configure(writer, synchronous)
            others = [stack.enter_context(closing(open_reader(path, timeout))) for _ in range(readers)]
        except sqlite3.Error as exc:
            refusal = _open_error(path, exc)
            if read_only and isinstance(refusal, StoreReadOnly):
                return _open_immutable(path, readers, timeout)
            raise refusal from exc
        stack.pop_all()
    return writer, *others


def _create_file(path: Path) -> None:
    # The log first: another process that makes both at this moment writes the file before the log.
    if _holds_bytes(log_of(path)) and not _holds_bytes(path):
        raise InvalidSetting(
            "store",
            f"{path} is missing or empty, and the -wal file beside it holds changes to it: put the file back, "
            f"or remove {log_of(path)} to begin with a new store",
        )
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, _OWNER_ONLY))
    except (FileExistsError, PermissionError):
        return  # It exists, or opening it will fail with the reason.
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFull from error
        raise InvalidSetting("store", f"the file {path} cannot be made: {error.strerror}") from error


def _open_immutable(path: Path, readers: int, timeout: timedelta) -> tuple[sqlite3.Connection, ...]:
    """Open a file in a folder where SQLite cannot create the files that it needs to share it."""
    _check_no_log(path)
    with ExitStack() as stack:
        try:
            opened = [
                stack.enter_context(closing(_connect(f"{path.as_uri()}?immutable=1", timeout)))
                for _ in range(1 + readers)
            ]
            if not is_current(opened[0], path):
                raise StoreReadOnly  # An older release's; it would have to be brought up to date.
        except sqlite3.Error as exc:
            raise _open_error(path, exc) from exc
        stack.pop_all()
    return tuple(opened)


def _check_no_log(path: Path) -> None:
    """Without a log no process has the file open, so it is read as immutable; with one its last changes would be
    missing.
    """
    if _holds_bytes(log_of(path)):
        raise Unavailable(
            "session store",
            "is read-only, and its last changes lie in the -wal file beside it: copy both to a folder you may write",
        )


def _open_error(path: Path, exc: sqlite3.Error) -> TenutoError:
    if is_not_sqlite(exc):
        return ForeignStore("store", f"{path} is not a SQLite database")
    # Without write permission SQLite cannot create the shared memory that readers need.
    if not can_be_written(path):
        return StoreReadOnly()
    return store_error(exc)


def _is_writable(path: Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _upgrade(db: sqlite3.Connection, path: Path, timeout: timedelta) -> None:
    current = wait_for_lock(lambda: _check_current(db, path), timeout)
    if current and db.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
        return
    # Two processes that open a new file at once meet here, and SQLite does not wait on this switch by itself.
    wait_for_lock(lambda: db.execute("PRAGMA journal_mode = WAL"), timeout)
    wait_for_lock(lambda: db.execute("BEGIN IMMEDIATE"), timeout)
    if not is_current(db, path):
        create_tables(db)
    db.execute("COMMIT")


def _check_current(db: sqlite3.Connection, path: Path) -> bool:
    """Whether the file is current, as of one moment: another process may be making it right now."""
    db.execute("BEGIN")
    try:
        return is_current(db, path)
    finally:
        db.execute("ROLLBACK")


def _configure(db: sqlite3.Connection, synchronous: Synchronous) -> None:
    db.execute(f"PRAGMA synchronous = {'NORMAL' if synchronous == 'normal' else 'FULL'}")
    db.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
    db.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES_KEPT}")
    db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    # From now on `wait_for_lock` waits for locks, with shorter pauses than SQLite's.
    db.execute("PRAGMA busy_timeout = 0")


def open_reader(path: Path, timeout: timedelta) -> sqlite3.Connection:
    """A connection that only reads."""
    db = _connect(path, timeout)
    db.execute("PRAGMA query_only = ON")
    # A damaged text must not keep others from being read.
    db.text_factory = lambda raw: raw.decode(errors="replace")
    return db


def compact(db: sqlite3.Connection, timeout: timedelta) -> None:
    """Write the file anew without what was deleted, and empty the log, which holds older pages.

    Raises:
        Unavailable: another process reads an older state for longer than `timeout`, so the log cannot be emptied.
    """
    wait_for_lock(lambda: db.execute("VACUUM"), timeout)
    deadline = time.monotonic() + timeout.total_seconds()
    while db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
        if time.monotonic() > deadline:
            raise Unavailable(
                "session store", "is in use elsewhere: deleted data stays in its -wal file until it is compacted again"
            )
        time.sleep(random.uniform(0.0002, 0.003))


def _connect(file: Path | str, timeout: timedelta) -> sqlite3.Connection:
    """A connection to an existing file: one that is moved away meanwhile must not be replaced by an empty one."""
    return sqlite3.connect(
        file if isinstance(file, str) else f"{file.as_uri()}?mode=rw",
        uri=True,
        timeout=timeout.total_seconds(),
        isolation_level=None,
        check_same_thread=False,
        cached_statements=_STATEMENTS_KEPT,
    )
