"""Requests that never end: what a client may send before its head is read is bounded in size, count and time."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import chain, repeat
from typing import ClassVar

import httpx
import pytest
import uvicorn

from tenuto.server.http_protocol import HttpLimits, LimitedHttpProtocol
from tests.journeys.http_service import http_service

LINE = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"
POST = b"POST /v1/chat HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


class Small(LimitedHttpProtocol):
    limits = HttpLimits(head_bytes=8192, header_count=20, head_seconds=0.5, body_seconds=0.5, body_bytes_per_second=64)


class Quiet(uvicorn.Server):
    """A server that leaves the signals to the test run, and says when it is up."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set_result(None)

    up: asyncio.Future[None]

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Leaving(LimitedHttpProtocol):
    """Its last connection can be told that the server ends."""

    limits = HttpLimits(leave_seconds=3600)
    last: ClassVar[LimitedHttpProtocol]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        type(self).last = self


@asynccontextmanager
async def port(protocol: type[LimitedHttpProtocol] = Small) -> AsyncIterator[int]:
    """The port of a real server with that protocol."""
    async with http_service() as service:
        server = Quiet(uvicorn.Config(service.app, http=protocol, ws="none", lifespan="off", log_config=None, port=0))
        server.up = asyncio.get_running_loop().create_future()
        running = asyncio.create_task(server.serve())
        await server.up
        try:
            yield server.servers[0].sockets[0].getsockname()[1]
        finally:
            server.should_exit = True
            await running


async def send(port: int, *pieces: bytes, pause: float = 0.0) -> bytes:
    """The answer to pieces of which the last is repeated until the server closes, or "reset"."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = asyncio.create_task(reader.read())
    with suppress(ConnectionError):
        for piece in chain(pieces, repeat(pieces[-1], 10_000)):
            if answer.done():
                break
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause)
    writer.close()
    try:
        return await asyncio.wait_for(answer, 30)
    except ConnectionError:
        return b"reset"


@pytest.mark.parametrize(
    ("pieces", "pause", "status"),
    [
        ((LINE, b"X-A: 1\r\n"), 0, 431),
        ((LINE, b"X-A: ", b"a" * 4096), 0, 431),
        ((LINE + b"X-A: 1\r\n" * 21 + b"\r\n",), 0, 431),
        ((LINE + b"X-A: " + b"a" * 8192 + b"\r\n\r\n",), 0, 431),
        ((b"GET /" + b"a" * 4096, b"a" * 4096), 0, 431),
        ((LINE, b"X-A: 1\r\n"), 0.2, 408),
        ((b"G", b""), 0.2, 408),
        ((b"", b""), 0.2, 408),
    ],
    ids=["many", "endless", "count", "large", "address", "slow head", "one byte", "silent"],
)
async def test_a_request_that_never_ends_is_refused(pieces: tuple[bytes, ...], pause: float, status: int) -> None:
    async with port() as number:
        answer = await send(number, *pieces, pause=pause)
        assert (await send(number, LINE + b"Connection: close\r\n\r\n", b"")).startswith(b"HTTP/1.1 200 "), (
            "and only it"
        )
    # What a client goes on sending after the answer resets the connection, sometimes before the answer is read.
    assert answer.startswith(b"HTTP/1.1 %d " % status) or (pieces[-1] and answer == b"reset"), answer[:200]


async def test_a_slow_body_is_cut_off_and_a_steady_one_is_not() -> None:
    chunked = POST + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    text = b'{"message": "' + b"hello " * 40 + b'"}'
    steady = [b"%x\r\n%s\r\n" % (len(text[at : at + 20]), text[at : at + 20]) for at in range(0, len(text), 20)]
    async with port() as number:
        assert await send(number, POST + b"Content-Length: 9\r\n\r\n", b"", pause=0.2) == b""
        answer = await send(number, chunked, *steady, b"0\r\n\r\n", b"", pause=0.1)
        endless = await send(number, chunked, b"1\r\na\r\n0\r\n", b"X-A: 1\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert endless in (b"", b"reset") or endless.startswith(b"HTTP/1.1 4"), "trailers are headers, too"


async def test_connections_are_kept_between_requests_of_any_size() -> None:
    body = b'{"message": "' + b"hello " * 4000 + b'"}'
    async with port() as number, httpx.AsyncClient(base_url=f"http://127.0.0.1:{number}") as http:
        for _ in range(3):
            assert (await http.post("/v1/chat", content=body)).status_code == 200
            assert (await http.get("/healthz", headers={"X-A": "a" * 4000})).status_code == 200
        many = {f"X-{n}": "a" for n in range(30)}
        assert (await http.get("/healthz", headers=many)).status_code == 431
        assert (await http.get("/v1/models", headers=many)).json()["error"]["code"] == "headers_too_large"


async def test_a_kept_connection_is_told_that_the_server_ends() -> None:
    """A client that is about to use it gets its answer; without a request it is closed soon."""
    async with port(Leaving) as number:
        reader, writer = await asyncio.open_connection("127.0.0.1", number)
        writer.write(LINE + b"\r\n")
        first = await reader.readuntil(b"}")
        Leaving.last.shutdown()
        writer.write(LINE + b"\r\n")
        rest = await reader.read()
        writer.close()

    assert b"connection: close" not in first
    assert rest.startswith(b"HTTP/1.1 200")
    assert b"connection: close" in rest
