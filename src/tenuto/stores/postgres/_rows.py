"""Rows of statements as sessions, messages, turns and errors."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Final

import msgspec

from tenuto.errors import (
    IdempotencyKeyReused,
    Invalid,
    SequenceGap,
    SessionBusy,
    SessionCorrupt,
    SessionExpired,
    SessionForeign,
    SessionNotFound,
    StateCorrupt,
    TenutoError,
)
from tenuto.model import (
    AppendResult,
    BeginTurn,
    Draft,
    ForkPoint,
    Message,
    MessagePage,
    OpenTurn,
    Producer,
    RemovedSession,
    Scope,
    Session,
    StateEntry,
    StateLocation,
    Status,
    TurnState,
)
from tenuto.model.turn import Trace
from tenuto.model.values import JsonObject
from tenuto.stores.codec import Undecodable, decode_object, decode_retention, decode_trace, from_micros, number_drafts
from tenuto.stores.paging import read_location
from tenuto.stores.postgres._client import Row

log = logging.getLogger(__name__)

_scope: Final = msgspec.json.Decoder(Scope)
_messages: Final = msgspec.json.Decoder(tuple[Message, ...])


def session_of(head: Row) -> Session:
    """A head as a value.

    Raises:
        Undecodable: it is damaged.
    """
    expires_at = head["expires_at"]
    forked_from = head["forked_from"]
    try:
        return Session(
            id=head["id"],
            scope=_decode_scope(head["scope"]),
            incarnation=head["incarnation"],
            created_at=from_micros(head["created_at"]),
            updated_at=from_micros(head["updated_at"]),
            expires_at=None if expires_at is None else from_micros(expires_at),
            retention=decode_retention(head["idle"], head["touch"], head["max_messages"], head["max_turns"]),
            version=head["version"],
            title=head["title"],
            status=Status(head["status"]),
            context=_decode_object(head["context"]),
            attributes=_decode_object(head["attributes"]),
            metadata=_decode_object(head["metadata"]),
            turns=head["turns"],
            messages=head["messages"],
            last_seq=head["last_seq"],
            window_start=head["window_start"],
            tokens=head["tokens"],
            cost_nanos=head["cost_nanos"],
            forked_from=None if forked_from is None else ForkPoint(session_id=forked_from, seq=head["forked_seq"]),
        )
    except (msgspec.DecodeError, ValueError, Invalid) as exc:
        raise Undecodable("a head") from exc


def to_messages(joined: bytes | None) -> tuple[Message, ...]:
    """Messages from their bodies joined by commas.

    Raises:
        Undecodable: a body is damaged.
    """
    if joined is None:
        return ()
    try:
        return _messages.decode(b"[%b]" % joined)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise Undecodable("a message") from exc


def to_traces(bodies: Sequence[bytes]) -> tuple[Trace, ...]:
    """The readable traces; a damaged one does not put its session into quarantine."""
    read = []
    for body in bodies:
        try:
            read.append(decode_trace(body))
        except Undecodable as exc:
            log.warning("skipped a trace that cannot be read: %s", exc)
    return tuple(read)


def number_appended(drafts: Sequence[Draft], last_seq: int, turns: Sequence[int]) -> tuple[Message, ...]:
    """Drafts as messages at the end of the log."""
    return number_drafts(drafts, last_seq - len(drafts) + 1, turns)


def missing(session_id: str, code: str, scope: str | None) -> SessionNotFound | None:
    """The error for a session that was not found; `None` for other codes."""
    if code == "absent":
        return SessionNotFound(session_id)
    if code == "expired":
        return SessionExpired(session_id)
    if code in ("foreign", "taken_foreign"):
        return SessionForeign(session_id, _owner_name(scope))
    if code == "corrupt":
        return SessionCorrupt(session_id)
    return None


def head_scope(row: Row) -> str | None:
    """The scope of the head in a row, if there is one."""
    head = row["head"]
    return None if head is None else head["scope"]


def refusal(row: Row, session_id: str, producer: Producer | None) -> TenutoError | None:
    """The error of a row, if it is one."""
    match row["code"]:
        case "reused":
            return IdempotencyKeyReused()
        case "busy":
            head, rest = row["head"], timedelta(microseconds=row["detail"])
            return SessionBusy(session_id, rest, head["lease"], head["incarnation"])
        case "gap":
            assert producer is not None
            return SequenceGap(producer.id, row["detail"])
        case code:
            return missing(session_id, code, head_scope(row))


def to_open_turn(scope: Scope, opening: BeginTurn, row: Row) -> OpenTurn:
    """The turn of a row.

    Raises:
        Undecodable: the head or a message is damaged.
    """
    session = session_of(row["head"])
    if row["code"] == "finished":
        return OpenTurn(
            id=row["turn"],
            number=row["number"],
            scope=scope,
            session=session,
            state=TurnState.FINISHED,
            user_messages=to_messages(row["words"]),
            window=(),
            reply=to_messages(row["reply"]),
            last_active_at=session.updated_at,
        )
    last_active = row["head"]["last_active"]
    new = opening.user_messages if row["added"] else ()
    words = number_appended(new, session.last_seq, [row["number"]] * len(new))
    first = max(session.window_start, row["head"]["first_seq"])
    window = (*to_messages(row["past"])[::-1], *(word for word in words if word.seq >= first))
    return OpenTurn(
        id=opening.turn_id,
        number=row["number"],
        scope=scope,
        session=session,
        state=TurnState(row["code"]),
        user_messages=words or to_messages(row["words"]),
        window=window[-opening.window :] if opening.window else (),
        lease=opening.lease,
        lease_until=from_micros(row["head"]["lease_until"]),
        created=row["created"],
        expired=row["expired"],
        last_active_at=None if last_active is None else from_micros(last_active),
    )


def to_append_result(row: Row, drafts: tuple[Draft, ...], offsets: Sequence[int]) -> AppendResult:
    """The result of an append or a reply whose messages belong to turns at these offsets.

    Raises:
        Undecodable: the head or a message is damaged.
    """
    session = session_of(row["head"])
    if row["code"] == "duplicate":
        return AppendResult(session=session, messages=to_messages(row["words"]), duplicate=True)
    turns = [row["number"] + offset for offset in offsets]
    return AppendResult(
        session=session,
        messages=number_appended(drafts, session.last_seq, turns) if row["added"] else (),
        created=bool(row["created"]),
        expired=bool(row["expired"]),
    )


def page_of(row: Row, size: int, *, forwards: bool) -> MessagePage:
    """A page, from a row with one message beyond the limit if there are more.

    Raises:
        Undecodable: the head or a message is damaged.
    """
    lines = to_messages(row["lines"])
    more = len(lines) > size
    if forwards:
        messages, before, after = lines[:size], row["more_before"], more
    else:
        messages, before, after = lines[:size][::-1], more, row["more_after"]
    return MessagePage(session=session_of(row["head"]), messages=messages, more_before=before, more_after=after)


def to_removed_session(head: Row) -> RemovedSession:
    """A head that upkeep removed.

    Raises:
        Undecodable: its scope is damaged.
    """
    try:
        return RemovedSession(scope=_decode_scope(head["scope"]), session_id=head["id"])
    except (msgspec.DecodeError, Invalid) as exc:
        raise Undecodable("a scope") from exc


def entry_of(row: Row) -> StateEntry:
    """A value of the state."""
    try:
        return StateEntry(key=row["key"], value=msgspec.json.decode(row["value"]), version=row["version"])
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise StateCorrupt("state value", "cannot be decoded") from None


def to_state_location(row: Row) -> StateLocation | None:
    """The location of a value of the state; `None` if it cannot be decoded."""
    return read_location(row["drawer"], lambda: (_decode_scope(row["scope"]), row["namespace"], row["key"]))


def _owner_name(scope: str | None) -> str:
    try:
        return "" if scope is None else ":".join(_decode_scope(scope).owner)
    except (msgspec.DecodeError, Invalid):
        return ""  # The owner of a damaged record is unknown, but not this scope.


# Scopes repeat from session to session; they are frozen, so they can be shared.
@lru_cache(maxsize=1024)
def _decode_scope(text: str) -> Scope:
    return _scope.decode(text)


def _decode_object(text: str) -> JsonObject:
    return {} if text == "{}" else decode_object(text.encode())
