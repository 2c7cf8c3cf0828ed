"""SQLite's errors as ours."""

from __future__ import annotations

import sqlite3

from tenuto.errors import StoreDamaged, StoreFull, StoreReadOnly, StoreRejected, TenutoError, Unavailable

_PRIMARY_CODE = 0xFF


def store_error(exc: sqlite3.Error) -> TenutoError:
    """The error callers know; raise or deliver it with `exc` as its cause."""
    match _error_code(exc):
        case sqlite3.SQLITE_FULL:
            fault: TenutoError = StoreFull()
        case sqlite3.SQLITE_READONLY:
            fault = StoreReadOnly()
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            fault = StoreDamaged()
        case _:
            fault = Unavailable("session store")
    fault.__cause__ = exc
    return fault


def lock_held(exc: sqlite3.Error) -> TenutoError:
    """The error for a step that never began, since another process held the lock too long."""
    fault = StoreRejected("session store", "is locked by another process")
    fault.__cause__ = exc
    return fault


def is_busy(exc: sqlite3.Error) -> bool:
    """Whether another connection was in the way, so that trying again helps."""
    return _error_code(exc) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_full(exc: sqlite3.Error) -> bool:
    """Whether there was no room left."""
    return _error_code(exc) == sqlite3.SQLITE_FULL


def is_not_sqlite(exc: sqlite3.Error) -> bool:
    """Whether the file is no SQLite database at all."""
    return _error_code(exc) == sqlite3.SQLITE_NOTADB


def _error_code(exc: sqlite3.Error) -> int | None:
    code: int | None = getattr(exc, "sqlite_errorcode", None)
    return None if code is None else code & _PRIMARY_CODE
