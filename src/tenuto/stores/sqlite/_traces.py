"""Traces as rows, placed by their session and turn number as messages are by their sequence number."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from typing import Final

from tenuto.errors import StoreFull
from tenuto.model.turn import TRACES_KEPT, Trace
from tenuto.stores.codec import Undecodable, decode_trace, id_prefix
from tenuto.stores.sqlite._heads import Ask, reach
from tenuto.stores.sqlite._rows import Head
from tenuto.stores.sqlite._schema import MAX_SEQ, SEQ_BITS
from tenuto.stores.sqlite._writer import Transaction

_logger: Final = logging.getLogger(__name__)


def keep(txn: Transaction, head: Head, number: int, body: bytes) -> None:
    """Store the trace of a turn, and let those go that are too old beside it."""
    if number > MAX_SEQ:
        raise StoreFull
    base = head.id << SEQ_BITS
    txn.execute("INSERT OR REPLACE INTO trace VALUES (?, ?)", (base + number, body))
    if number > TRACES_KEPT:
        txn.execute("DELETE FROM trace WHERE place > ? AND place <= ?", (base, base + number - TRACES_KEPT))


def retell(txn: Transaction, head: Head, new: Trace, body: bytes) -> bool:
    """Put another body in a trace's place; tells whether that trace is still there."""
    if not 0 < new.number <= MAX_SEQ:
        return False
    place, start = (head.id << SEQ_BITS) + new.number, b"{" + id_prefix(new.id)
    row = txn.execute("SELECT body FROM trace WHERE place = ?", (place,)).fetchone()
    if row is None or type(row[0]) is not bytes or not row[0].startswith(start):
        return False
    txn.execute("UPDATE trace SET body = ? WHERE place = ?", (body, place))
    return True


def clear(txn: Transaction, head_id: int, first: int = 0) -> int:
    """Forget the traces of turns from a number on; tells how many there were."""
    base = head_id << SEQ_BITS
    span = (base + min(first, MAX_SEQ), base + MAX_SEQ)
    return txn.execute("DELETE FROM trace WHERE place BETWEEN ? AND ?", span).rowcount


def one(db: sqlite3.Connection, ask: Ask, number: int) -> Trace | None:
    """The trace of one turn."""
    place = reach(db.execute, ask).id << SEQ_BITS
    if 0 < number <= MAX_SEQ:
        place += number  # No turn has the number 0.
    rows = db.execute("SELECT body FROM trace WHERE place = ?", (place,))
    return next(_decode_readable(ask, rows), None)


def newest(db: sqlite3.Connection, ask: Ask, limit: int, before: int | None) -> tuple[Trace, ...]:
    """Traces, newest turn first."""
    base = reach(db.execute, ask).id << SEQ_BITS
    last = MAX_SEQ if before is None else min(max(before - 1, 0), MAX_SEQ)
    rows = db.execute(
        "SELECT body FROM trace WHERE place > ? AND place <= ? ORDER BY place DESC LIMIT ?",
        (base, base + last, min(max(limit, 0), MAX_SEQ)),
    )
    return tuple(_decode_readable(ask, rows))


def _decode_readable(ask: Ask, rows: sqlite3.Cursor) -> Iterator[Trace]:
    """A damaged trace is as good as none: the conversation is not set aside because of what was noted beside it."""
    for (body,) in rows:
        try:
            yield decode_trace(body)
        except Undecodable:
            _logger.warning("a trace of session %s cannot be decoded", ask.session_id)
