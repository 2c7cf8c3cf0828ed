"""The OpenAPI document: what each route takes and answers, with examples, from the types that read and write it."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from importlib.metadata import version
from typing import Any, Final

import msgspec
from fastapi import APIRouter, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import Response
from fastapi.routing import APIRoute

from tenuto.model.values import JsonObject
from tenuto.server import requests, responses
from tenuto.server.problems import MEDIA_TYPE

_REF: Final = "#/components/schemas/{name}"
_ABOUT: Final = (
    "Conversation state for LLM agents. Sessions are held for their owner alone: what is absent, expired, deleted or "
    "somebody else's gives one and the same 404. The same routes answer under `/api/v1`. Where no key is configured, "
    "requests from the server's own machine need none."
)
_REASONS: Final = {
    400: "The request does not fit; `detail` names the field.",
    401: "A credential is needed, and none that holds was shown.",
    403: "The request names a tenant, site or user that the credential does not stand for, or needs another role.",
    404: "There is no such session or task for this caller, or nothing in it that goes by this name.",
    409: "The request contradicts what is stored or under way.",
    413: "The request or a message in it is too large.",
    429: "The caller asks too often; see Retry-After.",
    503: "The store does not answer; see Retry-After.",
}
_ALWAYS: Final = (400, 401, 403, 404, 429, 503)

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
    ("Idempotency-Key", "With the same key a write happens once; with another body it is refused.", _TEXT),
    ("Tenuto-Agent", "The agent that asks, where the body does not name it.", _TEXT),
    ("If-None-Match", "`*` where nothing may stand there yet.", {"type": "string", "enum": ["*"]}),
    ("If-Match", "The version the change is meant for.", {"type": "string", "pattern": '^([*]|(W/)?"[0-9]{1,16}")$'}),
)
_WHO: Final = tuple(name for name, _, _ in _HEADERS if name.startswith("X-"))
_PART_OF_PATH: Final = re.compile(r"{(\w+)}")
_PARTS_OF_PATHS: Final = {
    "session_id": "The session's id, percent-encoded where it holds a slash or other odd characters.",
    "turn_id": "The `turn_id` that the turn's beginning answered.",
    "trace_id": "The `trace_id` that the turn's answer named.",
    "user_id": "The user's id, percent-encoded where it holds odd characters.",
    "name": "The attribute's name, percent-encoded where it holds odd characters.",
    "task_id": "The task's id.",
    "key": "The key on the board or among the notes, percent-encoded where it holds odd characters.",
    "agent": "The agent's name, percent-encoded where it holds odd characters.",
}

_NEW_MESSAGE: Final[JsonObject] = {
    "title": "NewMessage",
    "description": (
        "A message: a role and its words, as `text`, `content` (text or parts) or `parts`. Fields we do not know are "
        "kept and come back unchanged."
    ),
    "type": "object",
    "required": ["role"],
    "properties": {
        "id": {"type": ["string", "null"], "minLength": 1, "maxLength": 4096, "pattern": "^[^\\u0000]*$"},
        "role": {"enum": ["user", "assistant", "system", "tool", "item"]},
        "text": {"type": "string", "pattern": "^[^\\u0000]*$"},
        "content": {
            "anyOf": [
                {"type": "string", "pattern": "^[^\\u0000]*$"},
                {"type": "array", "items": {"$ref": "#/components/schemas/Part"}},
            ]
        },
        "parts": {"type": "array", "items": {"$ref": "#/components/schemas/Part"}},
        "speaker": {"type": ["string", "null"], "minLength": 1, "maxLength": 4096, "pattern": "^[^\\u0000]*$"},
        "persona": {"type": ["string", "null"], "minLength": 1, "maxLength": 4096, "pattern": "^[^\\u0000]*$"},
        "parent": {"type": ["string", "null"], "minLength": 1, "maxLength": 4096, "pattern": "^[^\\u0000]*$"},
        "tokens": {
            "type": "integer",
            "minimum": 0,
            "maximum": 2**53 - 1,
            "description": "How many it has; stored is no less than tenuto counts itself.",
        },
        "sent_at": {"type": ["string", "null"], "format": "date-time"},
        "metadata": {"type": ["object", "null"]},
    },
    "anyOf": [{"required": ["text"]}, {"required": ["content"]}, {"required": ["parts"]}],
    # An object with `messages` is read as a batch.
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


class _PlainRoute(APIRoute):
    """A route whose function takes the request and returns the response: what it reads, it reads itself.

    FastAPI's own solving of parameters costs more than all the rest of a request.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler: Callable[[Request], Coroutine[Any, Any, Response]] = self.endpoint
        return handler


def router(tag: str, prefix: str = "") -> APIRouter:
    """A group of routes; in the document each is called as its function is."""
    return APIRouter(
        prefix=prefix,
        tags=[tag],
        route_class=_PlainRoute,
        default_response_class=Response,
        generate_unique_id_function=lambda route: route.name,
    )


def describe(
    *good: tuple[int, type[Any] | None],
    query: type[Any] | None = None,
    body: type[Any] | None = None,
    example: object = None,
    required: bool = False,
    headers: tuple[str, ...] = (),
    problems: tuple[int, ...] = (),
    public: bool = False,
) -> dict[str, Any]:
    """What a route's decorator tells the OpenAPI: its parameters, its body with an example, its answers."""
    responses: dict[int | str, dict[str, Any]] = {status: _good(kind) for status, kind in good}
    expected = problems if public else (*_ALWAYS, *problems, *((413,) if body is not None else ()))
    responses |= {status: {"$ref": f"#/components/responses/Problem{status}"} for status in sorted(expected)}
    parameters = [*(_query(query) if query is not None else ()), *_named(headers)]
    extra: dict[str, Any] = {"parameters": parameters}
    if body is not None:
        extra["requestBody"] = _json_body(body, example, required)
    if public:
        extra["security"] = []
    return {"status_code": good[0][0], "responses": responses, "openapi_extra": extra}


def _named(headers: tuple[str, ...]) -> list[JsonObject]:
    return [{"$ref": f"#/components/parameters/{name}"} for name in headers]


def _query(kind: type[Any]) -> list[JsonObject]:
    """A type that reads the query, as the document's parameters."""
    (_,), parts = msgspec.json.schema_components([kind], ref_template=_REF)
    schema = parts[kind.__name__]
    return [
        {"name": name, "in": "query", "required": name in schema.get("required", ()), "schema": _present(part)}
        for name, part in schema["properties"].items()
    ]


def _present(schema: JsonObject) -> JsonObject:
    """A parameter's schema: one that may be left out is never null."""
    kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    rest = {name: value for name, value in schema.items() if name != "anyOf" and value is not None}
    return {**rest, **kinds[0]} if kinds else rest


def _good(kind: type[Any] | None) -> dict[str, Any]:
    if kind is None:
        return {"description": "Done."}
    about = (kind.__doc__ or "").strip()
    return {"description": about, "content": {"application/json": {"schema": _ref(kind)}}}


def _json_body(kind: type[Any], example: object, required: bool) -> JsonObject:
    content: JsonObject = {"schema": _ref(kind)}
    if example is not None:
        content["example"] = example
    return {"required": required, "content": {"application/json": content}}


def _ref(kind: type[Any]) -> JsonObject:
    return {"$ref": _REF.format(name=kind.__name__)}


def install(app: FastAPI) -> None:
    """Have the application describe itself."""
    app.openapi = partial(_document, app)  # type: ignore[method-assign]  # FastAPI's documented way to extend it


def _document(app: FastAPI) -> JsonObject:
    if app.openapi_schema is None:
        document = get_openapi(title="tenuto", version=version("tenuto"), description=_ABOUT, routes=app.routes)
        _complete(document)
        app.openapi_schema = document
    return app.openapi_schema


def _complete(document: JsonObject) -> None:
    document["components"] = {
        "schemas": {**_schemas(), "NewMessage": _NEW_MESSAGE, "Part": _PART},
        "responses": {f"Problem{status}": _problem(reason) for status, reason in _REASONS.items()},
        "parameters": {name: _header(name, about, schema) for name, about, schema in _HEADERS},
        "securitySchemes": {
            "key": {"type": "http", "scheme": "bearer", "description": "An API key or a JWT."},
            "key_header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        },
    }
    document["security"] = [{"key": []}, {"key_header": []}]
    for path, operations in document["paths"].items():
        parts = [_path_part(name) for name in _PART_OF_PATH.findall(path)]
        named = _named(_WHO) if path.startswith(("/v1/", "/goods/")) else []
        for operation in operations.values():
            operation["parameters"] = [*parts, *operation.get("parameters", []), *named]


def _schemas() -> Mapping[str, Any]:
    kinds = [
        kind
        for module in (requests, responses)
        for kind in vars(module).values()
        if isinstance(kind, type)
        and issubclass(kind, msgspec.Struct)
        and kind.__module__ == module.__name__
        and not kind.__name__.startswith("_")
    ]
    schemas = msgspec.json.schema_components(kinds, ref_template=_REF)[1]
    # msgspec reads decimals from numbers as well, but describes them as strings alone.
    schemas["UsageBody"]["properties"]["cost_usd"]["type"] = ["string", "number"]
    schemas["ChatBody"] |= _SAID_OR_ANEW
    return schemas


def _problem(reason: str) -> JsonObject:
    return {"description": reason, "content": {MEDIA_TYPE: {"schema": _ref(responses.Problem)}}}


def _path_part(name: str) -> JsonObject:
    return {"name": name, "in": "path", "required": True, "description": _PARTS_OF_PATHS[name], "schema": _TEXT}


def _header(name: str, about: str, schema: JsonObject) -> JsonObject:
    return {"name": name, "in": "header", "required": False, "description": about, "schema": schema}
