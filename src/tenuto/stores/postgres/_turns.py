"""Commits of sessions that several processes change at a time, made in turn.

Without turns the process that is quickest wins again and again, and the others go on losing. A refused commit marks its
key; while that is recent, commits of the key wait for a lock. A commit that is refused then keeps the lock, on a
connection of its own, until it comes again with what it was told.
"""

from __future__ import annotations

import asyncio
from asyncio import Future, TimerHandle, get_running_loop
from typing import Final

from tenuto.background import run_in_background
from tenuto.errors import Unavailable
from tenuto.lru_cache import LruCache
from tenuto.model.stored import RecordChange, Refused
from tenuto.stores.postgres._client import Connection, ConnectionPool
from tenuto.stores.postgres._errors import STORE, InDoubt
from tenuto.stores.postgres._rows import COMMIT_HEADS, head_arguments, to_record

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

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._refused_at = LruCache[bytes, float](_MOST_KEYS)
        self._under_way: dict[bytes, asyncio.Task[None]] = {}
        self._kept: dict[bytes, tuple[Connection, int, TimerHandle]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def mark(self, key: bytes) -> None:
        """A commit of this key was refused."""
        self._refused_at.put(key, get_running_loop().time())

    def are_due(self, key: bytes) -> bool:
        """Whether a commit of this key is to be made in turn; of one process only one is at a time."""
        refused_at = self._refused_at.peek(key)
        if refused_at is None or key in self._under_way:
            return False
        if key in self._kept:
            return True
        if get_running_loop().time() - refused_at < _CONTENDED:
            return len(self._under_way) + len(self._kept) < _MOST
        self._refused_at.pop(key)
        return False

    def commit(self, change: RecordChange) -> Future[Refused | None]:
        """Commit in turn. Cancelling the future changes nothing."""
        future: Future[Refused | None] = get_running_loop().create_future()
        self._under_way[change.key] = asyncio.create_task(self._run(change, future))
        return future

    async def close(self) -> None:
        """Give all locks up."""
        self._is_closed = True
        for key in list(self._kept):
            self._give_up(key)
        if pending := (*self._under_way.values(), *self._ending):
            await asyncio.wait(pending)

    async def _run(self, change: RecordChange, future: Future[Refused | None]) -> None:
        try:
            refused = await self._commit(change)
        except BaseException as error:
            # The caller gets an answer: it must not wait for ever.
            if not future.done():
                future.set_exception(error if isinstance(error, Exception) else InDoubt(STORE))
            if not isinstance(error, Exception):
                raise
        else:
            if not future.done():
                future.set_result(refused)
        finally:
            del self._under_way[change.key]

    async def _commit(self, change: RecordChange) -> Refused | None:
        key = change.key
        kept = self._kept.pop(key, None)
        if kept is None:
            connection, made = await self._pool.acquire(), 0
        else:
            connection, made, timer = kept
            timer.cancel()
        keeps = made + 1 < _IN_A_ROW
        rows = await self._pool.fetch_on(connection, COMMIT_HEADS, *head_arguments([change], kept is not None, keeps))
        if rows:
            self.mark(key)
            self._keep(key, connection, made, _AWAITED)
            return Refused(standing=(to_record(rows[0]),))
        if keeps:
            self._keep(key, connection, made + 1, _IDLE)
        else:
            self._pool.release(connection, sound=True)
        return None

    def _keep(self, key: bytes, connection: Connection, made: int, seconds: float) -> None:
        if self._is_closed:
            self._pool.release(connection, sound=False)
            return
        timer = get_running_loop().call_later(seconds, self._give_up, key)
        self._kept[key] = connection, made, timer

    def _give_up(self, key: bytes) -> None:
        connection, _, timer = self._kept.pop(key)
        timer.cancel()
        task = run_in_background(self._unlock(connection), "postgres unlock")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _unlock(self, connection: Connection) -> None:
        try:
            await self._pool.fetch_on(connection, "SELECT pg_advisory_unlock_all()")
        except Unavailable:
            return  # The connection is closed, and the lock with it.
        self._pool.release(connection, sound=True)
