"""Errors of a server as the exceptions that the same call raises in this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, ClassVar, Final

import msgspec

from tenuto.errors import (
    Conflict,
    FailureReason,
    Invalid,
    LimitReached,
    ModelFailed,
    NotFound,
    TenutoError,
    TooLarge,
    Unavailable,
)
from tenuto.model.values import JsonObject
from tenuto.task_errors import TaskFailed

_FACTS: Final = ("expected", "actual", "limit_bytes")
_IDS: Final = ("session_id", "trace_id")
# For codes that only the server has.
_FAMILIES: Final[Mapping[int, type[TenutoError]]] = {
    400: Invalid,
    404: NotFound,
    409: Conflict,
    413: TooLarge,
    429: LimitReached,
}


class AccessRefused(TenutoError):
    """The key is missing, wrong, or not for this: `code` is that of the server, such as `scope_mismatch`."""

    code: ClassVar[str] = "refused"


def problem_from(raw: bytes, status: int) -> JsonObject:
    """The problem of an answer; one without, as a proxy sends it, is described by its status."""
    try:
        problem: JsonObject = msgspec.json.decode(raw, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError):
        problem = {}
    return {"status": status, "code": f"http_{status}", "detail": f"the server answers with status {status}", **problem}


def error_from(problem: JsonObject, about: Mapping[str, str]) -> TenutoError:
    """The exception of a problem, of the type with its code; `about` names the ids that the request was about."""
    code, status = problem["code"], problem["status"]
    kind = next(
        (error_class for error_class in _known_errors(TenutoError) if error_class.code == code), None
    ) or _family(status)
    # Not by its constructor, which makes the sentence that has come along.
    error = kind.__new__(kind)
    Exception.__init__(error, problem["detail"])
    facts: dict[str, object] = {**about, **{name: problem[name] for name in _FACTS if name in problem}, "code": code}
    if "types" in problem:
        facts["types"] = tuple(problem["types"])
    if "reason" in problem and issubclass(kind, ModelFailed | TaskFailed):
        is_known = problem["reason"] in tuple(FailureReason)
        facts["reason"] = FailureReason(problem["reason"]) if is_known else FailureReason.OTHER
    if "retry_after" in problem:
        facts["retry_after"] = timedelta(seconds=problem["retry_after"])
    vars(error).update(facts)
    error.ids = {name: problem[name] for name in _IDS if name in problem}
    return error


def _known_errors(kind: type[TenutoError]) -> Iterator[type[TenutoError]]:
    """Classes with a code of their own, the parents first: some children share it."""
    if "code" in vars(kind):
        yield kind
    for child in kind.__subclasses__():
        yield from _known_errors(child)


def _family(status: int) -> type[TenutoError]:
    if status in (401, 403):
        return AccessRefused
    return _FAMILIES.get(status, Unavailable if status > 500 else TenutoError)
