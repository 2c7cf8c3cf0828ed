"""Commits of sessions that several processes change at a time, made in turn.

Without turns the process that is quickest wins again and again, and the others go on losing. A refused commit marks its
key; while that is recent, commits of the key wait for a lock. A commit that is refused then keeps the lock, on a
connection of its own, until it comes again with what it was told.
"""

from __future__ import annotations

import asyncio
from asyncio import TimerHandle, get_running_loop
from collections.abc import Sequence
from typing import Any, Final

from tenuto.errors import Unavailable
from tenuto.stores.postgres._client import Connection, Link, Row

_CONTENDED: Final = 1.0
"""Seconds after a refusal for which a key's commits are made in turn."""
_AWAITED: Final = 0.2
"""Seconds that a lock is kept for a refused commit to come again: less than others wait for it."""
_IDLE: Final = 0.002
"""Seconds that it is kept for another commit."""
_IN_A_ROW: Final = 4
"""Commits in one turn: handing a turn over takes longer than a commit."""
_MOST: Final = 3
"""Connections in use for this."""
_MOST_KEYS: Final = 1000


class Turns:
    """The keys that are contended, and the locks that are kept for them."""

    def __init__(self, link: Link, statement: str) -> None:
        self._link = link
        self._statement = statement
        self._refused_at: dict[bytes, float] = {}
        self._kept: dict[bytes, tuple[Connection, int, TimerHandle]] = {}
        self._busy = 0
        self._ending: set[asyncio.Task[None]] = set()

    def mark(self, key: bytes) -> None:
        """A commit of this key was refused."""
        now = get_running_loop().time()
        self._refused_at.pop(key, None)
        self._refused_at[key] = now
        while len(self._refused_at) > _MOST_KEYS:
            del self._refused_at[next(iter(self._refused_at))]

    def are_due(self, key: bytes) -> bool:
        """Whether a commit of this key is to be made in turn."""
        if not self._refused_at or key not in self._refused_at:
            return False
        if key in self._kept:
            return True
        if get_running_loop().time() - self._refused_at[key] < _CONTENDED:
            return self._busy + len(self._kept) < _MOST
        del self._refused_at[key]
        return False

    async def commit(self, key: bytes, arguments: Sequence[Any]) -> Row | None:
        """Commit in turn; what stands instead if that is refused.

        Raises:
            Unavailable: as `Link.fetch`.
        """
        kept = self._kept.pop(key, None)
        self._busy += 1
        try:
            if kept is None:
                connection, made = await self._link.acquire(), 0
            else:
                connection, made, timer = kept
                timer.cancel()
            keeps = made + 1 < _IN_A_ROW
            rows = await self._link.fetch_on(connection, self._statement, kept is not None, keeps, *arguments)
        finally:
            self._busy -= 1
        if rows:
            self.mark(key)
            self._keep(key, connection, made, _AWAITED)
            return rows[0]
        if keeps:
            self._keep(key, connection, made + 1, _IDLE)
        else:
            self._link.release(connection, sound=True)
        return None

    def _keep(self, key: bytes, connection: Connection, made: int, seconds: float) -> None:
        timer = get_running_loop().call_later(seconds, self._give_up, key)
        self._kept[key] = connection, made, timer

    async def close(self) -> None:
        """Give all locks up."""
        for key in list(self._kept):
            self._give_up(key)
        if self._ending:
            await asyncio.wait(self._ending)

    def _give_up(self, key: bytes) -> None:
        connection, _, timer = self._kept.pop(key)
        timer.cancel()
        task = asyncio.create_task(self._unlock(connection))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _unlock(self, connection: Connection) -> None:
        try:
            await self._link.fetch_on(connection, "SELECT pg_advisory_unlock_all()")
        except Unavailable:
            return  # The connection is closed, and the lock with it.
        self._link.release(connection, sound=True)
