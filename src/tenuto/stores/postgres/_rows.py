"""What comes out of a statement: rows become sessions, messages and errors."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Final

import msgspec

from tenuto.errors import Invalid, SessionCorrupt, SessionExpired, SessionForeign, SessionNotFound, StateCorrupt
from tenuto.model import (
    Draft,
    ForkPoint,
    Message,
    RemovedSession,
    Retention,
    Scope,
    Session,
    StateEntry,
    StateLocation,
    Status,
    Touch,
)
from tenuto.model.turn import Trace
from tenuto.model.values import JsonObject
from tenuto.stores.codec import Undecodable, decode_object, decode_trace, from_micros, number_drafts
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
            keeping=_retention(head["idle"], head["touch"], head["max_messages"], head["max_turns"]),
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
    """Traces that can be read: a damaged one is as good as none, and no reason to lose its session."""
    read = []
    for body in bodies:
        try:
            read.append(decode_trace(body))
        except Undecodable as exc:
            log.warning("left out what could not be read: %s", exc)
    return tuple(read)


def number_appended(drafts: Sequence[Draft], last_seq: int, turns: Sequence[int]) -> tuple[Message, ...]:
    """Drafts as the messages they became, at the end of the log."""
    return number_drafts(drafts, last_seq - len(drafts) + 1, turns)


def missing(session_id: str, code: str, scope: str | None) -> SessionNotFound | None:
    """The error for a session that was not reached, with its scope; None when the code tells of something else."""
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
    """The scope of the head that an answer holds, if it holds one."""
    head = row["head"]
    return None if head is None else head["scope"]


def to_removed_session(head: Row) -> RemovedSession:
    """A head that upkeep removed.

    Raises:
        Undecodable: nobody can tell whose it was.
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
    """Where a value of the state stands; `None` where nobody can tell whose it is."""
    return read_location(row["drawer"], lambda: (_decode_scope(row["scope"]), row["namespace"], row["key"]))


def _owner_name(scope: str | None) -> str:
    try:
        return "" if scope is None else ":".join(_decode_scope(scope).owner)
    except (msgspec.DecodeError, Invalid):
        # The owner of a damaged record is not known; it is somebody else's all the same.
        return ""


# Scopes and ways of keeping repeat from session to session; both are frozen, so they can be shared.
@lru_cache(maxsize=1024)
def _decode_scope(text: str) -> Scope:
    return _scope.decode(text)


@lru_cache(maxsize=256)
def _retention(idle: int | None, touch: str, max_messages: int | None, max_turns: int | None) -> Retention:
    return Retention(
        idle=None if idle is None else timedelta(microseconds=idle),
        touch=Touch(touch),
        max_messages=max_messages,
        max_turns=max_turns,
    )


def _decode_object(text: str) -> JsonObject:
    return {} if text == "{}" else decode_object(text.encode())
