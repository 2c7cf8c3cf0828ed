"""The Response object: of a turn that ends, and of one that is stored.

There is no record of responses. The id of one names a session and a turn, as a trace id does, and the fields that a
request said are stored in the metadata of the turn's reply.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple, Self, TypeAlias
from uuid import uuid4

from tenuto.app import Tenuto
from tenuto.chat import Reply
from tenuto.errors import (
    BudgetExhausted,
    FailureReason,
    InstructionsTooLong,
    Invalid,
    InvalidText,
    LimitReached,
    PrivateData,
    PromptTooLong,
    RequestRefused,
    SessionNotFound,
    TooManyPrivateValues,
    TraceNotFound,
    TurnStopped,
)
from tenuto.model import Message, Page, Scope, Session
from tenuto.model.message import FINISH, STOPPED, is_input, is_summary
from tenuto.model.parameters import FinishReason
from tenuto.model.prompt import Disposition, Kind, Manifest, ManifestEntry, Reason
from tenuto.model.provider_items import annotations_in, is_provider_item
from tenuto.model.reasoning import is_reasoning
from tenuto.model.turn import Trace, place_of, turn_id_of
from tenuto.model.values import JsonObject
from tenuto.ports import TraceStore
from tenuto.process_identity import is_holder_gone
from tenuto.server.openai.errors import ResponseNotFound
from tenuto.server.openai.items import (
    ECHO,
    INCOMPLETE,
    call_item,
    degraded_view,
    items_beside,
    items_of_message,
    output_text,
    refusal_part,
    text_item,
)
from tenuto.server.rates import RateLimited
from tenuto.sessions import Sessions

DELETED: Final = "deleted"
"""The key that marks a response as deleted, among what its reply repeats of the request."""
_PREFIX: Final = "resp_"
# Messages that a search for a turn reads at once.
_READ: Final = 50
# Of our codes, those with a better word among OpenAI's than server_error.
_FAILURES: Final = {
    **dict.fromkeys((RateLimited.code, BudgetExhausted.code, LimitReached.code), "rate_limit_exceeded"),
    **dict.fromkeys(
        (
            Invalid.code,
            InstructionsTooLong.code,
            InvalidText.code,
            PrivateData.code,
            PromptTooLong.code,
            RequestRefused.code,
            TooManyPrivateValues.code,
        ),
        "invalid_prompt",
    ),
}
# Why a part of the conversation is not in a prompt, though there is room for it.
_NOT_TRUNCATED: Final = (
    *(Reason.COVERED, Reason.PAST, Reason.IRRELEVANT, Reason.OTHER_PERSONA),
    *(Reason.NOT_SHOWN, Reason.ORPHAN, Reason.EMPTY),
)
Status: TypeAlias = Literal["in_progress", "completed", "failed", "cancelled", "queued", "incomplete"]
# What a request may say and a response repeats, and what it means to say nothing.
DEFAULTS: Final[JsonObject] = {
    "background": False,
    "conversation": None,
    "frequency_penalty": 0.0,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "presence_penalty": 0.0,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    # Unlike OpenAI, a request that does not say is made to fit.
    "truncation": "auto",
    "user": None,
}


@dataclass(frozen=True, slots=True)
class Echo:
    """What a response repeats of its request; `trace` names the turn, or the request of one that is not stored."""

    trace: str
    created_at: int
    model: str
    said: JsonObject

    @classmethod
    def of(cls, trace: str, created_at: int, model: str, said: JsonObject) -> Self:
        """The echo of a turn; one without a trace is not stored, and its response has an id of its own."""
        if not trace:
            trace, said = uuid4().hex, {**said, "store": False}
        return cls(trace, created_at, model, said)

    @property
    def response_id(self) -> str:
        """The id of the response."""
        return _PREFIX + self.trace

    def response(
        self,
        status: Status,
        output: Sequence[JsonObject] = (),
        *,
        usage: JsonObject | None = None,
        completed_at: int | None = None,
        error: JsonObject | None = None,
        finish: FinishReason = FinishReason.STOP,
        degraded: Sequence[str] = (),
    ) -> JsonObject:
        """The response in this status."""
        if status == "completed" and finish in INCOMPLETE:
            status = "incomplete"
        return {
            "id": self.response_id,
            "object": "response",
            "created_at": self.created_at,
            "completed_at": completed_at,
            "status": status,
            "error": error,
            "incomplete_details": {"reason": INCOMPLETE[finish]} if status == "incomplete" else None,
            "model": self.model,
            **DEFAULTS,
            **self.said,
            "output": [*output],
            "usage": usage,
            **degraded_view(degraded),
        }

    def output_of(self, reply: Reply) -> list[JsonObject]:
        """The items of a reply: its text, with thoughts and a provider's items around it, then its calls."""
        status = "incomplete" if reply.finish in INCOMPLETE else "completed"
        said = [text_item(self.trace, reply.text, status)] if reply.text or not reply.calls else []
        if said and reply.finish is FinishReason.REFUSAL:
            said[0]["content"] = [refusal_part(reply.text)]
        elif said and (reply.parts or reply.logprobs is not None):
            about = {"annotations": annotations_in(reply.parts), "logprobs": list(reply.logprobs or ())}
            said[0]["content"] = [{**output_text(reply.text), **about}] if said[0]["content"] else []
        items = items_beside(self.trace, [one for one in reply.parts if is_reasoning(one) or is_provider_item(one)])
        before = next((place for place, part in enumerate(reply.parts) if part["type"] == "text"), len(items))
        items[before:before] = said
        calls = [call_item(self.trace, call.id, call.name, call.arguments_text) for call in reply.calls]
        if calls:
            # Where the answer was cut, the arguments of its last call were.
            calls[-1]["status"] = status
        return items + calls

    def finished(self, reply: Reply, completed_at: int) -> JsonObject:
        """The response of a turn that ended with a reply."""
        usage = usage_of(
            reply.input_tokens,
            reply.output_tokens,
            cached=reply.cached_tokens,
            written=reply.cache_write_tokens,
            reasoning=reply.reasoning_tokens,
        )
        status: Status = "cancelled" if reply.stopped else "completed"
        echo = self.with_manifest(reply.manifest)
        return echo.response(
            status,
            self.output_of(reply),
            usage=usage,
            completed_at=completed_at,
            finish=reply.finish,
            degraded=reply.degraded,
        )

    def with_manifest(self, manifest: Manifest | None) -> Echo:
        """The same after a prompt: where the conversation was cut, no response says that it cannot be."""
        if manifest is None or not any(map(_is_truncated, manifest.entries)):
            return self
        return replace(self, said={**self.said, "truncation": "auto"})


def _is_truncated(entry: ManifestEntry) -> bool:
    if entry.kind not in (Kind.MESSAGE, Kind.QUESTION) or entry.reason in _NOT_TRUNCATED:
        return False
    return entry.disposition in (Disposition.CUT, Disposition.DROPPED)


def failure_of(code: str, message: str, reason: FailureReason | None = None) -> JsonObject:
    """The error of a failed response: a code that strict clients know, ours as its type, and why a model failed."""
    known = "rate_limit_exceeded" if reason is FailureReason.LIMIT else _FAILURES.get(code, "server_error")
    return {"code": known, "message": message, "type": code, **({"reason": reason} if reason is not None else {})}


def usage_of(
    input_tokens: int, output_tokens: int, *, cached: int = 0, written: int = 0, reasoning: int = 0
) -> JsonObject:
    """What a response cost in tokens."""
    return {
        "input_tokens": input_tokens,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written},
        "output_tokens": output_tokens,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": input_tokens + output_tokens,
    }


def place_of_response(response_id: str) -> tuple[str, str, int]:
    """The trace id, the session and the turn's number in a response id.

    Raises:
        ResponseNotFound: it is none of ours.
    """
    trace = response_id.removeprefix(_PREFIX)
    try:
        return (trace, *place_of(trace))
    except TraceNotFound:
        raise ResponseNotFound from None


class StoredTurn(NamedTuple):
    """The turn of a response as it is stored; `reply` is `None` if it has none, and nothing follows the `last` one."""

    trace: str
    number: int
    session: Session
    messages: tuple[Message, ...]
    reply: Message | None
    last: bool

    @property
    def echo(self) -> JsonObject:
        """What the request said, where a reply is stored."""
        noted = self.reply.metadata.get(ECHO) if self.reply is not None else None
        return noted if isinstance(noted, dict) else {}


async def find_turn(sessions: Sessions, scope: Scope, response_id: str) -> StoredTurn:
    """The turn that a response id names.

    Raises:
        ResponseNotFound: there is none for this caller.
    """
    trace, session_id, number = place_of_response(response_id)
    found: list[Message] = []
    before: int | None = None
    last = True
    while True:
        try:
            page = await sessions.messages(scope, session_id, Page(limit=_READ, before=before))
        except SessionNotFound:
            raise ResponseNotFound from None
        said = [one for one in page.messages if not is_summary(one)]
        found[:0] = [one for one in said if one.turn == number]
        last = last and not any(one.turn > number for one in said)
        if not page.more_before or page.messages[0].turn < number:
            break
        before = page.messages[0].seq
    reply = next((one for one in reversed(found) if one.metadata.get("trace") == trace), None)
    turn = StoredTurn(trace, number, page.session, tuple(found), reply, last)
    if turn.echo.get(DELETED):
        raise ResponseNotFound
    return turn


def echo_from(noted: JsonObject, trace: str, model: str) -> Echo:
    """What a response repeats, from the metadata of its reply."""
    said = {name: value for name, value in noted.items() if name not in ("created_at", "model")}
    return Echo.of(trace, noted.get("created_at", 0), noted.get("model", model), said)


async def stored_response(tenuto: Tenuto, scope: Scope, response_id: str) -> JsonObject:
    """The response of a turn that has ended, here or elsewhere, or still runs in another process."""
    turn = await find_turn(tenuto.sessions, scope, response_id)
    traces = tenuto.store.traces
    if turn.reply is None:
        return await _unanswered(traces, scope, turn)
    reply = turn.reply
    echo = echo_from(turn.echo, turn.trace, str(reply.metadata.get("model", "")))
    known = await traces.trace(scope, turn.session.id, turn.number)
    usage = usage_of(0, reply.tokens)
    if known is not None:
        usage = usage_of(
            known.input_tokens,
            known.output_tokens,
            cached=known.cached_tokens,
            written=known.cache_write_tokens,
            reasoning=known.reasoning_tokens,
        )
    finish = FinishReason(reply.metadata.get(FINISH, FinishReason.STOP))
    echo = echo.with_manifest(known.manifest if known is not None else None)
    output = items_of_message(reply)
    status: Status = "cancelled" if reply.metadata.get(STOPPED) else "completed"
    completed = int(reply.sent_at.timestamp())
    degraded = reply.metadata.get("degraded", ())
    return echo.response(status, output, usage=usage, completed_at=completed, finish=finish, degraded=degraded)


async def _unanswered(traces: TraceStore, scope: Scope, turn: StoredTurn) -> JsonObject:
    """The response of a turn without a reply: cancelled, failed, cut off with its server, or made elsewhere.

    Raises:
        ResponseNotFound: there was no such turn.
    """
    trace = await traces.trace(scope, turn.session.id, turn.number)
    if trace is not None and trace.id == turn.trace:
        echo = echo_from({"created_at": int(trace.began_at.timestamp())}, turn.trace, trace.assistant)
        if trace.error in (None, TurnStopped.code):
            return echo.response("cancelled")
        return echo.response("failed", error=_failure_in(trace, trace.error))
    gone = is_holder_gone(turn_id_of(turn.trace))
    if not turn.messages or (trace is not None and not gone):
        raise ResponseNotFound
    echo = echo_from({"created_at": int(turn.messages[0].sent_at.timestamp())}, turn.trace, "")
    if gone:
        return echo.response("failed", error=failure_of("server_error", "the server stopped in the meantime"))
    return echo.response("in_progress")


def _failure_in(trace: Trace, code: str) -> JsonObject:
    message = trace.error_message if trace.reason is not None else "the model gave no answer"
    return failure_of(code, message, trace.reason)


def inputs_of(turn: StoredTurn) -> tuple[Message, ...]:
    """The messages that a turn's request brought."""
    return tuple(message for message in turn.messages if is_input(message))
