"""What other processes changed, by LISTEN/NOTIFY: one connection that listens, and is doubted when it is silent.

Postgres sends a notification right after the change is committed, on its own way. So a cache can be behind by the
time the notification needs to our socket: below a millisecond on a quiet server, several on a busy one, while the
writer's caller may already know. Once it is there nothing old is shown, because unread bytes count as doubt. Nothing
is missed: the server keeps what a connection has not taken, and a broken connection drops everything.

What must not be shown even for that moment (a session deleted, reset, truncated or evicted) is told strictly: the
change has a number, a listener that heard of it says so by a lock on that number, and the writer returns when no
listener holds a lower one. A listener that hangs is waited for no longer than `PATIENCE`: by then it doubts itself.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeAlias

from tenuto.errors import TenutoError
from tenuto.model.store_reports import Invalidation
from tenuto.stores.postgres._batcher import Op
from tenuto.stores.postgres._client import Connection, unread
from tenuto.stores.postgres._errors import DRIVER_ERRORS

log = logging.getLogger(__name__)

Told: TypeAlias = Callable[[Invalidation | None], None]

PULSE: Final = 1.0
"""Seconds between two signs of life."""
DOUBT: Final = 2.0
"""Seconds after which nothing is vouched for, since the last sign of life was asked for: it may be read late."""
PATIENCE: Final = 2.5
"""Seconds a strict change waits for listeners; longer than they vouch without a sign of life."""
WRITER_LENGTH: Final = 8
_KEY_HEX: Final = 32
_NEWS: Final = re.compile(r"(.{8})(?:!([0-9a-f]{8}))?((?:[0-9a-f]{32})+)")
_RETRY: Final = 0.2


class PostgresFeed:
    """Listens while somebody watches."""

    def __init__(self, connect: Callable[[], Awaitable[Connection]], schema: str, writer: str) -> None:
        self._connect = connect
        self._schema = schema
        self._writer = writer
        self._told: list[Told] = []
        self._listening: asyncio.Task[None] | None = None
        self._tried = asyncio.Event()
        self._heard = float("-inf")
        self._unread: Callable[[], bool] = lambda: False
        self._awake = asyncio.Event()
        self._strict = 0

    @asynccontextmanager
    async def watch(self, told: Told) -> AsyncIterator[None]:
        """Call `told` with changes; waits until the first connection listens, or fails to."""
        self._told.append(told)
        if self._listening is None:
            self._tried.clear()
            self._listening = asyncio.create_task(self._listen())
        try:
            await self._tried.wait()
            yield
        finally:
            self._told.remove(told)
            if not self._told:
                await self._stop()

    @property
    def listening(self) -> bool:
        """Whether a sign of life came lately."""
        return time.monotonic() - self._heard < DOUBT

    def catch_up(self) -> bool:
        """Whether a sign of life came lately and nothing waits to be read."""
        return self.listening and not self._unread()

    async def _stop(self) -> None:
        """Listen no more: nobody watches."""
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
            # An outage is told once, not with every attempt to end it.
            level = logging.WARNING if time.monotonic() - began > DOUBT else logging.DEBUG
            await asyncio.sleep(_RETRY)

    async def _listen_once(self) -> None:
        connection = await self._connect()
        try:
            connection.add_termination_listener(lambda _: self._mark_stale())
            asked = time.monotonic()
            async with asyncio.timeout(DOUBT):
                await connection.add_listener(self._schema, self._on_notify)
                vouched = self._strict = await connection.fetchval("SELECT vouch()")
            # What changed while nobody listened is not known.
            self._mark_stale()
            self._unread = unread(connection)
            self._heard = asked
            self._tried.set()
            while not connection.is_closed():
                vouched = await self._ping_or_acknowledge(connection, vouched)
            raise ConnectionResetError("the listening connection ended")
        finally:
            connection.terminate()

    async def _ping_or_acknowledge(self, connection: Connection, vouched: int) -> int:
        """Wait for the next pulse, or for a strict change, and let the server know that we have heard of it."""
        self._awake.clear()
        if self._strict == vouched:
            with suppress(TimeoutError):
                async with asyncio.timeout(PULSE):
                    await self._awake.wait()
        heard, asked = self._strict, time.monotonic()
        async with asyncio.timeout(DOUBT):
            if heard == vouched:
                await connection.execute("SELECT 1")
            else:
                await connection.execute("SELECT vouch_on($1, $2)", heard, vouched)
        self._heard = asked
        return heard

    def _on_notify(self, _connection: Any, _pid: int, _channel: str, told: object) -> None:
        try:
            writer, strict, keys = parse_payload(str(told))
        except ValueError:
            # Somebody else uses the channel; whatever it meant, nothing may be trusted after it.
            self._notify(None)
            return
        # Our own changes are told too: a caller that gave up waiting does not know that its write went through.
        self._notify(Invalidation(keys=tuple(keys), taken_away=strict is not None, ours=writer == self._writer))
        if strict is not None:
            self._strict = strict
            self._awake.set()

    def _mark_stale(self) -> None:
        self._heard = float("-inf")
        self._unread = lambda: False
        self._awake.set()
        self._notify(None)

    def _notify(self, news: Invalidation | None) -> None:
        for told in self._told:
            told(news)


def payload(writer: str, ops: Iterable[Op]) -> str:
    """What a batch tells: the server sends it if anything changed. A batch is small enough for one notification."""
    return writer + "".join({op[0].hex(): None for op in ops})


def parse_payload(told: str) -> tuple[str, int | None, list[bytes]]:
    """Who tells, the number of a strict change, and the keys of the sessions that changed.

    Raises:
        ValueError: it is none of our notifications.
    """
    news = _NEWS.fullmatch(told)
    if news is None:
        raise ValueError("not a notification of ours")
    writer, strict, digits = news.groups()
    keys = [bytes.fromhex(digits[at : at + _KEY_HEX]) for at in range(0, len(digits), _KEY_HEX)]
    return writer, None if strict is None else int(strict, 16), keys
