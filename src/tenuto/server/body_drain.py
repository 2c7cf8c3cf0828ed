"""The rest of a request whose connection ends with the answer: read and dropped, so that the answer arrives.

A connection that is closed while its client still sends is reset, and the client loses the answer that was on its way:
it would see a broken pipe where we said 413.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from starlette.types import Message, Receive, Scope, Send

# Enough for a file taken for a message, over a slow line; whoever sends more is cut off.
_MOST_BYTES: Final = 64 * 1024 * 1024
_MOST_SECONDS: Final = 10.0


class BodyDrain:
    """A request's two ends. The answer goes out at once; its end waits until the body has come in, within bounds."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._read_to_the_end = False

    async def receive(self) -> Message:
        """The next piece of the request."""
        message = await self._receive()
        self._read_to_the_end = message["type"] != "http.request" or not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        """The next piece of the answer."""
        ending = message["type"] == "http.response.body" and not message.get("more_body", False)
        if not ending or self._read_to_the_end:
            await self._send(message)
            return
        await self._send({**message, "more_body": True})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_MOST_SECONDS):
                await self._drop_rest()
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _drop_rest(self) -> None:
        dropped = 0
        while not self._read_to_the_end and dropped < _MOST_BYTES:
            dropped += len((await self.receive()).get("body", b""))


def closes_after_response(scope: Scope) -> bool:
    """Whether the connection is closed behind the answer while a body may still be coming."""
    closing = scope["http_version"] == "1.0"
    sending = False
    for name, value in scope["headers"]:
        if name == b"expect":
            # Such a client waits for our leave before it sends anything, and an answer instead is none.
            return False
        if name == b"connection":
            closing = closing or b"close" in value.lower()
        sending = sending or name in (b"content-length", b"transfer-encoding")
    return closing and sending
