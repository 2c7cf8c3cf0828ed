"""A session's messages and traces as rows, placed by session and by sequence number or turn number.

A message body is stored with its `seq` and `turn` inside, so that SQLite can join any range of a log into one JSON
array: one row to fetch and one call to decode, however long the range.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from tenuto.errors import StoreFull
from tenuto.model import Draft, Message, MessagePage, Page
from tenuto.model.turn import TRACES_KEPT, Trace
from tenuto.stores.codec import Undecodable, decode_trace, id_prefix, number_drafts
from tenuto.stores.sqlite._heads import Ask, Execute, Head, Transaction, quick, reach, session_of
from tenuto.stores.sqlite._schema import MAX_SEQ, SEQ_BITS

_logger: Final = logging.getLogger(__name__)
_INSERT: Final = "INSERT INTO message (place, turn, body) VALUES (?, ?, ?)"
_messages: Final = msgspec.json.Decoder(tuple[Message, ...])


def add(
    txn: Transaction, head: Head, drafts: Sequence[Draft], bodies: Sequence[bytes], turns: Sequence[int]
) -> tuple[Message, ...]:
    """Append messages and their bodies to the log, each to its turn."""
    seq, base = head.last_seq, head.id << SEQ_BITS
    if seq + len(bodies) > MAX_SEQ:
        raise StoreFull
    if seq + 1 < head.window_start:
        head.tail = None
    rows = []
    for turn, body in zip(turns, bodies, strict=True):
        seq += 1
        rows.append((base + seq, turn, quick(b'{"seq":%d,"turn":%d,' % (seq, turn)) + memoryview(body)[1:]))
    if len(rows) == 1:
        txn.execute(_INSERT, rows[0])  # The common case; faster than `executemany`.
    else:
        txn.executemany(_INSERT, rows)
    head.last_seq = seq
    head.messages += len(rows)
    if turns and turns[-1] > head.turns:
        head.turns = turns[-1]
    messages = number_drafts(drafts, seq - len(rows) + 1, turns)
    if head.tail is not None:
        head.tail += messages
        head.tail_sizes += map(len, bodies)
    return messages


def trim(txn: Transaction, head: Head) -> None:
    """Delete the oldest messages beyond the session's limits."""
    if head.max_messages is not None and head.messages > head.max_messages:
        _delete_oldest(txn, head, head.messages - head.max_messages)
    if head.max_turns is not None and head.turns > head.max_turns and head.messages:
        _delete_turns(txn, head, head.turns - head.max_turns)
    if head.tail is not None and len(head.tail) > head.messages:
        _trim_tail(head, head.messages)


def _delete_oldest(txn: Transaction, head: Head, count: int) -> None:
    dropped = txn.execute(
        "DELETE FROM message WHERE place IN"
        " (SELECT place FROM message WHERE place BETWEEN ? AND ? ORDER BY place LIMIT ?)",
        (*_place_range(head), count),
    )
    head.messages -= dropped.rowcount


def _delete_turns(txn: Transaction, head: Head, oldest: int) -> None:
    # Turn numbers may decrease (the reply of a resumed turn follows later turns): delete a prefix of the log.
    first, last = _place_range(head)
    kept = txn.execute(
        "SELECT place FROM message WHERE place BETWEEN ? AND ? AND turn > ? ORDER BY place LIMIT 1",
        (first, last, oldest),
    ).fetchone()
    end = last if kept is None else kept[0] - 1
    head.messages -= txn.execute("DELETE FROM message WHERE place BETWEEN ? AND ?", (first, end)).rowcount


def clear(txn: Transaction, head_id: int) -> int:
    """Delete all messages; returns their number."""
    first, last = head_id << SEQ_BITS, (head_id << SEQ_BITS) + MAX_SEQ
    return txn.execute("DELETE FROM message WHERE place > ? AND place <= ?", (first, last)).rowcount


def truncate_log(txn: Transaction, head: Head, after: int, sparing: Sequence[int]) -> tuple[int, int | None]:
    """Delete the messages after a sequence number, except some; returns their number and their lowest turn."""
    edges = [after, *sorted({seq for seq in sparing if after < seq <= MAX_SEQ}), MAX_SEQ + 1]
    went, turns = 0, []
    for before, until in pairwise(edges):
        stretch = _place_range(head, first=before + 1, last=until - 1)
        turns.append(txn.execute("SELECT min(turn) FROM message WHERE place BETWEEN ? AND ?", stretch).fetchone()[0])
        went += txn.execute("DELETE FROM message WHERE place BETWEEN ? AND ?", stretch).rowcount
    return went, min((turn for turn in turns if turn is not None), default=None)


def reword(txn: Transaction, head: Head, new: Message, body: bytes) -> bool:
    """Replace the body of a message; false if the message is gone."""
    if not 0 < new.seq <= MAX_SEQ:
        return False
    place = (head.id << SEQ_BITS) + new.seq
    row = txn.execute("SELECT turn, body FROM message WHERE place = ?", (place,)).fetchone()
    if row is None:
        return False
    turn, old = row
    if (type(turn), type(old)) != (int, bytes):
        raise head.corrupt_error("a message cannot be decoded")
    start = b'{"seq":%d,"turn":%d,' % (new.seq, turn)
    if not old.startswith(start + id_prefix(new.id)):
        return False
    txn.execute("UPDATE message SET body = ? WHERE place = ?", (start + body[1:], place))
    return True


def copy(txn: Transaction, source: Head, target: int, at: int) -> tuple[int, int]:
    """Copy the log up to a sequence number under another session; returns their number and the last one's turn."""
    shift = (target - source.id) << SEQ_BITS
    first, last = _place_range(source, last=at)
    copied = txn.execute(
        "INSERT INTO message (place, turn, body)"
        " SELECT place + ?, turn, body FROM message WHERE place BETWEEN ? AND ? ORDER BY place",
        (shift, first, last),
    ).rowcount
    newest = txn.execute(
        "SELECT turn FROM message WHERE place BETWEEN ? AND ? ORDER BY place DESC LIMIT 1", (first, last)
    ).fetchone()
    return copied, newest[0] if newest else 0


def window(execute: Execute, head: Head, size: int) -> tuple[Message, ...]:
    """The newest messages that are context, oldest first; remembered as the head's tail."""
    if not size:
        return ()
    if head.tail is None or (len(head.tail) < size and not head.whole):
        found, taken = _load_newest(execute, head, _place_range(head, first=head.window_start), size)
        head.tail, head.whole = list(found), len(found) < size
        # They came as one blob: each counts with the average size.
        head.tail_sizes = [taken // max(1, len(found))] * len(found)
        return found
    if len(head.tail) > size:
        _trim_tail(head, size)
        head.whole = False
    return tuple(head.tail)


def _trim_tail(head: Head, size: int) -> None:
    """Keep only the newest messages in the cached tail."""
    assert head.tail is not None
    spare = len(head.tail) - size
    del head.tail[:spare], head.tail_sizes[:spare]


def between(execute: Execute, head: Head, first: int, last: int) -> tuple[Message, ...]:
    """The messages of a range that still exist."""
    return _load_newest(execute, head, _place_range(head, first, last), MAX_SEQ)[0] if first <= last else ()


def page_of(execute: Execute, head: Head, page: Page) -> MessagePage:
    """A page of the log, and whether there are more messages on either side."""
    if page.after is not None:
        whole = _place_range(head, first=page.after + 1)
        found = _load_oldest(execute, head, whole, page.limit + 1)
        messages, more_after = found[: page.limit], len(found) > page.limit
        more_before = _has_messages(execute, _place_range(head, last=page.after))
    else:
        whole = _place_range(head) if page.before is None else _place_range(head, last=page.before - 1)
        found, _ = _load_newest(execute, head, whole, page.limit + 1)
        messages, more_before = found[-page.limit :], len(found) > page.limit
        more_after = page.before is not None and _has_messages(execute, _place_range(head, first=page.before))
    return MessagePage(session=session_of(head), messages=messages, more_before=more_before, more_after=more_after)


def _place_range(head: Head, first: int = 0, last: int = MAX_SEQ) -> tuple[int, int]:
    """Places of a range of numbers, limited to those of the session."""
    base = head.id << SEQ_BITS
    if first > MAX_SEQ or last < 0:
        return base, base  # No message has the number 0.
    return base + first, base + min(last, MAX_SEQ)


def _load_newest(execute: Execute, head: Head, span: tuple[int, int], size: int) -> tuple[tuple[Message, ...], int]:
    """The last messages of a range, and the size of their bodies."""
    count, bodies = execute(
        "SELECT count(*), CAST(group_concat(body) AS BLOB) FROM"
        " (SELECT body FROM message WHERE place BETWEEN ? AND ? ORDER BY place DESC LIMIT ?)",
        (*span, size),
    ).fetchone()
    raw = bodies or b""
    return _decode_messages(head, count, raw)[::-1], len(raw)


def _load_oldest(execute: Execute, head: Head, span: tuple[int, int], size: int) -> tuple[Message, ...]:
    count, bodies = execute(
        "SELECT count(*), CAST(group_concat(body) AS BLOB) FROM"
        " (SELECT body FROM message WHERE place BETWEEN ? AND ? ORDER BY place LIMIT ?)",
        (*span, size),
    ).fetchone()
    return _decode_messages(head, count, bodies or b"")


def _has_messages(execute: Execute, span: tuple[int, int]) -> bool:
    found: sqlite3.Cursor = execute("SELECT 1 FROM message WHERE place BETWEEN ? AND ? LIMIT 1", span)
    return found.fetchone() is not None


def _decode_messages(head: Head, count: int, bodies: bytes) -> tuple[Message, ...]:
    """Decode comma-separated bodies. A damaged body may decode as two messages or as none, hence the count."""
    try:
        messages = _messages.decode(b"[%b]" % bodies)
    except (msgspec.DecodeError, UnicodeDecodeError):
        messages = ()
    if len(messages) != count:
        raise head.corrupt_error("a message cannot be decoded")
    return messages


def add_trace(txn: Transaction, head: Head, number: int, body: bytes) -> None:
    """Store the trace of a turn and delete the traces beyond `TRACES_KEPT`."""
    if number > MAX_SEQ:
        raise StoreFull
    base = head.id << SEQ_BITS
    txn.execute("INSERT OR REPLACE INTO trace VALUES (?, ?)", (base + number, body))
    if number > TRACES_KEPT:
        txn.execute("DELETE FROM trace WHERE place > ? AND place <= ?", (base, base + number - TRACES_KEPT))


def replace_trace(txn: Transaction, head: Head, new: Trace, body: bytes) -> bool:
    """Replace the body of a trace; false if the trace is gone."""
    if not 0 < new.number <= MAX_SEQ:
        return False
    place, start = (head.id << SEQ_BITS) + new.number, b"{" + id_prefix(new.id)
    row = txn.execute("SELECT body FROM trace WHERE place = ?", (place,)).fetchone()
    if row is None or type(row[0]) is not bytes or not row[0].startswith(start):
        return False
    txn.execute("UPDATE trace SET body = ? WHERE place = ?", (body, place))
    return True


def clear_traces(txn: Transaction, head_id: int, first: int = 0) -> int:
    """Delete the traces from turn `first` on; returns their number."""
    base = head_id << SEQ_BITS
    span = (base + min(first, MAX_SEQ), base + MAX_SEQ)
    return txn.execute("DELETE FROM trace WHERE place BETWEEN ? AND ?", span).rowcount


def load_trace(db: sqlite3.Connection, ask: Ask, number: int) -> Trace | None:
    place = reach(db.execute, ask).id << SEQ_BITS
    if 0 < number <= MAX_SEQ:
        place += number  # No turn has the number 0.
    rows = db.execute("SELECT body FROM trace WHERE place = ?", (place,))
    return next(_decode_readable(ask, rows), None)


def load_newest_traces(db: sqlite3.Connection, ask: Ask, limit: int, before: int | None) -> tuple[Trace, ...]:
    """Load traces, newest turn first."""
    base = reach(db.execute, ask).id << SEQ_BITS
    last = MAX_SEQ if before is None else min(max(before - 1, 0), MAX_SEQ)
    rows = db.execute(
        "SELECT body FROM trace WHERE place > ? AND place <= ? ORDER BY place DESC LIMIT ?",
        (base, base + last, min(max(limit, 0), MAX_SEQ)),
    )
    return tuple(_decode_readable(ask, rows))


def _decode_readable(ask: Ask, rows: sqlite3.Cursor) -> Iterator[Trace]:
    """Decode traces and skip damaged ones: a damaged trace does not put the session into quarantine."""
    for (body,) in rows:
        try:
            yield decode_trace(body)
        except Undecodable:
            _logger.warning("a trace of session %s cannot be decoded", ask.session_id)
