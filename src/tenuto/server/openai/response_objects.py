"""The Response object: of a turn that ends, of one that is stored, and as the events of a stream.

There is no record of responses. The id of one names a session and a turn, as a trace id does, and the fields that a
request said are stored in the metadata of the turn's reply.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple, Self, TypeAlias
from uuid import uuid4

import msgspec

from tenuto.app import Tenuto
from tenuto.chat import ChatEvent, Reply, ReplyFinished, ToolStarted
from tenuto.errors import (
    BudgetExhausted,
    FailureReason,
    InstructionsTooLong,
    Invalid,
    InvalidText,
    LimitReached,
    PrivateData,
    PromptTooLong,
    SessionNotFound,
    TenutoError,
    TooManyPrivateValues,
    TraceNotFound,
    TurnStopped,
    failure_reason,
)
from tenuto.model import Message, Page, Scope, Session
from tenuto.model.generation import ProviderItem, ReasoningDelta, TextDelta
from tenuto.model.message import FINISH, STOPPED, is_input, is_summary
from tenuto.model.parameters import FinishReason
from tenuto.model.prompt import Disposition, Kind, Manifest, ManifestEntry, Reason
from tenuto.model.provider_items import ITEM_TYPES, annotations_in, is_provider_item, item_of_part
from tenuto.model.reasoning import REASONING, is_reasoning
from tenuto.model.turn import Trace, place_of, turn_id_of
from tenuto.model.values import JsonObject
from tenuto.ports import TraceStore
from tenuto.process_identity import is_holder_gone
from tenuto.server.auth import RateLimited
from tenuto.server.openai.errors import ResponseNotFound
from tenuto.server.openai.items import (
    ECHO,
    MESSAGE,
    call_item,
    degraded_view,
    items_beside,
    items_of_message,
    output_text,
    refusal_part,
    text_item,
    text_item_id,
)
from tenuto.server.openai.provider_items import ItemEvents
from tenuto.server.openai.reasoning_items import begun_reasoning_item, summary_of
from tenuto.server.problems import AccessDenied
from tenuto.server.streams import ServerSentEvent, told_error
from tenuto.sessions import Sessions

DELETED: Final = "deleted"
"""The key that marks a response as deleted, among what its reply repeats of the request."""
END: Final = ServerSentEvent("", b"[DONE]")
"""The last line of a stream."""
_LAST: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})
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
            TooManyPrivateValues.code,
        ),
        "invalid_prompt",
    ),
}
# What a message says: the name of its events, and of the field in its part.
_TEXT: Final = ("output_text", "text")
_REFUSAL: Final = ("refusal", "refusal")
# Why a response is not complete, in the API's words.
_INCOMPLETE: Final = {FinishReason.LENGTH: "max_output_tokens", FinishReason.CONTENT_FILTER: "content_filter"}
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
        if status == "completed" and finish in _INCOMPLETE:
            status = "incomplete"
        return {
            "id": self.response_id,
            "object": "response",
            "created_at": self.created_at,
            "completed_at": completed_at,
            "status": status,
            "error": error,
            "incomplete_details": {"reason": _INCOMPLETE[finish]} if status == "incomplete" else None,
            "model": self.model,
            **DEFAULTS,
            **self.said,
            "output": [*output],
            "usage": usage,
            **degraded_view(degraded),
        }

    def output_of(self, reply: Reply) -> list[JsonObject]:
        """The items of a reply: its text, with thoughts and a provider's items around it, then its calls."""
        status = "incomplete" if reply.finish in _INCOMPLETE else "completed"
        said = [text_item(self.trace, reply.text, status)] if reply.text or not reply.calls else []
        if said and reply.finish is FinishReason.REFUSAL:
            said[0]["content"] = [refusal_part(reply.text)]
        elif said and (reply.parts or reply.logprobs is not None):
            about = {"annotations": annotations_in(reply.parts), "logprobs": list(reply.logprobs or ())}
            said[0]["content"] = [{**output_text(reply.text), **about}] if said[0]["content"] else []
        items = items_beside(self.trace, [one for one in reply.parts if is_reasoning(one) or is_provider_item(one)])
        before = next((place for place, part in enumerate(reply.parts) if part["type"] == "text"), len(items))
        items[before:before] = said
        return items + [call_item(self.trace, call.id, call.name, call.arguments_text) for call in reply.calls]

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
            case ReasoningDelta():
                yield from self._think(event)
            case ProviderItem(part=part, done=done):
                yield from self._end_summary()
                yield from self._provide(item_of_part(part), done=done)
            case ToolStarted():
                # Thoughts and text before a tool of the assistant's own are none of the answer.
                yield from self._end_summary()
                for thought in self._thoughts:
                    yield from self._end_thought(thought, thought.item)
                self._thoughts, self._rounds = [], self._rounds + bool(self._thoughts)
                if self._text is not None:
                    yield from self._end_text(text_item(self._named, self._text))
            case ReplyFinished(reply=reply):
                yield from self._end(reply)

    def fail(self, error: TenutoError | AccessDenied) -> JsonObject:
        """The event of a turn that failed."""
        failure = failure_of(error.code, str(error), failure_reason(error))
        return self._event("response.failed", response=self._echo.response("failed", error=failure))

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
            lines.append(END.encode())
        return b"".join(lines)


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
