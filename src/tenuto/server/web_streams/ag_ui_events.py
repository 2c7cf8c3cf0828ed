"""The events of a turn as events of an AG-UI run, and stored messages as those of a thread."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec

from tenuto.chat import CallRequested, ChatEvent, Reply, ReplyFinished, ToolFinished, ToolStarted, TurnStarted
from tenuto.errors import TenutoError, TurnStopped, failure_reason
from tenuto.model import Message, Role, text_part
from tenuto.model.attachment import MEDIA_PARTS
from tenuto.model.generation import REPAIR, ReasoningDelta, StepChanged, TextDelta, ToolCall
from tenuto.model.message import readable_part
from tenuto.model.parameters import FinishReason
from tenuto.model.reasoning import is_reasoning, shown_text
from tenuto.model.values import JsonObject
from tenuto.server.problems import AccessDenied
from tenuto.server.web_streams.media import ag_ui_part
from tenuto.server.web_streams.turns import interface_id, is_shown

PROTOCOL_VERSION: Final = "1.0"


@dataclass(slots=True)
class AgUiStream:
    """Turns the events of one turn into events of a run."""

    thread_id: str
    run_id: str
    started: bool = False
    trace_id: str = ""
    _blocks: int = 0
    _open: str | None = None
    # The id of the thought that is being streamed and its index, how many there were, and behind how many tools.
    _thought: tuple[str, int] | None = None
    _thoughts: int = 0
    _rounds: int = 0
    _said: list[str] = field(default_factory=list)
    _steps: list[str] = field(default_factory=list)

    def start(self) -> JsonObject:
        """The first event."""
        self.started = True
        return {"type": "RUN_STARTED", **self._ids(), "protocolVersion": PROTOCOL_VERSION}

    def encode(self, event: ChatEvent) -> Iterator[JsonObject]:
        """The events of an event, except the last."""
        if not isinstance(event, ReasoningDelta):
            yield from self._end_thought()
        match event:
            case ReasoningDelta() if event.text:
                yield from self._think(event)
            case TurnStarted():
                # A turn that is not stored has no trace.
                self.trace_id = event.trace_id or self.run_id
                yield self.start()
            case TextDelta(text=text):
                yield from self._say(text)
            case ToolStarted(name=name):
                yield from self._close()
                self._said.clear()
                self._thoughts, self._rounds = 0, self._rounds + bool(self._thoughts)
                yield from self._begin_step(name)
            case StepChanged(id=name, state="started"):
                if name == REPAIR:
                    self._thoughts, self._rounds = 0, self._rounds + bool(self._thoughts)
                yield from self._begin_step(name)
            case ToolFinished(name=name) | StepChanged(id=name):
                yield from self._end_step(name)
            case CallRequested(call=call):
                yield from self._call(call)
            case ReplyFinished(reply=reply):
                if not self.started:
                    yield from self._replay(reply)
                yield from self._close()
                yield from self._end_steps()

    def differs(self, reply: Reply) -> bool:
        """Whether the stored answer is not what was streamed: it was corrected, or there was more before a tool."""
        return self._blocks > 1 or self._rounds > 0 or "".join(self._said) != reply.text

    def finish(self, reply: Reply) -> JsonObject:
        """The last event of a turn with an answer."""
        pending = {"pendingToolCallIds": [call.id for call in reply.calls]} if reply.calls else {}
        outcome: JsonObject = {"type": "cancelled"} if reply.stopped else {"type": "success", **pending}
        usage = {"model": reply.model, "inputTokens": reply.input_tokens, "outputTokens": reply.output_tokens}
        named = {"traceId": reply.trace_id, "offline": reply.offline, "degraded": list(reply.degraded)}
        if reply.finish in (FinishReason.LENGTH, FinishReason.CONTENT_FILTER):
            named["finish"] = reply.finish.value
        return {**self.run_finished(outcome), "result": named, "usage": [usage]}

    def fail(self, error: TenutoError | AccessDenied) -> Iterator[JsonObject]:
        """The events of a turn that ends without an answer."""
        yield from self._end_thought()
        if isinstance(error, TurnStopped):
            yield from self._close()
            yield from self._end_steps()
            yield self.run_finished({"type": "cancelled"})
        else:
            if (reason := failure_reason(error)) is not None:
                yield {"type": "CUSTOM", "name": "tenuto.error", "value": {"code": error.code, "reason": reason}}
            yield {"type": "RUN_ERROR", "message": str(error), "code": error.code}

    def run_finished(self, outcome: JsonObject) -> JsonObject:
        """The last event."""
        return {"type": "RUN_FINISHED", **self._ids(), "outcome": outcome}

    def _ids(self) -> JsonObject:
        return {"threadId": self.thread_id, "runId": self.run_id}

    def _replay(self, reply: Reply) -> Iterator[JsonObject]:
        self.trace_id = reply.trace_id or self.run_id
        yield self.start()
        if reply.reasoning:
            yield from self._think(ReasoningDelta(text=reply.reasoning))
            yield from self._end_thought()
        if reply.text:
            yield from self._say(reply.text)
        for call in reply.calls:
            yield from self._call(call)

    def _say(self, text: str) -> Iterator[JsonObject]:
        if self._open is None:
            # The answer is known by its trace; text before a tool is a message of its own.
            self._open = f"{self.trace_id}{f'-{self._blocks}' if self._blocks else ''}"
            self._blocks += 1
            yield {"type": "TEXT_MESSAGE_START", "messageId": self._open, "role": "assistant"}
        self._said.append(text)
        yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": self._open, "delta": text}

    def _think(self, delta: ReasoningDelta) -> Iterator[JsonObject]:
        if self._thought is None or self._thought[1] != delta.index:
            yield from self._end_thought()
            yield from self._close()
            answer = f"{self.trace_id}-{self._rounds}" if self._rounds else self.trace_id
            self._thought = thought_id(answer, self._thoughts), delta.index
            self._thoughts += 1
            yield {"type": "REASONING_START", "messageId": self._thought[0]}
            yield {"type": "REASONING_MESSAGE_START", "messageId": self._thought[0], "role": "reasoning"}
        yield {"type": "REASONING_MESSAGE_CONTENT", "messageId": self._thought[0], "delta": delta.text}

    def _end_thought(self) -> Iterator[JsonObject]:
        if self._thought is not None:
            yield {"type": "REASONING_MESSAGE_END", "messageId": self._thought[0]}
            yield {"type": "REASONING_END", "messageId": self._thought[0]}
            self._thought = None

    def _close(self) -> Iterator[JsonObject]:
        if self._open is not None:
            yield {"type": "TEXT_MESSAGE_END", "messageId": self._open}
            self._open = None

    def _begin_step(self, name: str) -> Iterator[JsonObject]:
        # Clients refuse a step that runs already, and the end of one that does not.
        if name not in self._steps:
            self._steps.append(name)
            yield {"type": "STEP_STARTED", "stepName": name}

    def _end_step(self, name: str) -> Iterator[JsonObject]:
        if name in self._steps:
            self._steps.remove(name)
            yield {"type": "STEP_FINISHED", "stepName": name}

    def _end_steps(self) -> Iterator[JsonObject]:
        """Clients refuse a run that finishes before its steps, as one does that was stopped."""
        for name in tuple(self._steps):
            yield from self._end_step(name)

    def _call(self, call: ToolCall) -> Iterator[JsonObject]:
        yield from self._close()
        yield {
            "type": "TOOL_CALL_START",
            "toolCallId": call.id,
            "toolCallName": call.name,
            "parentMessageId": self.trace_id,
        }
        arguments = msgspec.json.encode(call.arguments).decode()
        yield {"type": "TOOL_CALL_ARGS", "toolCallId": call.id, "delta": arguments}
        yield {"type": "TOOL_CALL_END", "toolCallId": call.id}


def thought_id(answer: str, number: int) -> str:
    """The id of a thought in the browser, by that of its answer."""
    return f"{answer}-reasoning-{number}"


def thread_messages(message: Message, session_id: str) -> Iterator[JsonObject]:
    """A stored message as AG-UI has it; thoughts and outputs of tools are messages of their own there."""
    if not is_shown(message):
        return
    parts = [*map(readable_part, message.parts)]
    if message.role is Role.TOOL:
        for part in parts:
            if part["type"] == "tool_result":
                output = part.get("output")
                content = output if isinstance(output, str) else msgspec.json.encode(output).decode()
                yield {"id": message.id, "role": "tool", "toolCallId": str(part.get("call_id")), "content": content}
        return
    thoughts = filter(None, [shown_text(part) for part in parts if is_reasoning(part)])
    for number, text in enumerate(thoughts):
        yield {"id": thought_id(interface_id(message), number), "role": "reasoning", "content": text}
    media = [ag_ui_part(part, session_id) for part in parts if part["type"] in MEDIA_PARTS]
    said = [text_part(message.text)] if message.text else []
    body: str | list[JsonObject] = [*said, *media] if media else message.text
    shown: JsonObject = {"id": interface_id(message), "role": message.role.value, "content": body}
    calls = [_thread_call(part) for part in parts if part["type"] == "tool_call"]
    yield {**shown, "toolCalls": calls} if calls else shown


def _thread_call(part: JsonObject) -> JsonObject:
    arguments = part.get("arguments")
    text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
    return {"id": str(part.get("id")), "type": "function", "function": {"name": part.get("name"), "arguments": text}}
