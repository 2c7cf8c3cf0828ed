"""What other processes changed, by LISTEN/NOTIFY: one connection that listens, and is doubted when it is silent.

A notification leaves the server when the change is committed, and reaches us on its own way: for the time it
travels, commonly below a millisecond and as long as our event loop is busy, a cache can still show what was. It
is not lost: the server keeps what a connection has not taken yet, and a connection that breaks drops everything.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias

from tenuto.errors import TenutoError
from tenuto.stores.postgres._faults import DRIVER_ERRORS
from tenuto.stores.postgres._link import Connection

log = logging.getLogger(__name__)

Drop: TypeAlias = Callable[[Iterable[bytes] | None], None]

PULSE: Final = 1.0
"""Seconds between two signs of life."""
DOUBT: Final = 2.0
"""Seconds without a sign of life after which nothing is vouched for."""
WRITER_LENGTH: Final = 8
_KEY_HEX: Final = 32
_RETRY: Final = 0.2


class Feed:
    """Listens while somebody watches."""

    def __init__(self, connect: Callable[[], Awaitable[Connection]], schema: str, own: Callable[[str], bool]) -> None:
        self._connect = connect
        self._schema = schema
        self._own = own
        self._drop: Drop | None = None
        self._heard = float("-inf")

    @asynccontextmanager
    async def watch(self, drop: Drop) -> AsyncIterator[None]:
        """Tell `drop` about changes; waits until the first connection listens, or fails to."""
        if self._drop is not None:
            raise RuntimeError("the feed is watched already")
        self._drop = drop
        first_try = asyncio.Event()
        listening = asyncio.create_task(self._listen(first_try))
        try:
            await first_try.wait()
            yield
        finally:
            self._heard = float("-inf")
            self._drop = None
            listening.cancel()
            await asyncio.wait([listening])

    def catch_up(self) -> bool:
        """Whether the connection gave a sign of life lately."""
        return time.monotonic() - self._heard < DOUBT

    async def _listen(self, first_try: asyncio.Event) -> None:
        while True:
            try:
                await self._listen_once(first_try)
            except (*DRIVER_ERRORS, TenutoError) as exc:
                log.warning(
                    "listening for changes failed (%s); caches wait for the next connection", type(exc).__name__
                )
            finally:
                self._lose()
                first_try.set()
            await asyncio.sleep(_RETRY)

    async def _listen_once(self, first_try: asyncio.Event) -> None:
        connection = await self._connect()
        try:
            async with asyncio.timeout(DOUBT):
                await connection.add_listener(self._schema, self._notified)
            # What changed while nobody listened is not known.
            self._lose()
            self._heard = time.monotonic()
            first_try.set()
            while True:
                await asyncio.sleep(PULSE)
                async with asyncio.timeout(DOUBT):
                    await connection.execute("SELECT 1")
                self._heard = time.monotonic()
        finally:
            connection.terminate()

    def _notified(self, _connection: Any, _pid: int, _channel: str, payload: object) -> None:
        text = str(payload)
        if self._drop is None or self._own(text[:WRITER_LENGTH]):
            return
        try:
            self._drop(keys_in(text))
        except ValueError:
            # Somebody else uses the channel; whatever it meant, nothing may be trusted after it.
            self._drop(None)

    def _lose(self) -> None:
        self._heard = float("-inf")
        if self._drop is not None:
            self._drop(None)


def keys_in(payload: str) -> list[bytes]:
    """The session keys a notification names, behind its writer."""
    digits = payload[WRITER_LENGTH:]
    if len(digits) % _KEY_HEX:
        raise ValueError("not a list of keys")
    return [bytes.fromhex(digits[at : at + _KEY_HEX]) for at in range(0, len(digits), _KEY_HEX)]
