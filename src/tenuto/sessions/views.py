"""Sessions and messages as JSON: the same over HTTP, in the CLI and in exports, and messages as clients send them.

A message's fields that we do not know stand beside ours, as the sender wrote them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, Self, cast

import msgspec
from msgspec.structs import asdict, replace

from tenuto.errors import Invalid, InvalidJson
from tenuto.model import Draft, Message, MessagePage, Role, Session, SessionStats, Status, text_part
from tenuto.model.message import STATE, check_part
from tenuto.model.session import ForkPoint, SessionPage, usd
from tenuto.model.values import Json, JsonObject, View

_OURS: Final = frozenset(
    {"id", "role", "text", "content", "parts", "speaker", "persona", "parent", "tokens", "sent_at", "metadata"}
    | {"seq", "turn"}
)


class SessionView(View, frozen=True, kw_only=True, rename={"messages": "message_count"}):
    """A session's head."""

    id: str
    tenant: str
    site: str
    user: str | None
    title: str
    status: Status
    context: JsonObject
    attributes: JsonObject
    metadata: JsonObject
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None
    version: int
    turns: int
    messages: int
    last_seq: int
    tokens: int
    cost_usd: str
    forked_from: ForkPoint | None

    @classmethod
    def of(cls, session: Session) -> Self:
        """The view of a session."""
        scope = session.scope
        # Spelled out, as in `MessageView`: a page has hundreds of them, and `derive` takes four times as long.
        return cls(
            id=session.id,
            tenant=scope.tenant,
            site=scope.site,
            user=scope.user,
            title=session.title,
            status=session.status,
            context=session.context,
            attributes=session.attributes,
            metadata=session.metadata,
            created_at=session.created_at,
            updated_at=session.updated_at,
            expires_at=session.expires_at,
            version=session.version,
            turns=session.turns,
            messages=session.messages,
            last_seq=session.last_seq,
            tokens=session.tokens,
            cost_usd=usd(session.cost_nanos),
            forked_from=session.forked_from,
        )


class SessionList(View, frozen=True, kw_only=True):
    """Part of a listing; `cursor` continues it, null ends it."""

    sessions: list[SessionView]
    cursor: str | None

    @classmethod
    def of(cls, page: SessionPage) -> Self:
        """The view of a page of sessions."""
        return cls(sessions=list(map(SessionView.of, page.sessions)), cursor=page.cursor)


class MessageView(View, frozen=True, kw_only=True):
    """A stored message; fields that only its sender knows stand beside ours.

    `redacted` in its metadata counts the private values that marks stand for, by type.
    """

    id: str
    seq: int
    turn: int
    role: Role
    text: str
    parts: tuple[JsonObject, ...]
    speaker: str | None
    persona: str | None
    parent: str | None
    tokens: int
    sent_at: datetime
    metadata: JsonObject

    @classmethod
    def of(cls, message: Message) -> Self:
        """The view of a stored message, without the state that an assistant's tools store in it."""
        if STATE in message.metadata:
            metadata = {name: value for name, value in message.metadata.items() if name != STATE}
            message = replace(message, metadata=metadata)
        return cls.complete(message)

    @classmethod
    def complete(cls, message: Message) -> Self:
        """All of a stored message, as exports have it."""
        view = cls(
            id=message.id,
            seq=message.seq,
            turn=message.turn,
            role=message.role,
            text=message.text,
            parts=message.parts,
            speaker=message.speaker,
            persona=message.persona,
            parent=message.parent,
            tokens=message.tokens,
            sent_at=message.sent_at,
            metadata=message.metadata,
        )
        # A struct has no room for fields of other names. msgspec encodes a dict like the struct, and our fields come
        # last, so that none of the sender's hides one of ours.
        return cast("Self", {**message.extra, **asdict(view)}) if message.extra else view


class MessageList(View, frozen=True, kw_only=True):
    """Messages, oldest first, and whether there are more on either side."""

    messages: list[MessageView]
    more_before: bool
    more_after: bool

    @classmethod
    def of(cls, page: MessagePage) -> Self:
        """The view of a page of messages."""
        return cls.derive(page, messages=list(map(MessageView.of, page.messages)))


class StatsView(View, frozen=True, kw_only=True):
    """How much the caller has."""

    sessions: int
    messages: int
    tokens: int
    cost_usd: str

    @classmethod
    def of(cls, stats: SessionStats) -> Self:
        """The view of what a tenant's site holds."""
        return cls.derive(stats, cost_usd=usd(stats.cost_nanos))


def draft_from_json(body: Json, *, new_id: str, now: datetime) -> Draft:
    """A message as a client sends it: a role, and `text`, `content` (text or parts) or `parts`.

    Raises:
        Invalid: a field is missing or of the wrong type; the error names it.
    """
    if not isinstance(body, dict):
        raise InvalidJson("a message is not a JSON object")
    return Draft(
        id=_text(body, "id") or new_id,
        role=_role(body),
        sent_at=_instant(body, now),
        parts=_parts(body),
        speaker=_text(body, "speaker"),
        persona=_text(body, "persona"),
        parent=_text(body, "parent"),
        tokens=_count(body, "tokens"),
        metadata=_object(body, "metadata"),
        extra={name: value for name, value in body.items() if name not in _OURS},
    )


def _role(body: JsonObject) -> Role:
    try:
        return Role(body.get("role", ""))
    except ValueError:
        raise Invalid(f"a message's role is not one of {', '.join(Role)}") from None


def _instant(body: JsonObject, now: datetime) -> datetime:
    if body.get("sent_at") is None:
        return now
    try:
        moment: datetime = msgspec.convert(body["sent_at"], datetime)
    except msgspec.ValidationError:
        raise Invalid("a message's sent_at is not an ISO 8601 instant") from None
    if moment.tzinfo is None:
        raise Invalid("a message's sent_at has no time zone")
    return moment


def _parts(body: JsonObject) -> tuple[JsonObject, ...]:
    # `parts` says it all, then `content`; `text` beside them is a reading copy, as our own answers carry it.
    readings = [_read(name, body[name]) for name in ("parts", "content", "text") if body.get(name) is not None]
    if not readings:
        raise Invalid("a message has neither text nor content nor parts")
    return readings[0]


def _read(name: str, value: Json) -> tuple[JsonObject, ...]:
    if isinstance(value, str) and name != "parts":
        return (text_part(value),)
    if isinstance(value, list) and name != "text":
        return tuple(map(check_part, value))
    raise Invalid(f"a message's {name} is of the wrong type")


def _text(body: JsonObject, name: str) -> str | None:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise Invalid(f"a message's {name} is not a string")
    return value


def _count(body: JsonObject, name: str) -> int:
    value = body.get(name, 0)
    if type(value) is not int or not 0 <= value < 2**53:
        raise Invalid(f"a message's {name} is not a whole number from 0 on")
    return value


def _object(body: JsonObject, name: str) -> JsonObject:
    value = body.get(name) or {}
    if not isinstance(value, dict):
        raise Invalid(f"a message's {name} is not an object")
    return value
