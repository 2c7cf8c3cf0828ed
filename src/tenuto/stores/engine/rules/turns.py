"""A turn: begin, renew, finish; and messages outside of one."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from tenuto.errors import SessionBusy, Superseded, TurnLost
from tenuto.model import AppendBatch, AppendResult, BeginTurn, FinishTurn, Message, OpenTurn, Scope, TurnState
from tenuto.model.turn import TRACES_KEPT, Trace, is_superseded, offsets_of_input, turn_offsets
from tenuto.stores.encoding import digest_id
from tenuto.stores.engine.record import EMPTY, WIDEST_TAIL, KeyedWrite, Lease, Record, Step, nth, slice_messages
from tenuto.stores.engine.rules.access import apply_changes, complete_change, require_or_create, require_turn, spend
from tenuto.stores.engine.rules.keys import all_writes, find_write, hold, remember, revise
from tenuto.stores.engine.rules.log import append_messages, is_repeated


def begin(record: Record | None, scope: Scope, request: BeginTurn, now: datetime) -> Step[OpenTurn]:
    """Find or create the session, append the user messages, take the lease."""
    record, created, expired = require_or_create(
        record, scope, request.session_id, request.create, request.turn_id, now
    )
    last_active = None if created else record.head.updated_at
    write = None if request.idempotency_key is None else find_write(record, request.idempotency_key)
    if write is not None and write.finished:
        return Step(record=record, answer=_finished_turn(scope, record, write), changed=False)
    if is_superseded(record.profile.metadata, request.user_messages):
        raise Superseded
    _require_free(record, request, now)
    if record.reach < request.window:
        record = replace(record, reach=max(record.reach, min(WIDEST_TAIL, request.window)))
    before = record.head.last_seq
    if write is not None:
        number, words = write.number, record.between(write.input_span)
        record = hold(record, write, request.turn_id)
    else:
        if record.head.lease is not None:
            # It has run out, and the key of its turn need not stay in the head.
            record = replace(record, head=replace(record.head, lease=None))
        record, number, words = append_turn(record, request)
    record = complete_change(_take_lease(record, request, number, now), now)
    resumed = write is not None or (bool(request.user_messages) and not words)
    assert record.head.lease is not None
    turn = OpenTurn(
        id=request.turn_id,
        number=number,
        scope=scope,
        session=record.session,
        state=TurnState.RESUMED if resumed else TurnState.OPENED,
        user_messages=words,
        window=load_window(record, request.window, words if record.head.last_seq > before else ()),
        lease=request.lease,
        lease_until=record.head.lease.until,
        created=created,
        expired=expired,
        last_active_at=last_active,
    )
    return Step(record=record, answer=turn, created=created, added=words if record.head.last_seq > before else ())


def _finished_turn(scope: Scope, record: Record, write: KeyedWrite) -> OpenTurn:
    return OpenTurn(
        id=write.turn_id,
        number=write.number,
        scope=scope,
        session=record.session,
        state=TurnState.FINISHED,
        user_messages=record.between(write.input_span),
        window=(),
        reply=record.between(write.reply_span),
        last_active_at=record.head.updated_at,
    )


def _require_free(record: Record, request: BeginTurn, now: datetime) -> None:
    lease, key = record.head.lease, request.idempotency_key
    if lease is not None and lease.until > now:
        raise SessionBusy(
            record.profile.id,
            lease.until - now,
            lease.turn_id,
            record.profile.incarnation,
            until=lease.until,
            same_key=key is not None and lease.key == digest_id(key.key),
        )


def append_turn(
    record: Record, request: BeginTurn, *, lenient: bool = False
) -> tuple[Record, int, tuple[Message, ...]]:
    """The record with the messages of a new turn, its number, and those as stored."""
    first, drafts = record.head.turns + 1, request.user_messages
    offsets = offsets_of_input(drafts)
    record, words = append_messages(record, drafts, first, request.producer, offsets=offsets, lenient=lenient)
    number = first + max(offsets, default=0)
    if record.head.turns < number:
        record = replace(record, head=replace(record.head, turns=number))
    if request.idempotency_key is not None:
        record = remember(
            record,
            KeyedWrite(
                key=digest_id(request.idempotency_key.key),
                fingerprint=digest_id(request.idempotency_key.fingerprint),
                turn_id=request.turn_id,
                number=number,
                input_span=span_of(words, record),
            ),
        )
    return record, number, words


def _take_lease(record: Record, request: BeginTurn, number: int, now: datetime) -> Record:
    key = None if request.idempotency_key is None else digest_id(request.idempotency_key.key)
    lease = Lease(
        turn_id=request.turn_id, until=now + request.lease, number=number, key=key, journaled=request.journaled
    )
    return replace(record, head=replace(record.head, lease=lease))


def span_of(messages: tuple[Message, ...], record: Record) -> tuple[int, int]:
    """The span of messages just appended; of none, an empty one where they would stand."""
    if messages:
        return messages[0].seq, messages[-1].seq
    return record.head.last_seq + 1, record.head.last_seq


def load_window(record: Record, size: int, added: tuple[Message, ...] = ()) -> tuple[Message, ...]:
    """The newest messages that are context, at most `size`; those just `added` may be more than the record holds."""
    if not size or not record.head.stored_spans:
        return ()
    tail, start = record.tail, record.head.window_start
    if len(tail) >= size and tail[-size].seq >= start:
        return tail[-size:]  # Nearly every turn.
    beyond = record.messages - size
    oldest = nth(record.head.stored_spans, beyond) if beyond > 0 else record.first_seq
    first, last = max(oldest, start), record.head.last_seq
    if not added or first >= record.tail_from:
        return record.between((first, last))
    begins = added[0].seq
    return record.between((first, begins - 1)) + slice_messages(added, max(first, begins), last)


def finish(record: Record | None, turn: OpenTurn, request: FinishTurn, now: datetime) -> Step[AppendResult]:
    """Append the reply, add the usage, apply the changes, release the lease."""
    record = require_turn(record, turn, now)
    lease = record.head.lease
    if lease is None or lease.turn_id != turn.id:
        if is_finished(record, turn):
            return Step(record=record, answer=AppendResult(session=record.session, duplicate=True), changed=False)
        raise TurnLost(turn.session.id, turn.id)
    reply: tuple[Message, ...] = ()
    if request.reply:
        # What a tool showed may have been removed meanwhile; the answer is stored all the same.
        record, reply = append_messages(record, request.reply, lease.number, request.producer, lenient=True)
    record = _release(record, lease, reply, is_answered=not request.abandoned)
    record = spend(record, request.usage.tokens, request.usage.cost_nanos)
    if request.changes is not None:
        record = apply_changes(record, request.changes)
    record = complete_change(record, now)
    return Step(
        record=record,
        answer=AppendResult(session=record.session, messages=reply),
        added=reply,
        traces=traces_of(request, lease.number),
        traces_through=None if request.trace is None else lease.number - TRACES_KEPT,
    )


def traces_of(request: FinishTurn, number: int) -> tuple[tuple[int, Trace], ...]:
    """The trace of a turn under the number that the turn has in the store."""
    trace = request.trace
    if trace is None:
        return ()
    return ((number, trace if trace.number == number else replace(trace, number=number)),)


def is_finished(record: Record, turn: OpenTurn) -> bool:
    """Whether this turn has ended before."""
    return record.head.closed == turn.id or any(
        write.finished and write.turn_id == turn.id for write in all_writes(record)
    )


def _release(record: Record, lease: Lease, reply: tuple[Message, ...], *, is_answered: bool) -> Record:
    """The record without a running turn; an answered one is remembered as ended, with the reply of its key."""
    if not is_answered:
        return replace(record, head=replace(record.head, lease=None))
    if lease.key is not None:
        record = finish_key(record, lease.key, reply)
    return replace(record, head=replace(record.head, lease=None, closed=lease.turn_id))


def finish_key(record: Record, key: bytes, reply: tuple[Message, ...]) -> Record:
    """The record with a keyed write that has its reply."""
    span = (reply[0].seq, reply[-1].seq) if reply else EMPTY
    keys = record.head.keys
    for place in range(len(keys) - 1, -1, -1):
        if keys[place].key == key:  # Always, but for records of a journal: a key whose turn runs stays in the head.
            finished = replace(keys[place], finished=True, reply_span=span)
            return replace(record, head=replace(record.head, keys=(*keys[:place], finished, *keys[place + 1 :])))
    return revise(record, lambda write: replace(write, finished=True, reply_span=span) if write.key == key else write)


def renew(record: Record | None, turn: OpenTurn, now: datetime) -> Step[OpenTurn]:
    """Extend the lease; the public version stays."""
    record = require_turn(record, turn, now)
    lease = record.head.lease
    if lease is None or lease.turn_id != turn.id:
        raise TurnLost(turn.session.id, turn.id)
    until = now + turn.lease
    record = replace(record, head=replace(record.head, lease=replace(lease, until=until)))
    return Step(record=record, answer=replace(turn, lease_until=until))


def append(
    record: Record | None, scope: Scope, session_id: str, batch: AppendBatch, now: datetime
) -> Step[AppendResult]:
    """Append a batch, whether or not a turn is running; a key or a producer's number makes it happen once."""
    record, created, expired = require_or_create(record, scope, session_id, batch.create, batch.id, now)
    write = find_write(record, batch.idempotency_key)
    if write is not None:
        answer = AppendResult(session=record.session, messages=record.between(write.input_span), duplicate=True)
        return Step(record=record, answer=answer, changed=False)
    if is_repeated(record, batch.producer):
        return Step(record=record, answer=AppendResult(session=record.session, duplicate=True), changed=False)
    turn = record.head.turns + 1
    offsets = turn_offsets(batch.messages)
    record, stored = append_messages(record, batch.messages, turn, batch.producer, offsets=offsets)
    if batch.idempotency_key is not None:
        write = KeyedWrite(
            key=digest_id(batch.idempotency_key.key),
            fingerprint=digest_id(batch.idempotency_key.fingerprint),
            turn_id=batch.id,
            number=record.head.turns,
            input_span=span_of(stored, record),
            finished=True,
        )
        record = remember(record, write)
    record = complete_change(spend(record, batch.total_usage.tokens, batch.total_usage.cost_nanos), now)
    answer = AppendResult(session=record.session, messages=stored, created=created, expired=expired)
    return Step(record=record, answer=answer, created=created, added=stored)
