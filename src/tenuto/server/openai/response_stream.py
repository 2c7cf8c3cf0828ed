"""The Response object as the events of a stream: of a turn that goes on, and of one that has ended."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from tenuto.chat import ChatEvent, Reply, ReplyFinished, ToolStarted, TurnStarted
from tenuto.errors import ModelFailed, ModelUnknown, TenutoError, failure_reason
from tenuto.model.generation import REPAIR, ProviderItem, ReasoningDelta, StepChanged, TextDelta
from tenuto.model.provider_items import ITEM_TYPES, item_of_part
from tenuto.model.reasoning import REASONING
from tenuto.model.values import JsonObject
from tenuto.server.openai.errors import failure_response
from tenuto.server.openai.items import MESSAGE, output_text, refusal_part, text_item, text_item_id
from tenuto.server.openai.provider_items import ItemEvents
from tenuto.server.openai.reasoning_items import begun_reasoning_item, summary_of
from tenuto.server.openai.response_objects import Echo, failure_of
from tenuto.server.problems import AccessDenied
from tenuto.server.streams import ServerSentEvent, events_behind_head, told_error

# The last line of a stream.
_END: Final = ServerSentEvent("", b"[DONE]")
_LAST: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})
# How long a stream waits, in seconds, for its provider to refuse the request, which providers do at once.
_REFUSED_WITHIN: Final = 2.0
_SERVER_FAILED: Final = 500
# What a message says: the name of its events, and of the field in its part.
_TEXT: Final = ("output_text", "text")
_REFUSAL: Final = ("refusal", "refusal")


async def replay_response(response: JsonObject, after: int) -> AsyncIterator[EventBatch]:
    """The stream of a response that has ended and whose events are gone: how it began, and all of it."""
    response_at_start = {**response, "status": "in_progress", "output": [], "usage": None, "completed_at": None}
    created = {"type": "response.created", "sequence_number": 0, "response": response_at_start}
    kind = {"cancelled": "response.incomplete"}.get(response["status"], f"response.{response['status']}")
    ended = {"type": kind, "sequence_number": max(after, 0) + 1, "response": response}
    yield EventBatch((created, ended) if after < 0 else (ended,))


@dataclass(slots=True)
class _StreamedThought:
    """A thought whose item has begun, at its place in the output."""

    index: int
    place: int
    item: JsonObject
    texts: list[str] = field(default_factory=list)
    ended: bool = False

    @property
    def address(self) -> JsonObject:
        """Where the events of its text belong."""
        return {"item_id": self.item["id"], "output_index": self.place, "summary_index": 0}


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
        # The thoughts since the last tool of the assistant's own, and behind how many such rounds they are.
        self._thoughts: list[_StreamedThought] = []
        self._rounds = 0
        self._beside_begun = 0
        self._provided = ItemEvents()

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
            case TextDelta(text=text, refusal=refusal) if text:
                yield from self._end_summary()
                yield from self._say(text, _REFUSAL if refusal else _TEXT)
            case ReasoningDelta(part=None):
                yield from self._think(event)
            case ProviderItem(part=part, done=done):
                yield from self._end_summary()
                yield from self._provide(item_of_part(part), done=done)
            case ToolStarted():
                yield from self._end_round()
            case StepChanged(id=step, state="started") if step == REPAIR:
                yield from self._end_round()
            case ReplyFinished(reply=reply):
                yield from self._end(reply)

    def fail(self, error: TenutoError | AccessDenied) -> JsonObject:
        """The event of a turn that failed."""
        failure = failure_of(error.code, str(error), failure_reason(error))
        return self._event("response.failed", response=self._echo.response("failed", error=failure))

    def _end_round(self) -> Iterator[JsonObject]:
        """Thoughts and text before a tool of the assistant's own, or before a repair, are none of the answer."""
        yield from self._end_summary()
        for thought in self._thoughts:
            yield from self._end_thought(thought, thought.item)
        self._thoughts, self._rounds = [], self._rounds + bool(self._thoughts)
        if self._text is not None:
            yield from self._end_text(text_item(self._named, self._text))

    def _say(self, text: str, kind: tuple[str, str] = _TEXT) -> Iterator[JsonObject]:
        if self._text is None:
            self._text = ""
            self._place, self._items = self._items, self._items + 1
            is_first = self._place == self._beside_begun
            self._named = self._echo.trace if is_first else f"{self._echo.trace}-{self._place}"
            item = text_item(self._named, "", "in_progress")
            yield self._event("response.output_item.added", output_index=self._place, item=item)
            part = output_text("") if kind is _TEXT else refusal_part("")
            yield self._part("response.content_part.added", part=part)
        self._text += text
        more: JsonObject = {"logprobs": []} if kind is _TEXT else {}
        yield self._part(f"response.{kind[0]}.delta", delta=text, **more)

    def _end(self, reply: Reply) -> Iterator[JsonObject]:
        items = self._echo.output_of(reply)
        yield from self._end_summary()
        thoughts = [item for item in items if item["type"] == REASONING]
        for number in range(len(self._thoughts), len(thoughts)):
            yield from self._begin_thought(number)
        for thought, item in zip(self._thoughts, thoughts, strict=False):
            yield from self._end_thought(thought, {**item, "id": thought.item["id"]})
        if self._text is not None and not any(item["type"] == MESSAGE for item in items):
            # Text that the model took back when it called.
            yield from self._end_text(text_item(self._named, self._text))
        for item in items:
            if item["type"] == MESSAGE:
                yield from self._end_text(item)
            elif item["type"] in ITEM_TYPES:
                yield from self._provide(item, done=True)
            elif item["type"] != REASONING:
                yield from self._call(item)
        response = self._echo.finished(reply, self._now())
        ended = response["status"] == "completed"
        yield self._event("response.completed" if ended else "response.incomplete", response=response)

    def _provide(self, item: JsonObject, *, done: bool) -> Iterator[JsonObject]:
        begins = self._provided.begins(item)
        for kind, fields in self._provided.events(item, self._items, done=done):
            yield self._event(kind, **fields)
        self._items, self._beside_begun = self._items + begins, self._beside_begun + begins

    def _think(self, delta: ReasoningDelta) -> Iterator[JsonObject]:
        if not (self._thoughts and self._thoughts[-1].index == delta.index):
            yield from self._end_summary()
            yield from self._begin_thought(delta.index)
        thought = self._thoughts[-1]
        if delta.text:
            if not thought.texts:
                added = {"part": {"type": "summary_text", "text": ""}}
                yield self._event("response.reasoning_summary_part.added", **thought.address, **added)
            thought.texts.append(delta.text)
            yield self._event("response.reasoning_summary_text.delta", **thought.address, delta=delta.text)

    def _begin_thought(self, index: int) -> Iterator[JsonObject]:
        place, self._items = self._items, self._items + 1
        self._beside_begun += 1
        name = f"{self._echo.trace}-{self._rounds}" if self._rounds else self._echo.trace
        item = begun_reasoning_item(name, len(self._thoughts))
        self._thoughts.append(_StreamedThought(index, place, item))
        yield self._event("response.output_item.added", output_index=place, item=item)

    def _end_summary(self) -> Iterator[JsonObject]:
        """The end of the newest thought's text; the item ends with the response, when its provider has sealed it."""
        thought = self._thoughts[-1] if self._thoughts else None
        if thought is None or thought.ended or not thought.texts:
            return
        thought.ended, text = True, "".join(thought.texts)
        yield self._event("response.reasoning_summary_text.done", **thought.address, text=text)
        part = {"type": "summary_text", "text": text}
        yield self._event("response.reasoning_summary_part.done", **thought.address, part=part)

    def _end_thought(self, thought: _StreamedThought, item: JsonObject) -> Iterator[JsonObject]:
        ended = {**item, "summary": item["summary"] or summary_of("".join(thought.texts)), "status": "completed"}
        yield self._event("response.output_item.done", output_index=thought.place, item=ended)

    def _end_text(self, item: JsonObject) -> Iterator[JsonObject]:
        if not item["content"]:
            yield from self._end_silence(item)
            return
        part = item["content"][0]
        kind = _REFUSAL if part["type"] == _REFUSAL[1] else _TEXT
        text: str = part[kind[1]]
        if self._text is None or (text.startswith(self._text) and text != self._text):
            yield from self._say(text[len(self._text or "") :], kind)
        for number, cited in enumerate(part.get("annotations", ())):
            yield self._part("response.output_text.annotation.added", annotation_index=number, annotation=cited)
        more = {"logprobs": part["logprobs"]} if kind is _TEXT else {}
        yield self._part(f"response.{kind[0]}.done", **{kind[1]: text}, **more)
        yield self._part("response.content_part.done", part=part)
        ended = {**item, "id": text_item_id(self._named)}
        yield self._event("response.output_item.done", output_index=self._place, item=ended)
        self._text = None

    def _end_silence(self, item: JsonObject) -> Iterator[JsonObject]:
        """The events of an answer that was cut before it said anything."""
        place, self._items = self._items, self._items + 1
        yield self._event("response.output_item.added", output_index=place, item={**item, "status": "in_progress"})
        yield self._event("response.output_item.done", output_index=place, item=item)

    def _call(self, item: JsonObject) -> Iterator[JsonObject]:
        place, self._items = self._items, self._items + 1
        named = {"item_id": item["id"], "output_index": place}
        item_at_start = {**item, "arguments": "", "status": "in_progress"}
        said = item["arguments"]
        yield self._event("response.output_item.added", output_index=place, item=item_at_start)
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
            lines.append(_END.encode())
        return b"".join(lines)


async def unless_refused(events: AsyncIterator[ChatEvent]) -> AsyncIterator[ChatEvent]:
    """The events of a turn, once the model has begun, or takes long to.

    Raises:
        ModelFailed: the provider finds a fault in the request, or is asked too often. Clients read that from a status,
            also where they asked for a stream; what comes later, and other failures, are events of it.
        TenutoError: the turn did not begin.
    """
    return await events_behind_head(
        events, is_head=lambda event: isinstance(event, TurnStarted), is_raised=_is_of_request, within=_REFUSED_WITHIN
    )


def _is_of_request(error: BaseException) -> bool:
    return isinstance(error, ModelFailed | ModelUnknown) and failure_response(error).status_code < _SERVER_FAILED


async def stream_response(
    stream: ResponseStream, events: AsyncIterator[ChatEvent], after: int = -1
) -> AsyncIterator[EventBatch]:
    """The whole stream of a response behind a number; a turn that fails ends it as a failed response."""

    def unseen(made: Iterable[JsonObject]) -> EventBatch:
        return EventBatch(tuple([event for event in made if event["sequence_number"] > after]))

    first_events = stream.begin()
    try:
        async for chat_event in events:
            batch = unseen((*first_events, *stream.feed(chat_event)))
            first_events = iter(())
            if batch.events:
                yield batch
    except Exception as error:
        batch = unseen((*first_events, stream.fail(told_error(error))))
        if batch.events:
            yield batch
    if stream.event_count <= after + 1:
        # The client has seen all of it.
        yield EventBatch(())
