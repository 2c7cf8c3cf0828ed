"""One server, connected on first use, with growing pauses after failures."""

from __future__ import annotations

import asyncio
import random

from tenuto.stores.redis._auth import Door, open_connection
from tenuto.stores.redis._connection import Connection
from tenuto.stores.redis._resp import CallFailed, CallTimeout, Reply, ResponseError, Unsent
from tenuto.stores.redis._single_flight import SingleFlight
from tenuto.stores.redis._url import Endpoint

_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 1.0


class Lane:
    """One connection to a server, opened on first use and again after it was lost.

    All callers share one attempt. Failed attempts are followed by growing pauses with jitter, so that clients do not
    all reconnect at once.
    """

    def __init__(self, endpoint: Endpoint, door: Door) -> None:
        self._endpoint = endpoint
        self._door = door
        self._opening = SingleFlight(self._connect)
        self._failures = 0
        self._not_before = 0.0
        self.connection: Connection | None = None

    async def wait_connected(self, deadline: float) -> Connection:
        """The open connection; raises `CallFailed` if there is none before `deadline`."""
        return self.connection or await self._opening.join(deadline)

    def close(self) -> None:
        self._opening.close()
        if self.connection is not None:
            self.connection.abort()

    def _on_lost(self, connection: Connection) -> None:
        if self.connection is connection:
            self.connection = None
            if self._door.on_lost is not None:
                self._door.on_lost()

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, self._not_before - loop.time()))
        try:
            async with asyncio.timeout(self._door.policy.connect_timeout):
                connection = await open_connection(self._endpoint, self._door, on_lost=self._on_lost)
        except (OSError, CallFailed) as exc:
            self._failures += 1
            pause = min(_FIRST_PAUSE * 2 ** (self._failures - 1), _LONGEST_PAUSE)
            self._not_before = loop.time() + pause * random.uniform(0.5, 1.0)
            if isinstance(exc, ResponseError):
                raise
            raise Unsent(f"cannot connect to {self._endpoint}") from exc
        self._failures = 0
        self.connection = None if connection.closed else connection
        return connection


class Node:
    """A server and the few lanes that lead to it."""

    def __init__(self, endpoint: Endpoint, door: Door) -> None:
        self.endpoint = endpoint
        self._lanes = [Lane(endpoint, door) for _ in range(max(1, door.policy.connections))]
        self._turn = 0

    @property
    def idle_connection(self) -> Connection | None:
        """A connection that takes a call right now, if there is one."""
        connection = self._lanes[self._turn].connection
        if connection is None or connection.congested:
            return None
        self._turn = (self._turn + 1) % len(self._lanes)
        return connection

    @property
    def busy(self) -> bool:
        """True while calls wait for replies from this server."""
        return any(lane.connection is not None and lane.connection.busy for lane in self._lanes)

    async def acquire_connection(self, deadline: float) -> Connection:
        """A connection that takes a call; raises `CallFailed` when there is none before `deadline`."""
        connection = self.idle_connection
        if connection is not None:
            return connection
        lane = self._lanes[self._turn]
        self._turn = (self._turn + 1) % len(self._lanes)
        connection = await lane.wait_connected(deadline)
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
        """Close all connections; pending calls fail with `ConnectionLost`."""
        for lane in self._lanes:
            lane.close()
