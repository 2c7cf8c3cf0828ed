"""A load balancer on loopback without stickiness, which has the worst luck."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.servers.process import LOOPBACK

_CHUNK = 65_536


@dataclass
class RoundRobin:
    """A running balancer. `turns` are the servers that were asked for turns, by their numbers in `servers`."""

    servers: Sequence[tuple[str, int]]
    url: str = ""
    turns: asyncio.Queue[int] = field(default_factory=asyncio.Queue)

    def __post_init__(self) -> None:
        self._next = itertools.cycle(range(len(self.servers)))
        self._last_turn = -1

    def choose(self, request: str) -> int:
        """The server for a request: the next one, but what is about turns never meets the one that was asked for the
        last turn."""
        server = next(self._next)
        if request.endswith(("/stream", "/stop", "/chat")) and server == self._last_turn:
            server = next(self._next)
        if request == "POST /v1/chat":
            self._last_turn = server
            self.turns.put_nowait(server)
        return server

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one request and its answer; the connection ends with them, so that the next one goes elsewhere."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            method, target, _ = head.split(" ", 2)
            there, back = await asyncio.open_connection(*self.servers[self.choose(f"{method} {target.split('?')[0]}")])
            back.write(
                re.sub(r"(?im)^connection:.*\r\n", "", head)[:-2].encode("latin-1") + b"Connection: close\r\n\r\n"
            )
            sending = asyncio.create_task(_carry(reader, back))
            try:
                await _carry(there, writer)
            finally:
                sending.cancel()
                back.close()
        writer.close()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def round_robin(*servers: tuple[str, int]) -> AsyncIterator[RoundRobin]:
    """A balancer in front of these servers (host, port), in the loop of the test, until the block ends."""
    balancer = RoundRobin(servers)
    listener = await asyncio.start_server(balancer.serve, LOOPBACK, 0)
    balancer.url = f"http://{LOOPBACK}:{listener.sockets[0].getsockname()[1]}"
    try:
        yield balancer
    finally:
        listener.close()
