"""Finding a session's head within reach, making it, changing it, writing it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import MAXYEAR, UTC, datetime, timedelta
from typing import Final

import msgspec
from msgspec import UNSET

from tenuto.errors import Invalid, SessionExpired, SessionForeign, SessionNotFound, StoreFull
from tenuto.model import Changes, NewSession, Retention, Scope, Status
from tenuto.model.scope import owner_key, site_key
from tenuto.model.session import drop_nulls, merge_patch
from tenuto.model.values import JsonObject
from tenuto.stores.codec import encode_object, to_micros
from tenuto.stores.sqlite._database import Ask, Transaction, quick
from tenuto.stores.sqlite._errors import CorruptRow, is_bad_text
from tenuto.stores.sqlite._rows import Head, decode_head_object, read_head, scope_of
from tenuto.stores.sqlite._schema import MAX_ROW

_MICROSECOND: Final = timedelta(microseconds=1)
_LAST_MOMENT: Final = to_micros(datetime(MAXYEAR, 12, 31, tzinfo=UTC))

_WITHIN_REACH: Final = """
    SELECT * FROM head WHERE key = ? AND (expires_at IS NULL OR expires_at > ?) AND (? IS NULL OR owner = ?)
"""

_SAVE_FREE: Final = """
    UPDATE session SET
        version = ?, updated_at = ?, expires_at = ?, turns = ?, messages = ?, last_seq = ?, window_start = ?,
        tokens = ?, cost_nanos = ?, keyed = ?, recent_keyed = ?, closed = ?,
        lease = NULL, lease_until = NULL, lease_key = NULL
    WHERE id = ?
"""
_SAVE_LEASED: Final = _SAVE_FREE.replace("= NULL", "= ?")

Execute = Callable[..., sqlite3.Cursor]


def _fetch_head(execute: Execute, query: str, values: tuple[object, ...], ask: Ask) -> Head | None:
    try:
        row = execute(query, values).fetchone()
    except sqlite3.OperationalError as exc:
        if not is_bad_text(exc):
            raise
        row = execute("SELECT id FROM session WHERE key = ?", (ask.key,)).fetchone()
        # The driver's message quotes what it could not read, so it is not passed on.
        raise CorruptRow(ask.session_id, row[0], "a text of the head is not UTF-8") from None
    return None if row is None else read_head(row, ask.session_id)


def reach(execute: Execute, ask: Ask) -> Head:
    """The session, if it exists for the one who asks.

    The row is looked for and judged in SQL, so that a foreign or expired one takes as long as none at all.

    Raises:
        SessionNotFound: it does not.
    """
    head = _fetch_head(execute, _WITHIN_REACH, (ask.key, ask.now, ask.owner, ask.owner), ask)
    if head is None:
        raise SessionNotFound(ask.session_id)
    return head


def take_head(txn: Transaction, ask: Ask) -> Head | None:
    """Take the session under this key out of the cache or the file, whatever its owner and age."""
    return txn.hot.take(ask.key) or _fetch_head(txn.execute, "SELECT * FROM head WHERE key = ?", (ask.key,), ask)


def require_head_for_write(txn: Transaction, ask: Ask) -> Head:
    """Like `reach`, for a step that will write."""
    head = take_head(txn, ask)
    if head is None:
        raise SessionNotFound(ask.session_id)
    if head.expires_at is not None and head.expires_at <= ask.now:
        raise SessionExpired(ask.session_id)
    if ask.owner is not None and head.owner != ask.owner:
        raise SessionForeign(ask.session_id, ":".join(scope_of(head).owner))
    return head


def plant(txn: Transaction, ask: Ask, scope: Scope, new: NewSession, token: str) -> Head:
    """Write a new session's rows, version 0."""
    head = Head(
        id=0,
        key=ask.key,
        space=site_key(scope),
        owner=owner_key(scope),
        created_at=ask.now,
        updated_at=ask.now,
        version=0,
        turns=0,
        messages=0,
        last_seq=0,
        window_start=1,
        tokens=0,
        cost_nanos=0,
        keyed=0,
        incarnation=token,
        session_id=ask.session_id,
        scope=msgspec.json.encode(scope),
        touch=new.keeping.touch.value,
        title=new.title,
        folded_title=new.title.casefold(),
        status=Status.ACTIVE.value,
        context=encode_object(drop_nulls(new.context)),
        attributes=encode_object(drop_nulls(new.attributes)),
        metadata=encode_object(drop_nulls(new.metadata)),
        expires_at=None,
        sweep_at=None,
        lease=None,
        lease_until=None,
        lease_key=None,
        recent_keyed=None,
        closed=None,
        idle=None,
        max_messages=None,
        max_turns=None,
        forked_id=None,
        forked_seq=None,
        tail=[],
        whole=True,
    )
    keep(head, new.keeping)
    insert(txn, head)
    return head


def insert(txn: Transaction, head: Head) -> None:
    """Write the rows of a head that has none, and give it its number."""
    head.expires_at = head.sweep_at = deadline(head, head.updated_at)
    row = txn.execute(
        """
        INSERT INTO session (
            key, space, owner, incarnation, created_at, updated_at, expires_at, sweep_at, version, turns, messages,
            last_seq, window_start, tokens, cost_nanos, keyed
        ) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
        """,
        (
            head.key, head.space, head.owner, head.incarnation, head.created_at, head.updated_at, head.expires_at,
            head.sweep_at, head.version, head.turns, head.messages, head.last_seq, head.window_start, head.tokens,
            head.cost_nanos, head.keyed,
        ),
    ).lastrowid  # fmt: skip
    assert row is not None
    if row > MAX_ROW:
        raise StoreFull
    head.id = row
    txn.execute(
        "INSERT INTO profile VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            row, head.session_id, head.scope, head.idle, head.touch, head.max_messages, head.max_turns, head.title,
            head.folded_title, head.status, head.context, head.attributes, head.metadata, head.forked_id,
            head.forked_seq,
        ),
    )  # fmt: skip
    txn.changed.append(head.key)


def save(txn: Transaction, head: Head, now: int) -> None:
    """Write the head as a new version; its time never goes backwards."""
    head.version += 1
    head.updated_at = max(now, head.updated_at)
    head.expires_at = deadline(head, head.updated_at)
    counted = (
        head.version, head.updated_at, head.expires_at, head.turns, head.messages, head.last_seq, head.window_start,
        head.tokens, head.cost_nanos, head.keyed, head.recent_keyed and quick(head.recent_keyed), head.closed,
    )  # fmt: skip
    if head.lease is None:
        txn.execute(_SAVE_FREE, (*counted, head.id))
    else:
        txn.execute(
            _SAVE_LEASED, (*counted, head.lease, head.lease_until, head.lease_key and quick(head.lease_key), head.id)
        )
    if head.expires_at is not None and (head.sweep_at is None or head.expires_at < head.sweep_at):
        head.sweep_at = head.expires_at
        txn.execute("UPDATE session SET sweep_at = ? WHERE id = ?", (head.sweep_at, head.id))
    txn.changed.append(head.key)
    txn.hot.put(head)


def save_profile(txn: Transaction, head: Head) -> None:
    """Write what seldom changes."""
    txn.execute(
        """
        UPDATE profile SET
            idle = ?, touch = ?, max_messages = ?, max_turns = ?, title = ?, folded_title = ?, status = ?,
            context = ?, attributes = ?, metadata = ?
        WHERE session = ?
        """,
        (
            head.idle, head.touch, head.max_messages, head.max_turns, head.title, head.folded_title, head.status,
            head.context, head.attributes, head.metadata, head.id,
        ),
    )  # fmt: skip


def uproot(txn: Transaction, head_id: int, key: bytes) -> None:
    """Remove a session and everything of it but its log and traces, which `_log` and `_traces` clear."""
    txn.execute("DELETE FROM session WHERE id = ?", (head_id,))
    txn.execute("DELETE FROM profile WHERE session = ?", (head_id,))
    txn.execute("DELETE FROM keyed WHERE session = ?", (head_id,))
    txn.execute("DELETE FROM mark WHERE session = ?", (head_id,))
    txn.changed.append(key)
    txn.hot.take(key)


def keep(head: Head, keeping: Retention) -> bool:
    """Take over how the session is kept; tells whether that changed anything."""
    before = (head.idle, head.touch, head.max_messages, head.max_turns)
    head.idle = None if keeping.idle is None else keeping.idle // _MICROSECOND
    head.touch, head.max_messages, head.max_turns = keeping.touch.value, keeping.max_messages, keeping.max_turns
    return before != (head.idle, head.touch, head.max_messages, head.max_turns)


def deadline(head: Head, now: int) -> int | None:
    """When a session that is touched now will be gone."""
    if head.idle is None:
        return None
    return check_instant((head.created_at if head.touch == "never" else now) + head.idle)


def check_instant(micros: int) -> int:
    """An instant that a calendar has."""
    if micros > _LAST_MOMENT:
        raise Invalid(f"a deadline lies beyond the year {MAXYEAR}")
    return micros


def apply(head: Head, changes: Changes) -> None:
    """Patch the head."""
    if changes.title is not UNSET:
        head.title, head.folded_title = changes.title, changes.title.casefold()
    if changes.status is not UNSET:
        head.status = changes.status.value
    if changes.window_start is not UNSET:
        head.window_start, head.tail = changes.window_start, None
    head.context = _merge_object(head, head.context, changes.context)
    head.attributes = _merge_object(head, head.attributes, changes.attributes)
    head.metadata = _merge_object(head, head.metadata, changes.metadata)


def _merge_object(head: Head, raw: bytes, patch: JsonObject) -> bytes:
    return encode_object(merge_patch(decode_head_object(head, raw), patch)) if patch else raw
