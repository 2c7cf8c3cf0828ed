"""Values from the server's JSON, and JSON from values.

What the JSON does not carry has its default: of a session `incarnation` and `retention`, of a turn
`expired`, `journaled`, `last_active_at` and `stale_before`. A turn's `id` is the server's token for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from tenuto.errors import Invalid
from tenuto.model import AppendResult, Changes, Draft, FinishTurn, Message, OpenTurn, Scope, Session, TurnState, Usage
from tenuto.model.session import Retention, cost_nanos, usd
from tenuto.model.values import JsonObject, Value
from tenuto.sessions.media_parts import with_data
from tenuto.sessions.transfer import FORMAT, FORMAT_VERSION, ExportedSession
from tenuto.sessions.views import EXTRA_FIELDS, OWN_FIELDS, SessionView

_Value = TypeVar("_Value", bound=Value)
_MESSAGE_FIELDS: Final = frozenset(Message.__struct_fields__) - {"extra"}
_SCOPE_FIELDS: Final = ("user", "channel", "chat", "thread")


def value_from(body: JsonObject, kind: type[_Value], **derived: Any) -> _Value:
    """A value whose fields have the names of the JSON; null is a field's default."""
    given = {name: item for name, item in body.items() if item is not None}
    return msgspec.convert({**given, **derived}, kind)


def session_from(body: JsonObject) -> Session:
    """A session's head."""
    view = msgspec.convert(body, SessionView)
    same = {name: getattr(view, name) for name in Session.__struct_fields__ if hasattr(view, name)}
    scope = Scope(tenant=view.tenant, site=view.site, **{name: getattr(view, name) for name in _SCOPE_FIELDS})
    cost = cost_nanos(Decimal(view.cost_usd))
    return Session(**same, scope=scope, incarnation="", retention=Retention(), cost_nanos=cost)


def message_from(body: JsonObject) -> Message:
    """A stored message; fields that are not ours are its sender's."""
    extra = {name: item for name, item in body.items() if name not in OWN_FIELDS} | body.get(EXTRA_FIELDS, {})
    return value_from({name: item for name, item in body.items() if name in _MESSAGE_FIELDS}, Message, extra=extra)


def messages_from(bodies: Iterable[JsonObject]) -> tuple[Message, ...]:
    """Stored messages."""
    return tuple(map(message_from, bodies))


def append_result_from(body: JsonObject) -> AppendResult:
    """What became of a write."""
    messages = messages_from(body["messages"])
    return AppendResult(session=session_from(body["session"]), messages=messages, duplicate=body["duplicate"])


def turn_from(body: JsonObject, scope: Scope) -> OpenTurn:
    """A turn that has begun."""
    return OpenTurn(
        id=body["turn_id"],
        number=body["number"],
        scope=scope,
        session=session_from(body["session"]),
        state=TurnState(body["state"]),
        lease_until=instant_from(body["lease_until"]),
        created=body["created"],
        summary=body["summary"],
        user_messages=messages_from(body["user_messages"]),
        window=messages_from(body["window"]),
        cut=tuple(body["cut"]),
        reply=messages_from(body["reply"]),
    )


def instant_from(text: str | None) -> datetime | None:
    """A time."""
    return None if text is None else msgspec.convert(text, datetime)


def draft_to_json(draft: Draft) -> JsonObject:
    """A message as clients send it, with the contents that it brings in its parts."""
    if draft.contents:
        contents = {content.id: content for content in draft.contents}
        draft = replace(draft, parts=with_data(draft.parts, contents))
    own = {name: getattr(draft, name) for name in Draft.__struct_fields__ if name not in ("extra", "contents")}
    clashing = {name: item for name, item in draft.extra.items() if name in OWN_FIELDS}
    unclashing = {name: item for name, item in draft.extra.items() if name not in OWN_FIELDS}
    nondefault = {name: item for name, item in own.items() if item not in (None, 0, {})}
    return {**unclashing, **nondefault, **({EXTRA_FIELDS: clashing} if clashing else {})}


def changes_to_json(changes: Changes) -> JsonObject:
    """What a patch names, without its `if_version`."""
    replacements = {name: getattr(changes, name) for name in ("title", "status", "window_start")}
    merges = {name: getattr(changes, name) for name in ("context", "attributes", "metadata")}
    return {
        **{name: item for name, item in replacements.items() if item is not UNSET},
        **{name: item for name, item in merges.items() if item},
    }


def usage_to_json(usage: Usage) -> JsonObject:
    """What something cost."""
    return {"tokens": usage.tokens, "cost_usd": usd(usage.cost_nanos)}


def finish_to_json(request: FinishTurn) -> JsonObject:
    """The end of a turn."""
    refuse_unsent(request, FinishTurn(), "trace", "producer")
    body: JsonObject = {"messages": list(map(draft_to_json, request.reply)), "usage": usage_to_json(request.usage)}
    if request.changes is not None:
        body["changes"] = changes_to_json(request.changes)
    return body


def export_to_json(saved: ExportedSession) -> JsonObject:
    """An export, as the import reads it."""
    session: JsonObject = {name: getattr(saved, name) for name in (*_SCOPE_FIELDS, "status")}
    session |= {name: getattr(saved.new, name) for name in ("title", "context", "attributes", "metadata")}
    session |= usage_to_json(saved.usage)
    messages = list(map(draft_to_json, saved.messages))
    return {"format": FORMAT, "version": FORMAT_VERSION, "session": session, "messages": messages}


def refuse_unsent(value: Value, default: Value, *names: str) -> None:
    """Refuse what no request carries: it would be lost without a word.

    Raises:
        Invalid: one of these fields differs from its default.
    """
    unsent: Sequence[str] = [name for name in names if getattr(value, name) != getattr(default, name)]
    if unsent:
        raise Invalid(f"{', '.join(unsent)} of a {type(value).__name__} cannot be sent to a server")
