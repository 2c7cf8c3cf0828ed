"""The events of a turn as chunks of the AI SDK's UI message stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from tenuto.chat import CallRequested, ChatEvent, Reply, ReplyFinished, ToolFinished, ToolStarted, TurnStarted
from tenuto.chat.views import UsageView, event_view
from tenuto.errors import TenutoError, TurnStopped, failure_reason
from tenuto.model.generation import ReasoningDelta, StepChanged, TextDelta
from tenuto.model.parameters import FinishReason
from tenuto.model.values import JsonObject
from tenuto.server.problems import AccessDenied

# What the protocol calls the end of an answer that is not whole.
_CUT: Final = {FinishReason.LENGTH: "length", FinishReason.CONTENT_FILTER: "content-filter"}


class UiStream:
    """Turns the events of one turn into chunks."""

    def __init__(self, message_id: str | None = None) -> None:
        self.started = False
        self._message_id = message_id
        self._blocks = 0
        self._open = False
        # The index of the thought that is being streamed.
        self._thought: int | None = None
        self._said: list[str] = []

    def encode(self, event: ChatEvent) -> Iterator[JsonObject]:
        """The chunks of an event."""
        if not isinstance(event, ReasoningDelta):
            yield from self._end_thought()
        match event:
            case TurnStarted():
                yield from self._start(event.trace_id)
            case ReasoningDelta() if event.text:
                yield from self._think(event)
            case TextDelta(text=text):
                yield from self._say(text)
            case StepChanged(id=step):
                # A part with a known id replaces the one before.
                yield {"type": "data-step", "id": f"step-{step}", "data": msgspec.to_builtins(event_view(event)[1])}
            case ToolStarted(name=name):
                yield from self._close()
                self._said.clear()
                self._blocks += 1
                yield self._tool(name=name, state="started")
            case ToolFinished(name=name, milliseconds=taken, error=error):
                yield self._tool(name=name, state="failed" if error else "done", milliseconds=taken)
            case CallRequested(call=call):
                yield from self._close()
                called = {"toolCallId": call.id, "toolName": call.name, "input": call.arguments}
                yield {"type": "tool-input-available", **called}
            case ReplyFinished(reply=reply):
                yield from self._finish(reply)

    def fail(self, error: TenutoError | AccessDenied) -> Iterator[JsonObject]:
        """The chunks of a turn that ends without an answer."""
        yield from self._end_thought()
        yield from self._close()
        if isinstance(error, TurnStopped):
            yield {"type": "abort", "reason": error.code}
        else:
            if (reason := failure_reason(error)) is not None:
                # The chunk of an error has room for a text alone.
                failure = {"code": error.code, "reason": reason}
                yield {"type": "data-error", "data": failure, "transient": True}
            yield {"type": "error", "errorText": f"{error.code}: {error}"}

    def _start(self, trace_id: str) -> Iterator[JsonObject]:
        self.started = True
        yield {"type": "start", **({"messageId": self._message_id or trace_id} if self._message_id or trace_id else {})}
        yield {"type": "start-step"}

    def _say(self, text: str) -> Iterator[JsonObject]:
        if not self._open:
            self._open = True
            self._blocks += 1
            yield {"type": "text-start", "id": f"text-{self._blocks}"}
        self._said.append(text)
        yield {"type": "text-delta", "id": f"text-{self._blocks}", "delta": text}

    def _think(self, delta: ReasoningDelta) -> Iterator[JsonObject]:
        if self._thought != delta.index:
            yield from self._end_thought()
            yield from self._close()
            self._thought = delta.index
            self._blocks += 1
            yield {"type": "reasoning-start", "id": f"reasoning-{self._blocks}"}
        yield {"type": "reasoning-delta", "id": f"reasoning-{self._blocks}", "delta": delta.text}

    def _end_thought(self) -> Iterator[JsonObject]:
        if self._thought is not None:
            self._thought = None
            yield {"type": "reasoning-end", "id": f"reasoning-{self._blocks}"}

    def _close(self) -> Iterator[JsonObject]:
        if self._open:
            self._open = False
            yield {"type": "text-end", "id": f"text-{self._blocks}"}

    def _tool(self, **data: object) -> JsonObject:
        return {"type": "data-tool", "id": f"tool-{self._blocks}", "data": data}

    def _finish(self, reply: Reply) -> Iterator[JsonObject]:
        if not self.started:
            yield from self._start(reply.trace_id)
            if reply.reasoning:
                yield from self._think(ReasoningDelta(text=reply.reasoning))
                yield from self._end_thought()
            for call in reply.calls:
                yield from self.encode(CallRequested(call=call))
        said = "".join(self._said)
        if not reply.text.startswith(said):
            # The assistant corrected its answer.
            yield from self._close()
            yield {"type": "reset-step"}
            said = ""
        if rest := reply.text[len(said) :]:
            yield from self._say(rest)
        yield from self._close()
        yield {"type": "finish-step"}
        usual = "tool-calls" if reply.calls else "other" if reply.stopped else "stop"
        reason = _CUT.get(reply.finish, usual)
        yield {"type": "finish", "finishReason": reason, "messageMetadata": _circumstances(reply)}


def _circumstances(reply: Reply) -> JsonObject:
    named = ("session_id", "trace_id", "turn", "assistant", "model", "offline", "stopped")
    return {
        **{name: getattr(reply, name) for name in named},
        "degraded": list(reply.degraded),
        "usage": msgspec.to_builtins(UsageView.of(reply)),
    }
