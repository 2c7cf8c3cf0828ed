"""A session's rows as one record, and back."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from tenuto.errors import Invalid
from tenuto.model.records import StoredHead, StoredLease, StoredMessage, StoredSession, StoredTrace, StoredWrite
from tenuto.model.scope import owner_key, site_key
from tenuto.model.turn import KEYS_REMEMBERED
from tenuto.stores.codec import encode_object, to_micros
from tenuto.stores.sqlite._errors import CorruptRow, is_bad_text
from tenuto.stores.sqlite._heads import Execute, Head, KeyedRow, Transaction, idle_micros, read_head, session_of
from tenuto.stores.sqlite._idempotency import load_recent
from tenuto.stores.sqlite._schema import MAX_ROW, MAX_SEQ, SEQ_BITS

_FOUND_AT_ONCE: Final = 500
_KEYED: Final = """
    SELECT key, n, fingerprint, number, words_first, words_last, turn_id, reply_first, reply_last, finished
    FROM keyed WHERE session = ? AND n > ?
"""
_INSERT: Final = """
    INSERT INTO session (
        key, space, owner, incarnation, created_at, updated_at, expires_at, sweep_at, version, turns, messages,
        last_seq, window_start, tokens, cost_nanos, keyed, lease, lease_until, lease_key, closed
    ) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


def list_rows(db: sqlite3.Connection, after: bytes, limit: int) -> list[tuple[int, bytes]]:
    """Row numbers and keys of sessions, in order of their keys."""
    return db.execute("SELECT id, key FROM session WHERE key > ? ORDER BY key LIMIT ?", (after, limit)).fetchall()


def find_rows(execute: Execute, keys: Sequence[bytes]) -> list[tuple[int, bytes]]:
    """Row numbers and keys of the sessions of these keys."""
    found: list[tuple[int, bytes]] = []
    for at in range(0, len(keys), _FOUND_AT_ONCE):
        some = keys[at : at + _FOUND_AT_ONCE]
        places = ", ".join("?" * len(some))
        found += execute(f"SELECT id, key FROM session WHERE key IN ({places})", some).fetchall()  # noqa: S608
    return found


def read_head_row(db: sqlite3.Connection, row: int) -> StoredHead | None:
    """The head in a row; `None` if it is gone or cannot be decoded."""
    head = _fetch_head(db, row)
    try:
        return None if head is None else _to_head(head)
    except CorruptRow:
        return None


def read_session_row(db: sqlite3.Connection, row: int) -> StoredSession | None:
    """The session in a row; `None` if it is gone or cannot be decoded."""
    head = _fetch_head(db, row)
    if head is None:
        return None
    try:
        return StoredSession(
            head=_to_head(head),
            writes=tuple(_read_writes(db, head)),
            producers=tuple(sorted(db.execute("SELECT producer, seq FROM mark WHERE session = ?", (row,)).fetchall())),
            messages=tuple(_read_messages(db, row)),
            traces=tuple(_read_traces(db, row)),
        )
    except CorruptRow:
        return None


def write_session(txn: Transaction, record: StoredSession) -> None:
    """Insert the rows of a session; there is none of its key.

    Raises:
        Invalid: its numbers are beyond what a file can hold.
    """
    last = max(record.head.session.last_seq, record.head.session.turns)
    row = _insert_head(txn, record)
    if row > MAX_ROW or last > MAX_SEQ:
        raise Invalid("a session is too long for SQLite")
    base = row << SEQ_BITS
    txn.executemany(
        "INSERT INTO message (place, turn, body) VALUES (?, ?, ?)",
        [(base + seq, turn, body) for seq, turn, body in record.messages],
    )
    txn.executemany("INSERT INTO trace VALUES (?, ?)", [(base + number, body) for number, body in record.traces])
    txn.executemany("INSERT INTO mark VALUES (?, ?, ?)", [(row, name, seq) for name, seq in record.producers])
    txn.executemany(
        "INSERT INTO keyed VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [(row, *_keyed_row(n, write)) for n, write in enumerate(record.writes, 1)],
    )
    txn.changed.append(record.head.key)


def _fetch_head(db: sqlite3.Connection, row: int) -> Head | None:
    try:
        found = db.execute("SELECT * FROM head WHERE id = ?", (row,)).fetchone()
        return None if found is None else read_head(found, "")
    except sqlite3.OperationalError as exc:
        if not is_bad_text(exc):
            raise
    except CorruptRow:
        pass
    return None


def _to_head(head: Head) -> StoredHead:
    lease = None
    if head.lease is not None and head.lease_until is not None:
        lease = StoredLease(turn_id=head.lease, until=head.lease_until, key=head.lease_key)
    return StoredHead(session=session_of(head), lease=lease, closed=head.closed)


def _read_writes(db: sqlite3.Connection, head: Head) -> Iterator[StoredWrite]:
    oldest = head.keyed - KEYS_REMEMBERED
    rows = [KeyedRow(*row) for row in db.execute(_KEYED, (head.id, oldest))]
    # A key that was forgotten and came again stands in both; the later one holds.
    latest = {row.key: row for row in sorted([*rows, *load_recent(head)], key=lambda row: row.n)}
    for row in sorted(latest.values(), key=lambda row: row.n):
        yield StoredWrite(
            key=row.key,
            fingerprint=row.fingerprint,
            turn_id=row.turn_id,
            number=row.number,
            words=(row.words_first, row.words_last),
            reply=(row.reply_first, row.reply_last),
            finished=bool(row.finished),
        )


def _read_messages(db: sqlite3.Connection, row: int) -> Iterator[StoredMessage]:
    base = row << SEQ_BITS
    rows = db.execute(
        "SELECT place, turn, body FROM message WHERE place > ? AND place <= ? ORDER BY place", (base, base + MAX_SEQ)
    )
    return (StoredMessage(place - base, turn, body) for place, turn, body in rows)


def _read_traces(db: sqlite3.Connection, row: int) -> Iterator[StoredTrace]:
    base = row << SEQ_BITS
    rows = db.execute(
        "SELECT place, body FROM trace WHERE place > ? AND place <= ? ORDER BY place", (base, base + MAX_SEQ)
    )
    return (StoredTrace(place - base, body) for place, body in rows)


def _keyed_row(n: int, write: StoredWrite) -> tuple[object, ...]:
    return write.key, n, write.fingerprint, write.number, *write.words, write.turn_id, *write.reply, write.finished


def _insert_head(txn: Transaction, record: StoredSession) -> int:
    session, lease = record.head.session, record.head.lease
    expires_at = None if session.expires_at is None else to_micros(session.expires_at)
    row = txn.execute(
        _INSERT,
        (
            record.head.key, site_key(session.scope), owner_key(session.scope), session.incarnation,
            to_micros(session.created_at), to_micros(session.updated_at), expires_at, expires_at, session.version,
            session.turns, session.messages, session.last_seq, session.window_start, session.tokens, session.cost_nanos,
            len(record.writes), *((None, None, None) if lease is None else (lease.turn_id, lease.until, lease.key)),
            record.head.closed,
        ),
    ).lastrowid  # fmt: skip
    assert row is not None
    retention, fork = session.retention, session.forked_from
    txn.execute(
        "INSERT INTO profile VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            row, session.id, msgspec.json.encode(session.scope), idle_micros(retention), retention.touch.value,
            retention.max_messages, retention.max_turns, session.title, session.title.casefold(), session.status.value,
            encode_object(session.context), encode_object(session.attributes), encode_object(session.metadata),
            *((None, None) if fork is None else (fork.session_id, fork.seq)),
        ),
    )  # fmt: skip
    return row
