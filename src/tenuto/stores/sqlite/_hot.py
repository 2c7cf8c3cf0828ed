"""The heads that the writer knows without asking the file.

They are true as long as nobody else writes, which SQLite tells at the start of each transaction. A step takes a head
out and puts it back when it has written it: what fails in between is simply not known any more.
"""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from typing import Final

from tenuto.stores.sqlite._rows import Head

_MAX_HEADS: Final = 2000
_MAX_HEAD_BYTES: Final = 32 * 1024
_MAX_TAIL_BYTES: Final = 128 * 1024


class Hot:
    """The heads last written, bounded by their number and by the size of each."""

    def __init__(self) -> None:
        self._heads: OrderedDict[bytes, Head] = OrderedDict()
        self._version: int | None = None

    def validate(self, db: sqlite3.Connection) -> None:
        """At the start of a transaction: forget everything if another connection has committed since the last one."""
        version = db.execute("PRAGMA data_version").fetchone()[0]
        if version != self._version:
            self._heads.clear()
            self._version = version

    def take(self, key: bytes) -> Head | None:
        """The head, which is then the taker's alone."""
        return self._heads.pop(key, None)

    def put(self, head: Head) -> None:
        """Know a head that was just written."""
        if len(head.context) + len(head.attributes) + len(head.metadata) + len(head.scope) > _MAX_HEAD_BYTES:
            return
        if head.tail_bytes > _MAX_TAIL_BYTES:
            head.tail = None
        self._heads[head.key] = head
        if len(self._heads) > _MAX_HEADS:
            self._heads.popitem(last=False)

    def clear(self) -> None:
        """Know nothing."""
        self._heads.clear()
