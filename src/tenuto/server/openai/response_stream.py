"""The events of a response as the API streams them, from the events of its turn.

The same events give the same stream, numbers included, so a client that reconnects goes on behind the last number that
it saw.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from tenuto.chat import ChatEvent, Reply, ReplyFinished, ToolStarted
from tenuto.errors import TenutoError, failure_reason
from tenuto.model.generation import TextDelta
from tenuto.model.values import JsonObject
from tenuto.server.openai.items import MESSAGE, output_text, text_item, text_item_id
from tenuto.server.openai.response_objects import Echo, failure_of
from tenuto.server.problems import AccessDenied
from tenuto.server.streams import ServerSentEvent, told_error

END: Final = ServerSentEvent("", b"[DONE]")
"""The last line of a stream."""
_LAST: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})


class ResponseStream:
    """Makes the events of one response, in order."""

    def __init__(self, echo: Echo, now: Callable[[], int]) -> None:
        self._echo = echo
        self._now = now
        self._number = 0
        self._items = 0
        # The text that is being streamed, once it has begun, with its place and the name that its id is made of.
        self._text: str | None = None
        self._place = 0
        self._named = echo.trace

    @property
    def event_count(self) -> int:
        """How many events were made so far."""
        return self._number

    def begin(self) -> Iterator[JsonObject]:
        """The events before the first of the answer."""
        for kind in ("response.created", "response.in_progress"):
            yield self._event(kind, response=self._echo.response("in_progress"))

    def feed(self, event: ChatEvent) -> Iterator[JsonObject]:
        """The events that one of the turn makes."""
        match event:
            # With a demanded form, the answer is a call; text beside it is none of it.
            case TextDelta(text=text) if text and self._echo.answer is None:
                yield from self._say(text)
            case ToolStarted() if self._text is not None:
                # Text before a tool of the assistant's own is none of the answer.
                yield from self._end_text(text_item(self._named, self._text))
            case ReplyFinished(reply=reply):
                yield from self._end(reply)

    def fail(self, error: TenutoError | AccessDenied) -> JsonObject:
        """The event of a turn that failed."""
        failure = failure_of(error.code, str(error), failure_reason(error))
        return self._event("response.failed", response=self._echo.response("failed", error=failure))

    def _say(self, text: str) -> Iterator[JsonObject]:
        if self._text is None:
            self._text = ""
            self._place, self._items = self._items, self._items + 1
            self._named = f"{self._echo.trace}-{self._place}" if self._place else self._echo.trace
            item = text_item(self._named, "", "in_progress")
            yield self._event("response.output_item.added", output_index=self._place, item=item)
            yield self._part("response.content_part.added", part=output_text(""))
        self._text += text
        yield self._part("response.output_text.delta", delta=text, logprobs=[])

    def _end(self, reply: Reply) -> Iterator[JsonObject]:
        items = self._echo.output_of(reply)
        if self._text is not None and items[0]["type"] != MESSAGE:
            # Text that the model took back when it called.
            yield from self._end_text(text_item(self._named, self._text))
        for item in items:
            yield from self._end_text(item) if item["type"] == MESSAGE else self._call(item)
        response = self._echo.finished(reply, self._now())
        yield self._event("response.incomplete" if reply.stopped else "response.completed", response=response)

    def _end_text(self, item: JsonObject) -> Iterator[JsonObject]:
        part = item["content"][0]
        text: str = part["text"]
        if self._text is None or (text.startswith(self._text) and text != self._text):
            yield from self._say(text[len(self._text or "") :])
        yield self._part("response.output_text.done", text=text, logprobs=[])
        yield self._part("response.content_part.done", part=part)
        ended = {**item, "id": text_item_id(self._named)}
        yield self._event("response.output_item.done", output_index=self._place, item=ended)
        self._text = None

    def _call(self, item: JsonObject) -> Iterator[JsonObject]:
        place, self._items = self._items, self._items + 1
        named = {"item_id": item["id"], "output_index": place}
        begun = {**item, "arguments": "", "status": "in_progress"}
        said = item["arguments"]
        yield self._event("response.output_item.added", output_index=place, item=begun)
        yield self._event("response.function_call_arguments.delta", **named, delta=said)
        yield self._event("response.function_call_arguments.done", **named, name=item["name"], arguments=said)
        yield self._event("response.output_item.done", output_index=place, item=item)

    def _part(self, kind: str, **fields: object) -> JsonObject:
        item = text_item_id(self._named)
        return self._event(kind, item_id=item, output_index=self._place, content_index=0, **fields)

    def _event(self, kind: str, **fields: object) -> JsonObject:
        event = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        return event


class EventBatch(NamedTuple):
    """Events that are known at once, and so are sent at once."""

    events: tuple[JsonObject, ...]

    def encode(self) -> bytes:
        """Their lines. The Open Responses specification ends every stream with a line of its own."""
        lines = [ServerSentEvent(event["type"], msgspec.json.encode(event)).encode() for event in self.events]
        if not self.events or self.events[-1]["type"] in _LAST:
            lines.append(END.encode())
        return b"".join(lines)


async def stream_response(
    stream: ResponseStream, events: AsyncIterator[ChatEvent], after: int = -1
) -> AsyncIterator[EventBatch]:
    """The whole stream of a response behind a number; a turn that fails ends it as a failed response."""

    def unseen(made: Iterable[JsonObject]) -> EventBatch:
        return EventBatch(tuple([event for event in made if event["sequence_number"] > after]))

    begun = stream.begin()
    try:
        async for told in events:
            batch = unseen((*begun, *stream.feed(told)))
            begun = iter(())
            if batch.events:
                yield batch
    except Exception as fault:
        batch = unseen((*begun, stream.fail(told_error(fault))))
        if batch.events:
            yield batch
    if stream.event_count <= after + 1:
        # The client has seen all of it.
        yield EventBatch(())
