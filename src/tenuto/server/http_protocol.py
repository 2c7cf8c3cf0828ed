"""Limits on a request that is still coming in: they apply before any route or credential.

uvicorn on httptools keeps headers without end and waits for slow ones forever. This protocol counts what arrives beside
the body and times head and body; a complete request never meets it again.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from tenuto.server.error_shapes import in_shape_of
from tenuto.server.problems import problem_response

# Chunk sizes and trailers come beside the body and grow with it: this many bytes of them for one of the body.
_FRAMING: Final = 8


@dataclass(frozen=True)
class HttpLimits:
    """How much and how slowly a client may send."""

    head_bytes: int = 64 * 1024
    header_count: int = 128
    head_seconds: float = 10.0
    # A body has these seconds, and one more for each `body_bytes_per_second` that came.
    body_seconds: float = 20.0
    body_bytes_per_second: int = 1024
    # How long a connection without a request stays open when the server ends.
    leave_seconds: float = 0.5


class LimitedHttpProtocol(HttpToolsProtocol):
    """uvicorn's protocol, closed to a client that sends too much head or sends too slowly.

    When the server ends, it waits for responses under way, but not for endless ones, whose clients connect again; a
    connection without a request ends with the next one, or soon.
    """

    limits = HttpLimits()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._receiving: str | None = "head"
        self._since = time.monotonic()
        self._timer: asyncio.TimerHandle | None = None
        self._received = self._body = self._head = self._count = 0
        self._refused = self._leaving = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._timer = self.loop.call_later(self.limits.head_seconds, self._check_time)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        under_way: RequestResponseCycle | None = self.cycle
        if under_way is not None and under_way.scope.get("state", {}).get("endless"):
            self.transport.close()
        elif under_way is None or under_way.response_complete:
            # A client may be about to use it: that request is answered, with the word that the connection ends.
            self._leaving = True
            self.loop.call_later(self.limits.leave_seconds, self._close_if_idle)
        else:
            super().shutdown()

    def _close_if_idle(self) -> None:
        under_way: RequestResponseCycle | None = self.cycle
        if under_way is None or under_way.response_complete:
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._received += len(data)
        super().data_received(data)
        if self._head_too_large() or self._received - (_FRAMING + 1) * self._body > self.limits.head_bytes:
            self._refuse(431, "headers_too_large", "the request's headers are too large or too many")
        elif self._receiving is None:
            self._stop_timer()
        elif self._timer is None:
            self._timer = self.loop.call_later(self.limits.head_seconds, self._check_time)

    def _head_too_large(self) -> bool:
        return self._head > self.limits.head_bytes or self._count > self.limits.header_count

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._receiving, self._since = "head", time.monotonic()
        self._received = self._body = self._head = self._count = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head += len(name) + len(value)
        self._count += 1
        if self._count <= self.limits.header_count:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._head += len(self.url)
        self._receiving, self._since = "body", time.monotonic()
        # The request is refused after the parser returns; until then nothing may start it.
        if not self._head_too_large():
            super().on_headers_complete()
            if self._leaving:
                self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self._body += len(body)
        if not self._head_too_large():
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._receiving = None
        if not self._head_too_large():
            super().on_message_complete()

    def _check_time(self) -> None:
        self._timer = None
        if self._receiving is None or self.transport.is_closing():
            return
        limits = self.limits
        allowed = (
            limits.head_seconds
            if self._receiving == "head"
            else limits.body_seconds + self._body / limits.body_bytes_per_second
        )
        left = self._since + allowed - time.monotonic()
        if left > 0 or self.flow.read_paused:  # Paused: the client waits for the application, not we for the client.
            self._timer = self.loop.call_later(max(left, 1.0), self._check_time)
        else:
            self._refuse(408, "request_timeout", "the request did not arrive in time")

    def _refuse(self, status: int, code: str, detail: str) -> None:
        """Answer, unless another answer is under way, and close."""
        self._refused = True
        self._stop_timer()
        under_way: RequestResponseCycle | None = self.cycle
        if under_way is None or under_way.response_complete:
            problem = problem_response(status, code, detail, headers={"connection": "close"})
            # Before the first byte there is no address.
            problem = in_shape_of(getattr(self, "url", b"").decode("latin-1"), problem)
            head = b"".join(name + b": " + value + b"\r\n" for name, value in problem.raw_headers)
            self.transport.write(STATUS_LINE[status] + head + b"\r\n" + bytes(problem.body))
        self.transport.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
