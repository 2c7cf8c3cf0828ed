"""Requests that a provider refuses, and how msgspec's complaint about a body becomes one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, NamedTuple, TypeVar, cast

import msgspec

_T = TypeVar("_T")


class Refused(Exception):
    """A request that is answered with an error. `param` and `code` are OpenAI's; Anthropic has neither."""

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        status: int = 400,
        kind: str = "invalid_request_error",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code
        self.status = status
        self.kind = kind


class Problem(Enum):
    """What is wrong with the shape of a value."""

    UNKNOWN = "unknown"
    MISSING = "missing"
    TYPE = "type"
    VALUE = "value"
    RANGE = "range"
    LENGTH = "length"
    PATTERN = "pattern"


class Complaint(NamedTuple):
    """A problem, where it is (`messages[0].content`), and what msgspec says of it, taken apart."""

    problem: Problem
    path: str
    detail: str
    groups: tuple[str, ...]


class ShapeError(Exception):
    """A value of another shape than the dialect's."""

    def __init__(self, complaint: Complaint) -> None:
        super().__init__(complaint.detail)
        self.complaint = complaint


_PLACE: Final = re.compile(r"^(?P<detail>.*?)(?: - at `\$(?P<path>.*)`)?$", re.DOTALL)
_COMPLAINTS: Final = (
    (Problem.UNKNOWN, re.compile(r"Object contains unknown field `(.*)`")),
    (Problem.MISSING, re.compile(r"Object missing required field `(.*)`")),
    (Problem.VALUE, re.compile(r"Invalid (?:enum )?value (.*)", re.DOTALL)),
    (Problem.RANGE, re.compile(r"Expected `(int|float)` ([<>]=?) (.*)")),
    (Problem.LENGTH, re.compile(r"Expected `(array|str|object)` of length ([<>]=?) (\d+)")),
    (Problem.PATTERN, re.compile(r"Expected `str` matching regex (.*)")),
    (Problem.TYPE, re.compile(r"Expected `(.*)`, got `(.*)`")),
)


class Shape(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A JSON object that may have these fields and no others."""


class OpenShape(msgspec.Struct, kw_only=True):
    """A JSON object of the provider's own tools, which are taken as they come."""


def joined(path: str, field: str) -> str:
    """The path of a field."""
    return f"{path}.{field}" if path else field


def shaped(value: object, shape: type[_T], at: str = "") -> _T:
    """The value, if it has that shape.

    Raises:
        ShapeError: it has another.
    """
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise ShapeError(_complaint(str(error), at)) from None


def tagged(value: object, shapes: Mapping[str, Any], at: str, tag: str = "type") -> Any:
    """The value in the shape that its tag names.

    Raises:
        ShapeError: no shape has such a tag, or the value has another shape.
    """
    if not isinstance(value, dict):
        raise ShapeError(Complaint(Problem.TYPE, at, "", ("object", type(value).__name__)))
    if tag not in value:
        raise ShapeError(Complaint(Problem.MISSING, joined(at, tag), "", (tag,)))
    kind = value[tag]
    if kind not in shapes:
        supported = ", ".join(f"'{name}'" for name in shapes)
        raise ShapeError(Complaint(Problem.VALUE, joined(at, tag), supported, (f"'{kind}'",)))
    return shaped(value, cast(Any, shapes[kind]), at)


def _complaint(message: str, at: str) -> Complaint:
    place = _PLACE.match(message)
    assert place is not None
    path = (at + (place["path"] or "")).lstrip(".")
    for problem, pattern in _COMPLAINTS:
        if found := pattern.match(place["detail"]):
            if problem in (Problem.UNKNOWN, Problem.MISSING):
                path = joined(path, found[1])
            return Complaint(problem, path, place["detail"], found.groups())
    raise AssertionError(f"msgspec complains in words that are not known here: {message}")
