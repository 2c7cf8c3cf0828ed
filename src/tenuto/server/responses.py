"""What clients get, as types: they describe the answers in the OpenAPI; encoding starts from the values themselves."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from tenuto.model import Status
from tenuto.model.task import TaskStatus


class ForkedFrom(msgspec.Struct, kw_only=True):
    """Where a session branched off."""

    session_id: str
    seq: int


class SessionView(msgspec.Struct, kw_only=True, rename={"forked": "forked_from"}):
    """A session's head."""

    id: str
    tenant: str
    site: str
    user: str | None
    title: str
    status: Status
    context: dict[str, Any]
    attributes: dict[str, Any]
    metadata: dict[str, Any]
    created_at: str
    updated_at: str
    expires_at: str | None
    version: int
    turns: int
    message_count: int
    last_seq: int
    tokens: int
    cost_usd: str
    forked: ForkedFrom | None


class MessageView(msgspec.Struct, kw_only=True):
    """A stored message; fields that only its sender knows stand beside ours.

    `redacted` in its metadata counts the private values that marks stand for, by type.
    """

    id: str
    seq: int
    turn: int
    role: Literal["user", "assistant", "system", "tool", "item"]
    text: str
    parts: list[dict[str, Any]]
    speaker: str | None
    persona: str | None
    parent: str | None
    tokens: int
    sent_at: str
    metadata: dict[str, Any]


class SessionList(msgspec.Struct, kw_only=True):
    """Part of a listing; `cursor` continues it, null ends it."""

    sessions: list[SessionView]
    cursor: str | None


class MessageList(msgspec.Struct, kw_only=True):
    """Messages, oldest first, and whether there are more on either side."""

    messages: list[MessageView]
    more_before: bool
    more_after: bool


class AppendedView(msgspec.Struct, kw_only=True):
    """What became of a write; a `duplicate` stored nothing."""

    session: SessionView
    messages: list[MessageView]
    duplicate: bool


class TurnView(msgspec.Struct, kw_only=True):
    """A turn that has begun. In state `finished` this key was answered before, and `reply` is the answer."""

    turn_id: str
    number: int
    state: Literal["opened", "resumed", "finished"]
    created: bool
    lease_until: str | None
    session: SessionView
    words: list[MessageView]
    window: list[MessageView]
    reply: list[MessageView]


class RenewedView(msgspec.Struct, kw_only=True):
    """A lease that holds on."""

    turn_id: str
    lease_until: str | None


class AttributesView(msgspec.Struct, kw_only=True):
    """All attributes of a session."""

    attributes: dict[str, Any]


class AttributeView(msgspec.Struct, kw_only=True):
    """One attribute; null when there is none of this name."""

    name: str
    value: Any


class StatsView(msgspec.Struct, kw_only=True):
    """How much the caller has."""

    sessions: int
    messages: int
    tokens: int
    cost_usd: str


class NpcMessage(msgspec.Struct, kw_only=True):
    """A line of a talk with a character."""

    role: str
    content: str
    timestamp: str


class NpcSession(msgspec.Struct, kw_only=True):
    """A talk with a character, in short."""

    session_id: str
    message_count: int
    recent_messages: list[NpcMessage]
    first_message_at: str | None
    last_message_at: str | None


class NpcCleared(msgspec.Struct, kw_only=True):
    """A talk that is forgotten."""

    success: bool
    session_id: str


class UsageView(msgspec.Struct, kw_only=True):
    """What a turn cost."""

    input_tokens: int
    output_tokens: int
    cost_usd: str


class EntryView(msgspec.Struct, kw_only=True):
    """One part of a prompt and what became of it; `first` and `last` are sequence numbers of messages."""

    kind: str
    fate: Literal["kept", "summarised", "cut", "dropped"]
    reason: str
    tokens: int
    whole: int
    id: str | None
    first: int | None
    last: int | None
    count: int


class ContextView(msgspec.Struct, kw_only=True):
    """What the model saw: `total` of `room` tokens, part by part."""

    total: int
    room: int
    budget: int
    reply: int
    encoding: str
    exact: bool
    layout: str
    entries: list[EntryView]


class ReplyView(msgspec.Struct, kw_only=True):
    """An answer and how it came to be. `degraded` names what it had to do without; `steps` are milliseconds.

    `trace_id` is null where nothing is kept of the turn.
    """

    session_id: str
    trace_id: str | None
    turn: int
    assistant: str
    answer: str
    model: str
    offline: bool
    degraded: list[str]
    title: str
    created: bool
    repeated: bool
    usage: UsageView
    data: dict[str, Any]
    context: ContextView | None
    steps: dict[str, float]


class ToolRunView(msgspec.Struct, kw_only=True):
    """One call of a tool."""

    name: str
    arguments: dict[str, Any]
    output: Any
    milliseconds: float
    error: str | None


class TraceView(msgspec.Struct, kw_only=True):
    """Everything about one turn; `error` is the code of what ended it without an answer.

    `redacted` counts the private values that were taken out of its texts, by type.
    """

    trace_id: str
    session_id: str
    turn: int
    began_at: str
    assistant: str
    persona: str | None
    request: str
    answer: str
    model: str
    offline: bool
    degraded: list[str]
    error: str | None
    usage: UsageView
    tools: list[ToolRunView]
    steps: dict[str, float]
    data: dict[str, Any]
    redacted: dict[str, int]
    context: ContextView | None


class TraceList(msgspec.Struct, kw_only=True):
    """Traces, newest first."""

    traces: list[TraceView]


class RevealedView(msgspec.Struct, kw_only=True):
    """Values by the marks that stand for them, and those marks that the session does not know."""

    values: dict[str, str]
    unknown: list[str]


class PrivacyView(msgspec.Struct, kw_only=True):
    """What becomes of private data here: a mode for each sink, what is looked for, and what stands behind it.

    `patterns` names the tenant's own; `receipt_key` checks receipts, and is null until the first was signed.
    """

    modes: dict[str, Literal["keep", "redact", "pseudonym", "block"]]
    types: list[str]
    patterns: list[str]
    unvaulted: list[str]
    vault: bool
    detector: bool
    degraded: bool
    encryption: bool
    receipt_key: str | None


class NoteView(msgspec.Struct, kw_only=True):
    """Who did what about private data; `about` holds facts, never a value."""

    id: str
    at: str
    act: Literal["revealed", "erased", "mended"]
    by: str
    about: dict[str, Any]


class AuditList(msgspec.Struct, kw_only=True):
    """Part of the audit, oldest first; `cursor` continues it, null ends it."""

    notes: list[NoteView]
    cursor: str | None


class ReceiptView(msgspec.Struct, kw_only=True):
    """What was removed of whom. `person` is a digest of tenant and user; the signature covers every other field.

    `compacted` tells what became of deleted bytes in the store's files: `done`, `later` (upkeep will clear them),
    `partly` (`remains` says what stays), or `nothing` where nothing went.
    """

    id: str
    tenant: str
    site: str
    person: str
    erased_at: str
    counts: dict[str, int]
    compacted: Literal["done", "later", "partly", "nothing"]
    remains: str
    public_key: str
    signature: str


class TaskView(msgspec.Struct, kw_only=True):
    """A task without its board."""

    id: str
    session_id: str | None
    type: str
    goal: str
    status: TaskStatus
    result: Any
    created_at: str
    updated_at: str
    completed_at: str | None
    expires_at: str
    version: int


class TaskList(msgspec.Struct, kw_only=True):
    """Part of a listing; `cursor` continues it, null ends it."""

    tasks: list[TaskView]
    cursor: str | None


class BoardEntryView(msgspec.Struct, kw_only=True):
    """What stands under one key of a board; `overwrote` is the last other agent that wrote there before."""

    key: str
    value: Any
    writer: str
    written_at: str
    version: int
    overwrote: str | None


class HeldView(msgspec.Struct, kw_only=True):
    """A key that an agent has for itself at present."""

    key: str
    holder: str
    until: str


class BoardAnswer(msgspec.Struct, kw_only=True):
    """A whole board, in order of its keys, and the locks that hold."""

    entries: list[BoardEntryView]
    locks: list[HeldView]


class LockView(msgspec.Struct, kw_only=True):
    """A lock that was taken; writes name its `token`, which is greater than that of any lock of the key before it."""

    key: str
    holder: str
    token: int
    until: str


class AgentNoteView(msgspec.Struct, kw_only=True):
    """What an agent noted for itself."""

    key: str
    value: Any
    written_at: str
    expires_at: str
    version: int


class AgentNoteList(msgspec.Struct, kw_only=True):
    """All notes of one agent on one task, in order of their keys."""

    notes: list[AgentNoteView]


class PersonaView(msgspec.Struct, kw_only=True):
    """A character an assistant speaks as."""

    id: str
    names: dict[str, str]


class AssistantView(msgspec.Struct, kw_only=True):
    """Somebody to talk to."""

    name: str
    default: bool
    titles: dict[str, str]
    about: dict[str, str]
    model: str
    personas: list[PersonaView]
    tools: list[str]


class AssistantList(msgspec.Struct, kw_only=True):
    """Who can be talked to."""

    assistants: list[AssistantView]


class NpcAnswer(msgspec.Struct, kw_only=True):
    """A character's answer. `degraded` names what it had to do without; `trace_id` is null where nothing is kept."""

    trace_id: str | None
    session_id: str
    policy_mode: str
    answer_text: str
    evidence: list[Any]
    offline: bool
    degraded: list[str]


class NpcSummary(msgspec.Struct, kw_only=True):
    """The talk a trace belongs to."""

    session_id: str
    message_count: int
    recent_messages: list[NpcMessage]


class NpcTraceView(msgspec.Struct, kw_only=True):
    """What a character was asked and looked up; the talk around it where it was asked for."""

    trace_id: str
    session_id: str
    request_input: dict[str, Any]
    tool_calls: list[ToolRunView]
    policy_mode: str
    answer_text: str
    session_summary: NpcSummary | None = None


class GoodsAnswer(msgspec.Struct, kw_only=True, rename="camel"):
    """The shop's answer; `queryTime` is in milliseconds, `traceId` null where nothing is kept.

    `degraded` names what it had to do without.
    """

    code: int
    message: str
    answer: str
    goods: list[dict[str, Any]]
    session_id: str
    query_time: int
    trace_id: str | None
    offline: bool
    degraded: list[str]


class Health(msgspec.Struct, kw_only=True):
    """The process lives."""

    status: str
    version: str
    store: str
    auth: str


class JournalCount(msgspec.Struct, kw_only=True):
    """Turns in the journal: those that wait for the store, and those that it can never take."""

    waiting: int
    aside: int


class Ready(msgspec.Struct, kw_only=True, omit_defaults=True):
    """`ready`: the store answers. `degraded`: it is away, and turns go on in the journal."""

    status: str
    store: str | None = None
    journal: JournalCount | None = None


class Problem(msgspec.Struct, kw_only=True):
    """What went wrong: `code` is stable, `detail` is for people; some problems carry facts, such as `retry_after`."""

    type: str
    title: str
    status: int
    code: str
    detail: str
