"""Errors in the shape of the OpenAI API, for clients that know no other, and the routes that answer so."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import ClassVar, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tenuto.errors import (
    AnswerInvalid,
    AttachmentLimit,
    BudgetExhausted,
    Conflict,
    FailureReason,
    Invalid,
    ModelRefused,
    ModelUnknown,
    NotFound,
    RequestRefused,
    SessionBusy,
    TenutoError,
    TooLarge,
    Unavailable,
    failure_reason,
)
from tenuto.model.values import JsonObject
from tenuto.server.json_io import JSON
from tenuto.server.problems import AccessDenied, InvalidCredential, Problem, error_response
from tenuto.server.protocol_routers import ProtocolRouter

# Where clients of OpenAI ask; below `/v1/chat` there are also routes of our own.
_ADDRESSES: Final = (
    *("/v1/responses", "/v1/conversations", "/v1/chat/completions", "/v1/models", "/v1/embeddings"),
    # Those of OpenAI's routes that are not here.
    *("/v1/audio", "/v1/batches", "/v1/completions", "/v1/containers", "/v1/edits", "/v1/engines", "/v1/evals"),
    *("/v1/files", "/v1/fine_tuning", "/v1/images", "/v1/moderations", "/v1/realtime", "/v1/threads", "/v1/uploads"),
    *("/v1/vector_stores", "/v1/videos"),
)
# What OpenAI calls by another code. Instructions that are too long keep ours: at the other one agents compact their
# talk and ask again, for ever where it is not the talk that has no room.
_CODES: Final = {"model_unknown": (404, "model_not_found"), "prompt_too_long": (400, "context_length_exceeded")}
_NO_QUOTA: Final = "insufficient_quota"
_log = logging.getLogger(__name__)
_KINDS: Final = {401: "authentication_error", 403: "permission_error", 409: "conflict_error", 429: "rate_limit_error"}
# Our messages about a field begin with its name.
_FIELD: Final = re.compile(r"([a-z_]+(?:[.\[][\w.\[\]]*)?): ")
# Parameters that a route's requests have under another name than the model port, or the provider that refuses them.
_NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    "/v1/chat/completions": {
        "schema": "response_format.json_schema.schema",
        "provider_metadata": "metadata",
        "provider_store": "store",
        "reply_tokens": "max_completion_tokens",
        "max_output_tokens": "max_completion_tokens",
        "reasoning.effort": "reasoning_effort",
        "text.verbosity": "verbosity",
    },
    "/v1/responses": {
        "schema": "text.format.schema",
        "reasoning_effort": "reasoning.effort",
        "reasoning_summary": "reasoning.summary",
        "verbosity": "text.verbosity",
        "logprobs": "include",
        "reply_tokens": "max_output_tokens",
        **dict.fromkeys(("max_tokens", "max_completion_tokens"), "max_output_tokens"),
    },
}
# OpenAI's clients retry these by themselves, where the same request can only fail again, or was repeated here.
_NOT_AGAIN: Final = (Conflict, BudgetExhausted, AttachmentLimit, ModelRefused, AnswerInvalid)


class ItemNotFound(NotFound):
    """The conversation has no item of that id."""

    code: ClassVar[str] = "item_not_found"
    message: ClassVar[str] = "the conversation has no such item"


class ResponseNotFound(NotFound):
    """There is no such response for this caller: never made, not stored, deleted, or of another caller."""

    code: ClassVar[str] = "response_not_found"
    message: ClassVar[str] = "there is no such response"


class InputTooLong(Invalid):
    """With the conversation before it the input is beyond the budget, and the request does not let it be cut."""

    code: ClassVar[str] = "context_length_exceeded"

    def __init__(self, tokens: int, limit: int) -> None:
        super().__init__(f"input: {tokens} tokens exceed the context window of {limit}; truncation 'auto' makes it fit")


class TooManyItems(Invalid):
    """One request adds more items to a conversation than the API allows."""

    code: ClassVar[str] = "array_above_max_length"

    def __init__(self, count: int, limit: int) -> None:
        super().__init__(f"items: expected at most {limit} items in one request, got {count}")


class OpenAIRouter(ProtocolRouter):
    """Routes that answer errors in OpenAI's shape."""

    def __init__(self) -> None:
        super().__init__("openai", prefix="/v1", protocol="OpenAI's API")

    def failure(self, request: Request, error: TenutoError | AccessDenied) -> Response:
        return failure_response(error, request.url.path)

    def internal_failure(self, request: Request) -> Response:
        return _response(500, error_body(500, "internal", "something went wrong here"))


def failure_response(error: TenutoError | AccessDenied, path: str = "") -> Response:
    """The response to an error that a caller is told of; parameters have the names of the route at this path."""
    if isinstance(error, AccessDenied):
        code = "invalid_api_key" if isinstance(error, InvalidCredential) else error.code
        return _response(error.status, error_body(error.status, code, str(error)), error.headers)
    if isinstance(error, Unavailable):
        _log.warning("%s: %s", error.code, error)
    problem = error_response(error)
    status, code = _CODES.get(error.code, (problem.status_code, error.code))
    if isinstance(error, ModelRefused) and error.reason is FailureReason.LIMIT:
        status, code = 429, _NO_QUOTA
    headers = {name: problem.headers[name] for name in ("Retry-After",) if name in problem.headers}
    if isinstance(error, _NOT_AGAIN) and not isinstance(error, SessionBusy):
        headers["x-should-retry"] = "false"
    message, names = str(error), _NAMES.get(path, {})
    if (field := _FIELD.match(message)) is not None and field[1] in names:
        message = names[field[1]] + message.removeprefix(field[1])
    body = error_body(status, code, message, error)
    if isinstance(error, RequestRefused) and error.parameter is not None:
        body["error"]["param"] = names.get(error.parameter, error.parameter)
    return _response(status, body, headers)


def is_openai_address(path: str) -> bool:
    """Whether clients of OpenAI ask there."""
    return path.startswith(_ADDRESSES)


def problem_as_error(problem: Problem, headers: Mapping[str, str]) -> Response:
    """A problem as clients of OpenAI read it."""
    return _response(problem.status, error_body(problem.status, problem.code, problem.detail), headers)


def error_body(status: int, code: str, message: str, error: TenutoError | None = None) -> JsonObject:
    """The body of an error; `param` is the field that an invalid request is about, `reason` why a model failed."""
    named = _FIELD.match(message) if isinstance(error, Invalid | TooLarge) else None
    field = named[1] if named else None
    if isinstance(error, RequestRefused):
        field = error.parameter
    elif isinstance(error, ModelUnknown):
        field = "model"
    kind = _NO_QUOTA if isinstance(error, BudgetExhausted) or code == _NO_QUOTA else _KINDS.get(status)
    kind = kind or ("server_error" if status >= 500 else "invalid_request_error")
    reason = failure_reason(error) if error is not None else None
    more = {"reason": reason} if reason is not None else {}
    return {"error": {"message": message, "type": kind, "param": field, "code": code, **more}}


def _response(status: int, body: JsonObject, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(body), status, headers, JSON)
