"""Errors in the shape of Anthropic's API, for clients that know no other, and the routes that answer so."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tenuto.errors import (
    BudgetExhausted,
    Conflict,
    FailureReason,
    ModelRefused,
    ModelTimeout,
    SessionBusy,
    TenutoError,
    Unavailable,
    failure_reason,
)
from tenuto.model.values import JsonObject
from tenuto.server.json_io import JSON
from tenuto.server.logs import request_id
from tenuto.server.problems import AccessDenied, Problem, error_response
from tenuto.server.protocol_routers import ProtocolRouter
from tenuto.server.routing import Endpoint

ADDRESS: Final = "/v1/messages"
"""Where clients of Anthropic ask; they ask for models where those of OpenAI do."""
VERSION: Final = "anthropic-version"
"""The header that each of these clients sends."""
REQUEST_ID: Final = "request-id"
"""Where these clients look for the id of their request."""
_log = logging.getLogger(__name__)
_KINDS: Final = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
}
# Clients retry these by themselves, where the same request can only fail again.
_NOT_AGAIN: Final = (Conflict, BudgetExhausted, ModelRefused)
# What the API says of a prompt that no model has room for.
_TOO_LONG: Final = ("instructions_too_long", "prompt_too_long")
_PASSED_ON: Final = ("Retry-After", "WWW-Authenticate")
# Parameters that the model port has under another name.
_NAMES: Final = {
    "stop": "stop_sequences",
    "reasoning_effort": "thinking",
    "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
    "reply_tokens": "max_tokens",
    "user": "metadata.user_id",
}


def is_anthropic_request(path: str, headers: Mapping[str, str]) -> bool:
    """Whether a client of Anthropic asks there."""
    return VERSION in headers or path.startswith(ADDRESS)


class AnthropicRouter(ProtocolRouter):
    """Routes that answer errors in Anthropic's shape."""

    def __init__(self) -> None:
        super().__init__("anthropic", prefix="/v1", protocol="Anthropic's API")

    def _wrap(self, endpoint: Endpoint) -> Endpoint:
        answering = super()._wrap(endpoint)

        @functools.wraps(endpoint)
        async def answer(request: Request) -> Response:
            response = await answering(request)
            response.headers[REQUEST_ID] = request_id.get()
            return response

        return answer

    def failure(self, request: Request, error: TenutoError | AccessDenied) -> Response:
        return failure_response(error)

    def internal_failure(self, request: Request) -> Response:
        return internal_failure()


def failure_response(error: TenutoError | AccessDenied) -> Response:
    """The response to an error that a caller is told of."""
    if isinstance(error, AccessDenied):
        return _response(error.status, error_body(error.status, error.code, str(error)), error.headers)
    if isinstance(error, Unavailable):
        _log.warning("%s: %s", error.code, error)
    problem = error_response(error)
    headers = {name: problem.headers[name] for name in _PASSED_ON if name in problem.headers}
    if isinstance(error, _NOT_AGAIN) and not isinstance(error, SessionBusy):
        headers["x-should-retry"] = "false"
    status = _status_of(error, problem.status_code)
    return _response(status, error_body(status, error.code, _renamed(str(error)), error), headers)


def internal_failure() -> Response:
    """The response to an error that was not expected."""
    return _response(500, error_body(500, "internal", "something went wrong here"))


def problem_as_error(problem: Problem, headers: Mapping[str, str]) -> Response:
    """A problem as clients of Anthropic read it."""
    return _response(problem.status, error_body(problem.status, problem.code, problem.detail), headers)


def error_body(status: int, code: str, message: str, error: TenutoError | None = None) -> JsonObject:
    """The body of an error, with our stable code among its details and the reason why a model failed."""
    kind = _KINDS.get(status, "api_error" if status >= 500 else "invalid_request_error")
    reason = failure_reason(error) if error is not None else None
    details = {"error_code": code, **({"reason": reason} if reason is not None else {})}
    about = {"type": kind, "message": message, "details": details}
    return {"type": "error", "error": about, "request_id": request_id.get()}


def status_of_failure(error: TenutoError | AccessDenied) -> int:
    """The status that says what kind of error it is, also where a stream has no status any more."""
    if isinstance(error, AccessDenied):
        return error.status
    return _status_of(error, error_response(error).status_code)


def _status_of(error: TenutoError, usual: int) -> int:
    if error.code in _TOO_LONG:
        return 400
    if isinstance(error, BudgetExhausted) or (isinstance(error, ModelRefused) and error.reason is FailureReason.LIMIT):
        return 402
    return 504 if isinstance(error, ModelTimeout) else usual


def _renamed(message: str) -> str:
    """The message with the field's name in this API, which it begins with."""
    name, colon, rest = message.partition(": ")
    return f"{_NAMES[name]}: {rest}" if colon and name in _NAMES else message


def _response(status: int, body: JsonObject, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(body), status, {**(headers or {}), REQUEST_ID: request_id.get()}, JSON)
