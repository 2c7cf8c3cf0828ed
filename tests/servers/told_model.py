"""A model on loopback that says what it is told to, when it is told to, and notices who hangs up."""

from __future__ import annotations

import json
import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Empty, Queue
from typing import Any

from tests.timeouts import LONG


@dataclass
class Call:
    """A request for an answer. The model says each `say`, and nothing more after `end`."""

    question: str
    words: Queue[str | None] = field(default_factory=Queue)
    left: threading.Event = field(default_factory=threading.Event)
    """Set when the client hung up before the end."""

    def say(self, *words: str) -> None:
        """Say words, each in a piece of its own."""
        for word in words:
            self.words.put(word)

    def end(self) -> None:
        """End the answer."""
        self.words.put(None)


@dataclass
class ToldModel:
    """A running model."""

    url: str
    asked: Queue[Call] = field(default_factory=Queue)
    closing: threading.Event = field(default_factory=threading.Event)

    def call(self) -> Call:
        """The next request, once it is there."""
        return self.asked.get(timeout=LONG)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model: ToldModel

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        call = Call(str(body["messages"][-1]["content"]))
        self.model.asked.put(call)
        while not self.model.closing.is_set():
            try:
                word = call.words.get(timeout=0.01)
            except Empty:
                if select.select([self.connection], [], [], 0)[0]:  # It has nothing more to send: it hung up.
                    call.left.set()
                    return
                continue
            if word is None:
                self._send({}, "stop")
                self.wfile.write(b"data: [DONE]\n\n")
                return
            self._send({"content": word})

    def _send(self, delta: dict[str, Any], finish: str | None = None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        event = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "told", "choices": [choice]}
        self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the name is the base class's)
        """Say nothing: a test's output is its own."""


class _Listener(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is what some tests are about."""


@contextmanager
def start_told_model() -> Iterator[ToldModel]:
    """A model on a free port, until the block ends."""
    handler = type("Handler", (_Handler,), {})
    listener = _Listener(("127.0.0.1", 0), handler)
    model = ToldModel(url=f"http://127.0.0.1:{listener.server_port}")
    handler.model = model  # type: ignore[attr-defined]
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield model
    finally:
        model.closing.set()
        listener.shutdown()
        listener.server_close()
        thread.join()
