"""Requests to a server: the headers of a scope, retries, and streams of events.

A request is sent again when that cannot do twice what was asked once: it is `repeatable` (a read, or a write that is
guarded by its key), or the server has not taken it. What is not sent again raises `Unavailable`: the call may have been
carried out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec

from tenuto.client.problems import error_from, problem_from
from tenuto.errors import CircuitOpen, Invalid, ModelFailed, PackageMissing, TenutoError, Unavailable
from tenuto.model import Scope
from tenuto.model.values import JsonObject, Value
from tenuto.pauses import Backoff
from tenuto.task_errors import TaskFailed

try:
    import httpx
except ModuleNotFoundError as error:
    raise PackageMissing("connect", "a connection", extra="client") from error

_log = logging.getLogger(__name__)
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_NOT_CONNECTED: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_HEADERS: Final = {
    "tenant": "X-Tenant-ID",
    "site": "X-Site-ID",
    "user": "X-User-ID",
    "channel": "X-Channel",
    "chat": "X-Chat-ID",
    "thread": "X-Thread-ID",
}


class ClientPolicy(Value, frozen=True, kw_only=True):
    """How long to wait for a server, and how often to try.

    `answer_timeout` is for whole answers of a model. A pause doubles from `first_pause` on; the server's own wish
    (`Retry-After`) is granted up to `longest_pause`, and a longer one is an error at once.
    """

    connect_timeout: timedelta = timedelta(seconds=5)
    timeout: timedelta = timedelta(seconds=30)
    answer_timeout: timedelta = timedelta(minutes=10)
    retries: int = 4
    first_pause: timedelta = timedelta(milliseconds=100)
    longest_pause: timedelta = timedelta(seconds=10)


class ConnectionLost(Unavailable):
    """The server did not answer, or not to the end; the call may have been carried out."""

    def __init__(self) -> None:
        super().__init__("server", "does not answer; the call may have been carried out")


class ApiCall(NamedTuple):
    """A request; `about` are the ids in its path, which errors name. After a retry, `gone` accepts a 404.

    `retried`: the server has taken it before.
    """

    method: str
    path: str
    body: Any = None
    query: Mapping[str, Any] = _NOTHING
    headers: Mapping[str, str] = _NOTHING
    about: Mapping[str, str] = _NOTHING
    repeatable: bool = False
    answers: bool = False
    gone: bool = False
    retried: bool = False


class ServerEvent(NamedTuple):
    """A server-sent event."""

    name: str
    data: bytes
    id: str | None


def path(*parts: str) -> str:
    """The address of a route; ids may contain anything."""
    return "/".join(["/v1", *(quote(part, safe="") if part.strip(".") else part.replace(".", "%2E") for part in parts)])


class HttpClient:
    """A connection pool to one server."""

    def __init__(self, http: httpx.AsyncClient, policy: ClientPolicy) -> None:
        self._http = http
        self._policy = policy

    async def json(self, scope: Scope | None, call: ApiCall) -> JsonObject:
        """The answer's JSON object."""
        response = await self.send(scope, call)
        try:
            body: JsonObject = msgspec.json.decode(response.content or b"{}", type=dict[str, Any])
        except msgspec.DecodeError:
            raise Unavailable("server", "answers with something else than JSON: is it one of tenuto?") from None
        return body

    async def send(self, scope: Scope | None, call: ApiCall) -> httpx.Response:
        """The whole answer.

        Raises:
            TenutoError: the server refuses, with the error's type in this process.
            ConnectionLost: the server does not answer.
        """
        async with self.stream(scope, call) as response:
            try:
                await response.aread()
            except httpx.HTTPError as error:
                # The head has arrived, so the request was carried out: a repeatable one is asked for again.
                if not call.repeatable:
                    raise ConnectionLost() from error
            else:
                return response
        return await self.send(scope, call._replace(repeatable=False, retried=True))

    @asynccontextmanager
    async def stream(self, scope: Scope | None, call: ApiCall) -> AsyncIterator[httpx.Response]:
        """The answer while it comes in; sent again as long as nothing of it has arrived."""
        request = self._build(scope, call)
        async with AsyncExitStack() as stack:
            for attempt in range(self._policy.retries + 1):
                try:
                    response = await self._http.send(request, stream=True)
                except httpx.LocalProtocolError as exc:
                    raise Invalid("an id holds what no header can carry") from exc
                except httpx.HTTPError as exc:
                    error: TenutoError = ConnectionLost()
                    error.__cause__ = exc
                    again = call.repeatable or isinstance(exc, _NOT_CONNECTED)
                else:
                    stack.push_async_callback(response.aclose)
                    is_retry = attempt or call.retried
                    if response.is_success or (call.gone and is_retry and response.status_code == 404):
                        yield response
                        return
                    error = await _error_of(response, call.about)
                    again = _may_repeat(error, response.status_code, call.repeatable)
                if not again:
                    raise error
                await self.pause(attempt, error)

    def _build(self, scope: Scope | None, call: ApiCall) -> httpx.Request:
        policy = self._policy
        wait = policy.answer_timeout if call.answers else policy.timeout
        headers = [(name, value.encode()) for name, value in call.headers.items()]
        if call.body is not None:
            headers.append(("Content-Type", b"application/json"))
        return self._http.build_request(
            call.method,
            call.path,
            params={name: value for name, value in call.query.items() if value is not None and value is not False},
            content=None if call.body is None else msgspec.json.encode(call.body),
            headers=[(name.encode(), value) for name, value in [*headers, *_scope_headers(scope)]],
            timeout=httpx.Timeout(wait.total_seconds(), connect=policy.connect_timeout.total_seconds()),
        )

    async def pause(self, attempt: int, error: TenutoError) -> None:
        """Wait before the next attempt; raise the error if there is none."""
        retry_after = getattr(error, "retry_after", None)
        longest = self._policy.longest_pause
        if attempt >= self._policy.retries or (isinstance(retry_after, timedelta) and retry_after > longest):
            raise error
        if isinstance(retry_after, timedelta):
            seconds = retry_after.total_seconds()
        else:
            backoff = Backoff(self._policy.first_pause.total_seconds(), longest.total_seconds(), failures=attempt)
            seconds = backoff.next_pause()
        _log.info("a request is sent again in %.1f s: %s", seconds, error.code)
        await asyncio.sleep(seconds)

    async def pieces(self, scope: Scope, call: ApiCall) -> AsyncGenerator[bytes, None]:
        """The answer's bytes as they come in.

        Raises:
            TenutoError: the server refuses.
            ConnectionLost: it was lost before the end.
        """
        async with self.stream(scope, call) as response:
            try:
                async for piece in response.aiter_bytes():
                    yield piece
            except httpx.HTTPError as error:
                raise ConnectionLost() from error

    async def events(self, scope: Scope, call: ApiCall) -> AsyncGenerator[ServerEvent, None]:
        """The events of a stream.

        Raises:
            TenutoError: the server refuses, or the stream ends with an error.
            ConnectionLost: it was lost before the end.
        """
        rest = b""
        async with aclosing(self.pieces(scope, call)) as pieces:
            async for piece in pieces:
                # Not by httpx, for which a line also ends with U+2028 and the like, which a text may hold.
                *blocks, rest = (rest + piece).split(b"\n\n")
                for event in map(_parse_event, blocks):
                    if event.name == "error":
                        raise error_from(problem_from(event.data, 500), call.about)
                    if event.data:
                        yield event


def _parse_event(block: bytes) -> ServerEvent:
    fields: dict[bytes, bytes] = {}
    for line in block.split(b"\n"):
        name, _, value = line.partition(b": ")
        fields[name] = value
    ident = fields.get(b"id")
    data = fields.get(b"data", b"")
    return ServerEvent(fields.get(b"event", b"").decode(), data, None if ident is None else ident.decode())


def _scope_headers(scope: Scope | None) -> list[tuple[str, bytes]]:
    """The scope as the server reads it. An empty user is the tenant itself, whatever user the key has."""
    if scope is None:
        return []
    if scope.visitor:
        raise Invalid("a visitor's scope is made by the server's public routes alone")
    named = {name: getattr(scope, name) for name in _HEADERS}
    return [
        (_HEADERS[name], (value or "").encode()) for name, value in named.items() if value is not None or name == "user"
    ]


async def _error_of(response: httpx.Response, about: Mapping[str, str]) -> TenutoError:
    try:
        raw = await response.aread()
    except httpx.HTTPError:
        raw = b""
    problem = {**problem_from(raw, response.status_code), "status": response.status_code}
    retry_after = response.headers.get("retry-after", "")
    if "retry_after" not in problem and retry_after.isdecimal():
        problem["retry_after"] = int(retry_after)
    return error_from(problem, about)


def _may_repeat(error: TenutoError, status: int, repeatable: bool) -> bool:
    """Whether the same request may succeed, and cannot be carried out twice. A model's failure is the caller's."""
    if getattr(error, "retry_after", None) is None or isinstance(error, ModelFailed | TaskFailed):
        return False
    if status == 429 or isinstance(error, CircuitOpen):
        return True
    return status == 503 and repeatable
