"""Counting SQLite commits from inside, for machines on which fsyncs cannot be counted from outside."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any


class CommitCounter:
    """Counts the commits of every SQLite connection that is opened from now on in this process."""

    def __init__(self) -> None:
        self.commits = 0

    def install(self) -> None:
        """Stand in for `sqlite3.connect`."""
        connect: Callable[..., sqlite3.Connection] = sqlite3.connect

        def counted(*args: Any, **kwargs: Any) -> sqlite3.Connection:
            db = connect(*args, **kwargs)
            db.set_trace_callback(self._saw)
            return db

        # The stub is overloaded by the kind of connection asked for; this passes anything on.
        sqlite3.connect = counted  # type: ignore[assignment]

    def _saw(self, statement: str) -> None:
        if statement.lstrip()[:6].upper() == "COMMIT":
            self.commits += 1
