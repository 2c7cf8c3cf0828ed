"""The heads that the writer knows without asking the file.

They are true as long as nobody else writes, which SQLite tells at the start of each transaction. A step takes a head
out and puts it back when it has written it: what fails in between is simply not known any more.
"""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from typing import Final

from tenuto.stores.sqlite._rows import Head

_MAX_HEADS: Final = 16 * 1024
_MAX_BYTES: Final = 128 * 1024 * 1024
_MAX_HEAD_BYTES: Final = 32 * 1024
_MAX_TAIL_BYTES: Final = 128 * 1024
# What a head, a message and an idempotency key take beside the texts in them, as measured.
_HEAD_BYTES: Final = 2048
_MESSAGE_BYTES: Final = 640
_KEY_BYTES: Final = 128


class HeadCache:
    """The heads last written, bounded by their number and by their size, each and together."""

    def __init__(self) -> None:
        self._heads: OrderedDict[bytes, tuple[Head, int]] = OrderedDict()
        self._size = 0
        self._version: int | None = None

    def validate(self, db: sqlite3.Connection) -> None:
        """At the start of a transaction: forget everything if another connection has committed since the last one."""
        version = db.execute("PRAGMA data_version").fetchone()[0]
        if version != self._version:
            self.clear()
            self._version = version

    def take(self, key: bytes) -> Head | None:
        """The head, which is then the taker's alone."""
        known = self._heads.pop(key, None)
        if known is None:
            return None
        self._size -= known[1]
        return known[0]

    def put(self, head: Head) -> None:
        """Know a head that was just written."""
        size = len(head.context) + len(head.attributes) + len(head.metadata) + len(head.scope)
        size += len(head.session_id) + len(head.title) + len(head.folded_title)
        if size > _MAX_HEAD_BYTES:
            return
        size += _HEAD_BYTES + _KEY_BYTES * len(head.older or ())
        if head.tail is not None:
            tail = sum(head.tail_sizes) + _MESSAGE_BYTES * len(head.tail)
            if tail > _MAX_TAIL_BYTES:
                head.tail, tail = None, 0
            size += tail
        self._heads[head.key] = head, size
        self._size += size
        while len(self._heads) > _MAX_HEADS or self._size > _MAX_BYTES:
            self._size -= self._heads.popitem(last=False)[1][1]

    def clear(self) -> None:
        """Know nothing."""
        self._heads.clear()
        self._size = 0
