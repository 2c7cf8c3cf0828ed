"""Routes that describe themselves, and the OpenAPI document made of them.

The types that decode a request and encode its answer are those of the document.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final, TypeVar

from msgspec.structs import fields
from starlette.applications import Starlette

from tenuto.model.plan import PlanFields
from tenuto.model.values import JsonObject
from tenuto.server.handlers import Handler, bind
from tenuto.server.json_io import RequestBody
from tenuto.server.problems import ERROR_CODES, MEDIA_TYPE, Problem
from tenuto.server.routing import ApiRoute, Endpoint
from tenuto.server.schemas import component_schemas, query_parameters, schema_ref
from tenuto.sessions.views import NewMessage
from tenuto.tasks.timeline import EVENT_ID

_Handler = TypeVar("_Handler", bound=Handler)
_ABOUT: Final = """Conversation state for LLM agents: sessions, messages, memories, traces and tasks.

A session is visible to its owner only: an absent, expired, deleted or foreign one gives the same 404. Routes below \
`/v1` and `/goods` are also served below `/api`. Requests need an API key or a token; a server without any key accepts \
requests from its own machine only, without a credential. A caller that may act for others names the user in \
`X-User-ID`.

Unknown fields of bodies and unknown query parameters are refused. Errors are `application/problem+json` with a stable \
`code`. Each GET answers HEAD as well. Large JSON is compressed on request; `If-None-Match` saves an unchanged answer.

Not listed are the console at `/` and its files below `/console/`, this document at `/openapi.json`, its page at \
`/docs`, and deliveries of chat platforms at `/lark/events` and `/webhook/{name}/messages`, which exist where an app \
is configured.
"""
_TAGS: Final = {
    "chat": "Talk to assistants and look at what they did.",
    "turns": "Run your own model: begin a turn, finish it.",
    "messages": "The messages of a session.",
    "sessions": "Conversations: create, list, change, fork and delete them, and follow their changes.",
    "memories": "What is remembered of a user across sessions.",
    "tasks": "Work of several agents: plans, boards, locks, notes and runs.",
    "analytics": "Usage and topics of a site.",
    "export and import": "Sessions as files.",
    "privacy": "Privacy policy, scans, reveals, erasure and audit.",
    "keys": "API keys of a tenant.",
    "people": "Users of a site who are one person.",
    "npc": "Characters that answer with evidence.",
    "goods": "The shopping assistant.",
    "web streams": "Chat for the AI SDK and for AG-UI.",
    "openai": "The API of OpenAI: sessions as conversations, turns as responses, assistants as models.",
    "anthropic": "The API of Anthropic: messages, answered by assistants and models.",
    "mcp": "Tools for clients of the Model Context Protocol; with the extra `mcp`.",
    "a2a": "Assistants as agents of the A2A protocol; with the extra `a2a`.",
    "health": "Liveness, readiness, status and metrics.",
}
_REASONS: Final = {
    400: "The request is invalid; `detail` names the field.",
    401: "The request has no valid credential.",
    403: "The credential is for another tenant, site or user than the request names, or lacks the role.",
    404: "The caller has no such session, task or memory, or it has no such entry.",
    408: "The request did not arrive in time.",
    409: "The request conflicts with stored data or a running operation.",
    413: "The request or a message in it is too large.",
    429: "A rate, budget or other limit is reached; see Retry-After.",
    431: "The headers are too large or too many.",
    502: "The model's provider refuses the request as it is.",
    503: "The store or the model does not answer; see Retry-After.",
}
# At any route; and at those that need a credential.
_ANYWHERE: Final = (408, 431)
_ALWAYS: Final = (*_ANYWHERE, 400, 401, 403, 404, 429, 503)
# The answers that come before a request has an id.
_WITHOUT_ID: Final = (408, 431)
_RESPONSE_HEADERS: Final = {
    "X-Request-ID": "The id of the request, as in the server's log.",
    "Tenuto-Degraded": "`store` if the answer was made while the store does not answer.",
    "ETag": "The version of the answer: for `If-None-Match`, and where the route takes one for `If-Match`.",
    "Location": "The address of what was created.",
    "Retry-After": "Seconds after which the request may succeed.",
    "WWW-Authenticate": "The scheme of the credential.",
}
_PROTOCOL_ERROR: Final[JsonObject] = {
    "description": "An error in the form of the protocol. On routes of OpenAI: `message`, `type`, `param` and `code`; "
    "of Anthropic: `type` and `message`.",
    "headers": {"X-Request-ID": {"$ref": "#/components/headers/X-Request-ID"}},
    "content": {"application/json": {"schema": {"type": "object", "additionalProperties": True}}},
}
_HEADERS_BY_STATUS: Final = {
    401: ("WWW-Authenticate",),
    409: ("Retry-After",),
    429: ("Retry-After",),
    503: ("Retry-After",),
}

# The end of a sentence: no abbreviation has a capital letter after it.
_SENTENCE: Final = re.compile(r"(?<=[.;:]) (?=[A-Z`\d])|; ")
_TEXT: Final[JsonObject] = {"type": "string", "minLength": 1}
_FREE: Final[JsonObject] = {"type": "object", "additionalProperties": True}
_ANY_TEXT: Final[JsonObject] = {"type": "string"}
_HEADERS: Final[tuple[tuple[str, str, JsonObject], ...]] = (
    (
        "X-Tenant-ID",
        "The tenant (or `tenant_id` in the query); must agree with the credential.",
        {**_TEXT, "pattern": "^[^~]"},
    ),
    ("X-Site-ID", "The site within the tenant (or `site_id` in the query); must agree with the credential.", _ANY_TEXT),
    ("X-User-ID", "The user to act for, where the credential is not bound to one.", _ANY_TEXT),
    ("X-Channel", "Where a chat takes place.", _ANY_TEXT),
    ("X-Chat-ID", "The chat to act for: what is made in it belongs to all its members.", _ANY_TEXT),
    ("X-Thread-ID", "The thread within the chat.", _ANY_TEXT),
    (
        "Idempotency-Key",
        "A repeated write with the same key has no further effect; with another body it is refused.",
        _TEXT,
    ),
    ("Tenuto-Agent", "The agent that makes the request, if the body does not name it.", _TEXT),
    ("If-None-Match", "`*` if the entry must not exist yet.", {"type": "string", "enum": ["*"]}),
    ("Last-Event-ID", "The last event received.", {"type": "string", "pattern": f"^{EVENT_ID}$"}),
    ("Tenuto-Session", "The session that the request is a turn of.", _TEXT),
    (
        "If-Match",
        "The version that the change applies to.",
        {"type": "string", "pattern": '^([*]|(W/)?"[0-9]{1,16}(-[0-9a-f]{16})?")$'},
    ),
)
_FOR_A_SCOPE: Final = ("/v1/", "/goods/", "/a2a/", "/mcp")
_WHO: Final = tuple(name for name, _, _ in _HEADERS if name.startswith("X-"))
_PARTS_OF_PATHS: Final = {
    "assistant": "The assistant's name.",
    "session_id": "The session's id, percent-encoded if it contains a slash or other special characters.",
    "attachment_id": "The id of the attachment.",
    "turn_id": "The `turn_id` from the answer that began the turn.",
    "trace_id": "The `trace_id` from the turn's answer.",
    "user_id": "The user's id, percent-encoded if it contains special characters.",
    "name": "The attribute's name, percent-encoded if it contains special characters.",
    "task_id": "The task's id.",
    "memory_id": "The memory's id.",
    "key_id": "The API key's id, not its secret.",
    "step": "The id of a step of the task's plan.",
    "key": "The key on the board or among the notes, percent-encoded if it contains special characters.",
    "agent": "The agent's name, percent-encoded if it contains special characters.",
    "conversation_id": "The session's id.",
    "item_id": "The id of an item of the conversation.",
    "response_id": "The id of the response.",
    "model": "The name of an assistant.",
    "id": "The id of a task of A2A.",
    "push_id": "The id of a webhook.",
}


@dataclass(frozen=True, slots=True)
class Operation:
    """What the document says of a route, and the types it refers to; whether a query with other names is refused."""

    content: JsonObject
    kinds: tuple[type[Any], ...] = ()
    without_query: bool = False


@dataclass(frozen=True, slots=True)
class EventStream:
    """Server-sent events as an answer; the data of each is of one of the types of `events`."""

    about: str
    example: str
    events: tuple[type[Any], ...] = ()

    def content(self) -> JsonObject:
        """The content of the answer."""
        schema: JsonObject = {"type": "string", "description": self.about}
        if self.events:
            schema["contentMediaType"] = "text/event-stream"
            first, *others = [schema_ref(event) for event in self.events]
            schema["contentSchema"] = {"anyOf": [first, *others]} if others else first
        return {"text/event-stream": {"schema": schema, "example": self.example}}


class Router:
    """A group of routes under one tag: handlers as `bind` reads them. Routes without a tag are not in the document.

    Those of another `protocol` are described as `describe_protocol` does.
    """

    def __init__(self, tag: str = "", prefix: str = "", protocol: str = "") -> None:
        self.routes: list[ApiRoute] = []
        self._tag = tag
        self._prefix = prefix
        self._protocol = protocol

    def add(
        self, method: str, path: str, *statuses: int, operation: Operation | None = None, **about: Any
    ) -> Callable[[_Handler], _Handler]:
        """Add the decorated handler as a route; in the document it has the function's name and docstring.

        `about` is what else `describe` takes.
        """

        def register(handler: _Handler) -> _Handler:
            endpoint, types = bind(handler, path, statuses)
            described = operation
            if described is None and self._protocol:
                described = describe_protocol(self._protocol, query=types.query, headers=types.headers, **about)
            elif described is None and self._tag:
                described = describe(
                    types.answer, *types.statuses, query=types.query, body=types.body, headers=types.headers, **about
                )
            route = ApiRoute(method, self._prefix + path, self._wrap(endpoint), self._tag, described)
            self.routes.append(route)
            return handler

        return register

    def get(self, path: str, *statuses: int, **about: Any) -> Callable[[_Handler], _Handler]:
        """Add a route for GET."""
        return self.add("GET", path, *statuses, **about)

    def post(self, path: str, *statuses: int, **about: Any) -> Callable[[_Handler], _Handler]:
        """Add a route for POST."""
        return self.add("POST", path, *statuses, **about)

    def put(self, path: str, *statuses: int, **about: Any) -> Callable[[_Handler], _Handler]:
        """Add a route for PUT."""
        return self.add("PUT", path, *statuses, **about)

    def patch(self, path: str, *statuses: int, **about: Any) -> Callable[[_Handler], _Handler]:
        """Add a route for PATCH."""
        return self.add("PATCH", path, *statuses, **about)

    def delete(self, path: str, *statuses: int, **about: Any) -> Callable[[_Handler], _Handler]:
        """Add a route for DELETE."""
        return self.add("DELETE", path, *statuses, **about)

    def _wrap(self, endpoint: Endpoint) -> Endpoint:
        return endpoint


def describe(
    answer: type[Any] | None,
    *statuses: int,
    query: type[Any] | None = None,
    body: type[RequestBody] | None = None,
    headers: tuple[str, ...] = (),
    problems: tuple[int, ...] = (),
    content: Mapping[str, JsonObject] | None = None,
    stream: EventStream | None = None,
    example: JsonObject | None = None,
    body_required: bool | None = None,
    no_content: str = "",
    public: bool = False,
) -> Operation:
    """What a route takes and answers: `answer` as JSON under each of `statuses` (200 by default), such as `example`,
    `content` by other media types or as a `stream`, or 204 where `no_content` says when, and problems. A body with a
    required field is required itself; a request that names a version or an idempotency key may conflict."""
    good: JsonObject = {"description": _first_sentence(inspect.getdoc(answer) or "") or "Done."}
    events = stream.content() if stream is not None else {}
    if answer is not None or content is not None or events:
        good["content"] = {
            **({"application/json": _json_content(answer, example)} if answer else {}),
            **(content or {}),
            **events,
        }
    expected = {*problems, *(_ANYWHERE if public else _ALWAYS)}
    expected |= {413} if body is not None else set()
    expected |= {409} if {"If-Match", "Idempotency-Key"} & {*headers} else set()
    operation: JsonObject = {
        "parameters": [*(query_parameters(query) if query is not None else ()), *_header_refs(headers)],
        "responses": {
            **{str(status): {**good, "headers": _good_headers(answer, status)} for status in statuses or (200,)},
            **{str(status): {"$ref": f"#/components/responses/Problem{status}"} for status in sorted(expected)},
        },
    }
    if body is not None:
        required = any(field.required for field in fields(body)) if body_required is None else body_required
        written = {"application/json": {"schema": schema_ref(body), "example": body.EXAMPLE}}
        operation["requestBody"] = {"required": required, "content": written}
    if no_content:
        operation["responses"]["204"] = {"description": no_content}
    if public:
        operation["security"] = []
    kinds = (answer, body, *(stream.events if stream is not None else ()))
    return Operation(operation, tuple(kind for kind in kinds if kind is not None), query is None and not public)


def describe_protocol(
    protocol: str,
    *,
    body: JsonObject | None = None,
    query: type[Any] | None = None,
    headers: tuple[str, ...] = (),
    streams: bool = False,
    public: bool = False,
) -> Operation:
    """A route of another protocol: its own document describes bodies and answers. `body` is an example of one."""
    about = f"As {protocol} has it."
    good: JsonObject = {"application/json": {"schema": {**_FREE, "description": about}}}
    if streams:
        good |= EventStream(f"Server-sent events, as {protocol} has them.", example="data: {}\n\n").content()
    operation: JsonObject = {
        "parameters": [*(query_parameters(query) if query is not None else ()), *_header_refs(headers)],
        "responses": {
            "200": {"description": about, "headers": _good_headers(None, 200), "content": good},
            **{status: {"$ref": "#/components/responses/ProtocolError"} for status in ("4XX", "5XX")},
        },
    }
    if body is not None:
        content = {"schema": {**_FREE, "description": about}, "example": body}
        operation["requestBody"] = {"required": True, "content": {"application/json": content}}
    if public:
        operation["security"] = []
    return Operation(operation)


def _json_content(answer: type[Any], example: JsonObject | None) -> JsonObject:
    return {"schema": schema_ref(answer), **({} if example is None else {"example": example})}


def _good_headers(answer: type[Any] | None, status: int) -> JsonObject:
    versioned = answer is not None and "version" in getattr(answer, "__struct_fields__", ())
    names = [
        "X-Request-ID",
        "Tenuto-Degraded",
        *(["ETag"] if versioned else ()),
        *(["Location"] if status == 201 and versioned else ()),
    ]
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _header_refs(headers: tuple[str, ...]) -> list[JsonObject]:
    return [{"$ref": f"#/components/parameters/{name}"} for name in headers]


def _first_sentence(text: str) -> str:
    return _SENTENCE.split(" ".join(text.split()), maxsplit=1)[0].rstrip(".")


def document(app: Starlette) -> JsonObject:
    """The application's OpenAPI document, built at the first call."""
    if not hasattr(app.state, "document"):
        app.state.document = _build_schema([route for route in app.routes if isinstance(route, ApiRoute)])
    built: JsonObject = app.state.document
    return built


def _build_schema(routes: Sequence[ApiRoute]) -> JsonObject:
    kinds: dict[type[Any], None] = {Problem: None, NewMessage: None, PlanFields: None}
    paths: dict[str, JsonObject] = {}
    for route in routes:
        if route.operation is not None:
            kinds |= dict.fromkeys(route.operation.kinds)
            operations = paths.setdefault(route.path_format, {})
            operations[route.method.lower()] = _build_operation(route, route.operation)
    used = {operation["tags"][0] for operations in paths.values() for operation in operations.values()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "tenuto",
            "version": version("tenuto"),
            "description": _ABOUT,
            "contact": {"name": "The tenuto project"},
            "license": {"name": "Apache License 2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "This server."}],
        "tags": [{"name": name, "description": about} for name, about in _TAGS.items() if name in used],
        "paths": paths,
        "components": {
            "schemas": component_schemas(list(kinds)),
            "responses": {
                **{f"Problem{status}": _problem(status) for status in _REASONS},
                "ProtocolError": _PROTOCOL_ERROR,
            },
            "parameters": {
                name: {"name": name, "in": "header", "required": False, "description": about, "schema": schema}
                for name, about, schema in _HEADERS
            },
            "headers": {
                name: {"description": about, "schema": {"type": "string"}} for name, about in _RESPONSE_HEADERS.items()
            },
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "An API key or a JWT."},
                "key_header": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "An API key."},
            },
        },
        "security": [{"key": []}, {"key_header": []}],
    }


def _problem(status: int) -> JsonObject:
    names = [*(() if status in _WITHOUT_ID else ("X-Request-ID",)), *_HEADERS_BY_STATUS.get(status, ())]
    return {
        "description": f"{_REASONS[status]} Codes: {', '.join(f'`{code}`' for code in ERROR_CODES[status])}.",
        "headers": {name: {"$ref": f"#/components/headers/{name}"} for name in names},
        "content": {MEDIA_TYPE: {"schema": schema_ref(Problem)}},
    }


def _build_operation(route: ApiRoute, operation: Operation) -> JsonObject:
    in_path = [
        {"name": name, "in": "path", "required": True, "description": _PARTS_OF_PATHS[name], "schema": _TEXT}
        for name in route.param_convertors
    ]
    named = _header_refs(_WHO) if route.path.startswith(_FOR_A_SCOPE) else []
    about = inspect.getdoc(route.endpoint) or ""
    return {
        "tags": [route.tag],
        "summary": _first_sentence(about),
        "description": " ".join(about.split()),
        "operationId": route.name,
        **operation.content,
        "parameters": [*in_path, *operation.content["parameters"], *named],
    }
