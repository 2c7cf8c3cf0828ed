"""Handlers: functions from what a request brings to its answer. Their signatures say both, once.

    @routes.post("/sessions/{session_id}/fork", 201)
    async def fork_session(scope: Scope, sessions: Sessions, session_id: str, body: ForkSession) -> SessionView:

A parameter is known by its type (who asks, what the server has, the body, the query) or by its name (a part of the
path, a header). A type with a coroutine `of_request` is made by that, instead of who asks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from inspect import isclass, signature
from types import UnionType
from typing import Any, Final, Generic, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tenuto.app import Tenuto
from tenuto.model import Scope
from tenuto.server.auth import AuthContext, ServerContext, authenticate_request, scope_of, service, sessions
from tenuto.server.json_io import (
    JSON,
    QueryParameters,
    agent_header,
    body_of,
    idempotency_key,
    if_match,
    parse_query,
    path_parameter,
    precondition,
)
from tenuto.server.routing import Endpoint
from tenuto.sessions import Sessions
from tenuto.sessions.views import SessionView
from tenuto.tasks import Tasks
from tenuto.tasks.views import AgentNoteView, BoardEntryView, TaskView

_View = TypeVar("_View")
# Views whose version counts the changes of a record: their answers have it as ETag.
_VERSIONED: Final = (SessionView, TaskView, BoardEntryView, AgentNoteView)
Handler: TypeAlias = Callable[..., Awaitable[Any]]
_Read: TypeAlias = Callable[[Request], Any]
_Admit: TypeAlias = Callable[[Request], Awaitable[Any]]

_WHO: Final[Mapping[Any, _Admit]] = {Scope: scope_of, AuthContext: authenticate_request}
_OURS: Final[Mapping[Any, _Read]] = {
    Request: lambda request: request,
    ServerContext: service,
    Tenuto: lambda request: service(request).tenuto,
    Sessions: sessions,
    Tasks: lambda request: service(request).tenuto.tasks,
}
_HEADERS: Final[Mapping[str, tuple[_Read, tuple[str, ...]]]] = {
    "idempotency_key": (idempotency_key, ("Idempotency-Key",)),
    "if_match": (if_match, ("If-Match",)),
    "last_event_id": (lambda request: request.headers.get("last-event-id"), ("Last-Event-ID",)),
    "precondition": (precondition, ("If-Match", "If-None-Match")),
    "tenuto_agent": (agent_header, ("Tenuto-Agent",)),
}


@dataclass(frozen=True, slots=True)
class Answer(Generic[_View]):
    """A view with a status of its own, or with headers."""

    view: _View
    status: int = 200
    headers: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class HandlerTypes:
    """What a handler's signature says: the body and the query it takes, the headers, and the view it answers with."""

    statuses: tuple[int, ...]
    answer: type[Any] | None
    body: type[Any] | None
    query: type[Any] | None
    headers: tuple[str, ...]


def bind(handler: Handler, path: str, statuses: tuple[int, ...]) -> tuple[Endpoint, HandlerTypes]:
    """The handler as an endpoint, which answers with the first of the statuses, and what its signature says.

    Without `statuses` it answers with 200, or with 204 where it returns nothing.

    The caller is admitted first, and the body is read last.
    """
    hints = get_type_hints(handler)
    who: tuple[str, _Admit] | None = None
    body: tuple[str, type[Any]] | None = None
    reads: list[tuple[str, _Read]] = []
    for name in signature(handler).parameters:
        hint = hints[name]
        if (admit := _WHO.get(hint, getattr(hint, "of_request", None))) is not None:
            who = name, admit
        elif (read := _reader(name, hint, path)) is not None:
            reads.append((name, read))
        else:
            assert body is None, f"{name} of {handler.__name__} is neither of the path nor a header"
            body = name, hint
    answer = _answer_type(hints["return"])
    statuses = statuses or ((204,) if hints["return"] is type(None) else (200,))
    status = statuses[0]
    versioned = answer is not None and issubclass(answer, _VERSIONED)

    @wraps(handler)
    async def endpoint(request: Request) -> Response:
        arguments: dict[str, Any] = {}
        if who is not None:
            arguments[who[0]] = await who[1](request)
        for name, read in reads:
            arguments[name] = read(request)
        if body is not None:
            arguments[body[0]] = await body_of(request, body[1])
        return _respond(await handler(**arguments), status, versioned)

    queries = [hint for hint in hints.values() if _is_query(hint)]
    headers = tuple(header for name in hints if name in _HEADERS for header in _HEADERS[name][1])
    headers += tuple(header for hint in hints.values() for header in getattr(hint, "HEADERS", ()))
    types = HandlerTypes(
        statuses, answer, body[1] if body is not None else None, queries[0] if queries else None, headers
    )
    return endpoint, types


def _respond(result: Any, status: int, versioned: bool) -> Response:
    if isinstance(result, Response):
        return result
    if result is None:
        return Response(status_code=204)
    headers: Mapping[str, str] | None = None
    if type(result) is Answer:
        result, status, headers = result.view, result.status, result.headers
    if versioned:
        headers = {"ETag": f'"{result.version}"', **(headers or {})}
    return Response(msgspec.json.encode(result), status, headers, JSON)


def _reader(name: str, hint: Any, path: str) -> _Read | None:
    """What reads a parameter from a request; `None` for the body."""
    if hint in _OURS:
        return _OURS[hint]
    if f"{{{name}}}" in path or f"{{{name}:" in path:
        return lambda request: path_parameter(request, name)
    if _is_query(hint):
        return lambda request: parse_query(request, hint)
    return _HEADERS[name][0] if name in _HEADERS else None


def _is_query(hint: Any) -> bool:
    return isclass(hint) and issubclass(hint, QueryParameters)


def _answer_type(hint: Any) -> type[Any] | None:
    """The view among what a handler returns; `None` where it answers with none, or makes the response itself."""
    for kind in get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,):
        view = get_args(kind)[0] if get_origin(kind) is Answer else kind
        if isclass(view) and not issubclass(view, Response | type(None)):
            return view
    return None
