"""A session's messages as rows: appended at the end, read by place, dropped from the beginning.

A body is stored with its `seq` and `turn` inside, so that SQLite can glue any stretch of a log into one JSON array:
one row to fetch and one call to decode it, however long the stretch.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import msgspec

from tenuto.errors import StoreFull
from tenuto.model import Draft, Message, MessagePage, Page
from tenuto.stores.codec import Undecodable, encode_draft, id_prefix, number_drafts
from tenuto.stores.sqlite._heads import Execute
from tenuto.stores.sqlite._rows import Head, session_of
from tenuto.stores.sqlite._schema import MAX_SEQ, SEQ_BITS
from tenuto.stores.sqlite._writer import Transaction, quick

_INSERT: Final = "INSERT INTO message (place, turn, body) VALUES (?, ?, ?)"
_messages: Final = msgspec.json.Decoder(tuple[Message, ...])


def encode_bodies(drafts: Sequence[Draft]) -> tuple[bytes, ...]:
    """Bodies that wait for their place."""
    return tuple(map(encode_draft, drafts))


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
    _insert_rows(txn, rows)
    head.last_seq = seq
    head.messages += len(rows)
    if turns and turns[-1] > head.turns:
        head.turns = turns[-1]
    messages = number_drafts(drafts, seq - len(rows) + 1, turns)
    if head.tail is not None:
        head.tail += messages
        head.tail_sizes += map(len, bodies)
    return messages


def _insert_rows(txn: Transaction, rows: Sequence[tuple[int, int, bytearray]]) -> None:
    # One row is the rule, and for it the plain call is quicker.
    if len(rows) == 1:
        txn.execute(_INSERT, rows[0])
    else:
        txn.executemany(_INSERT, rows)


def trim(txn: Transaction, head: Head) -> None:
    """Drop the beginning of the log that the session's caps leave no room for."""
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
    # A resumed turn's reply stands after later turns, so numbers may fall: what goes is a beginning of the log.
    first, last = _place_range(head)
    kept = txn.execute(
        "SELECT place FROM message WHERE place BETWEEN ? AND ? AND turn > ? ORDER BY place LIMIT 1",
        (first, last, oldest),
    ).fetchone()
    end = last if kept is None else kept[0] - 1
    head.messages -= txn.execute("DELETE FROM message WHERE place BETWEEN ? AND ?", (first, end)).rowcount


def clear(txn: Transaction, head_id: int) -> int:
    """Forget all messages; tells how many there were."""
    first, last = head_id << SEQ_BITS, (head_id << SEQ_BITS) + MAX_SEQ
    return txn.execute("DELETE FROM message WHERE place > ? AND place <= ?", (first, last)).rowcount


def truncate_log(txn: Transaction, head: Head, after: int, sparing: Sequence[int]) -> tuple[int, int | None]:
    """Forget the messages after a sequence number, but for some; tells how many went, and their lowest turn number."""
    edges = [after, *sorted({seq for seq in sparing if after < seq <= MAX_SEQ}), MAX_SEQ + 1]
    went, turns = 0, []
    for before, until in pairwise(edges):
        stretch = _place_range(head, first=before + 1, last=until - 1)
        turns.append(txn.execute("SELECT min(turn) FROM message WHERE place BETWEEN ? AND ?", stretch).fetchone()[0])
        went += txn.execute("DELETE FROM message WHERE place BETWEEN ? AND ?", stretch).rowcount
    return went, min((turn for turn in turns if turn is not None), default=None)


def reword(txn: Transaction, head: Head, new: Message, body: bytes) -> bool:
    """Put another body in a message's place; tells whether that message is still there."""
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
    """Copy the log up to a sequence number under another session; tells how many messages, and the last one's turn."""
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
        # They came in one piece: each is told as one of a size.
        head.tail_sizes = [taken // max(1, len(found))] * len(found)
        return found
    if len(head.tail) > size:
        _trim_tail(head, size)
        head.whole = False
    return tuple(head.tail)


def _trim_tail(head: Head, size: int) -> None:
    """Know no more than so many of the newest messages."""
    assert head.tail is not None
    spare = len(head.tail) - size
    del head.tail[:spare], head.tail_sizes[:spare]


def between(execute: Execute, head: Head, first: int, last: int) -> tuple[Message, ...]:
    """The messages of a stretch that are still there."""
    return _load_newest(execute, head, _place_range(head, first, last), MAX_SEQ)[0] if first <= last else ()


def page_of(execute: Execute, head: Head, page: Page) -> MessagePage:
    """The asked stretch of the log, and whether there is more on either side."""
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
    """Places of a stretch. A bound beyond any message stays within the session's own places."""
    base = head.id << SEQ_BITS
    if first > MAX_SEQ or last < 0:
        return base, base  # No message has the number 0.
    return base + first, base + min(last, MAX_SEQ)


def _load_newest(execute: Execute, head: Head, span: tuple[int, int], size: int) -> tuple[tuple[Message, ...], int]:
    """The last messages of a stretch, and the size of their bodies."""
    count, bodies = execute(
        "SELECT count(*), CAST(group_concat(body) AS BLOB) FROM"
        " (SELECT body FROM message WHERE place BETWEEN ? AND ? ORDER BY place DESC LIMIT ?)",
        (*span, size),
    ).fetchone()
    raw = bodies or b""
    return _decode_checked(head, count, raw)[::-1], len(raw)


def _load_oldest(execute: Execute, head: Head, span: tuple[int, int], size: int) -> tuple[Message, ...]:
    count, bodies = execute(
        "SELECT count(*), CAST(group_concat(body) AS BLOB) FROM"
        " (SELECT body FROM message WHERE place BETWEEN ? AND ? ORDER BY place LIMIT ?)",
        (*span, size),
    ).fetchone()
    return _decode_checked(head, count, bodies or b"")


def _has_messages(execute: Execute, span: tuple[int, int]) -> bool:
    found: sqlite3.Cursor = execute("SELECT 1 FROM message WHERE place BETWEEN ? AND ? LIMIT 1", span)
    return found.fetchone() is not None


def _decode_checked(head: Head, count: int, bodies: bytes) -> tuple[Message, ...]:
    try:
        return _decode_messages(count, bodies)
    except Undecodable:
        raise head.corrupt_error("a message cannot be decoded") from None


def _decode_messages(count: int, bodies: bytes) -> tuple[Message, ...]:
    """Messages from bodies with commas between them. A damaged body might pass for two messages, or for none."""
    try:
        messages = _messages.decode(b"[%b]" % bodies)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise Undecodable("a message") from exc
    if len(messages) != count:
        raise Undecodable("a message")
    return messages
