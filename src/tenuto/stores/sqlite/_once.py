"""What makes a write happen once: remembered idempotency keys, and producers' marks."""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

from tenuto.errors import KeyReused, SequenceGap
from tenuto.model import Once, Producer
from tenuto.model.turn import KEYS_REMEMBERED
from tenuto.stores.sqlite._rows import Head
from tenuto.stores.sqlite._writer import Transaction

# Forgetting scans a session's keys, so it happens once in a while; until then `known` looks away.
_FORGET_EVERY = 64


class Keyed(NamedTuple):
    """A write that came with a key: what it stored, and whether it is complete."""

    n: int
    fingerprint: bytes
    turn_id: str
    number: int
    words_first: int
    words_last: int
    reply_first: int
    reply_last: int
    finished: int


def known(txn: Transaction, head: Head, once: Once) -> Keyed | None:
    """The earlier write of this key.

    Raises:
        KeyReused: it had another body.
    """
    row = txn.execute(
        "SELECT n, fingerprint, turn_id, number, words_first, words_last, reply_first, reply_last, finished"
        " FROM keyed WHERE session = ? AND key = ?",
        (head.id, digest(once.key)),
    ).fetchone()
    if row is None or row[0] <= head.keyed - KEYS_REMEMBERED:
        return None
    keyed = Keyed(*row)
    if keyed.fingerprint != digest(once.fingerprint):
        raise KeyReused
    return keyed


def remember(
    txn: Transaction, head: Head, once: Once, turn_id: str, words: tuple[int, int], *, finished: bool
) -> bytes:
    """Note a write under its key; returns the key as stored."""
    key = digest(once.key)
    head.keyed += 1
    txn.execute(
        "INSERT OR REPLACE INTO keyed VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, -1, ?)",
        (head.id, key, head.keyed, digest(once.fingerprint), turn_id, head.turns, *words, finished),
    )
    if head.keyed > KEYS_REMEMBERED and head.keyed % _FORGET_EVERY == 0:
        forget_oldest(txn, head)
    return key


def forget_oldest(txn: Transaction, head: Head) -> None:
    """Remove the keys beyond those that are remembered."""
    txn.execute("DELETE FROM keyed WHERE session = ? AND n <= ?", (head.id, head.keyed - KEYS_REMEMBERED))


def resumed(txn: Transaction, head: Head, key: bytes, turn_id: str) -> None:
    """Another turn takes up the keyed one."""
    txn.execute("UPDATE keyed SET turn_id = ? WHERE session = ? AND key = ?", (turn_id, head.id, key))


def completed(txn: Transaction, head: Head, key: bytes, reply: tuple[int, int]) -> None:
    """The keyed turn has its reply."""
    txn.execute(
        "UPDATE keyed SET finished = 1, reply_first = ?, reply_last = ? WHERE session = ? AND key = ?",
        (*reply, head.id, key),
    )


def was_completed(txn: Transaction, head: Head, turn_id: str) -> bool:
    """Whether a keyed turn of this id has its reply."""
    row = txn.execute(
        "SELECT 1 FROM keyed WHERE session = ? AND turn_id = ? AND finished AND n > ?",
        (head.id, turn_id, head.keyed - KEYS_REMEMBERED),
    ).fetchone()
    return row is not None


def cut(txn: Transaction, head: Head, after: int) -> None:
    """Forget keys whose words are gone, and open those again whose reply is."""
    forget_oldest(txn, head)
    txn.execute("DELETE FROM keyed WHERE session = ? AND words_first > ?", (head.id, after))
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


def seen(txn: Transaction, head: Head | None, producer: Producer) -> bool:
    """Whether the producer's number came before.

    Raises:
        SequenceGap: it skipped some.
    """
    row = None
    if head is not None:
        row = txn.execute("SELECT seq FROM mark WHERE session = ? AND producer = ?", (head.id, producer.id)).fetchone()
    mark = row[0] if row else 0
    if producer.seq > mark + 1:
        raise SequenceGap(producer.id, mark + 1)
    return bool(producer.seq <= mark)


def advance(txn: Transaction, head: Head, producer: Producer) -> None:
    """Move the producer's mark."""
    txn.execute("INSERT OR REPLACE INTO mark VALUES (?, ?, ?)", (head.id, producer.id, producer.seq))


def digest(text: str) -> bytes:
    """A key or fingerprint of any length, in sixteen bytes."""
    return blake2b(text.encode(), digest_size=16).digest()
