"""The change feed by LISTEN/NOTIFY: one listening connection, which is in doubt when it is silent.

Postgres sends a notification right after the commit. So a cache can be behind for the time it takes to the socket:
below a millisecond on a quiet server, several on a busy one, while the writer's caller already has its reply.
Unread bytes count as doubt, so that nothing outdated is served afterwards. Nothing is missed: the server queues what a
connection has not read, and a lost connection invalidates everything.

Removals (a session deleted, reset, truncated or evicted) must not be served even for that moment. They are strict: the
change has a number, each listener acknowledges it by a lock on that number, and the writer returns when no listener
holds a lower one. It waits for a hanging listener no longer than `PATIENCE`: by then that is in doubt itself.
"""

from __future__ import annotations

import asyncio
import logging
import time
from base64 import b64decode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from struct import Struct
from typing import Any, Final, TypeAlias

from tenuto.background import run_in_background
from tenuto.errors import TenutoError, Unavailable
from tenuto.pauses import Backoff
from tenuto.stores.postgres._client import Connection, ConnectionPool, unread
from tenuto.stores.postgres._errors import DRIVER_ERRORS

log = logging.getLogger(__name__)

OnChange: TypeAlias = Callable[[bytes | None, int], None]

PULSE: Final = 1.0
"""Seconds between two pings."""
DOUBT: Final = 2.0
"""Seconds after the last answered ping was sent, from which on the feed is in doubt."""
PATIENCE: Final = 2.5
"""Seconds a strict change waits for listeners; longer than `DOUBT`."""
_RETRY: Final = 0.2
# A key, and a revision.
_CHANGE: Final = Struct(">16sq")


class PostgresFeed:
    """The `RecordFeed` port over LISTEN/NOTIFY. It listens while there are watchers."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._watchers: list[OnChange] = []
        self._listening: asyncio.Task[None] | None = None
        self._tried = asyncio.Event()
        self._heard = float("-inf")
        self._unread: Callable[[], bool] = lambda: False
        self._awake = asyncio.Event()
        self._strict = 0

    def caught_up(self) -> bool:
        """Whether a ping was answered lately and no bytes are unread."""
        return time.monotonic() - self._heard < DOUBT and not self._unread()

    @asynccontextmanager
    async def watch(self, on_change: OnChange) -> AsyncIterator[None]:
        """Call `on_change` with changes; waits until the first connection listens, or fails to."""
        self._watchers.append(on_change)
        if self._listening is None:
            self._tried.clear()
            self._listening = run_in_background(self._listen(), "postgres feed")
        try:
            await self._tried.wait()
            yield
        finally:
            self._watchers.remove(on_change)
            if not self._watchers:
                self._heard = float("-inf")
                listening, self._listening = self._listening, None
                if listening is not None:
                    listening.cancel()
                    await asyncio.wait([listening])

    async def _listen(self) -> None:
        level = logging.WARNING
        while True:
            began = time.monotonic()
            try:
                await self._listen_once()
            except (*DRIVER_ERRORS, TenutoError) as exc:
                log.log(level, "listening for changes failed (%s); caches do not answer meanwhile", type(exc).__name__)
            finally:
                self._mark_stale()
                self._tried.set()
            # Warn once for an outage, not for each attempt.
            level = logging.WARNING if time.monotonic() - began > DOUBT else logging.DEBUG
            await asyncio.sleep(_RETRY)

    async def _listen_once(self) -> None:
        connection = await self._pool.connect()
        try:
            connection.add_termination_listener(lambda _: self._mark_stale())
            sent_at = time.monotonic()
            async with asyncio.timeout(DOUBT):
                await connection.add_listener(self._pool.schema, self._on_notify)
                confirmed = self._strict = await connection.fetchval("SELECT join_feed()")
            # Changes before it listened are unknown.
            self._mark_stale()
            self._unread = unread(connection)
            self._heard = sent_at
            self._tried.set()
            while not connection.is_closed():
                confirmed = await self._ping_or_confirm(connection, confirmed)
            raise ConnectionResetError("the listening connection ended")
        finally:
            connection.terminate()

    async def _ping_or_confirm(self, connection: Connection, confirmed: int) -> int:
        """Wait for the next ping, or for a strict change, which is then confirmed."""
        self._awake.clear()
        if self._strict == confirmed:
            with suppress(TimeoutError):
                async with asyncio.timeout(PULSE):
                    await self._awake.wait()
        newest, sent_at = self._strict, time.monotonic()
        async with asyncio.timeout(DOUBT):
            if newest == confirmed:
                await connection.execute("SELECT 1")
            else:
                await connection.execute("SELECT confirm_feed($1, $2)", newest, confirmed)
        self._heard = sent_at
        return newest

    def _on_notify(self, _connection: Any, _pid: int, _channel: str, message: object) -> None:
        try:
            strict, changes = parse_notification(str(message))
        except ValueError:
            # Another program uses the channel.
            self._report(None, 0)
            return
        # Own changes too: a cancelled caller does not know that its write was committed.
        for key, revision in changes:
            self._report(key, revision)
        if strict is not None:
            self._strict = strict
            self._awake.set()

    def _mark_stale(self) -> None:
        self._heard = float("-inf")
        self._unread = lambda: False
        self._awake.set()
        self._report(None, 0)

    def _report(self, key: bytes | None, revision: int) -> None:
        for on_change in self._watchers:
            on_change(key, revision)


def parse_notification(message: str) -> tuple[int | None, list[tuple[bytes, int]]]:
    """The number of a strict change, and keys with the revisions they were brought to.

    Raises:
        ValueError: it is none of our notifications.
    """
    strict, mark, digits = message.partition("!")
    changes = b64decode(digits)
    if not mark or len(changes) % _CHANGE.size:
        raise ValueError("not a notification of ours")
    return int(strict, 16) if strict else None, list(_CHANGE.iter_unpack(changes))


async def wait_for_caches(pool: ConnectionPool, strict: int) -> None:
    """Wait until every cache has acknowledged a strict change. It is committed, so this must not raise."""
    until = time.monotonic() + PATIENCE
    backoff = Backoff(0.001, 0.05)
    while time.monotonic() < until:
        try:
            if (await pool.fetch_row("SELECT heard_by_all($1) AS heard", strict))["heard"]:
                return
        except Unavailable as exc:
            log.debug("could not check whether caches acknowledged a change: %s", exc)
        await backoff.wait()
    log.warning("a cache did not acknowledge a change within %s s; it serves nothing until it does", PATIENCE)
