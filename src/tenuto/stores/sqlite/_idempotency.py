"""Idempotency keys and producers' sequence numbers.

The latest keyed writes are stored in the session's row, which every turn writes anyway, and move to table `keyed` in
batches: that saves each turn one page write.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec
from msgspec.structs import astuple

from tenuto.errors import IdempotencyKeyReused, SequenceGap
from tenuto.model import IdempotencyKey, Producer
from tenuto.model.turn import KEYS_REMEMBERED
from tenuto.stores.codec import digest_id
from tenuto.stores.sqlite._heads import Head, KeyedRow, Transaction

# Bound on the keys in the session's row, by size since ids may be long: about eight writes with common ids.
_MAX_RECENT_BYTES: Final = 800
# Keys of a session that the writer holds in memory, to recognize a new key without a query.
_MAX_OLDER: Final = 128
# Deleting old keys scans the session's keys, so it is done once in so many; until then `find_keyed` ignores them.
_FORGET_EVERY: Final = 64


class KeyDigest(NamedTuple):
    """A key and its fingerprint, of any length, in sixteen bytes each."""

    key: bytes
    fingerprint: bytes


def key_digest(once: IdempotencyKey) -> KeyDigest:
    """The stored form of an idempotency key."""
    return KeyDigest(digest_id(once.key), digest_id(once.fingerprint))


_recent: Final = msgspec.msgpack.Decoder(list[KeyedRow])
_encoded: Final = msgspec.msgpack.Encoder().encode


def find_keyed(txn: Transaction, head: Head, guard: KeyDigest) -> KeyedRow | None:
    """The earlier write of this key.

    Raises:
        IdempotencyKeyReused: it had another body.
    """
    keyed = _find_key(txn, head, guard.key)
    if keyed is None or keyed.n <= head.keyed - KEYS_REMEMBERED:
        return None
    if keyed.fingerprint != guard.fingerprint:
        raise IdempotencyKeyReused
    return keyed


def note(
    txn: Transaction, head: Head, guard: KeyDigest, write_id: str, words: tuple[int, int], *, finished: bool
) -> None:
    """Remember a write, the turn's or the batch's `write_id`, under its key."""
    head.keyed += 1
    if head.keyed > KEYS_REMEMBERED and head.keyed % _FORGET_EVERY == 0:
        _delete_oldest_keys(txn, head)
    recent = load_recent(head)
    recent.append(
        KeyedRow(guard.key, head.keyed, guard.fingerprint, head.turns, *words, write_id, 0, -1, int(finished))
    )
    _store_recent(txn, head, recent)


def resume(txn: Transaction, head: Head, key: bytes, turn_id: str) -> None:
    """Assign the key to the turn that resumes its first one."""
    recent = load_recent(head)
    for keyed in recent:
        if keyed.key == key:
            keyed.turn_id = turn_id
            return _store_recent(txn, head, recent)
    txn.execute("UPDATE keyed SET turn_id = ? WHERE session = ? AND key = ?", (turn_id, head.id, key))
    return None


def complete(txn: Transaction, head: Head, key: bytes, reply: tuple[int, int]) -> None:
    """Record the reply of the keyed turn."""
    recent = load_recent(head)
    for keyed in recent:
        if keyed.key == key:
            keyed.reply_first, keyed.reply_last, keyed.finished = *reply, 1
            return _store_recent(txn, head, recent)
    txn.execute(
        "UPDATE keyed SET finished = 1, reply_first = ?, reply_last = ? WHERE session = ? AND key = ?",
        (*reply, head.id, key),
    )
    return None


def is_keyed_completed(txn: Transaction, head: Head, turn_id: str) -> bool:
    """Whether a keyed turn of this id has its reply."""
    if any(keyed.finished and keyed.turn_id == turn_id for keyed in load_recent(head)):
        return True
    row = txn.execute(
        "SELECT 1 FROM keyed WHERE session = ? AND turn_id = ? AND finished AND n > ?",
        (head.id, turn_id, head.keyed - KEYS_REMEMBERED),
    ).fetchone()
    return row is not None


def forget_keys_after(txn: Transaction, head: Head, after: int, *, sparing: bytes | None) -> None:
    """Delete keys whose user messages are gone, and reopen those whose reply is gone."""
    _flush_recent(txn, head, load_recent(head))
    _delete_oldest_keys(txn, head)
    # The spared key belongs to the running turn, which has no reply yet.
    txn.execute("DELETE FROM keyed WHERE session = ? AND words_first > ? AND key IS NOT ?", (head.id, after, sparing))
    txn.execute(
        "UPDATE keyed SET finished = 0, reply_first = 0, reply_last = -1"
        " WHERE session = ? AND finished AND reply_last > ?",
        (head.id, after),
    )
    head.keyed = txn.execute("SELECT coalesce(max(n), 0) FROM keyed WHERE session = ?", (head.id,)).fetchone()[0]


def forget_all(txn: Transaction, head: Head) -> None:
    """Forget every key."""
    txn.execute("DELETE FROM keyed WHERE session = ?", (head.id,))
    head.keyed = 0
    head.recent, head.recent_keyed, head.older = None, None, None


def _find_key(txn: Transaction, head: Head, key: bytes) -> KeyedRow | None:
    recent = load_recent(head)
    for keyed in recent:
        if keyed.key == key:
            return keyed
    if _all_recent(head, recent) or (head.older is not None and key not in head.older):
        return None
    row = txn.execute(
        "SELECT key, n, fingerprint, number, words_first, words_last, turn_id, reply_first, reply_last, finished"
        " FROM keyed WHERE session = ? AND key = ?",
        (head.id, key),
    ).fetchone()
    return None if row is None else KeyedRow(*row)


def load_recent(head: Head) -> list[KeyedRow]:
    """The latest keyed writes, those in the session's row."""
    if head.recent is not None:
        return head.recent
    if head.recent_keyed is None:
        return []
    try:
        head.recent = _recent.decode(head.recent_keyed)
        return head.recent
    except msgspec.DecodeError:
        raise head.corrupt_error("the recent keys cannot be decoded") from None


def _store_recent(txn: Transaction, head: Head, recent: list[KeyedRow]) -> None:
    head.recent, head.recent_keyed = recent, _encoded(recent)
    if len(head.recent_keyed) > _MAX_RECENT_BYTES:
        _flush_recent(txn, head, recent)


def _flush_recent(txn: Transaction, head: Head, recent: list[KeyedRow]) -> None:
    if _all_recent(head, recent):
        head.older = set()
    if head.older is not None:
        head.older.update(keyed.key for keyed in recent)
        if len(head.older) > _MAX_OLDER:
            head.older = None
    txn.executemany(
        "INSERT OR REPLACE INTO keyed VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [(head.id, *astuple(keyed)) for keyed in recent],
    )
    head.recent, head.recent_keyed = None, None


def _all_recent(head: Head, recent: list[KeyedRow]) -> bool:
    """Whether all keys of the session are in its row, and none in the table."""
    return len(recent) == head.keyed


def _delete_oldest_keys(txn: Transaction, head: Head) -> None:
    txn.execute("DELETE FROM keyed WHERE session = ? AND n <= ?", (head.id, head.keyed - KEYS_REMEMBERED))


def check_producer(txn: Transaction, head: Head | None, producer: Producer) -> bool:
    """Whether the producer's number came before.

    Raises:
        SequenceGap: it skipped some.
    """
    row = None
    if head is not None:
        asked = (head.id, digest_id(producer.id))
        row = txn.execute("SELECT seq FROM mark WHERE session = ? AND producer = ?", asked).fetchone()
    mark = row[0] if row else 0
    if producer.seq > mark + 1:
        raise SequenceGap(producer.id, mark + 1)
    return bool(producer.seq <= mark)


def advance(txn: Transaction, head: Head, producer: Producer) -> None:
    """Move the producer's mark."""
    txn.execute("INSERT OR REPLACE INTO mark VALUES (?, ?, ?)", (head.id, digest_id(producer.id), producer.seq))
