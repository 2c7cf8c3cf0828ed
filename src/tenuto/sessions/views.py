"""How sessions and messages look outside, as JSON: the same shape over HTTP, in the CLI and in exports.

A message's fields that we do not know stand beside ours, as the sender wrote them.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Final

import msgspec

from tenuto.errors import Invalid, InvalidJson
from tenuto.model import Draft, Message, Role, Session, Stats, text_part
from tenuto.model.message import STATE, checked_part
from tenuto.model.session import NANOS_PER_USD
from tenuto.model.values import Json, JsonObject

_OURS: Final = frozenset(
    {"id", "role", "text", "content", "parts", "speaker", "persona", "parent", "tokens", "sent_at", "metadata"}
    | {"seq", "turn"}
)


def session_json(session: Session) -> JsonObject:
    """A session's head."""
    scope = session.scope
    return {
        "id": session.id,
        "tenant": scope.tenant,
        "site": scope.site,
        "user": scope.user,
        "title": session.title,
        "status": session.status,
        "context": session.context,
        "attributes": session.attributes,
        "metadata": session.metadata,
        "created_at": instant(session.created_at),
        "updated_at": instant(session.updated_at),
        "expires_at": instant(session.expires_at) if session.expires_at else None,
        "version": session.version,
        "turns": session.turns,
        "message_count": session.messages,
        "last_seq": session.last_seq,
        "tokens": session.tokens,
        "cost_usd": f"{session.cost_usd:f}",
        "forked_from": msgspec.to_builtins(session.forked_from) if session.forked_from else None,
    }


def stats_json(stats: Stats) -> JsonObject:
    """How much somebody has."""
    return {
        "sessions": stats.sessions,
        "messages": stats.messages,
        "tokens": stats.tokens,
        "cost_usd": f"{Decimal(stats.cost_nanos) / NANOS_PER_USD:f}",
    }


def message_json(message: Message) -> JsonObject:
    """A stored message as it is shown: without what an assistant's tools keep with it for themselves."""
    saved = saved_json(message)
    if STATE in message.metadata:
        saved["metadata"] = {name: value for name, value in message.metadata.items() if name != STATE}
    return saved


def saved_json(message: Message) -> JsonObject:
    """All of a stored message, with the sender's own fields first, so that none of them hides ours."""
    return {
        **message.extra,
        "id": message.id,
        "seq": message.seq,
        "turn": message.turn,
        "role": message.role,
        "text": message.text,
        "parts": list(message.parts),
        "speaker": message.speaker,
        "persona": message.persona,
        "parent": message.parent,
        "tokens": message.tokens,
        "sent_at": instant(message.sent_at),
        "metadata": message.metadata,
    }


def draft_from_json(body: Json, *, new_id: str, now: datetime) -> Draft:
    """A message as somebody sends it: a role, and `text`, `content` (text or parts) or `parts`.

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


def instant(moment: datetime) -> str:
    """ISO 8601 in UTC, ending in Z."""
    return str(msgspec.to_builtins(moment)).replace("+00:00", "Z")


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
        return tuple(map(checked_part, value))
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
