"""A session's rows as one record, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, TypeAlias

import msgspec

from tenuto.model.records import StoredHead, StoredLease, StoredMessage, StoredSession, StoredTrace, StoredWrite
from tenuto.model.scope import owner_key, site_key
from tenuto.stores.codec import to_micros
from tenuto.stores.postgres._client import Row
from tenuto.stores.postgres._rows import session_of

Placed: TypeAlias = Sequence[tuple[int, StoredSession]]
"""Records, each with the number of its row."""

_MICROSECOND: Final = timedelta(microseconds=1)
_COLUMNS: Final = (
    "ref", "version", "updated_at", "expires_at", "shelf", "due", "turns", "messages", "first_seq", "last_seq",
    "window_start", "tokens", "cost_nanos", "keyed", "last_active", "lease_until", "lease", "lease_key", "closed",
    "created_at", "idle", "max_messages", "max_turns", "forked_seq", "touch", "status", "key", "space", "owner",
    "incarnation", "id", "title", "folded", "scope", "context", "attributes", "metadata", "forked_from",
)  # fmt: skip
HEAD_COLUMNS: Final = ", ".join(_COLUMNS)
INSERT_HEAD: Final = (
    f"INSERT INTO sessions ({HEAD_COLUMNS}) OVERRIDING SYSTEM VALUE"  # noqa: S608
    f" VALUES ({', '.join(f'${number}' for number, _ in enumerate(_COLUMNS, 1))})"
)


def to_head(row: Row) -> StoredHead:
    """The head in a row. Raises `Undecodable`."""
    lease = None
    if row["lease"] is not None and row["lease_until"] is not None:
        lease = StoredLease(turn_id=row["lease"], until=row["lease_until"], key=row["lease_key"])
    return StoredHead(session=session_of(row), lease=lease, closed=row["closed"])


def to_session(head: StoredHead, parts: Mapping[str, Sequence[Row]]) -> StoredSession:
    """A session from its head and the rows of the other tables."""
    return StoredSession(
        head=head,
        writes=tuple(map(_to_write, parts["keyed"])),
        producers=tuple((row["producer"], row["seq"]) for row in parts["marks"]),
        messages=tuple(StoredMessage(row["seq"], row["turn"], row["body"]) for row in parts["messages"]),
        traces=tuple(StoredTrace(row["number"], row["body"]) for row in parts["traces"]),
    )


def _to_write(row: Row) -> StoredWrite:
    return StoredWrite(
        key=row["key"],
        fingerprint=row["fingerprint"],
        turn_id=row["turn"],
        number=row["number"],
        words=(row["words_first"], row["words_last"]),
        reply=(row["reply_first"], row["reply_last"]),
        finished=row["finished"],
    )


def head_row(ref: int, record: StoredSession) -> tuple[Any, ...]:
    """A row of `sessions`, in the order of its columns."""
    session, lease, retention = record.head.session, record.head.lease, record.head.session.retention
    updated = to_micros(session.updated_at)
    expires = None if session.expires_at is None else to_micros(session.expires_at)
    first = record.messages[0].seq if record.messages else session.last_seq + 1
    fork = session.forked_from
    return (
        ref, session.version, updated, expires, updated >> 26, None if expires is None else expires >> 28,
        session.turns, session.messages, first, session.last_seq, session.window_start, session.tokens,
        session.cost_nanos, len(record.writes), updated,
        *((None, None, None) if lease is None else (lease.until, lease.turn_id, lease.key)), record.head.closed,
        to_micros(session.created_at), None if retention.idle is None else retention.idle // _MICROSECOND,
        retention.max_messages, retention.max_turns, None if fork is None else fork.seq, retention.touch.value,
        session.status.value, record.head.key, site_key(session.scope), owner_key(session.scope), session.incarnation,
        session.id, session.title, session.title.casefold(), *map(_json, (session.scope, session.context,
        session.attributes, session.metadata)), None if fork is None else fork.session_id,
    )  # fmt: skip


def message_rows(placed: Placed) -> tuple[str, list[list[Any]]]:
    """The statement that inserts messages, and its columns."""
    rows = [
        (ref, seq, turn, space, body)
        for ref, record in placed
        for space in [record.space]
        for seq, turn, body in record.messages
    ]
    return (
        "INSERT INTO messages (ref, seq, turn, space, body)"
        " SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bytea[], $5::bytea[])",
        _transpose(rows, 5),
    )


def trace_rows(placed: Placed) -> tuple[str, list[list[Any]]]:
    """The same for traces."""
    rows = [(ref, number, record.space, body) for ref, record in placed for number, body in record.traces]
    return (
        "INSERT INTO traces (ref, number, space, body)"
        " SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bytea[], $4::bytea[])",
        _transpose(rows, 4),
    )


def mark_rows(placed: Placed) -> tuple[str, list[list[Any]]]:
    """The same for producers' numbers."""
    rows = [(ref, seq, record.space, name) for ref, record in placed for name, seq in record.producers]
    return (
        "INSERT INTO marks (ref, seq, space, producer)"
        " SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bytea[], $4::bytea[])",
        _transpose(rows, 4),
    )


def keyed_rows(placed: Placed) -> tuple[str, list[list[Any]]]:
    """The same for idempotency keys."""
    rows = [
        (ref, nth, *write.words, *write.reply, write.number, write.finished, record.space, write.key,
         write.fingerprint, write.turn_id)
        for ref, record in placed
        for nth, write in enumerate(record.writes, 1)
    ]  # fmt: skip
    return (
        "INSERT INTO keyed (ref, nth, words_first, words_last, reply_first, reply_last, number, finished, space, key,"
        " fingerprint, turn) SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[],"
        " $6::bigint[], $7::bigint[], $8::boolean[], $9::bytea[], $10::bytea[], $11::bytea[], $12::text[])",
        _transpose(rows, 12),
    )


def _transpose(rows: Sequence[tuple[Any, ...]], columns: int) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[]] * columns


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
