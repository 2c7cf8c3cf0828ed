"""A provider like a small model on a laptop: one slot, a while to the first word, few words a second.

It speaks chat completions on loopback. `scale` shortens its delays; 1 is the truth: 3 s to the first word, then two
words a second.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

FIRST_WORD: Final = 3.0
WORD: Final = 0.5


@dataclass
class SlowProvider:
    """A running provider. `answer` writes the text for a request; `served` are those it answered whole."""

    answer: Callable[[dict[str, Any]], str]
    scale: float
    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    served: list[dict[str, Any]] = field(default_factory=list)
    slot: threading.Lock = field(default_factory=threading.Lock)
    closing: threading.Event = field(default_factory=threading.Event)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    provider: SlowProvider

    def do_POST(self) -> None:
        provider = self.provider
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        provider.asked.append(body)
        self.close_connection = True
        with provider.slot:
            self._wait(FIRST_WORD)
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            for word in provider.answer(body).split(" "):
                self._send({"content": word + " "})
                self._wait(WORD)
            self._send({}, "stop")
            self.wfile.write(b"data: [DONE]\n\n")
            provider.served.append(body)

    def _send(self, delta: dict[str, Any], finish: str | None = None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        event = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "small", "choices": [choice]}
        self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
        self.wfile.flush()

    def _wait(self, seconds: float) -> None:
        self.provider.closing.wait(seconds * self.provider.scale)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the name is the base class's)
        """Say nothing: a test's output is its own."""


class _Listener(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up ends its answer, and frees the slot."""


@contextmanager
def start_slow_provider(answer: Callable[[dict[str, Any]], str], scale: float) -> Iterator[SlowProvider]:
    """A provider on a free port, until the block ends."""
    provider = SlowProvider(answer, scale)
    listener = _Listener(("127.0.0.1", 0), type("Handler", (_Handler,), {"provider": provider}))
    provider.url = f"http://127.0.0.1:{listener.server_port}/v1"
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        provider.closing.set()
        listener.shutdown()
        listener.server_close()
        thread.join()
