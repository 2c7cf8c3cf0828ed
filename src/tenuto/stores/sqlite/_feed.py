"""The feed of a SQLite file: which records were changed, by any process."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final, TypeAlias

from tenuto.stores.sqlite._errors import store_error
from tenuto.stores.sqlite._file import open_reader

OnChange: TypeAlias = Callable[[bytes | None, int], None]
_KEY_BYTES: Final = 16
_CHANGE_BYTES: Final = 24


class SqliteRecordFeed:
    """Compares SQLite's data version, and reads the list of changes only when that moved.

    It has its own connection on the event loop's thread: reading the data version takes a few microseconds. It waits
    for no lock: if the file is locked, nothing is confirmed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db: sqlite3.Connection | None = None
        self._on_change: OnChange | None = None
        self._version: int | None = None
        self._number = 0

    def caught_up(self) -> bool:
        db, on_change = self._db, self._on_change
        if db is None or on_change is None:
            return False
        try:
            version = db.execute("PRAGMA data_version").fetchone()[0]
            if version != self._version:
                self._report(db, on_change)
        except sqlite3.Error:
            self._version = None
            on_change(None, 0)
            return False
        self._version = version
        return True

    @asynccontextmanager
    async def watch(self, on_change: OnChange) -> AsyncIterator[None]:
        try:
            self._db = open_reader(self._path, timedelta(0))
            self._start_anew(self._db)
        except sqlite3.Error as exc:
            self.close()
            raise store_error(exc) from exc
        self._on_change = on_change
        try:
            yield
        finally:
            self._on_change = None
            self.close()

    def close(self) -> None:
        """Close the connection."""
        if self._db is not None:
            self._db.close()
            self._db = None

    def _report(self, db: sqlite3.Connection, on_change: OnChange) -> None:
        if self._version is None:
            self._start_anew(db)
            on_change(None, 0)
            return
        rows = db.execute("SELECT number, keys FROM change WHERE number > ? ORDER BY number", (self._number,))
        for number, keys in rows.fetchall():
            if number != self._number + 1:
                on_change(None, 0)  # The list was pruned past what was read last.
            self._number = number
            for at in range(0, len(keys), _CHANGE_BYTES):
                revision = keys[at + _KEY_BYTES : at + _CHANGE_BYTES]
                on_change(keys[at : at + _KEY_BYTES], int.from_bytes(revision, "big"))

    def _start_anew(self, db: sqlite3.Connection) -> None:
        self._version = db.execute("PRAGMA data_version").fetchone()[0]
        (self._number,) = db.execute("SELECT coalesce(max(number), 0) FROM change").fetchone()
