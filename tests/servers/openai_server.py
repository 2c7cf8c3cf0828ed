"""A model provider on loopback: it speaks the protocols of chat completions, embeddings, and Anthropic's messages.

What it answers is set by the test, down to the bytes: words in pieces, tool calls, errors, silence, half a stream.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One answer: a status, and a body in pieces.

    `silent` sends nothing at all until the server closes, `stalls` nothing more once the body was sent. `cut` drops the
    connection where the body should end. `retry_after` is how many seconds a client shall wait.
    """

    pieces: tuple[bytes, ...] = ()
    status: int = 200
    kind: str = "text/event-stream"
    silent: bool = False
    stalls: bool = False
    cut: bool = False
    retry_after: int | None = None


@dataclass
class ModelServer:
    """A running provider. `asked` are the bodies it got; the last of `replies` is given again and again.

    With `embeds` it has a vector for every text.
    """

    url: str
    replies: list[Reply] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    embeds: Callable[[str], list[float]] | None = None
    closing: threading.Event = field(default_factory=threading.Event)

    def answers(self, *replies: Reply) -> None:
        """Set what comes next."""
        self.replies = list(replies)

    def next_reply(self, body: dict[str, Any]) -> Reply:
        """Note what was asked, and tell what to answer."""
        self.asked.append(body)
        if self.embeds is not None and "input" in body:
            return vectors([self.embeds(text) for text in body["input"]])
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


def words(
    *pieces: str, usage: tuple[int, int] | None = (11, 5), finish: str | None = "stop", cut: bool = False
) -> Reply:
    """Words, piece by piece; without `finish` the stream just ends."""
    events = [_delta({"role": "assistant", "content": ""}), *(_delta({"content": piece}) for piece in pieces)]
    return _stream(events, usage, finish, cut)


def stalling(*pieces: str) -> Reply:
    """Words, and then silence."""
    return replace(words(*pieces, finish=None), stalls=True)


def calls(*wanted: tuple[str, str, str], usage: tuple[int, int] | None = (20, 8), finish: str = "tool_calls") -> Reply:
    """Tool calls (id, name, arguments as they are written), the arguments of each in two pieces."""
    events = []
    for index, (call_id, name, arguments) in enumerate(wanted):
        half = len(arguments) // 2
        function = {"name": name, "arguments": arguments[:half]}
        events.append(
            _delta({"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]})
        )
        rest = {"index": index, "function": {"arguments": arguments[half:]}}
        events.append(_delta({"tool_calls": [rest]}))
    return _stream(events, usage, finish, cut=False)


def refusal(status: int, message: str, code: str = "error", kind: str = "some_error") -> Reply:
    """An error as providers send it; theirs may quote what the user said."""
    body = json.dumps({"error": {"message": message, "type": kind, "code": code}})
    return Reply(pieces=(body.encode(),), status=status, kind="application/json")


def vectors(made: Sequence[Sequence[float]]) -> Reply:
    """Vectors as they answer a request for embeddings."""
    data = [{"object": "embedding", "index": place, "embedding": vector} for place, vector in enumerate(made)]
    usage = {"prompt_tokens": 3, "total_tokens": 3}
    body = json.dumps({"object": "list", "data": data, "model": "served", "usage": usage})
    return Reply(pieces=(body.encode(),), kind="application/json")


SILENCE = Reply(silent=True)
GARBAGE = Reply(pieces=(b"data: {this is not JSON\n\n", b"data: [DONE]\n\n"))
A_PAGE = Reply(pieces=(b"<html>Welcome to the hotel's network</html>",), kind="text/html")


def anthropic_words(text: str) -> Reply:
    """Words as Anthropic streams them."""
    usage = {"input_tokens": 7, "output_tokens": 1}
    start = {
        "type": "message_start",
        "message": {
            "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-5-5", "content": [],
            "stop_reason": None, "stop_sequence": None, "usage": usage,
        },
    }  # fmt: skip
    events: list[dict[str, Any]] = [
        start,
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]
    return Reply(pieces=tuple(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in events))


def _delta(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "served", "choices": [choice]}


def _stream(events: Sequence[dict[str, Any]], usage: tuple[int, int] | None, finish: str | None, cut: bool) -> Reply:
    tail = [_delta({}, finish)] if finish else []
    if usage and finish:
        counted = {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}
        tail.append({**_delta({}), "choices": [], "usage": counted})
    pieces = [f"data: {json.dumps(event)}\n\n".encode() for event in (*events, *tail)]
    return Reply(pieces=(*pieces, b"data: [DONE]\n\n") if finish else tuple(pieces), cut=cut)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model: ModelServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.model.keys.append(self.headers.get("Authorization", ""))
        reply = self.model.next_reply(body)
        self.close_connection = True
        if reply.silent:
            self.model.closing.wait(50)
            return
        self.send_response(reply.status)
        self.send_header("Content-Type", reply.kind)
        if reply.retry_after is not None:
            self.send_header("Retry-After", str(reply.retry_after))
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in reply.pieces:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            self.wfile.flush()
        if reply.stalls:
            self.model.closing.wait(50)
        if not reply.cut:
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the name is the base class's)
        """Say nothing: a test's output is its own."""


class _Listener(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is what some tests are about."""


@contextmanager
def start_model_server() -> Iterator[ModelServer]:
    """A provider on a free port, until the block ends."""
    handler = type("Handler", (_Handler,), {})
    listener = _Listener(("127.0.0.1", 0), handler)
    server = ModelServer(url=f"http://127.0.0.1:{listener.server_port}")
    handler.model = server  # type: ignore[attr-defined]
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.closing.set()
        listener.shutdown()
        listener.server_close()
        thread.join()
