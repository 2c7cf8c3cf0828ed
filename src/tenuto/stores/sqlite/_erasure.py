"""Everything a person owns, removed: sessions, and with the last of them what was set aside, and all state."""

from __future__ import annotations

import sqlite3

from tenuto.model import EraseResult, RemovedSession
from tenuto.stores.sqlite._edits import remove
from tenuto.stores.sqlite._errors import CorruptRow, is_bad_text
from tenuto.stores.sqlite._heads import Execute
from tenuto.stores.sqlite._rows import read_head, scope_of
from tenuto.stores.sqlite._writer import Transaction


def erase(txn: Transaction, owner: bytes, limit: int) -> EraseResult:
    """Remove up to `limit` of the owner's sessions, least recently changed first, whether or not they have expired."""
    rows = txn.execute(
        "SELECT id, key FROM session WHERE owner = ? ORDER BY updated_at, key LIMIT ?", (owner, limit + 1)
    ).fetchall()
    going, more = rows[:limit], len(rows) > limit
    gone = [_read_removed(txn.execute, row) for row, _ in going]
    aside = [] if more else _pop_quarantine(txn, owner)
    went = [remove(txn, row, key) for row, key in (*going, *aside)]
    return EraseResult(
        gone=tuple(item for item in gone if item is not None),
        messages=sum(messages for messages, _ in went),
        traces=sum(traces for _, traces in went),
        states=0 if more else txn.execute("DELETE FROM state WHERE owner = ?", (owner,)).rowcount,
        quarantined=gone.count(None) + len(aside),
        more=more,
    )


def _pop_quarantine(txn: Transaction, owner: bytes) -> list[tuple[int, bytes]]:
    """What was set aside as unreadable; its rows are still to be removed."""
    rows = txn.execute("SELECT session, key FROM quarantine WHERE owner = ?", (owner,)).fetchall()
    txn.execute("DELETE FROM quarantine WHERE owner = ?", (owner,))
    return rows


def _read_removed(execute: Execute, row: int) -> RemovedSession | None:
    """The session as it is told, `None` for one that cannot be read: that counts as set aside."""
    try:
        head = read_head(execute("SELECT * FROM head WHERE id = ?", (row,)).fetchone(), "")
        return RemovedSession(scope=scope_of(head), session_id=head.session_id)
    except sqlite3.OperationalError as exc:
        if not is_bad_text(exc):
            raise
    except CorruptRow:
        pass
    return None
