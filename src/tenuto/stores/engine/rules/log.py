"""The log of a session: numbering, producers' marks, and the caps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from tenuto.errors import SequenceGap
from tenuto.model import Draft, Message, Producer, Retention
from tenuto.model.values import deep_copy
from tenuto.stores.encoding import digest_id
from tenuto.stores.engine.record import Record, add_span, count, drop_before, nth, with_tail
from tenuto.stores.engine.rules.attachments import attach, forget_unshown


def is_repeated(record: Record, producer: Producer | None) -> bool:
    """Whether the producer's number was seen before.

    Raises:
        SequenceGap: numbers were skipped.
    """
    if producer is None:
        return False
    mark = dict(record.producers).get(digest_id(producer.id), 0)
    if producer.seq > mark + 1:
        raise SequenceGap(producer.id, mark + 1)
    return producer.seq <= mark


def append_messages(
    record: Record,
    drafts: tuple[Draft, ...],
    turn: int,
    producer: Producer | None,
    *,
    offsets: Sequence[int] = (),
    lenient: bool = False,
) -> tuple[Record, tuple[Message, ...]]:
    """The record with messages appended, and those; without them if the producer's number was seen before.

    `offsets` are their turns, from this one on.

    Raises:
        UnknownAttachment: one shows an attachment that is nowhere, and it is not `lenient`.
    """
    if is_repeated(record, producer):
        return record, ()
    if producer is not None:
        record = _advance_producer(record, producer)
    if not drafts:
        return record, ()
    head = record.head
    offsets = offsets or [0] * len(drafts)
    added = _number(drafts, head.last_seq + 1, [turn + offset for offset in offsets])
    record, added = attach(record, added, drafts, lenient=lenient)
    last = head.last_seq + len(added)
    head = replace(
        head,
        turns=max(head.turns, turn + offsets[-1]),
        last_seq=last,
        stored_spans=add_span(head.stored_spans, head.last_seq + 1, last),
        turn_starts=None if head.turn_starts is None else add_turn_starts(head.turn_starts, added),
    )
    return with_tail(record, record.tail + added, record.tail_from, head), added


def _advance_producer(record: Record, producer: Producer) -> Record:
    digest = digest_id(producer.id)
    others = tuple([mark for mark in record.producers if mark[0] != digest])
    return replace(record, producers=tuple(sorted((*others, (digest, producer.seq)))))


def add_turn_starts(starts: tuple[tuple[int, int], ...], messages: tuple[Message, ...]) -> tuple[tuple[int, int], ...]:
    """The first messages of turns, with those of newer messages. Only a turn above all before it can end an eviction:
    the reply of a resumed turn follows later turns."""
    for message in messages:
        if not starts or message.turn > starts[-1][0]:
            starts = (*starts, (message.turn, message.seq))
    return starts


def enforce_caps(record: Record, retention: Retention) -> Record:
    """The record without the oldest messages beyond the caps: always a prefix of the log."""
    head = record.head
    first = record.first_seq
    if retention.max_messages is not None and (beyond := count(head.stored_spans) - retention.max_messages) > 0:
        first = nth(head.stored_spans, beyond)
    starts = None
    if retention.max_turns is not None:
        starts = head.turn_starts
        if starts is None:
            starts = add_turn_starts((), record.between((record.first_seq, head.last_seq)))
        oldest = head.turns - retention.max_turns
        first = max(first, next((seq for turn, seq in starts if turn > oldest), head.last_seq + 1))
    if first > record.first_seq:
        record = _evict(record, first)
        head = record.head
        starts = None if starts is None else _starts_from(starts, first, record)
    return record if starts == head.turn_starts else replace(record, head=replace(head, turn_starts=starts))


def _evict(record: Record, first: int) -> Record:
    head = replace(record.head, stored_spans=drop_before(record.head.stored_spans, first))
    record = forget_unshown(replace(record, head=head))
    if first <= record.tail_from:
        return record
    return replace(record, tail=tuple([kept for kept in record.tail if kept.seq >= first]), tail_from=first)


def _starts_from(starts: tuple[tuple[int, int], ...], first: int, record: Record) -> tuple[tuple[int, int], ...]:
    """The first messages of the turns that are left. The cap of messages may cut into a turn: the messages up to the
    next turn's tell where it begins now."""
    later = tuple([start for start in starts if start[1] >= first])
    if later and later[0][1] == first:
        return later
    until = later[0][1] - 1 if later else record.head.last_seq
    cut = add_turn_starts((), record.between((first, until)))
    return (*cut, *[start for start in later if not cut or start[0] > cut[-1][0]])


def _number(drafts: Iterable[Draft], first: int, turns: Iterable[int]) -> tuple[Message, ...]:
    """Drafts as messages of the log, numbered from `first`, each with its turn.

    Values are copied: messages may stay in memory, and callers may change their drafts.
    """
    return tuple([
        Message(
            id=draft.id,
            role=draft.role,
            sent_at=draft.sent_at,
            parts=tuple([deep_copy(part) for part in draft.parts]),
            speaker=draft.speaker,
            persona=draft.persona,
            parent=draft.parent,
            tokens=draft.tokens,
            metadata=deep_copy(draft.metadata) if draft.metadata else {},
            extra=deep_copy(draft.extra) if draft.extra else {},
            seq=seq,
            turn=turn,
        )
        for seq, (draft, turn) in enumerate(zip(drafts, turns, strict=True), first)
    ])  # fmt: skip
