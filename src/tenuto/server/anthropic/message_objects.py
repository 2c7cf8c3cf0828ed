"""The Message object: an answer in the shape of Anthropic's API, whole or as it begins and ends in a stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import uuid4

from tenuto.chat import Reply
from tenuto.model.parameters import FinishReason
from tenuto.model.values import JsonObject
from tenuto.server.anthropic.message_blocks import blocks_of
from tenuto.server.openai.items import degraded_view

_REFUSED: Final = (FinishReason.REFUSAL, FinishReason.CONTENT_FILTER)
_NOTHING_YET: Final[JsonObject] = {"stop_reason": None, "stop_sequence": None, "stop_details": None}


class MessageHead:
    """What a message says of itself before it has any content; `degraded` is known before the answer."""

    def __init__(self, model: str, degraded: Sequence[str] = ()) -> None:
        self._head = {"id": f"msg_{uuid4().hex}", "type": "message", "role": "assistant", "model": model}
        self._degraded = tuple(degraded)

    def at_start(self) -> JsonObject:
        """The message before its content."""
        return {**self._head, "content": [], **_NOTHING_YET, "usage": _usage(0, 0)}

    def whole(self, reply: Reply) -> JsonObject:
        """The message of a reply."""
        ended = {"content": blocks_of(reply), **_stop(reply), "usage": usage_of(reply)}
        return {**self._head, **ended, **self.degraded(reply)}

    def ended(self, reply: Reply) -> JsonObject:
        """What a stream says at its end."""
        return {"delta": _stop(reply), "usage": usage_of(reply), **self.degraded(reply)}

    def degraded(self, reply: Reply) -> JsonObject:
        """A field of our own: what the answer had to do without."""
        return degraded_view(list(dict.fromkeys((*self._degraded, *reply.degraded))))


def usage_of(reply: Reply) -> JsonObject:
    """What a reply cost in tokens; those of the provider's cache are counted beside the others."""
    cached, written = reply.cached_tokens, reply.cache_write_tokens
    uncached = max(0, reply.input_tokens - cached - written)
    return _usage(uncached, reply.output_tokens, cached=cached, written=written, thinking=reply.reasoning_tokens)


def _usage(uncached: int, output: int, *, cached: int = 0, written: int = 0, thinking: int = 0) -> JsonObject:
    return {
        "input_tokens": uncached,
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": cached,
        "cache_creation": {"ephemeral_5m_input_tokens": written, "ephemeral_1h_input_tokens": 0},
        "output_tokens": output,
        "output_tokens_details": {"thinking_tokens": thinking},
        "server_tool_use": None,
        "service_tier": "standard",
    }


def _stop(reply: Reply) -> JsonObject:
    if reply.finish in _REFUSED:
        explanation = reply.text if reply.finish is FinishReason.REFUSAL else None
        details = {"type": "refusal", "category": None, "explanation": explanation or None}
        return {"stop_reason": "refusal", "stop_sequence": None, "stop_details": details}
    # A call that was cut is no whole one.
    reason = "max_tokens" if reply.finish is FinishReason.LENGTH else "tool_use" if reply.calls else "end_turn"
    return {**_NOTHING_YET, "stop_reason": reason}
