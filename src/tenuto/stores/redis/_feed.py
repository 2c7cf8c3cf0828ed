"""The feed of changed records: invalidations by the servers, as changes from one revision to the next.

A server tells every listener which record a commit has changed, before it answers the commit; but no revision. Of a
commit of our own we know it: the first change that is heard while it is under way counts as ours, if it was made
at all. Every other one leads to a revision that is not known, so that what is cached of the record is not confirmed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from tenuto.model.stored import UNKNOWN_REVISION
from tenuto.stores.redis._keys import RecordKeys
from tenuto.stores.redis._tracking import ClientTracking

_HEARD: Final = -1


class RedisRecordFeed:
    """The `RecordFeed` port."""

    def __init__(self, tracking: ClientTracking, keys: RecordKeys) -> None:
        self._tracking = tracking
        self._keys = keys
        self._on_change: Callable[[bytes | None, int], None] | None = None
        self.under_way: dict[bytes, int] = {}
        """The records with a commit on its way, and the revision it leads to."""

    def caught_up(self) -> bool:
        return self._on_change is not None and self._tracking.catch_up()

    @asynccontextmanager
    async def watch(self, on_change: Callable[[bytes | None, int], None]) -> AsyncIterator[None]:
        self._on_change = on_change
        try:
            async with self._tracking.watch(self._hear):
                yield
        finally:
            self._on_change = None
            self.under_way.clear()

    def expect(self, key: bytes, revision: int) -> None:
        """A commit is about to be sent that leads to a revision; 0 for a removal."""
        if self._on_change is None:
            return
        if key in self.under_way:
            # Of two at once it cannot be told which one is heard.
            revision = UNKNOWN_REVISION
            self._on_change(key, revision)
        self.under_way[key] = revision

    def end(self, key: bytes, *, made: bool) -> None:
        """A commit was answered, or failed, and `caught_up` was called since."""
        if self.under_way.pop(key, None) == _HEARD and not made and self._on_change is not None:
            self._on_change(key, UNKNOWN_REVISION)

    def _hear(self, names: list[bytes] | None) -> None:
        tell = self._on_change
        if tell is None:
            return
        if names is None:
            tell(None, 0)
            return
        for name in names:
            key = self._keys.parse_record(name)
            revision = self.under_way.get(key, UNKNOWN_REVISION)
            if revision == _HEARD:
                revision = UNKNOWN_REVISION
            elif revision != UNKNOWN_REVISION:
                self.under_way[key] = _HEARD
            tell(key, revision)
