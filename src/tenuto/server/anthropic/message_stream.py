"""An answer as the events of a stream of Anthropic's API: one block after the other, each begun and ended."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Final

import msgspec

from tenuto.chat import ChatEvent, Reply, ReplyFinished, ToolStarted
from tenuto.errors import TenutoError
from tenuto.model.generation import REPAIR, ReasoningDelta, StepChanged, TextDelta
from tenuto.model.reasoning import is_reasoning
from tenuto.model.values import JsonObject
from tenuto.server.anthropic.errors import error_body, status_of_failure
from tenuto.server.anthropic.message_blocks import REDACTED, THINKING, TOOL_USE, blocks_of, thinking_block
from tenuto.server.anthropic.message_objects import MessageHead
from tenuto.server.problems import AccessDenied
from tenuto.server.streams import ServerSentEvent, close_iterator, told_error

_TEXT: Final = "text"
PING: Final = ServerSentEvent("ping", b'{"type": "ping"}')


class MessageStream:
    """Makes the events of one message, in order."""

    def __init__(self, head: MessageHead) -> None:
        self._head = head
        self._blocks = 0
        # The block that has begun and not ended: a text, or the thought of an index.
        self._open: tuple[str, int] | None = None
        self._said = ""
        # The thoughts since the last tool of the assistant's own that have begun, by their indexes, and have ended.
        self._started: set[int] = set()
        self._ended: set[int] = set()

    def begin(self) -> Iterator[JsonObject]:
        """The events before the first block."""
        yield {"type": "message_start", "message": self._head.at_start()}
        yield {"type": "ping"}

    def feed(self, event: ChatEvent) -> Iterator[JsonObject]:
        """The events that one of the turn makes."""
        match event:
            case TextDelta(text=text) if text:
                self._said += text
                yield from self._say(text)
            case ReasoningDelta(part=None, text=text, index=index) if text:
                yield from self._think(text, index)
            case ReasoningDelta(part=dict(part), index=index):
                yield from self._end_thought(part, index)
            case ToolStarted():
                yield from self._end_round()
            case StepChanged(id=step, state="started") if step == REPAIR:
                yield from self._end_round()
            case ReplyFinished(reply=reply):
                yield from self._end(reply)

    def _end_round(self) -> Iterator[JsonObject]:
        """The next round of the model counts its thoughts anew, and its text is the answer."""
        yield from self._end_block()
        self._said = ""
        self._started, self._ended = set(), set()

    def fail(self, error: TenutoError | AccessDenied) -> JsonObject:
        """The event of a turn that failed."""
        return error_body(
            status_of_failure(error), error.code, str(error), error if isinstance(error, TenutoError) else None
        )

    def _say(self, text: str) -> Iterator[JsonObject]:
        if self._open != (_TEXT, 0):
            yield from self._begin_block((_TEXT, 0), {"type": _TEXT, "text": "", "citations": None})
        yield self._delta({"type": "text_delta", "text": text})

    def _think(self, text: str, index: int) -> Iterator[JsonObject]:
        if index in self._ended:
            return
        if self._open != (THINKING, index):
            self._started.add(index)
            yield from self._begin_block((THINKING, index), {"type": THINKING, "thinking": "", "signature": ""})
        yield self._delta({"type": "thinking_delta", "thinking": text})

    def _end_thought(self, part: JsonObject, index: int) -> Iterator[JsonObject]:
        """The end of a thought, with what its provider demands back."""
        if index in self._ended:
            return
        block = thinking_block(part)
        if self._open == (THINKING, index):
            yield self._delta({"type": "signature_delta", "signature": block["signature"]})
            yield from self._end_block()
        elif index not in self._started:
            yield from self._whole_block(block)
        self._ended.add(index)

    def _end(self, reply: Reply) -> Iterator[JsonObject]:
        """What of the reply was not told yet, and its end."""
        thoughts = [part for part in reply.parts if is_reasoning(part)]
        streamed = len(self._started | self._ended)
        if not (streamed or self._said):
            for block in blocks_of(reply):
                yield from self._whole_block(block)
        else:
            for part in thoughts[streamed:]:
                yield from self._whole_block(thinking_block(part))
            if reply.text.startswith(self._said) and reply.text != self._said:
                yield from self._say(reply.text.removeprefix(self._said))
            for block in blocks_of(reply):
                if block["type"] == TOOL_USE:
                    yield from self._whole_block(block)
        yield from self._end_block()
        yield {"type": "message_delta", **self._head.ended(reply)}
        yield {"type": "message_stop"}

    def _whole_block(self, block: JsonObject) -> Iterator[JsonObject]:
        """A block that is known at once; its content comes in one piece."""
        place = ("", self._blocks)
        match block["type"]:
            case "text":
                yield from self._begin_block(place, {**block, "text": ""})
                yield self._delta({"type": "text_delta", "text": block["text"]})
            case "thinking":
                yield from self._begin_block(place, {"type": THINKING, "thinking": "", "signature": ""})
                if block["thinking"]:
                    yield self._delta({"type": "thinking_delta", "thinking": block["thinking"]})
                yield self._delta({"type": "signature_delta", "signature": block["signature"]})
            case "tool_use":
                yield from self._begin_block(place, {**block, "input": {}})
                said = msgspec.json.encode(block["input"]).decode()
                yield self._delta({"type": "input_json_delta", "partial_json": said})
            case kind:
                assert kind == REDACTED
                yield from self._begin_block(place, block)
        yield from self._end_block()

    def _begin_block(self, place: tuple[str, int], block: JsonObject) -> Iterator[JsonObject]:
        yield from self._end_block()
        self._open = place
        yield {"type": "content_block_start", "index": self._blocks, "content_block": block}

    def _end_block(self) -> Iterator[JsonObject]:
        if self._open is None:
            return
        yield {"type": "content_block_stop", "index": self._blocks}
        self._open, self._blocks = None, self._blocks + 1

    def _delta(self, delta: JsonObject) -> JsonObject:
        return {"type": "content_block_delta", "index": self._blocks, "delta": delta}


class MessageEvents(tuple[JsonObject, ...]):
    """Events that are known at once, and so are sent at once."""

    __slots__ = ()

    def encode(self) -> bytes:
        """Their lines."""
        return b"".join([ServerSentEvent(event["type"], msgspec.json.encode(event)).encode() for event in self])


async def stream_message(stream: MessageStream, events: AsyncIterator[ChatEvent]) -> AsyncIterator[MessageEvents]:
    """The whole stream of a message; a turn that fails ends it with an error."""
    try:
        yield MessageEvents(stream.begin())
        async for event in events:
            if batch := MessageEvents(stream.feed(event)):
                yield batch
    except Exception as error:
        yield MessageEvents((stream.fail(told_error(error)),))
    finally:
        # At once: a client that has left ends the answer.
        await close_iterator(events)
