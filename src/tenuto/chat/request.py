"""What a turn receives and returns: request, reply, events, and the sinks that events are emitted to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import ClassVar, Final, TypeAlias

from tenuto.errors import Invalid
from tenuto.model.channel import ChatLine
from tenuto.model.generation import TextDelta
from tenuto.model.policy import SessionPolicy
from tenuto.model.prompt import Language, Manifest
from tenuto.model.session import MAX_SEQ
from tenuto.model.values import JsonObject, Value, check_int, check_json, check_text, check_type


class ChatRequest(Value, frozen=True, kw_only=True):
    """A user message for an assistant.

    Without a session id a session is created, the same one for the same `idempotency_key`. Without an assistant the
    session's last one answers, or the default; without a persona its last one. `regenerate` answers the last user
    message again, `edit` replaces everything from the message of that sequence number on by `text`. `profile` describes
    the user, `chat_context` is what others wrote in the same group, and `policy` replaces that of the assistant for
    sessions.
    """

    text: str = ""
    session_id: str | None = None
    assistant: str | None = None
    persona: str | None = None
    idempotency_key: str | None = None
    fingerprint: str | None = None
    language: Language | None = None
    regenerate: bool = False
    edit: int | None = None
    profile: JsonObject = {}
    chat_context: tuple[ChatLine, ...] = ()
    policy: SessionPolicy | None = None

    def __post_init__(self) -> None:
        check_text(self.text, "the message")
        for what, name in (("session", self.session_id), ("assistant", self.assistant), ("persona", self.persona)):
            if name is not None:
                check_text(name, f"the {what} id")
        if self.idempotency_key is not None:
            check_text(self.idempotency_key, "the key")
        check_type(self.profile, dict, "profile")
        check_json(self.profile, "profile")
        if self.language is not None and not isinstance(self.language, Language):
            raise Invalid(f"language must be a Language: {' or '.join(Language)}")
        if self.edit is not None:
            check_int(self.edit, 0, MAX_SEQ, "edit")
        if self.regenerate and self.edit is not None:
            raise Invalid("regenerate or edit, not both")
        if (self.regenerate or self.edit is not None) and self.session_id is None:
            raise Invalid("to regenerate or edit, name the session")
        if self.regenerate and self.text:
            raise Invalid("regenerate takes no message: the last one is answered again")
        if not self.regenerate and not self.text.strip():
            raise Invalid("the message is empty")


class Reply(Value, frozen=True, kw_only=True):
    """The answer and its circumstances.

    `replayed` means that this key was answered before. `degraded` names what was not available: `store` (the turn is
    not stored), `journal` (it waits in a local journal for the store), `fallback_model`, `tools`, `lookup` (no tool
    supports the answer of an assistant that looks everything up), `detector` (of private data), `embedder` (relevance
    was decided lexically), `recall` (memories were not searched, or by words alone). A reply that a user `stopped` is
    what had been said until then.
    """

    session_id: str
    trace_id: str
    turn: int
    assistant: str
    text: str
    model: str = ""
    offline: bool = False
    title: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cost_nanos: int = 0
    manifest: Manifest | None = None
    degraded: tuple[str, ...] = ()
    data: JsonObject = {}
    steps: dict[str, float] = {}
    replayed: bool = False
    created: bool = False
    stopped: bool = False


class TurnStarted(Value, frozen=True, kw_only=True):
    """The user message is stored and the turn has begun.

    `incarnation` is the session's, or empty for a turn without one.
    """

    session_id: str
    trace_id: str
    turn: int
    created: bool
    incarnation: str = ""


class ToolStarted(Value, frozen=True, kw_only=True):
    """A tool is being run."""

    name: str


class ToolFinished(Value, frozen=True, kw_only=True):
    """A tool is done; `error` names the error."""

    name: str
    milliseconds: float
    error: str | None = None


class ReplyFinished(Value, frozen=True, kw_only=True):
    """The turn is finished and stored. Its text is the whole answer, even if the streamed text differs."""

    reply: Reply


ChatEvent: TypeAlias = TurnStarted | TextDelta | ToolStarted | ToolFinished | ReplyFinished


# The number of events that the model may be ahead of its reader.
_QUEUED: Final = 64


class EventSink:
    """Receives the events of a turn; this one ignores them, for callers that want the whole answer."""

    listens: ClassVar[bool] = False
    """Whether events are wanted."""

    @property
    def delivered_text(self) -> str | None:
        """The text of the answer delivered so far; `None` if only the whole answer is wanted."""
        return None

    async def emit_event(self, event: ChatEvent) -> None:
        """Deliver an event, and wait for a slow reader."""

    def until_stopped(self) -> AbstractAsyncContextManager[object]:
        """A context in which the turn makes its answer; a stop ends it with `TurnStopped`."""
        return nullcontext()


class StreamSink(EventSink):
    """For callers that read events one by one."""

    listens = True

    def __init__(self) -> None:
        self._queue: asyncio.Queue[ChatEvent | None] = asyncio.Queue(maxsize=_QUEUED)
        self._heard: list[str] = []

    @property
    def delivered_text(self) -> str | None:
        """The text read so far of the answer, which begins after the last tool."""
        return "".join(self._heard)

    async def emit_event(self, event: ChatEvent) -> None:
        await self._queue.put(event)

    def close(self) -> None:
        """End the stream."""
        # If the queue is full, the reader sees the end by the finished task.
        with contextlib.suppress(asyncio.QueueFull):
            self._queue.put_nowait(None)

    async def events(self, task: asyncio.Task[None]) -> AsyncIterator[ChatEvent]:
        """Every event until the end of the stream or of the task that emits them."""
        while not (task.done() and self._queue.empty()):
            event = await self._queue.get()
            if event is None:
                return
            if isinstance(event, TextDelta):
                self._heard.append(event.text)
            elif isinstance(event, ToolStarted):
                self._heard.clear()
            yield event
