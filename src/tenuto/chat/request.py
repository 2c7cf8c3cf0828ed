"""What a turn is asked for, and what it gives back: whole, or event by event."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final, Protocol, TypeAlias

from tenuto.errors import Invalid
from tenuto.model.generation import TextDelta
from tenuto.model.prompt import Language, Manifest
from tenuto.model.session import MAX_SEQ
from tenuto.model.values import JsonObject, Value, check_int, check_json, check_text, check_type


class ChatRequest(Value, frozen=True, kw_only=True):
    """Somebody's words for an assistant.

    Without a session id a talk begins, the same one for the same `key`; without an assistant the session's own goes
    on, or the default one begins, and without a persona the character that the session last talked to. `regenerate`
    answers the last words anew, `edit` takes back everything from the message of that sequence number on and says
    `text` instead. `profile` tells what is known of the user.
    """

    text: str = ""
    session_id: str | None = None
    assistant: str | None = None
    persona: str | None = None
    key: str | None = None
    fingerprint: str | None = None
    language: Language | None = None
    regenerate: bool = False
    edit: int | None = None
    profile: JsonObject = {}

    def __post_init__(self) -> None:
        check_text(self.text, "the message")
        for what, name in (("session", self.session_id), ("assistant", self.assistant), ("persona", self.persona)):
            if name is not None:
                check_text(name, f"the {what} id")
        if self.key is not None:
            check_text(self.key, "the key")
        check_type(self.profile, dict, "profile")
        check_json(self.profile, "profile")
        if self.language is not None and not isinstance(self.language, Language):
            raise Invalid(f"language must be a Language: {' or '.join(Language)}")
        if self.edit is not None:
            check_int(self.edit, 0, MAX_SEQ, "edit")
        if self.regenerate and self.edit is not None:
            raise Invalid("answer anew or edit, not both")
        if (self.regenerate or self.edit is not None) and self.session_id is None:
            raise Invalid("to answer anew or to edit, name the session")
        if self.regenerate and self.text:
            raise Invalid("an answer made anew takes no message: the last one is answered again")
        if not self.regenerate and not self.text.strip():
            raise Invalid("the message is empty")


class Reply(Value, frozen=True, kw_only=True):
    """The answer, and how it came to be.

    `repeated` says that this key was answered before and nothing was done again. `degraded` names what the answer had
    to do without: `store` (it is not kept), `journal` (it waits on this machine for the store), `fallback_model`,
    `tools`, `detector` (of private data), `embedder` (words decided what talk belongs to it).
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
    repeated: bool = False
    created: bool = False


class TurnStarted(Value, frozen=True, kw_only=True):
    """The words are stored and the turn is under way."""

    session_id: str
    trace_id: str
    turn: int
    created: bool


class ToolStarted(Value, frozen=True, kw_only=True):
    """A tool is being run."""

    name: str


class ToolFinished(Value, frozen=True, kw_only=True):
    """A tool is done; `failed` names the error."""

    name: str
    milliseconds: float
    failed: str | None = None


class ReplyFinished(Value, frozen=True, kw_only=True):
    """The turn is finished and stored. Its text is the whole answer, also where it differs from the words streamed."""

    reply: Reply


ChatEvent: TypeAlias = TurnStarted | TextDelta | ToolStarted | ToolFinished | ReplyFinished


# So far the model may be ahead of its reader.
_QUEUED: Final = 64


class EventSink(Protocol):
    """Whom a turn tells what happens in it."""

    @property
    def listens(self) -> bool:
        """Whether they want to hear words as they come."""
        ...

    @property
    def delivered_text(self) -> str | None:
        """The words of the answer that have reached them so far; `None` for those who wait for the whole of it."""
        ...

    async def emit_event(self, event: ChatEvent) -> None:
        """Say what happened, and wait while they cannot keep up."""
        ...


class NullSink:
    """For callers that want the whole answer."""

    listens = False
    delivered_text: str | None = None

    async def emit_event(self, event: ChatEvent) -> None:
        """They hear of it in the end."""


class StreamSink:
    """Somebody who takes events one by one."""

    listens = True

    def __init__(self) -> None:
        self._queue: asyncio.Queue[ChatEvent | None] = asyncio.Queue(maxsize=_QUEUED)
        self._heard: list[str] = []

    @property
    def delivered_text(self) -> str | None:
        """What was taken of the answer, which begins behind the last tool."""
        return "".join(self._heard)

    async def emit_event(self, event: ChatEvent) -> None:
        """Put the event where the reader takes it from."""
        await self._queue.put(event)

    def close(self) -> None:
        """Tell that nothing more comes."""
        # Room or not, the reader must learn that this is the end; where there is none, the ended task tells it.
        with contextlib.suppress(asyncio.QueueFull):
            self._queue.put_nowait(None)

    async def events(self, task: asyncio.Task[None]) -> AsyncIterator[ChatEvent]:
        """Every event until the end, or until the task that tells them is done."""
        while not (task.done() and self._queue.empty()):
            event = await self._queue.get()
            if event is None:
                return
            if isinstance(event, TextDelta):
                self._heard.append(event.text)
            elif isinstance(event, ToolStarted):
                self._heard.clear()
            yield event
