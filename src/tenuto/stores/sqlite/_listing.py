"""Steps over many sessions: list, count, sweep, evict, erase, list sites."""

from __future__ import annotations

import sqlite3
from datetime import datetime
from typing import Any, Final

from tenuto.model import EraseResult, RemovedSession, Scope, SessionPage, SessionQuery, SessionStats
from tenuto.model.scope import owner_key, site_key
from tenuto.stores.codec import decode_cursor, encode_cursor, to_micros
from tenuto.stores.paging import first_sites
from tenuto.stores.sqlite._database import quarantine_session
from tenuto.stores.sqlite._edits import remove
from tenuto.stores.sqlite._errors import CorruptRow, is_bad_text
from tenuto.stores.sqlite._heads import Execute, Transaction, read_head, scope_of, session_of
from tenuto.stores.sqlite._state import owners

_BEHIND_ALL: Final = (2**63 - 1, b"\xff" * 17)

_LIST_SPACE: Final = """
    SELECT * FROM head
    WHERE space = :shelf AND (updated_at, key) < (:updated_at, :key) AND (expires_at IS NULL OR expires_at > :now)
        AND (:status IS NULL OR status = :status) AND (:folded IS NULL OR instr(folded_title, :folded) > 0)
    ORDER BY updated_at DESC, key DESC LIMIT :limit
"""
_LIST_OWNER: Final = """
    SELECT * FROM head
    WHERE owner = :shelf AND (updated_at, key) < (:updated_at, :key) AND (expires_at IS NULL OR expires_at > :now)
        AND (:status IS NULL OR status = :status) AND (:folded IS NULL OR instr(folded_title, :folded) > 0)
    ORDER BY updated_at DESC, key DESC LIMIT :limit
"""
_COUNT_SPACE: Final = """
    SELECT count(*), coalesce(sum(messages), 0), coalesce(sum(tokens), 0), coalesce(sum(cost_nanos), 0)
    FROM session WHERE space = ? AND (expires_at IS NULL OR expires_at > ?)
"""
_COUNT_OWNER: Final = """
    SELECT count(*), coalesce(sum(messages), 0), coalesce(sum(tokens), 0), coalesce(sum(cost_nanos), 0)
    FROM session WHERE owner = ? AND (expires_at IS NULL OR expires_at > ?)
"""

# One step in the index, however many sessions a space has.
_NEXT_SPACE: Final = "SELECT * FROM head WHERE space > :behind ORDER BY space LIMIT 1"


def list_sessions(db: sqlite3.Connection, scope: Scope, query: SessionQuery, now: datetime) -> SessionPage:
    """The scope's sessions, latest change first."""
    sql, shelf = (_LIST_OWNER, owner_key(scope)) if scope.owner else (_LIST_SPACE, site_key(scope))
    updated_at, key = _BEHIND_ALL if query.cursor is None else decode_cursor(query.cursor)
    wanted = {
        "shelf": shelf,
        "updated_at": updated_at,
        "key": key,
        "now": to_micros(now),
        "status": None if query.status is None else query.status.value,
        "folded": None if query.title is None else query.title.casefold(),
        "limit": query.limit + 1,
    }
    rows = _rows(db, sql, wanted)
    heads = [read_head(row, "") for row in rows[: query.limit]]
    return SessionPage(
        sessions=tuple(session_of(head) for head in heads),
        cursor=encode_cursor(heads[-1].updated_at, heads[-1].key) if len(rows) > query.limit else None,
    )


def _rows(db: sqlite3.Connection, sql: str, wanted: dict[str, Any]) -> list[tuple[Any, ...]]:
    try:
        return db.execute(sql, wanted).fetchall()
    except sqlite3.OperationalError as exc:
        if not is_bad_text(exc):
            raise
    for (row,) in db.execute(sql.replace("*", "id", 1), wanted).fetchall():
        try:
            db.execute("SELECT * FROM head WHERE id = ?", (row,)).fetchone()
        except sqlite3.OperationalError:
            raise CorruptRow("", row, "a text of the head is not UTF-8") from None
    raise AssertionError("an unreadable text became readable")


def count_sessions(db: sqlite3.Connection, scope: Scope, now: datetime) -> SessionStats:
    """Count what the scope contains."""
    sql, shelf = (_COUNT_OWNER, owner_key(scope)) if scope.owner else (_COUNT_SPACE, site_key(scope))
    sessions, messages, tokens, cost_nanos = db.execute(sql, (shelf, to_micros(now))).fetchone()
    return SessionStats(sessions=sessions, messages=messages, tokens=tokens, cost_nanos=cost_nanos)


def spaces(db: sqlite3.Connection, after: Scope | None, limit: int) -> tuple[Scope, ...]:
    """The sites that hold sessions or state of users or chats, in order of their keys."""
    first = b"" if after is None else site_key(after)
    found: list[Scope] = []
    behind = first
    while len(found) < limit and (rows := _rows(db, _NEXT_SPACE, {"behind": behind})):
        head = read_head(rows[0], "")
        found.append(scope_of(head))
        behind = head.space
    return first_sites([*found, *owners(db, first, limit)], limit)


def sweep(txn: Transaction, limit: int, now: int) -> tuple[int, tuple[RemovedSession, ...]]:
    """Remove expired sessions; returns how many rows were examined, and the removed sessions."""
    rows = txn.execute(
        "SELECT id, key, expires_at FROM session WHERE sweep_at <= ? ORDER BY sweep_at LIMIT ?", (now, limit)
    ).fetchall()
    gone = []
    for row, key, expires_at in rows:
        if expires_at is None or expires_at > now:
            txn.execute("UPDATE session SET sweep_at = ? WHERE id = ?", (expires_at, row))
            txn.hot.take(key)
        else:
            gone += _remove_or_quarantine(txn, row, key, now)
    return len(rows), tuple(gone)


def evict(
    txn: Transaction, scope: Scope, keep: int, spared: bytes | None, limit: int, now: int
) -> tuple[RemovedSession, ...]:
    """Remove up to `limit` of the site's least recently changed sessions beyond `keep`, but not the spared one."""
    beyond = count_site_sessions(txn.execute, scope) - keep
    rows = txn.execute(
        "SELECT id, key FROM session WHERE space = ? AND key IS NOT ? ORDER BY updated_at, key LIMIT ?",
        (site_key(scope), spared, max(0, min(beyond, limit))),
    ).fetchall()
    return tuple(gone for row, key in rows for gone in _remove_or_quarantine(txn, row, key, now))


def count_site_sessions(execute: Execute, scope: Scope) -> int:
    count: int = execute("SELECT count(*) FROM session WHERE space = ?", (site_key(scope),)).fetchone()[0]
    return count


def _remove_or_quarantine(txn: Transaction, row: int, key: bytes, now: int) -> list[RemovedSession]:
    """Remove one session, or quarantine it if its scope cannot be read."""
    try:
        head = read_head(txn.execute("SELECT * FROM head WHERE id = ?", (row,)).fetchone(), "")
        gone = RemovedSession(scope=scope_of(head), session_id=head.session_id)
    except sqlite3.OperationalError as exc:
        if not is_bad_text(exc):
            raise
        quarantine_session(txn, row, "", "a text of the head is not UTF-8", now)
        return []
    except CorruptRow as damage:
        quarantine_session(txn, row, "", damage.reason, now)
        return []
    remove(txn, row, key)
    return [gone]


def erase(txn: Transaction, owner: bytes, limit: int) -> EraseResult:
    """Remove up to `limit` of the owner's sessions, least recently changed first, expired or not.

    The last batch also removes quarantined sessions and all state of the owner.
    """
    rows = txn.execute(
        "SELECT id, key FROM session WHERE owner = ? ORDER BY updated_at, key LIMIT ?", (owner, limit + 1)
    ).fetchall()
    going, more = rows[:limit], len(rows) > limit
    gone = [_read_removed(txn.execute, row) for row, _ in going]
    aside = []
    if not more:
        aside = txn.execute("SELECT session, key FROM quarantine WHERE owner = ?", (owner,)).fetchall()
        txn.execute("DELETE FROM quarantine WHERE owner = ?", (owner,))
    went = [remove(txn, row, key) for row, key in (*going, *aside)]
    return EraseResult(
        removed_sessions=tuple(item for item in gone if item is not None),
        messages=sum(messages for messages, _ in went),
        traces=sum(traces for _, traces in went),
        states=0 if more else txn.execute("DELETE FROM state WHERE owner = ?", (owner,)).rowcount,
        quarantined=gone.count(None) + len(aside),
        more=more,
    )


def _read_removed(execute: Execute, row: int) -> RemovedSession | None:
    """The report of a removed session; `None` for an unreadable one, which counts as quarantined."""
    try:
        head = read_head(execute("SELECT * FROM head WHERE id = ?", (row,)).fetchone(), "")
        return RemovedSession(scope=scope_of(head), session_id=head.session_id)
    except sqlite3.OperationalError as exc:
        if not is_bad_text(exc):
            raise
    except CorruptRow:
        pass
    return None
