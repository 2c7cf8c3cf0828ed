"""Errors as clients see them: problem+json with a stable code, mapped once per family.

An answer names ids, fields and limits; it repeats nothing the client sent.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import msgspec
from msgspec.structs import asdict
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ExceptionHandler

from tenuto.errors import (
    AnswerInvalid,
    Conflict,
    Invalid,
    LimitReached,
    ModelLimited,
    ModelRefused,
    NotFound,
    RequestRefused,
    SessionBusy,
    StoreUnavailable,
    TenutoError,
    TooLarge,
    Unavailable,
    failure_reason,
)
from tenuto.model.values import JsonObject, View
from tenuto.server.logs import request_id

MEDIA_TYPE: Final = "application/problem+json"

# The first that fits counts, so the exception to a family stands above it.
_log = logging.getLogger(__name__)
_STATUS: Final[tuple[tuple[type[TenutoError], int], ...]] = (
    (TooLarge, 413),
    (Invalid, 400),
    (NotFound, 404),
    (Conflict, 409),
    (LimitReached, 429),
    (RequestRefused, 400),
    (ModelRefused, 502),
    (AnswerInvalid, 502),
    (ModelLimited, 429),
    (Unavailable, 503),
)
ERROR_CODES: Final[Mapping[int, tuple[str, ...]]] = {
    400: (
        "invalid",
        "invalid_json",
        "invalid_text",
        "instructions_too_long",
        "invalid_cursor",
        "search_off",
        "unknown_tool_call",
        "unsupported_attachment",
        "unsupported_parameter",
        "request_refused",
        "unknown_attachment",
        "plan_invalid",
        "agent_not_found",
        "private_data",
        "too_many_private_values",
        "delivery_refused",
        "reply_refused",
    ),
    401: ("invalid_credential",),
    403: ("scope_mismatch", "forbidden", "host_not_allowed"),
    404: (
        "session_not_found",
        "turn_not_found",
        "message_not_found",
        "assistant_not_found",
        "model_unknown",
        "trace_not_found",
        "placeholder_not_found",
        "task_not_found",
        "step_not_found",
        "entry_not_found",
        "memory_not_found",
        "attachment_not_found",
        "api_key_not_found",
        "link_code_refused",
        "identity_not_found",
        "not_found",
    ),
    405: ("method_not_allowed",),
    408: ("request_timeout",),
    409: (
        "session_busy",
        "turn_lost",
        "turn_stopped",
        "version_conflict",
        "idempotency_key_reused",
        "superseded",
        "nothing_to_answer",
        "sequence_gap",
        "session_exists",
        "task_finished",
        "task_running",
        "step_not_waiting",
        "step_lost",
        "key_protected",
        "key_locked",
        "lock_lost",
        "value_mismatch",
    ),
    413: ("too_large",),
    429: (
        "rate_limited",
        "budget_exhausted",
        "board_full",
        "queue_full",
        "attachment_limit",
        "too_many_link_codes",
        "person_full",
        "limit_reached",
        "model_limited",
    ),
    431: ("headers_too_large",),
    500: ("internal", "assistant_failed"),
    502: ("model_refused", "model_key_refused", "model_not_found", "prompt_too_long", "answer_invalid"),
    503: (
        "unavailable",
        "channel_unavailable",
        "circuit_open",
        "store_full",
        "store_read_only",
        "store_damaged",
        "store_replaced",
        "state_corrupt",
        "decryption_failed",
        "engine_unavailable",
        "extra_missing",
        "assistant_missing",
        "model_failed",
        "model_timeout",
        "turn_interrupted",
        "turn_unreachable",
        "server_stopping",
        "task_failed",
    ),
}
"""Every `code` of a problem, by its status; those of OpenAI's routes are beside them."""
_FACTS: Final = ("expected", "actual", "limit_bytes", "types", "step")
_RETRY_UNAVAILABLE: Final = timedelta(seconds=2)
# A turn mostly ends long before its lease, which is for those that died, and one that lives renews it: the lease's rest
# says when to come back at the latest, not when it is worth trying.
_RETRY_BUSY: Final = timedelta(seconds=5)
_HTTP: Final = {
    404: ("not_found", "there is nothing at this address"),
    405: ("method_not_allowed", "this route does not support that method"),
}


class AccessDenied(Exception):
    """Who is asking was not proved, or may not ask in this way; settled at the door, before a story begins."""

    status = 403
    code = "refused"
    headers: Mapping[str, str] = {}


class InvalidCredential(AccessDenied):
    """No credential, or none that holds: unknown, malformed, expired and revoked look alike.

    Of a token that is signed as it must be, `why` says what its claims lack.
    """

    status = 401
    code = "invalid_credential"
    headers: Mapping[str, str] = {"WWW-Authenticate": "Bearer"}

    def __init__(self, why: str = "") -> None:
        needed = "a valid API key or token is needed: Authorization: Bearer <key>"
        super().__init__(f"the token is refused: {why}" if why else needed)


class ScopeMismatch(AccessDenied):
    """The request names a tenant, site or user that the credential does not stand for."""

    code = "scope_mismatch"

    def __init__(self, what: str) -> None:
        super().__init__(f"the {what} named in the request is not the one that this credential is for")


class Forbidden(AccessDenied):
    """The credential holds, but not for this."""

    code = "forbidden"


class HostNotAllowed(AccessDenied):
    """Without keys only programs on this machine may ask, and no web page from elsewhere in their name."""

    code = "host_not_allowed"

    def __init__(self) -> None:
        super().__init__(
            "without API keys this server answers requests made on and for this machine only; the host of a proxy "
            "on it may be named in TENUTO_ALLOWED_HOSTS"
        )


class Problem(View, frozen=True, kw_only=True):
    """What went wrong: `code` is stable, `detail` is for people; some problems carry facts, such as `retry_after`, or
    the `reason` for which a model gave no answer."""

    type: str
    title: str
    status: int
    code: str
    detail: str


def problem_response(
    status: int, code: str, detail: str, *, headers: Mapping[str, str] | None = None, **facts: object
) -> Response:
    """A problem+json answer."""
    kind, title = f"urn:tenuto:problem:{code}", code.replace("_", " ").capitalize()
    view = Problem(type=kind, title=title, status=status, code=code, detail=detail)
    return Response(msgspec.json.encode({**asdict(view), **facts}), status, headers, MEDIA_TYPE)


def internal() -> Response:
    """The answer to an unexpected failure."""
    return problem_response(
        500, "internal", "internal error; the server's log has the details under this answer's x-request-id"
    )


def error_response(error: TenutoError) -> Response:
    """One of the five families."""
    status = next((status for family, status in _STATUS if isinstance(error, family)), 500)
    facts: JsonObject = {name: getattr(error, name) for name in _FACTS if hasattr(error, name)}
    if (reason := failure_reason(error)) is not None:
        facts["reason"] = reason
    if error.ids:
        facts |= {**error.ids, "request_id": request_id.get()}
    headers: dict[str, str] = {}
    retry_after = _retry_after_seconds(error)
    if retry_after is not None:
        facts["retry_after"] = retry_after
        headers["Retry-After"] = str(math.ceil(retry_after))
    return problem_response(status, error.code, str(error), headers=headers, **facts)


def _retry_after_seconds(error: TenutoError) -> float | None:
    pause = getattr(error, "retry_after", _RETRY_UNAVAILABLE if isinstance(error, Unavailable) else None)
    if isinstance(error, SessionBusy):
        pause = min(error.retry_after, _RETRY_BUSY)
    if not isinstance(pause, timedelta):
        return None
    seconds = pause.total_seconds()
    # In whole seconds, so that two answers of one outage are the same bytes.
    return float(math.ceil(seconds)) if isinstance(error, StoreUnavailable) else round(seconds, 3)


async def handle_error(_: Request, error: Exception) -> Response:
    """The problem that tells of an error."""
    match error:
        case TenutoError():
            if isinstance(error, Unavailable):
                _log.warning("%s: %s", error.code, error)
            return error_response(error)
        case AccessDenied():
            return problem_response(error.status, error.code, str(error), headers=error.headers)
        case HTTPException():
            code, detail = _HTTP.get(error.status_code, ("http_error", "the request cannot be answered"))
            return problem_response(error.status_code, code, detail, headers=error.headers)
    raise error


# Every error of the application is answered as a problem.
HANDLERS: Final[Mapping[type[Exception], ExceptionHandler]] = dict.fromkeys(
    (TenutoError, AccessDenied, HTTPException), handle_error
)
