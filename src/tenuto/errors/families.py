"""What every error of tenuto is: one of five families, which HTTP and CLI map once each.

An error has a stable `code` for clients and its facts as attributes. Messages name ids, settings and limits, never user
text.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar


class TenutoError(Exception):
    """Anything tenuto refuses or fails to do. `ids` names the session and the trace of the turn that it ended.

    `message` is what an error without arguments says.
    """

    code: ClassVar[str] = "error"
    message: ClassVar[str] = ""
    ids: Mapping[str, str] = MappingProxyType({})

    def __init__(self, *args: object) -> None:
        super().__init__(*(args or (self.message,)))


class Invalid(TenutoError):
    """The request is invalid; a retry fails again."""

    code: ClassVar[str] = "invalid"


class NotFound(TenutoError):
    """Within the caller's scope there is no such thing."""

    code: ClassVar[str] = "not_found"


class Conflict(TenutoError):
    """The request contradicts stored data or a running operation."""

    code: ClassVar[str] = "conflict"


class LimitReached(TenutoError):
    """A limit of size, rate or budget is reached."""

    code: ClassVar[str] = "limit_reached"


class Unavailable(TenutoError):
    """A dependency does not answer; the same request may succeed later."""

    code: ClassVar[str] = "unavailable"

    def __init__(self, what: str, why: str = "does not answer") -> None:
        super().__init__(f"the {what} {why}")
        self.what = what


def reply_error_code(ended: BaseException) -> str:
    """A code that quotes no text: that of a `TenutoError`, or the type name of any other exception."""
    if isinstance(ended, TenutoError):
        return ended.code
    name = type(ended).__name__.lower()
    # By its name, since values and errors do without asyncio, whose import takes as long as theirs.
    return "cancelled" if name == "cancellederror" else name
