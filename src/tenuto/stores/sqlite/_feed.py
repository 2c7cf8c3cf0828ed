"""The change feed: which sessions other processes changed, for caches to ask before each hit."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final

from tenuto.model.store_reports import Invalidation
from tenuto.stores.sqlite._errors import store_error
from tenuto.stores.sqlite._file import open_reader

_KEY_BYTES: Final = 16

OnInvalidate = Callable[[Invalidation | None], None]


class SqliteFeed:
    """Compares SQLite's data version, and reads the list of changes only when that moved.

    It has its own connection on the event loop's thread: reading the data version takes a few microseconds. It waits
    for no lock: if the file is locked, `catch_up` returns false.
    """

    def __init__(self, path: Path, writer: int) -> None:
        self._path = path
        self._writer = writer
        self._watchers: list[OnInvalidate] = []
        self._db: sqlite3.Connection | None = None
        self._version: int | None = None
        self._number = 0

    @asynccontextmanager
    async def watch(self, on_invalidate: OnInvalidate) -> AsyncIterator[None]:
        """Call `on_invalidate` for each change while the context is open."""
        if self._db is None:
            try:
                self._db = open_reader(self._path, timedelta(0))
                self._resync(self._db)
            except sqlite3.Error as exc:
                self.close()
                raise store_error(exc) from exc
        self._watchers.append(on_invalidate)
        try:
            yield
        finally:
            self._watchers.remove(on_invalidate)
            if not self._watchers:
                self.close()

    @property
    def listening(self) -> bool:
        """Whether what others commit will be found."""
        return self._db is not None

    def drain_invalidations(self) -> bool:
        """Report what others have committed so far."""
        db = self._db
        if db is None:
            return False
        try:
            version = db.execute("PRAGMA data_version").fetchone()[0]
            if version == self._version:
                return True
            self._report_changes(db)
        except sqlite3.Error:
            self._version = None
            self._notify(None)
            return False
        self._version = version
        return True

    def close(self) -> None:
        """Let go of the connection."""
        if self._db is not None:
            self._db.close()
            self._db = None

    def _report_changes(self, db: sqlite3.Connection) -> None:
        if self._version is None:
            self._resync(db)
            return
        rows = db.execute(
            "SELECT number, writer, keys FROM change WHERE number > ? ORDER BY number", (self._number,)
        ).fetchall()
        if not rows:
            return
        if rows[0][0] != self._number + 1:
            self._resync(db)  # The list was pruned past the last entry we saw.
            return
        self._number = rows[-1][0]
        # Own commits too: a cancelled caller does not know that its write was committed.
        for _, writer, keys in rows:
            changed = tuple(keys[at : at + _KEY_BYTES] for at in range(0, len(keys), _KEY_BYTES))
            local = writer == self._writer
            # The list does not hold the kind of change, so assume that others removed something.
            self._notify(Invalidation(keys=changed, removed=not local, local=local))

    def _resync(self, db: sqlite3.Connection) -> None:
        """Start from the present state and invalidate everything cached before."""
        self._version = db.execute("PRAGMA data_version").fetchone()[0]
        self._number = db.execute("SELECT coalesce(max(number), 0) FROM change").fetchone()[0]
        self._notify(None)

    def _notify(self, news: Invalidation | None) -> None:
        for on_invalidate in self._watchers:
            on_invalidate(news)
