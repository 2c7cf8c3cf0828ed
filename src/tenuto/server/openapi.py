"""Routes that describe themselves, and the OpenAPI document made of them.

The types that decode a request and encode its answer are those of the document.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partialmethod
from importlib.metadata import version
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import fields
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tenuto.model.plan import PlanFields
from tenuto.model.values import JsonObject
from tenuto.server import requests
from tenuto.server.problems import MEDIA_TYPE, Problem
from tenuto.sessions.views import NewMessage
from tenuto.tasks.timeline import EVENT_ID

_Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]
_REF: Final = "#/components/schemas/{name}"
_ABOUT: Final = (
    "Conversation state for LLM agents. A session is visible to its owner only: an absent, expired, deleted or foreign "
    "one gives the same 404. The same routes answer under `/api/v1`. Where no key is configured, requests from the "
    "server's own machine need none."
)
_REASONS: Final = {
    400: "The request is invalid; `detail` names the field.",
    401: "The request has no valid credential.",
    403: "The credential is for another tenant, site or user than the request names, or lacks the role.",
    404: "There is no such session, task or memory for this caller, or no such entry in it.",
    408: "The request did not arrive in time.",
    409: "The request conflicts with stored data or a running operation.",
    413: "The request or a message in it is too large.",
    429: "The caller asks too often; see Retry-After.",
    431: "The headers are too large or too many.",
    502: "The model's provider refuses the request as it is.",
    503: "The store or the model does not answer; see Retry-After.",
}
_ALWAYS: Final = (400, 401, 403, 404, 408, 429, 431, 503)

_TEXT: Final[JsonObject] = {"type": "string", "minLength": 1}
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
    (
        "If-Match",
        "The version that the change applies to.",
        {"type": "string", "pattern": '^([*]|(W/)?"[0-9]{1,16}")$'},
    ),
)
_WHO: Final = tuple(name for name, _, _ in _HEADERS if name.startswith("X-"))
_PARTS_OF_PATHS: Final = {
    "assistant": "The assistant's name.",
    "session_id": "The session's id, percent-encoded if it contains a slash or other special characters.",
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
}

# A message has words; an object with `messages` is read as a batch.
_HAS_WORDS: Final[JsonObject] = {
    "anyOf": [
        {"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in ("text", "content", "parts")
    ],
    "not": {"required": ["messages"]},
}
_PART: Final[JsonObject] = {
    "title": "Part",
    "description": "A piece of a message. `text`, `tool_call` and `tool_result` are ours; others are kept unchanged.",
    "type": "object",
    "required": ["type"],
    "properties": {"type": {"type": "string", "pattern": "^[^\\u0000]*$"}},
    "if": {"properties": {"type": {"const": "text"}}},
    "then": {"required": ["text"], "properties": {"text": {"type": "string", "pattern": "^[^\\u0000]*$"}}},
}

# A message, or the wish for another answer to the last one; to go back, one names the session.
_SAID_OR_ANEW: Final[JsonObject] = {
    "oneOf": [
        {
            "required": ["message"],
            "properties": {
                "message": {"type": "string", "pattern": requests.SAID},
                "regenerate": {"const": False},
                "edit": {"type": "null"},
            },
        },
        {
            "required": ["regenerate", "session_id"],
            "properties": {
                "message": {"const": ""},
                "regenerate": {"const": True},
                "edit": {"type": "null"},
                "session_id": {"type": "string"},
            },
        },
        {
            "required": ["message", "edit", "session_id"],
            "properties": {
                "message": {"type": "string", "pattern": requests.SAID},
                "regenerate": {"const": False},
                "edit": {"type": "integer"},
                "session_id": {"type": "string"},
            },
        },
    ]
}


@dataclass(frozen=True, slots=True)
class Operation:
    """What the document says of a route, and the types it refers to."""

    content: JsonObject
    kinds: tuple[type[Any], ...]


class ApiRoute(Route):
    """A route of one method, without the HEAD that Starlette would answer with all of a GET."""

    def __init__(self, method: str, path: str, endpoint: _Endpoint, tag: str, operation: Operation | None) -> None:
        super().__init__(path, endpoint, methods=[method])
        self.methods = {method}
        self.tag = tag
        self.operation = operation

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = self  # For the metrics, which count by route.
        await super().handle(scope, receive, send)


class Router:
    """A group of routes under one tag. Routes without an operation are not in the document."""

    def __init__(self, tag: str = "", prefix: str = "") -> None:
        self.routes: list[ApiRoute] = []
        self._tag = tag
        self._prefix = prefix

    def add(self, method: str, path: str, operation: Operation | None = None) -> Callable[[_Endpoint], _Endpoint]:
        """Add the decorated function as a route; in the document it has the function's name and docstring."""

        def register(endpoint: _Endpoint) -> _Endpoint:
            self.routes.append(ApiRoute(method, self._prefix + path, endpoint, self._tag, operation))
            return endpoint

        return register

    get = partialmethod(add, "GET")
    post = partialmethod(add, "POST")
    put = partialmethod(add, "PUT")
    patch = partialmethod(add, "PATCH")
    delete = partialmethod(add, "DELETE")


def describe(
    answer: type[Any] | None,
    *statuses: int,
    query: type[Any] | None = None,
    body: type[requests.RequestBody] | None = None,
    headers: tuple[str, ...] = (),
    problems: tuple[int, ...] = (),
    content: Mapping[str, JsonObject] | None = None,
    example: JsonObject | None = None,
    public: bool = False,
) -> Operation:
    """What a route takes and answers: `answer` as JSON under each of `statuses` (200 by default), such as `example`,
    `content` by other media types, and problems. A body with a required field is required itself; a request that names
    a version or an idempotency key may conflict."""
    kinds = tuple(kind for kind in (answer, body) if kind is not None)
    good: JsonObject = {"description": inspect.getdoc(answer) if answer is not None else "Done."}
    if answer is not None or content is not None:
        good["content"] = {
            **({"application/json": _json_content(answer, example)} if answer else {}),
            **(content or {}),
        }
    expected = {*problems, *(() if public else _ALWAYS)}
    expected |= {413} if body is not None else set()
    expected |= {409} if {"If-Match", "Idempotency-Key"} & {*headers} else set()
    operation: JsonObject = {
        "parameters": [*(_query_parameters(query) if query is not None else ()), *_header_refs(headers)],
        "responses": {
            **{str(status): good for status in statuses or (200,)},
            **{str(status): {"$ref": f"#/components/responses/Problem{status}"} for status in sorted(expected)},
        },
    }
    if body is not None:
        required = any(field.required for field in fields(body))
        written = {"application/json": {"schema": _schema_ref(body), "example": body.EXAMPLE}}
        operation["requestBody"] = {"required": required, "content": written}
    if public:
        operation["security"] = []
    return Operation(operation, kinds)


def _json_content(answer: type[Any], example: JsonObject | None) -> JsonObject:
    return {"schema": _schema_ref(answer), **({} if example is None else {"example": example})}


def _header_refs(headers: tuple[str, ...]) -> list[JsonObject]:
    return [{"$ref": f"#/components/parameters/{name}"} for name in headers]


def _query_parameters(kind: type[Any]) -> list[JsonObject]:
    """A type that reads the query, as the document's parameters."""
    (_,), parts = msgspec.json.schema_components([kind], ref_template=_REF)
    schema = parts[kind.__name__]
    return [
        {"name": name, "in": "query", "required": name in schema.get("required", ()), "schema": _alone(part, parts)}
        for name, part in schema["properties"].items()
    ]


def _alone(schema: JsonObject, parts: JsonObject) -> JsonObject:
    """A parameter's schema: one that may be left out is never null, and what it refers to is in no other schema."""
    kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    rest = {name: value for name, value in schema.items() if name != "anyOf" and value is not None}
    merged = {**rest, **kinds[0]} if kinds else rest
    referred = parts[merged.pop("$ref").rpartition("/")[2]] if "$ref" in merged else {}
    return {**referred, **merged}


def _schema_ref(kind: type[Any]) -> JsonObject:
    return {"$ref": _REF.format(name=kind.__name__)}


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
            operations = paths.setdefault(route.path, {})
            operations |= {method.lower(): _build_operation(route, route.operation) for method in route.methods or ()}
    return {
        "openapi": "3.1.0",
        "info": {"title": "tenuto", "version": version("tenuto"), "description": _ABOUT},
        "paths": paths,
        "components": {
            "schemas": {**_component_schemas(list(kinds)), "Part": _PART},
            "responses": {
                f"Problem{status}": {"description": reason, "content": {MEDIA_TYPE: {"schema": _schema_ref(Problem)}}}
                for status, reason in _REASONS.items()
            },
            "parameters": {
                name: {"name": name, "in": "header", "required": False, "description": about, "schema": schema}
                for name, about, schema in _HEADERS
            },
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "An API key or a JWT."},
                "key_header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            },
        },
        "security": [{"key": []}, {"key_header": []}],
    }


def _build_operation(route: ApiRoute, operation: Operation) -> JsonObject:
    in_path = [
        {"name": name, "in": "path", "required": True, "description": _PARTS_OF_PATHS[name], "schema": _TEXT}
        for name in route.param_convertors
    ]
    named = _header_refs(_WHO) if route.path.startswith(("/v1/", "/goods/")) else []
    return {
        "tags": [route.tag],
        "summary": route.name.replace("_", " ").title(),
        "description": inspect.getdoc(route.endpoint),
        "operationId": route.name,
        **operation.content,
        "parameters": [*in_path, *operation.content["parameters"], *named],
    }


def _component_schemas(kinds: Sequence[type[Any]]) -> JsonObject:
    schemas = msgspec.json.schema_components(kinds, ref_template=_REF)[1]
    # msgspec reads decimals from numbers as well, but describes them as strings alone.
    schemas["UsageBody"]["properties"]["cost_usd"]["type"] = ["string", "number"]
    schemas["NewMessage"] |= _HAS_WORDS
    schemas["ChatBody"] |= _SAID_OR_ANEW
    schemas["ChangeTask"] |= {
        "if": {"properties": {"status": {"const": "running"}}},
        "then": {"properties": {"result": {"type": "null"}}},
    }
    return schemas
