"""The server: it takes requests in three dialects, refuses or answers them by the script, and keeps what arrived."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from tests.providers.anthropic_messages import AnthropicMessages
from tests.providers.dialect import Dialect, Ledger, Prompt
from tests.providers.models import ANTHROPIC_MODELS, OPENAI_MODELS
from tests.providers.openai_chat import OpenAIChat
from tests.providers.openai_responses import OpenAIResponses
from tests.providers.prompts import digest, equal_beginning, tokens
from tests.providers.refusals import Refused
from tests.providers.script import Answer, Failure, Hold, Tokens, Turn

KEY: Final = "sk-scripted"
_LARGEST: Final = 32 * 1024 * 1024
_JSON: Final = {"content-type": "application/json"}
_EVENTS: Final = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}


@dataclass(frozen=True, kw_only=True)
class Received:
    """A request as it arrived.

    `equal` is how many characters of its prompt an earlier prompt for the same model began with alike, at best.
    """

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]
    refused: Refused | None = None
    prompt: Prompt | None = None
    equal: int = 0
    tokens: Tokens | None = None

    @property
    def prompt_length(self) -> int:
        """How many characters the model reads."""
        return len(self.prompt.text) if self.prompt else 0


class _Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    pieces: Iterator[bytes | Hold]
    breaks_off: bool = False


@dataclass
class _Cache:
    """The prompts that a model has read, and the entries that clients asked for."""

    texts: list[str] = field(default_factory=list)
    written: dict[str, int] = field(default_factory=dict)


class ScriptedProvider:
    """A provider on loopback. Its script's last turn is played again and again."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.key = KEY
        self.script_faults: list[str] = []
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        """Forget everything: scripts, requests, files, caches."""
        self.received: list[Received] = []
        self.ledger = Ledger()
        self._dialects: dict[str, Dialect] = {
            "/v1/chat/completions": OpenAIChat(self.ledger),
            "/v1/responses": OpenAIResponses(self.ledger),
            "/v1/messages": AnthropicMessages(self.ledger),
        }
        self._scripts: dict[str | None, list[Turn]] = {}
        self._caches: defaultdict[str, _Cache] = defaultdict(_Cache)

    @property
    def openai_url(self) -> str:
        """The base URL for clients of OpenAI."""
        return f"{self.url}/v1"

    @property
    def anthropic_url(self) -> str:
        """The base URL for clients of Anthropic."""
        return self.url

    @property
    def accepted(self) -> list[dict[str, Any]]:
        """The bodies of the requests that were not refused."""
        return [one.body for one in self.received if one.refused is None]

    @property
    def last(self) -> Received:
        """The newest request."""
        return self.received[-1]

    def plays(self, *turns: Turn, model: str | None = None) -> None:
        """Set what comes next, for every model or for this one."""
        self._scripts[model] = list(turns)

    def add_file(self, file_id: str, media_type: str, content: bytes) -> None:
        """Let a client name this file by its id."""
        self.ledger.files[file_id] = (media_type, content)

    def make_unreachable(self, url: str) -> None:
        """Let the provider fail to download this address."""
        self.ledger.unreachable.add(url)

    def reply_to(self, path: str, headers: Mapping[str, str], raw: bytes) -> _Reply:
        """The answer to one request."""
        dialect = self._dialects.get(path)
        if dialect is None:
            return _reply(
                404, {}, {"error": {"message": f"Invalid URL (POST {path})", "type": "invalid_request_error"}}
            )
        with self._lock:
            try:
                return self._answer(dialect, path, headers, raw)
            except Refused as error:
                body = json.loads(raw) if raw[:1] == b"{" and _is_json(raw) else {}
                self.received.append(Received(path=path, headers=headers, body=body, refused=error))
                return _reply(error.status, dialect.headers(), dialect.error(error))

    def models(self, headers: Mapping[str, str]) -> dict[str, Any]:
        """What is served, as the provider lists it whose client asks."""
        if "anthropic-version" not in headers:
            data = [{"id": name, "object": "model", "created": 1, "owned_by": "scripted"} for name in OPENAI_MODELS]
            return {"object": "list", "data": data}
        made = {"type": "model", "created_at": "2026-01-01T00:00:00Z", "lifecycle": "active"}
        listed = [{"id": name, "display_name": name, **made} for name in ANTHROPIC_MODELS]
        return {"data": listed, "has_more": False, "first_id": listed[0]["id"], "last_id": listed[-1]["id"]}

    def _answer(self, dialect: Dialect, path: str, headers: Mapping[str, str], raw: bytes) -> _Reply:
        dialect.check_key(headers, self.key)
        if len(raw) > _LARGEST:
            raise dialect.fail(Failure(413))
        prompt = dialect.read(raw, headers)
        cache = self._caches[prompt.model]
        equal = max((equal_beginning(text, prompt.text) for text in cache.texts), default=0)
        turn = self._next_turn(prompt)
        used = self._count(dialect, prompt, turn, equal, cache) if isinstance(turn, Answer) else None
        received = Received(path=path, headers=headers, body=json.loads(raw), prompt=prompt, equal=equal, tokens=used)
        self.received.append(received)
        failure = turn if isinstance(turn, Failure) else None if prompt.stream else turn.fails
        if failure is not None:
            return _reply(
                failure.status, {**dialect.headers(), **failure.all_headers}, dialect.error(dialect.fail(failure))
            )
        assert isinstance(turn, Answer)
        assert used is not None
        if not prompt.stream:
            return _reply(200, dialect.headers(), dialect.whole(prompt, turn, used), turn.hold)
        events = list(dialect.stream(prompt, turn, used))
        if turn.fails is not None:
            events.append(dialect.error_event(dialect.fail(turn.fails)))
        return _Reply(200, {**_EVENTS, **dialect.headers()}, _held(events, turn), turn.breaks_off)

    def _next_turn(self, prompt: Prompt) -> Turn:
        script = self._scripts.get(prompt.model) or self._scripts.get(None)
        if not script:
            self.script_faults.append(f"{prompt.model} was asked, and no script says what it answers")
            return Failure(500)
        turn = script.pop(0) if len(script) > 1 else script[0]
        if isinstance(turn, Answer) and (
            unknown := [call.name for call in turn.calls if call.name not in prompt.tools]
        ):
            self.script_faults.append(f"the script calls {unknown[0]}, which the request does not offer")
            return Failure(500)
        if isinstance(turn, Answer) and (ran := [one.type for one in turn.items if not _offers(prompt, one.type)]):
            self.script_faults.append(f"the script has a {ran[0]}, and the request no tool for it")
            return Failure(500)
        return turn

    def _count(self, dialect: Dialect, prompt: Prompt, answer: Answer, equal: int, cache: _Cache) -> Tokens:
        cached, written = dialect.cached_tokens(prompt, equal, cache.written)
        cache.texts.append(prompt.text)
        for end in prompt.breakpoints:
            cache.written[digest(prompt.text_until(end))] = len(prompt.text_until(end))
        if answer.tokens is not None:
            return answer.tokens
        thought = tokens(answer.thought_characters) if prompt.reasons else 0
        return Tokens(
            input=tokens(len(prompt.text)),
            output=max(1, tokens(answer.characters)) + thought,
            cached=cached,
            written=written,
            reasoning=thought,
        )


def _offers(prompt: Prompt, item_type: str) -> bool:
    kind = "mcp" if item_type.startswith("mcp_") else item_type.removesuffix("_call")
    return any(tool.startswith(kind) for tool in prompt.own_tools)


def _is_json(raw: bytes) -> bool:
    try:
        json.loads(raw)
    except ValueError:
        return False
    return True


def _reply(status: int, headers: dict[str, str], body: dict[str, Any], hold: Hold | None = None) -> _Reply:
    pieces: list[bytes | Hold] = [json.dumps(body).encode()]
    return _Reply(status, {**_JSON, **headers}, iter([hold, *pieces] if hold else pieces))


def _held(events: list[bytes], answer: Answer) -> Iterator[bytes | Hold]:
    """The events; a hold stands behind the first delta; what breaks off lacks the last two, and an early end
    what tells of the end and of usage."""
    first = next((at for at, event in enumerate(events) if _is_delta(event)), 0)
    left = events[:-2] if answer.breaks_off else events[:-3] if answer.ends_early else events
    for at, event in enumerate(left):
        yield event
        if at == first and answer.hold is not None:
            yield answer.hold


def _is_delta(event: bytes) -> bool:
    """Whether an event carries a first piece of what the model says."""
    if event.startswith(b"event: "):
        return b"delta" in event.split(b"\n", 1)[0]
    return b'"content": ""' not in event and b'"delta": {}' not in event


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    provider: ScriptedProvider

    def do_GET(self) -> None:
        self._send(_reply(200, {}, self.provider.models(self._lower_headers())))

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        self._send(self.provider.reply_to(urlsplit(self.path).path, self._lower_headers(), raw))

    def _lower_headers(self) -> dict[str, str]:
        return {name.lower(): value for name, value in self.headers.items()}

    def _send(self, reply: _Reply) -> None:
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for piece in reply.pieces:
            if isinstance(piece, Hold):
                piece.wait()
            elif piece:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        if reply.breaks_off:
            self.close_connection = True
        else:
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the name is the base class's)
        """Say nothing: a test's output is its own."""


class _Listener(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is what some tests are about."""


@contextmanager
def start_provider() -> Iterator[ScriptedProvider]:
    """A provider on a free port, until the block ends; a script that does not fit the requests fails the test."""
    handler = type("Handler", (_Handler,), {})
    listener = _Listener(("127.0.0.1", 0), handler)
    provider = ScriptedProvider(f"http://127.0.0.1:{listener.server_port}")
    handler.provider = provider  # type: ignore[attr-defined]
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield provider
        assert not provider.script_faults, provider.script_faults
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()
