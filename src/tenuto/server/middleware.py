"""Around every request: its id, the raw path, a metric, a log line, and a response after any error."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import time
from dataclasses import dataclass
from typing import Final

from starlette.datastructures import State
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tenuto.server.logs import request_id
from tenuto.server.metrics import Metrics
from tenuto.server.problems import internal

_log = logging.getLogger("tenuto.server.access")
_SOUND_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_ALIASED: Final = ("/api/v1/", "/api/goods/")
_CLIENT_GONE: Final = 499
# Enough for a file sent by mistake over a slow line; a client that sends more is cut off.
_MOST_BYTES: Final = 64 * 1024 * 1024
_MOST_SECONDS: Final = 10.0


class RequestMiddleware:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, *, meters: Metrics) -> None:
        self._app = app
        self._meters = meters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if closes_after_response(scope):
            draining = BodyDrain(receive, send)
            receive, send = draining.receive, draining.send
        started = time.perf_counter()
        answering = _ResponseSender(send, _request_id(scope), scope["app"].state)
        # The path before decoding: an encoded slash within an id is no separator. `/api/v1` is `/v1` (X13).
        raw: bytes | None = scope.get("raw_path")
        path = str(raw, "latin-1") if raw is not None else scope["path"]
        scope["path"] = path.removeprefix("/api") if path.startswith(_ALIASED) else path
        token = request_id.set(answering.request_id)
        try:
            await self._app(scope, receive, answering.send)
        except ClientDisconnect:
            answering.status = _CLIENT_GONE
        except Exception:
            _log.exception("a request failed")
            if answering.status is not None:
                raise
            await internal()(scope, receive, answering.send)
        finally:
            status, seconds = answering.status or 500, time.perf_counter() - started
            route = getattr(scope.get("route"), "path", "unmatched")
            self._meters.count_request(scope["method"], route, status, seconds)
            if _log.isEnabledFor(logging.INFO):
                fields = {"method": scope["method"], "route": route, "status": status, "ms": round(seconds * 1000, 1)}
                # Made here, since a logger would first look for the line of code that calls it.
                record = logging.LogRecord(_log.name, logging.INFO, __file__, 0, "answered", (), None)
                record.fields = fields
                _log.handle(record)
            request_id.reset(token)


@dataclass(slots=True)
class _ResponseSender:
    """Sends a response on, with the headers that every response has, and remembers its status."""

    _send: Send
    request_id: str
    _state: State
    status: int | None = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = message["headers"]
            headers.append((b"x-request-id", self.request_id.encode()))
            headers.append((b"x-content-type-options", b"nosniff"))
            service = getattr(self._state, "service", None)
            if service is not None and service.tenuto.stores.unavailable:
                headers.append((b"tenuto-degraded", b"store"))
            # Proxies must not cache user text; the console's static files set their own header.
            if not any(name == b"cache-control" for name, _ in headers):
                headers.append((b"cache-control", b"no-store"))
        await self._send(message)


def _request_id(scope: Scope) -> str:
    """The request's id: the client's if it is short and plain, else a fresh one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _SOUND_ID.fullmatch(value):
            return str(value, "ascii")
    return os.urandom(12).hex()


class BodyDrain:
    """Reads and drops the rest of a request whose connection ends with the response.

    A connection that is closed while its client still sends is reset, and the client sees a broken pipe instead of a
    413. So the response is sent at once, and its end waits until the body has arrived, within limits.
    """

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._read_to_the_end = False

    async def receive(self) -> Message:
        """The next piece of the request."""
        message = await self._receive()
        self._read_to_the_end = message["type"] != "http.request" or not message.get("more_body", False)
        return message

    def _is_drained(self) -> bool:
        # A method: `receive` changes the attribute while `send` waits.
        return self._read_to_the_end

    async def send(self, message: Message) -> None:
        """The next piece of the response."""
        ending = message["type"] == "http.response.body" and not message.get("more_body", False)
        if not ending or self._is_drained():
            await self._send(message)
            return
        await self._send({**message, "more_body": True})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_MOST_SECONDS):
                dropped = 0
                while not self._is_drained() and dropped < _MOST_BYTES:
                    dropped += len((await self.receive()).get("body", b""))
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})


def closes_after_response(scope: Scope) -> bool:
    """Whether the connection closes after the response while a body may still arrive."""
    closing = scope["http_version"] == "1.0"
    sending = False
    for name, value in scope["headers"]:
        if name == b"expect":
            # Such a client sends its body only after a 100 Continue, so an early response leaves nothing to drain.
            return False
        if name == b"connection":
            closing = closing or b"close" in value.lower()
        sending = sending or name in (b"content-length", b"transfer-encoding")
    return closing and sending
