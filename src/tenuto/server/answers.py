"""What clients get, as types: they describe the answers in the OpenAPI; encoding starts from the values themselves."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from tenuto.model import Status


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
    """A stored message; fields that only its sender knows stand beside ours."""

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


class Health(msgspec.Struct, kw_only=True):
    """The process lives."""

    status: str
    version: str
    store: str
    auth: str


class Ready(msgspec.Struct, kw_only=True):
    """The store answers."""

    status: str


class Problem(msgspec.Struct, kw_only=True):
    """What went wrong: `code` is stable, `detail` is for people; some problems carry facts, such as `retry_after`."""

    type: str
    title: str
    status: int
    code: str
    detail: str
