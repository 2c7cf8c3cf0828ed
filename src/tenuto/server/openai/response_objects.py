"""The Response object: everything that the API's clients expect of one, from a turn and what its request said.

There is no record of responses. The id of one names a session and a turn, as a trace id does, and the fields that a
request said are stored in the metadata of the turn's reply.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, Self, TypeAlias
from uuid import uuid4

from tenuto.chat import Reply
from tenuto.errors import (
    BudgetExhausted,
    FailureReason,
    Invalid,
    InvalidText,
    LimitReached,
    PrivateData,
    PromptTooLong,
    TooManyPrivateValues,
    TraceNotFound,
)
from tenuto.model.prompt import Disposition, Kind, Manifest, ManifestEntry, Reason
from tenuto.model.turn import place_of
from tenuto.model.values import JsonObject
from tenuto.server.auth import RateLimited
from tenuto.server.openai.errors import ResponseNotFound
from tenuto.server.openai.items import answer_function, call_item, text_item

_PREFIX: Final = "resp_"
# Of our codes, those with a better word among OpenAI's than server_error.
_FAILURES: Final = {
    **dict.fromkeys((RateLimited.code, BudgetExhausted.code, LimitReached.code), "rate_limit_exceeded"),
    **dict.fromkeys(
        (Invalid.code, InvalidText.code, PrivateData.code, PromptTooLong.code, TooManyPrivateValues.code),
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
    """What a response repeats of its request. `trace` names the turn; of one that is not stored it is of this request.

    `answer` is the name of the function by which a model gives an answer in a demanded form.
    """

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

    @property
    def answer(self) -> str | None:
        """As the class says."""
        return answer_function(self.said.get("text"))

    def response(
        self,
        status: Status,
        output: Sequence[JsonObject] = (),
        *,
        usage: JsonObject | None = None,
        completed_at: int | None = None,
        error: JsonObject | None = None,
    ) -> JsonObject:
        """The response in this status."""
        return {
            "id": self.response_id,
            "object": "response",
            "created_at": self.created_at,
            "completed_at": completed_at,
            "status": status,
            "error": error,
            "incomplete_details": None,
            "model": self.model,
            **DEFAULTS,
            **self.said,
            "output": [*output],
            "usage": usage,
        }

    def output_of(self, reply: Reply) -> list[JsonObject]:
        """The items of a reply: its text, then its calls."""
        items = [text_item(self.trace, reply.text)] if reply.text or not reply.calls else []
        return items + [call_item(self.trace, call.id, call.name, call.arguments_text) for call in reply.calls]

    def finished(self, reply: Reply, completed_at: int) -> JsonObject:
        """The response of a turn that ended with a reply."""
        usage = usage_of(reply.input_tokens, reply.output_tokens)
        status: Status = "cancelled" if reply.stopped else "completed"
        echo = self.with_manifest(reply.manifest)
        return echo.response(status, self.output_of(reply), usage=usage, completed_at=completed_at)

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


def usage_of(input_tokens: int, output_tokens: int) -> JsonObject:
    """What a response cost in tokens."""
    return {
        "input_tokens": input_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
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
