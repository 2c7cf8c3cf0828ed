"""Everything about one turn: what was asked, what the model saw and did, how long it took and what it cost."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import datetime
from typing import Final

import msgspec

from tenuto.errors import Invalid, TraceNotFound
from tenuto.model.prompt import Manifest
from tenuto.model.values import Json, JsonObject, Value, check_id, check_json

# A session keeps the traces of its newest turns. They go with it, and with words that are taken back by a reset or a
# truncation; words that slide out under the stored cap leave their trace behind until a hundred turns have passed.
TRACES_KEPT: Final = 100


class ToolRun(Value, frozen=True, kw_only=True):
    """One call of a tool. `error` says what kind of failure it was, `None` when it answered."""

    name: str
    arguments: JsonObject = {}
    output: Json = None
    milliseconds: float = 0.0
    error: str | None = None


class Trace(Value, frozen=True, kw_only=True):
    """One turn, as an engineer wants to see it afterwards.

    `speaker` is who asked. `steps` are milliseconds by name, in the order they happened. `degraded` names what the
    answer had to do without. `error` is the code of the error that ended the turn, `None` when it was answered. `data`
    is what the assistant adds to its answer. `redacted` counts what was taken out of its texts before it was stored,
    by type.
    """

    id: str
    session_id: str
    turn_id: str
    number: int
    began_at: datetime
    assistant: str
    persona: str | None = None
    speaker: str | None = None
    request: str = ""
    answer: str = ""
    model: str = ""
    offline: bool = False
    manifest: Manifest | None = None
    tools: tuple[ToolRun, ...] = ()
    steps: dict[str, float] = {}
    input_tokens: int = 0
    output_tokens: int = 0
    cost_nanos: int = 0
    degraded: tuple[str, ...] = ()
    error: str | None = None
    data: JsonObject = {}
    redacted: dict[str, int] = {}

    def __post_init__(self) -> None:
        check_json(self.data, "a trace's data")
        for run in self.tools:
            check_json(run.arguments, "a tool's arguments")
            check_json(run.output, "a tool's output")


class _TraceAddress(msgspec.Struct, array_like=True):
    session_id: str
    number: int
    turn_id: str


def trace_id(session_id: str, number: int, turn_id: str) -> str:
    """A trace's name tells where it is kept, so that no index is needed; it carries no authority."""
    return urlsafe_b64encode(msgspec.json.encode(_TraceAddress(session_id, number, turn_id))).rstrip(b"=").decode()


def place_of(asked: str) -> tuple[str, int]:
    """The session and the turn's number that a trace's name stands for.

    Raises:
        TraceNotFound: it is nobody's name.
    """
    try:
        raw = urlsafe_b64decode(asked.encode() + b"=" * (-len(asked) % 4))
        address = msgspec.json.decode(raw, type=_TraceAddress)
        check_id(address.session_id, "the session id")
    except (ValueError, RecursionError, Invalid):
        raise TraceNotFound from None
    if not 1 <= address.number < 2**53:
        raise TraceNotFound
    return address.session_id, address.number
