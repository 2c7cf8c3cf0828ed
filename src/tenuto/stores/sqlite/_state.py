"""Key/value state as rows."""

from __future__ import annotations

import sqlite3
from typing import Any

import msgspec

from tenuto.errors import Unavailable, VersionConflict
from tenuto.model import StateEntry
from tenuto.stores.sqlite._writer import Transaction


def read(db: sqlite3.Connection, drawer: bytes, key: str) -> StateEntry | None:
    """One value."""
    row = db.execute("SELECT key, value, version FROM state WHERE drawer = ? AND key = ?", (drawer, key)).fetchone()
    return None if row is None else _entry(row)


def write(txn: Transaction, drawer: bytes, owner: bytes, key: str, value: bytes, if_version: int | None) -> int:
    """Set a value, in a drawer of this owner's; returns its version."""
    row = txn.execute("SELECT version FROM state WHERE drawer = ? AND key = ?", (drawer, key)).fetchone()
    version: int = row[0] if row else 0
    if if_version is not None and if_version != version:
        raise VersionConflict(if_version, version)
    txn.execute("INSERT OR REPLACE INTO state VALUES (?, ?, ?, ?, ?)", (drawer, key, value, version + 1, owner))
    return version + 1


def delete(txn: Transaction, drawer: bytes, key: str) -> bool:
    """Remove a value."""
    return txn.execute("DELETE FROM state WHERE drawer = ? AND key = ?", (drawer, key)).rowcount > 0


def listed(db: sqlite3.Connection, drawer: bytes, after: str, limit: int) -> tuple[StateEntry, ...]:
    """Values in order of their keys; SQLite compares UTF-8 bytes, which is the order of code points."""
    rows = db.execute(
        "SELECT key, value, version FROM state WHERE drawer = ? AND key > ? ORDER BY key LIMIT ?",
        (drawer, after, limit),
    )
    return tuple(_entry(row) for row in rows)


def _entry(row: tuple[str, bytes, int]) -> StateEntry:
    key, raw, version = row
    try:
        value: Any = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError):
        raise Unavailable("state value", "cannot be decoded") from None
    return StateEntry(key=key, value=value, version=version)
