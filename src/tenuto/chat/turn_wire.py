"""Events of a turn as bytes, as its log has them, and how it ended."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple

import msgspec

from tenuto import errors
from tenuto.chat.request import CallRequested, ChatEvent, ReplyFinished, ToolFinished, ToolStarted, TurnStarted
from tenuto.errors import FailureReason, TenutoError
from tenuto.model.generation import ProviderItem, ReasoningDelta, StepChanged, TextDelta
from tenuto.model.values import JsonObject

_KINDS: Final = (
    TurnStarted,
    TextDelta,
    ReasoningDelta,
    ProviderItem,
    StepChanged,
    ToolStarted,
    ToolFinished,
    CallRequested,
    ReplyFinished,
)
_DECODERS: Final[dict[str, msgspec.json.Decoder[Any]]] = {kind.__name__: msgspec.json.Decoder(kind) for kind in _KINDS}
_ENCODER: Final = msgspec.json.Encoder()
# What clients are told of an error beside its code and its words.
_FACTS: Final = ("expected", "actual", "limit_bytes", "types", "step", "model", "session_id")


class About(msgspec.Struct, array_like=True):
    """What the doors must know of a turn beside its events: who answers, and what the request noted.

    Where the privacy policy changes what is stored of an answer, its text is `withheld` until it is whole.
    """

    assistant: str | None = None
    reply_metadata: JsonObject = {}
    withheld: bool = False
    key: str | None = None


class _Failure(msgspec.Struct, array_like=True):
    kind: str
    family: str
    code: str
    message: str
    reason: FailureReason | None
    retry_after: float | None
    ids: dict[str, str]
    facts: JsonObject


class _Line(msgspec.Struct, array_like=True):
    """An entry of a log: its events by kind, what the first one says of the turn, and at the end how it ended."""

    events: list[tuple[str, msgspec.Raw]]
    about: About | None = None
    ended: bool = False
    failure: _Failure | None = None


class LogLine(NamedTuple):
    """An entry, decoded."""

    events: Sequence[ChatEvent]
    about: About | None
    ended: bool
    error: TenutoError | None


def encode(
    events: Sequence[ChatEvent],
    about: About | None = None,
    *,
    most: int = 2**62,
    ended: bool = False,
    error: Exception | None = None,
) -> tuple[bytes, int]:
    """An entry of a log, and how many of the events it has, at least one: no more than about `most` bytes. Only with
    all of them it tells the end."""
    rows, size = list[tuple[str, msgspec.Raw]](), 0
    for event in events:
        if rows and size >= most:
            break
        raw = _ENCODER.encode(event)
        rows.append((type(event).__name__, msgspec.Raw(raw)))
        size += len(raw)
    ended = ended and len(rows) == len(events)
    line = _Line(rows, about, ended, _failure(error) if ended and error is not None else None)
    return _ENCODER.encode(line), len(rows)


def decode(body: bytes) -> LogLine:
    """The entry back."""
    line = _LINE.decode(body)
    events = [_DECODERS[kind].decode(raw) for kind, raw in line.events]
    return LogLine(events, line.about, line.ended, None if line.failure is None else _error(line.failure))


_LINE: Final = msgspec.json.Decoder(_Line)


def _failure(error: Exception) -> _Failure:
    family = next((each.__name__ for each in _FAMILIES if isinstance(error, each)), "")
    pause = getattr(error, "retry_after", None)
    return _Failure(
        kind=type(error).__name__,
        family=family,
        code=error.code if isinstance(error, TenutoError) else "internal",
        message=str(error) if isinstance(error, TenutoError) else "internal error; the server's log has the details",
        reason=errors.failure_reason(error),
        retry_after=pause.total_seconds() if isinstance(pause, timedelta) else None,
        ids=dict(getattr(error, "ids", {})),
        facts={name: getattr(error, name) for name in _FACTS if hasattr(error, name)},
    )


_FAMILIES: Final = (errors.Invalid, errors.NotFound, errors.Conflict, errors.LimitReached, errors.Unavailable)


def _error(failure: _Failure) -> TenutoError:
    """The error as it was raised in the other process: of its class, without running what makes one."""
    known = getattr(errors, failure.kind, getattr(errors, failure.family, TenutoError))
    error: Any = known.__new__(known)
    Exception.__init__(error, failure.message)
    error.code, error.ids = failure.code, failure.ids
    for name, value in failure.facts.items():
        setattr(error, name, value)
    if failure.reason is not None:
        error.reason = failure.reason
    if failure.retry_after is not None:
        error.retry_after = timedelta(seconds=failure.retry_after)
    found: TenutoError = error
    return found
