"""Who lives: each process of a folder holds a lock, which ends with it however it ends.

The lock is that of an SQLite file, which works on every system.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from tenuto.errors import Unavailable
from tenuto.stores.engine.journal_files.shared import MOST_MEMBERS

_BUSY: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def acquire_member(folder: Path) -> tuple[int, sqlite3.Connection]:
    """Take the first free place, and the lock that holds it.

    Raises:
        Unavailable: there is none.
    """
    for member in range(MOST_MEMBERS):
        lock = _try_lock(folder, member)
        if lock is not None:
            return member, lock
    raise Unavailable("journal", f"is used by {MOST_MEMBERS} processes already")


def is_alive(folder: Path, member: int) -> bool:
    """Whether a process holds a place."""
    if not _path(folder, member).exists():
        return False
    lock = _try_lock(folder, member)
    if lock is None:
        return True
    with closing(lock):
        return False


def living_members(folder: Path, *, but: int | None = None) -> list[int]:
    """The places that are held."""
    return [member for member in range(MOST_MEMBERS) if member != but and is_alive(folder, member)]


def _try_lock(folder: Path, member: int) -> sqlite3.Connection | None:
    path = _path(folder, member)
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    lock = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        lock.close()
        if error.sqlite_errorcode & 0xFF in _BUSY:
            return None
        raise
    return lock


def _path(folder: Path, member: int) -> Path:
    return folder / f"member-{member}.lock"
