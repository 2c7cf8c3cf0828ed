"""One server, connected on first use, with growing pauses after failures."""

from __future__ import annotations

import asyncio

from tenuto.pauses import Backoff
from tenuto.stores.redis._auth import ConnectOptions, open_connection
from tenuto.stores.redis._connection import Connection
from tenuto.stores.redis._resp import CallFailed, CallTimeout, Reply, ResponseError, Unsent
from tenuto.stores.redis._single_flight import SingleFlight
from tenuto.stores.redis._url import Endpoint

_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 1.0


class Node:
    """A server, and the connection to it, opened on first use and again after it was lost.

    All callers share one attempt. Failed attempts are followed by growing pauses with jitter, so that clients do not
    all reconnect at once.
    """

    def __init__(self, endpoint: Endpoint, options: ConnectOptions) -> None:
        self.endpoint = endpoint
        self._options = options
        self._opening = SingleFlight(self._connect)
        self._backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        self._not_before = 0.0
        self._connection: Connection | None = None

    @property
    def idle_connection(self) -> Connection | None:
        """A connection that takes a call right now, if there is one."""
        connection = self._connection
        return None if connection is None or connection.congested else connection

    @property
    def busy(self) -> bool:
        """True while calls wait for replies from this server."""
        return self._connection is not None and self._connection.busy

    async def acquire_connection(self, deadline: float) -> Connection:
        """A connection that takes a call; raises `CallFailed` when there is none before `deadline`."""
        connection = self._connection or await self._opening.join(deadline)
        try:
            async with asyncio.timeout_at(deadline):
                await connection.wait_writable()
        except TimeoutError as exc:
            raise CallTimeout(f"{self.endpoint} accepts no more calls") from exc
        return connection

    async def ask(self, packed: bytes, deadline: float) -> Reply:
        """Send one packed call and wait for its reply. Error replies come as values."""
        return await (await self.acquire_connection(deadline)).send(packed, deadline)

    def close(self) -> None:
        """Close the connection; pending calls fail with `RedisConnectionLost`."""
        self._opening.close()
        if self._connection is not None:
            self._connection.abort()

    def _on_lost(self, connection: Connection) -> None:
        if self._connection is connection:
            self._connection = None

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, self._not_before - loop.time()))
        try:
            async with asyncio.timeout(self._options.policy.connect_timeout):
                connection = await open_connection(self.endpoint, self._options, on_lost=self._on_lost)
        except (OSError, CallFailed) as exc:
            self._not_before = loop.time() + self._backoff.next_pause()
            if isinstance(exc, ResponseError):
                raise
            raise Unsent(f"cannot connect to {self.endpoint}") from exc
        self._backoff.reset()
        self._connection = None if connection.closed else connection
        return connection
