"""Replies, events, traces and assistants as JSON: the same over HTTP and in the CLI."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Literal, Self

from msgspec import UNSET, UnsetType

from tenuto.assistants import Assistant
from tenuto.chat.request import CallRequested, ChatEvent, Reply, ReplyFinished, ToolFinished, ToolStarted, TurnStarted
from tenuto.errors import FailureReason
from tenuto.extras import with_folder
from tenuto.model import Role
from tenuto.model.generation import ProviderItem, ReasoningDelta, StepChanged, TextDelta
from tenuto.model.parameters import FinishReason
from tenuto.model.prompt import (
    Disposition,
    Kind,
    Language,
    LayoutName,
    Manifest,
    ManifestEntry,
    PartState,
    PartText,
    Reason,
)
from tenuto.model.session import usd
from tenuto.model.turn import Trace, TraceSpan
from tenuto.model.values import JsonObject, View

_SHOWN: Final = (PartState.STORED, PartState.REDACTED, PartState.CHANGED, PartState.UNCHECKED)


class UsageView(View, frozen=True, kw_only=True):
    """What a turn or a model call cost.

    Of the input, `cached_tokens` were in the provider's cache and `cache_write_tokens` are now; of the output,
    `reasoning_tokens` were thought and not said.
    """

    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    cost_usd: str

    @classmethod
    def of(cls, value: Reply | Trace | TraceSpan) -> Self:
        """What this turn, or this model call, cost."""
        details = {
            name: getattr(value, name, 0) for name in ("cached_tokens", "cache_write_tokens", "reasoning_tokens")
        }
        return cls.derive(value, cost_usd=usd(value.cost_nanos), **details)


class EntryView(View, frozen=True, kw_only=True):
    """One part of a prompt and its outcome; `first` and `last` are sequence numbers of messages.

    `score` is that of the search for memories. `text` is there on request, from what is stored today; `state` says
    whether that is what the model saw (`stored`), has placeholders where it saw values (`redacted`), is `changed` or
    `gone` since, `unchecked` where this server has no key to tell, `unstored`, as the layout is, or `withheld`, as the
    assistant's prompt and tools are from users. `role` and `speaker`, a user or a persona, come with the text of a
    message that is stored.
    """

    kind: Kind
    disposition: Disposition
    reason: Reason
    tokens: int
    uncut_tokens: int
    id: str | None
    first: int | None
    last: int | None
    count: int
    score: float | None
    text: str | UnsetType | None = UNSET
    state: PartState | UnsetType = UNSET
    role: Role | UnsetType | None = UNSET
    speaker: str | UnsetType | None = UNSET

    @classmethod
    def of(cls, entry: ManifestEntry) -> Self:
        """The view of an entry without its text; written out, since there is one for each message of each prompt."""
        return cls(
            kind=entry.kind,
            disposition=entry.disposition,
            reason=entry.reason,
            tokens=entry.tokens,
            uncut_tokens=entry.uncut_tokens,
            id=entry.id,
            first=entry.first,
            last=entry.last,
            count=entry.count,
            score=entry.score,
        )


class ContextView(View, frozen=True, kw_only=True):
    """What the model saw: `total` of `prompt_limit` tokens, part by part.

    Its first `cacheable_tokens` begin the next turn's prompt as well, unless that is trimmed or compressed.
    """

    total: int
    cacheable_tokens: int
    prompt_limit: int
    budget: int
    reply_tokens: int
    encoding: str
    exact: bool
    layout: LayoutName
    entries: list[EntryView]

    @classmethod
    def of(cls, manifest: Manifest) -> Self:
        """The view of a manifest."""
        return cls.derive(manifest, entries=list(map(EntryView.of, manifest.entries)))

    @classmethod
    def with_texts(cls, manifest: Manifest, texts: Sequence[PartText]) -> Self:
        """The view of a manifest with the text of each entry."""
        entries = [
            EntryView.derive(
                entry,
                text=part.text if part.state in _SHOWN else None,
                state=part.state,
                role=part.role,
                speaker=part.speaker,
            )
            for entry, part in zip(manifest.entries, texts, strict=True)
        ]
        return cls.derive(manifest, entries=entries)


class ReplyView(View, frozen=True, kw_only=True, rename={"text": "answer", "manifest": "context"}):
    """An answer and how it was made. `degraded` names what was missing; `steps` are milliseconds.

    One that a user `stopped` has the text up to then. `finish` says why it ended: the model was done (`stop`), its
    limit of tokens came first (`length`), the provider withheld the rest (`content_filter`), the model declined to
    answer (`refusal`), or the caller's tools are to be run (`tool_calls`). `reasoning` is what the model thought before
    the answer, as far as its provider and the settings show it. `trace_id` is null if nothing of the turn is stored.
    """

    session_id: str
    trace_id: str | None
    turn: int
    assistant: str
    text: str
    reasoning: str
    model: str
    offline: bool
    degraded: tuple[str, ...]
    title: str
    created: bool
    replayed: bool
    stopped: bool
    finish: FinishReason
    usage: UsageView
    data: JsonObject
    manifest: ContextView | None
    steps: dict[str, float]

    @classmethod
    def of(cls, reply: Reply) -> Self:
        """The view of a whole reply."""
        context = ContextView.of(reply.manifest) if reply.manifest is not None else None
        return cls.derive(reply, trace_id=reply.trace_id or None, usage=UsageView.of(reply), manifest=context)


class ToolRunView(View, frozen=True, kw_only=True):
    """One call of a tool; `start` is in milliseconds since the turn began, null in older traces. `exception` is what
    a tool raised that failed. Of an output that was cut the model saw `tokens` of `uncut_tokens`; else both are 0."""

    name: str
    arguments: JsonObject
    output: Any
    milliseconds: float
    error: str | None
    start: float | None
    exception: str
    tokens: int
    uncut_tokens: int


class SpanView(View, frozen=True, kw_only=True):
    """One run of a step; `start` is in milliseconds since the turn began. A model call has its `usage`."""

    name: str
    start: float
    milliseconds: float
    usage: UsageView | None

    @classmethod
    def of(cls, span: TraceSpan) -> Self:
        """The view of one run of a step."""
        return cls.derive(span, usage=UsageView.of(span) if span.name == "model" else None)


class TraceView(
    View,
    frozen=True,
    kw_only=True,
    rename={"id": "trace_id", "number": "turn", "speaker": "user", "manifest": "context"},
):
    """Everything about one turn; `error` is the code of what ended it without an answer, `error_message` the same in
    words, `reason` why the model failed where it did, `stopped` whether a user ended it. Of an answer of a fallback
    model, `error_message` and `reason` say why the first one did not answer.

    `speaker` is the user. `finish` says why the answer ended, `parameters` are those that the model got, and
    `dropped_reasoning` counts thoughts that it was not sent, since another provider made them, `dropped_items` the same
    of what tools of a provider did. `steps` are milliseconds by name, `spans` the single runs of each step, in order;
    older traces have none. `redacted` counts the private values that were taken out of its texts, by type. A brief
    listing leaves out `tools`, `spans`, `data` and `context`.
    """

    id: str
    session_id: str
    number: int
    began_at: datetime
    assistant: str
    persona: str | None
    speaker: str | None
    request: str
    answer: str
    model: str
    offline: bool
    degraded: tuple[str, ...]
    error: str | None
    error_message: str
    reason: FailureReason | None
    stopped: bool
    finish: FinishReason
    parameters: JsonObject
    dropped_reasoning: int
    dropped_items: int
    app: str
    app_task: str
    store_overridden: bool
    usage: UsageView
    steps: dict[str, float]
    redacted: dict[str, int]
    tools: list[ToolRunView] | UnsetType = UNSET
    spans: list[SpanView] | UnsetType = UNSET
    data: JsonObject | UnsetType = UNSET
    manifest: ContextView | UnsetType | None = UNSET

    @classmethod
    def of(cls, trace: Trace, texts: Sequence[PartText] | None = None) -> Self:
        """The view of a whole trace, if requested with the texts of its prompt."""
        context = None
        if trace.manifest is not None:
            shown = trace.manifest
            context = ContextView.of(shown) if texts is None else ContextView.with_texts(shown, texts)
        return cls.derive(
            trace,
            usage=UsageView.of(trace),
            tools=list(map(ToolRunView.of, trace.tools)),
            spans=list(map(SpanView.of, trace.spans)),
            manifest=context,
        )

    @classmethod
    def brief(cls, trace: Trace) -> Self:
        """The view of a trace in a list: what a row of a table shows."""
        left_out = dict.fromkeys(("tools", "spans", "data", "manifest"), UNSET)
        return cls.derive(trace, usage=UsageView.of(trace), **left_out)


class PersonaView(View, frozen=True, kw_only=True):
    """A character an assistant speaks as."""

    id: str
    names: dict[Language, str]


class MissingView(View, frozen=True, kw_only=True):
    """Why an assistant takes no turns: the command that installs its package, or else its file cannot be loaded.

    Of a file, `cause` (file, line, what is wrong) and `advice` are for operators, and null for others.
    """

    install: str | None
    cause: str | None
    advice: str | None


class AssistantView(View, frozen=True, kw_only=True):
    """An assistant, as a user chooses it. One with something `missing` answers 503 `extra_missing` or
    `assistant_missing`."""

    name: str
    default: bool
    titles: dict[Language, str]
    description: dict[Language, str]
    model: str
    personas: list[PersonaView]
    tools: list[str]
    missing: MissingView | None


def assistant_view(assistant: Assistant, model: str, default: bool, *, show_cause: bool) -> AssistantView:
    """An assistant with the model that answers for it; `show_cause` to those who may see why it is missing."""
    missing = None
    if assistant.missing is not None:
        install, cause, advice = assistant.missing.install, assistant.missing.cause, assistant.missing.advice
        shown = (cause or None, advice or None) if show_cause else (None, None)
        missing = MissingView(
            install=(with_folder(install) if show_cause else install) or None, cause=shown[0], advice=shown[1]
        )
    return AssistantView(
        name=assistant.name,
        default=default,
        titles=dict(assistant.titles),
        description=dict(assistant.description),
        model=model,
        personas=[PersonaView(id=persona.id, names=dict(persona.names)) for persona in assistant.personas.values()],
        tools=[tool.spec.name for tool in assistant.tools],
        missing=missing,
    )


class TurnStartedView(View, frozen=True, kw_only=True):
    """The `start` event; `trace_id` is null if nothing of the turn is stored."""

    session_id: str
    trace_id: str | None
    turn: int
    created: bool


class TextDeltaView(View, frozen=True, kw_only=True):
    """The `delta` event: the next characters of the answer."""

    text: str


class ReasoningDeltaView(View, frozen=True, kw_only=True):
    """The `reasoning` event: the next characters of what the model thinks, empty for a thought that is not shown."""

    text: str


class ToolEventView(View, frozen=True, kw_only=True):
    """The `tool` event, at the start and at the end of each call."""

    name: str
    state: Literal["started", "done", "failed"]
    milliseconds: float | UnsetType = UNSET
    error: str | UnsetType | None = UNSET


class StepEventView(View, frozen=True, kw_only=True):
    """The `step` event, at the beginning and at the end of each step of an assistant that works in steps."""

    id: str
    state: Literal["started", "done", "failed"]
    titles: dict[Language, str]
    milliseconds: float | UnsetType | None = UNSET
    error: str | UnsetType | None = UNSET


class CallView(View, frozen=True, kw_only=True):
    """The `call` event: a tool of the caller that the model calls."""

    id: str
    name: str
    arguments: JsonObject


def event_view(event: ChatEvent) -> tuple[str, View]:
    """An event's name and its data."""
    match event:
        case TurnStarted():
            return "start", TurnStartedView.derive(event, trace_id=event.trace_id or None)
        case TextDelta():
            return "delta", TextDeltaView(text=event.text)
        case ReasoningDelta():
            return "reasoning", ReasoningDeltaView(text=event.text)
        case ProviderItem(part=part, done=done):
            titles = dict.fromkeys(Language, part["type"].replace("_", " "))
            return "step", StepEventView(id=part["id"], state="done" if done else "started", titles=titles)
        case StepChanged(state="started"):
            return "step", StepEventView(id=event.id, state=event.state, titles=dict(event.titles))
        case StepChanged():
            return "step", StepEventView.derive(event, titles=dict(event.titles))
        case ToolStarted(name=name):
            return "tool", ToolEventView(name=name, state="started")
        case ToolFinished(error=error):
            return "tool", ToolEventView.derive(event, state="failed" if error else "done")
        case CallRequested(call=call):
            return "call", CallView.of(call)
        case ReplyFinished(reply=reply):
            return "done", ReplyView.of(reply)
