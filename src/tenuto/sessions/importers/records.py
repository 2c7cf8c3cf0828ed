"""What a reader finds in a file, and how texts, titles and times of other stores become ours."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, TypeAlias

from tenuto.model import Draft, NewSession, Role, Status
from tenuto.model.session import MAX_TITLE_CHARACTERS
from tenuto.model.values import Json, JsonObject, Value, make_storable
from tenuto.sessions.ids import derived_id
from tenuto.sessions.transfer import ExportedSession

_MARK: Final = "imported_from"
_DEEPEST: Final = 200


class FoundSession(Value, frozen=True, kw_only=True):
    """A conversation; its `id` is that of the source, so that a second import finds the first."""

    id: str
    saved: ExportedSession


class FoundMemory(Value, frozen=True, kw_only=True):
    """A sentence about a user; `id` is derived from the source."""

    id: str
    text: str
    said_at: datetime
    user: str | None = None


class Skipped(Value, frozen=True, kw_only=True):
    """Records of this kind (`session`, `message`, `memory`) that are left out, and why."""

    kind: str
    reason: str
    count: int = 1


Record: TypeAlias = FoundSession | FoundMemory | Skipped


def found_session(
    source: str,
    session_id: str,
    messages: Sequence[Draft],
    *,
    title: Json = None,
    user: Json = None,
    metadata: Json = None,
    status: Status = Status.ACTIVE,
) -> FoundSession:
    """A conversation with the name of its source in its metadata."""
    about = {**(storable(metadata) if isinstance(metadata, dict) else {}), _MARK: source}
    saved = ExportedSession(
        new=NewSession(title=_title(title), metadata=about),
        messages=tuple(messages),
        status=status,
        user=user if isinstance(user, str) and user else None,
    )
    return FoundSession(id=make_storable(session_id), saved=saved)


def found_memory(source: str, memory_id: str, text: str, *, said_at: datetime, user: Json = None) -> FoundMemory:
    """A memory whose id is the same each time."""
    return FoundMemory(
        id=derived_id("i-", source, memory_id),
        text=make_storable(text),
        said_at=said_at,
        user=user if isinstance(user, str) and user else None,
    )


def message(
    role: Role,
    parts: Sequence[JsonObject],
    *,
    message_id: str,
    sent_at: datetime,
    metadata: JsonObject | None = None,
    extra: JsonObject | None = None,
) -> Draft:
    """A message of another store, without what ours refuse in a text."""
    return Draft(
        id=make_storable(message_id),
        role=role,
        sent_at=sent_at,
        parts=tuple(map(storable, parts)),
        metadata=storable(metadata or {}),
        extra=storable(extra or {}),
    )


def instant(value: Json, default: datetime) -> datetime:
    """A time as other stores write it: seconds since 1970, or ISO 8601, in UTC where no zone is named."""
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value, UTC)
        if isinstance(value, str) and value:
            read = datetime.fromisoformat(value)
            return read.astimezone(UTC) if read.tzinfo is not None else read.replace(tzinfo=UTC)
    except (ValueError, OverflowError, OSError):
        pass
    return default


def storable(value: Json, depth: int = _DEEPEST) -> Json:
    """JSON with texts that every store accepts."""
    if isinstance(value, str):
        return make_storable(value)
    if isinstance(value, dict) and depth:
        return {make_storable(str(name)): storable(item, depth - 1) for name, item in value.items()}
    if isinstance(value, list | tuple) and depth:
        return [storable(item, depth - 1) for item in value]
    return value


def _title(text: Json) -> str:
    line = " ".join(make_storable(text).split()) if isinstance(text, str) else ""
    return line[:MAX_TITLE_CHARACTERS]
