"""A server that answers as Presidio's analyzer does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

Answering = Callable[[bytes], Awaitable[bytes]]


def http_response(body: bytes, status: str = "200 OK", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n\r\n".encode() + body


def entity(kind: str, start: int, end: int, score: float = 0.85) -> dict[str, object]:
    return {"analysis_explanation": None, "entity_type": kind, "start": start, "end": end, "score": score}


def entities_response(*found: dict[str, object]) -> bytes:
    return http_response(json.dumps(found).encode())


@asynccontextmanager
async def analyzer(answering: Answering) -> AsyncIterator[str]:
    """A server on loopback whose answers to `POST /analyze` are what `answering` makes of the body."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            assert head.startswith("post /analyze ")
            body = await reader.readexactly(int(head.partition("content-length: ")[2].partition("\r\n")[0]))
            writer.write(await answering(body))
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client closed the connection, as some tests want
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
