"""What a turn receives and returns: request, reply, events, and the sinks that events are emitted to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, ClassVar, Final, TypeAlias

from tenuto.errors import Invalid
from tenuto.model.attachment import Content, attachment_part
from tenuto.model.channel import ChatLine
from tenuto.model.generation import (
    AUTO,
    NONE,
    REQUIRED,
    ProviderItem,
    ReasoningDelta,
    StepChanged,
    TextDelta,
    ToolCall,
    ToolSpec,
)
from tenuto.model.message import Draft, Role, check_drafts, check_shown_parts
from tenuto.model.parameters import NO_PARAMETERS, AnswerSchema, FinishReason, ModelParameters
from tenuto.model.policy import SessionPolicy
from tenuto.model.prompt import Language, Manifest
from tenuto.model.provider_items import NO_PROVIDER_TOOLS, ProviderTools
from tenuto.model.session import MAX_SEQ
from tenuto.model.values import JsonObject, Value, check_int, check_json, check_text, check_type

_MOST_TOKENS: Final = 2**31
# Roles that lie between two messages of a user without ending what the user says.
_BESIDE: Final = (Role.SYSTEM, Role.ITEM)


class ChatRequest(Value, frozen=True, kw_only=True):
    """A user message for an assistant.

    Without a session id a session is created, the same one for the same `idempotency_key`. Without an assistant the
    session's last one answers, or the default; without a persona its last one. `regenerate` answers the last user
    message again, `edit` replaces everything from the message of that sequence number on by `text`. `profile` describes
    the user, `chat_context` is what others wrote in the same group, and `policy` replaces that of the assistant for
    sessions.

    `parts` are pictures, sounds and files to show beside the text, or without one; `contents` are the bytes of those
    that the session may not have yet. `messages` are the input instead of `text`: words of users and systems, and
    outputs of tools. `instructions` follow the assistant's own system prompt in this turn only. `tools` are the
    caller's: a turn ends when the model calls one of them, and a later turn brings the output. A tool of the assistant
    with the same name is not offered. With a `tool_choice` of `required`, or of a tool's name, only the caller's tools
    are offered, and one must be called.
    `provider_tools` are run by the provider of the model, and refused where it is not OpenAI's own Responses API.
    With a `schema` the answer has that form, or the turn fails. With `require_attachments` the turn is refused where
    the model does not take a picture, a sound or a file of the request; without, a placeholder stands in its place and
    the answer is degraded. `parameters` are for the model, and refused where it
    does not take them. `model` answers in place of the assistant's.
    `reply_tokens` lowers the limit of the assistant's answers. `reply_metadata` is stored with the reply's last
    message. With `after_turn`, the turn is the one after that number, or a `VersionConflict` that stores nothing; with
    `after_seq` that message is the newest, besides summaries, at its begin (0: there is none); an `edit` and
    `regenerate` ask only that none is newer. `replaces_after` replaces everything behind that message by this
    request's, as an `edit` does, if `after_seq` was the newest.
    `compress_above` has the conversation compressed once its prompt has more tokens, in place of the assistant's limit.
    The trace repeats which `app` asked, for which of its own tasks (empty for a turn), and whether the turn is stored
    although the app asked that it is not.
    """

    text: str = ""
    parts: tuple[JsonObject, ...] = ()
    contents: tuple[Content, ...] = ()
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
    messages: tuple[Draft, ...] = ()
    instructions: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str = AUTO
    provider_tools: ProviderTools = NO_PROVIDER_TOOLS
    schema: AnswerSchema | None = None
    parameters: ModelParameters = NO_PARAMETERS
    model: str | None = None
    reply_tokens: int | None = None
    reply_metadata: JsonObject = {}
    require_attachments: bool = False
    after_turn: int | None = None
    after_seq: int | None = None
    replaces_after: int | None = None
    compress_above: int | None = None
    app: str = ""
    app_task: str = ""
    store_overridden: bool = False

    @property
    def replaces(self) -> bool:
        """Whether messages of the session are replaced by this request's."""
        return self.edit is not None or self.replaces_after is not None

    @property
    def edited_from(self) -> int:
        """The first message that is replaced; 0 if none is."""
        return self.edit or (self.replaces_after + 1 if self.replaces_after is not None else 0)

    @property
    def question(self) -> str:
        """What the user says last in this request; empty if it brings outputs of tools only."""
        return last_question(self.messages) if self.messages else self.text

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
        self._check_input()
        if self.instructions is not None:
            check_text(self.instructions, "instructions")
        if self.reply_tokens is not None:
            check_int(self.reply_tokens, 1, _MOST_TOKENS, "reply_tokens")
        if self.compress_above is not None:
            check_int(self.compress_above, 1, _MOST_TOKENS, "compress_above")
        if self.reply_metadata:
            check_type(self.reply_metadata, dict, "reply_metadata")
            check_json(self.reply_metadata, "reply_metadata")
        if self.provider_tools.tools:
            check_json(list(self.provider_tools.tools), "tools")
        if self.tools or self.tool_choice != AUTO:
            self._check_tools()

    def _check_input(self) -> None:
        """What is answered: a text, messages, or the last message again."""
        for name in ("edit", "after_seq", "replaces_after"):
            if getattr(self, name) is not None:
                check_int(getattr(self, name), 0, MAX_SEQ, name)
        if self.replaces_after is not None and (self.edit is not None or self.after_seq is None):
            raise Invalid("replaces_after: with after_seq, and without edit")
        if self.regenerate and self.replaces:
            raise Invalid("regenerate or edit, not both")
        if (self.regenerate or self.replaces) and self.session_id is None:
            raise Invalid("to regenerate or edit, name the session")
        if self.regenerate and (self.text or self.messages or self.parts):
            raise Invalid("regenerate takes no message: the last one is answered again")
        if self.messages:
            if self.text or self.parts:
                raise Invalid("text and parts, or messages, not both")
            check_type(self.messages, tuple, "messages")
            check_drafts(self.messages)
        elif self.parts or self.contents:
            check_shown_parts(self.parts, self.contents)
        elif not self.regenerate and not self.text.strip():
            raise Invalid("the message is empty")

    def _check_tools(self) -> None:
        check_type(self.tools, tuple, "tools")
        for tool in self.tools:
            check_type(tool, ToolSpec, "a tool")
            check_json([tool.name, tool.description, tool.parameters], "a tool")
        names = {tool.name for tool in self.tools}
        if len(names) < len(self.tools):
            raise Invalid("tools: two have the same name")
        if self.tool_choice not in (AUTO, NONE, *(REQUIRED,) * bool(names or self.provider_tools.tools), *names):
            raise Invalid("tool_choice: must be auto, none, required or the name of one of the tools")


def last_question(messages: Sequence[Draft]) -> str:
    """What the user says last in these messages, also if something else follows."""
    said: list[str] = []
    for message in reversed(messages):
        if message.role is Role.USER:
            said.append(message.text)
        elif said and message.role not in _BESIDE:
            break
    return "\n".join(reversed(said))


def request_from(text: str | ChatRequest, **fields: Any) -> ChatRequest:
    """The request that the arguments of `ask` mean; what is `None` or empty there keeps its default.

    Raises:
        Invalid: the request is not sound, or fields are given beside a whole one.
    """
    named = {name: value for name, value in fields.items() if value is not None and value != ()}
    if isinstance(text, ChatRequest):
        if named:
            raise Invalid(f"a whole ChatRequest has its own {next(iter(named))}: set it there")
        return text
    if named.get("language") in tuple(Language):
        named["language"] = Language(named["language"])
    attachments = tuple[Content, ...](named.pop("attachments", ()))
    if attachments:
        named |= {"parts": tuple(map(attachment_part, attachments)), "contents": attachments}
    return ChatRequest(text=text, **named)


class Reply(Value, frozen=True, kw_only=True):
    """The answer and its circumstances.

    `replayed` means that this key was answered before. `degraded` names what was not available: `store` (the turn is
    not stored), `journal` (it waits in a local journal for the store), `fallback_model`, `tools`, `lookup` (no tool
    supports the answer of an assistant that looks everything up), `attachment` (a placeholder stood in the place of a
    picture, a sound or a file), `detector` (of private data), `embedder` (relevance was decided lexically), `recall`
    (memories were not searched, or by words alone), `cut` (of a message or a tool's output the model saw a part),
    `history` (of the messages that the request brought the session keeps the newest). A
    reply that a user `stopped` is what had been said until then. `calls` are for the caller to run; their outputs are
    the next turn's messages.

    `finish` says why the answer ended. Of its input, `cached_tokens` were in the provider's cache and
    `cache_write_tokens` are now; of its output, `reasoning_tokens` were thought. `logprobs` are there if they were
    asked for, and are not stored. `reasoning` is what the model thought before it answered, as far as its provider and
    the settings show it; `parts` are thoughts, items of a provider's tools, text and calls in their order, where there
    are thoughts, items or citations.
    """

    session_id: str
    trace_id: str
    turn: int
    assistant: str
    text: str
    reasoning: str = ""
    model: str = ""
    offline: bool = False
    title: str = ""
    finish: FinishReason = FinishReason.STOP
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost_nanos: int = 0
    logprobs: tuple[JsonObject, ...] | None = None
    manifest: Manifest | None = None
    degraded: tuple[str, ...] = ()
    data: JsonObject = {}
    steps: dict[str, float] = {}
    replayed: bool = False
    created: bool = False
    stopped: bool = False
    calls: tuple[ToolCall, ...] = ()
    parts: tuple[JsonObject, ...] = ()


class TurnStarted(Value, frozen=True, kw_only=True):
    """The user message is stored and the turn has begun.

    `incarnation` is the session's, or empty for a turn without one. `input_seq` numbers the last of its messages; 0
    where it has none, or only a journal holds them.
    """

    session_id: str
    trace_id: str
    turn: int
    created: bool
    incarnation: str = ""
    input_seq: int = 0


class ToolStarted(Value, frozen=True, kw_only=True):
    """A tool is being run."""

    name: str


class ToolFinished(Value, frozen=True, kw_only=True):
    """A tool is done; `error` names the error."""

    name: str
    milliseconds: float
    error: str | None = None


class CallRequested(Value, frozen=True, kw_only=True):
    """The model calls a tool of the caller, which ends the turn."""

    call: ToolCall


class ReplyFinished(Value, frozen=True, kw_only=True):
    """The turn is finished and stored. Its text is the whole answer, even if the streamed text differs."""

    reply: Reply


ChatEvent: TypeAlias = (
    TurnStarted
    | TextDelta
    | ReasoningDelta
    | ProviderItem
    | StepChanged
    | ToolStarted
    | ToolFinished
    | CallRequested
    | ReplyFinished
)


# The number of events that the model may be ahead of its reader.
_QUEUED: Final = 64


class EventSink:
    """Receives the events of a turn; this one ignores them, for callers that want the whole answer."""

    listens: ClassVar[bool] = False
    """Whether events are wanted."""
    waits: ClassVar[bool] = False
    """Whether `emit_event` waits for a slow reader."""
    shared: bool = False
    """Whether other processes can follow the turn."""
    joins_running: bool = False
    """Whether a turn that another request is taking under the same key is joined, rather than waited for."""

    @property
    def delivered_text(self) -> str | None:
        """The text of the answer delivered so far; `None` if only the whole answer is wanted."""
        return None

    async def emit_event(self, event: ChatEvent) -> None:
        """Deliver an event."""

    def until_stopped(self) -> AbstractAsyncContextManager[object]:
        """A context in which the turn makes its answer; a stop ends it with `TurnStopped`."""
        return nullcontext()


class StreamSink(EventSink):
    """For callers that read events one by one."""

    listens = waits = True

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
