"""A turn's two trips and plain appends, as steps of a transaction: first every check, then every write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

from msgspec.structs import replace

from tenuto.errors import SessionBusy, SessionExpired, SessionForeign, SessionNotFound, TurnLost
from tenuto.model import (
    AppendBatch,
    AppendResult,
    BeginTurn,
    FinishTurn,
    Message,
    NewSession,
    OpenTurn,
    Scope,
    TurnState,
)
from tenuto.model.turn import turn_offsets
from tenuto.stores.codec import from_micros
from tenuto.stores.sqlite import _idempotency, _log
from tenuto.stores.sqlite._database import Ask, Transaction
from tenuto.stores.sqlite._edits import remove
from tenuto.stores.sqlite._errors import CorruptRow
from tenuto.stores.sqlite._heads import (
    apply,
    check_instant,
    keep,
    plant,
    require_head_for_write,
    save,
    save_profile,
    take_head,
)
from tenuto.stores.sqlite._rows import Head, KeyedRow, session_of

_NOTHING = (0, -1)
_MICROSECOND = timedelta(microseconds=1)


def begin_turn(txn: Transaction, ask: Ask, scope: Scope, opening: BeginTurn, bodies: Sequence[bytes]) -> OpenTurn:
    """Find or create the session, append the words, take the lease, bring the window."""
    head, expired = _find_or_none(txn, ask, opening.create)
    guard = None if opening.once is None else _idempotency.key_digest(opening.once)
    keyed = _idempotency.find_keyed(txn, head, guard) if head is not None and guard is not None else None
    if head is not None and keyed is not None and keyed.finished:
        return _finished_turn(txn, scope, head, keyed)
    if head is not None and head.lease is not None and head.lease_until is not None and head.lease_until > ask.now:
        raise SessionBusy(head.session_id, timedelta(microseconds=head.lease_until - ask.now))
    doubled = (
        keyed is None and opening.producer is not None and _idempotency.check_producer(txn, head, opening.producer)
    )
    last_active = None if head is None else from_micros(head.updated_at)

    created = head is None
    if head is None:
        head = _create_session(txn, ask, scope, opening.create, opening.turn_id, expired)
    resumed = keyed is not None or (bool(bodies) and doubled)
    if keyed is not None:
        number, words = keyed.number, _log.between(txn.execute, head, keyed.words_first, keyed.words_last)
    else:
        number = head.turns = head.turns + 1
        if opening.producer is not None and not doubled:
            _idempotency.advance(txn, head, opening.producer)
        words = ()
        if bodies and not doubled:
            words = _log.add(txn, head, opening.words, bodies, [number] * len(bodies))
        if guard is not None:
            _idempotency.note(txn, head, guard, opening.turn_id, _stored_range(head, words), finished=False)
    head.lease, head.lease_until = opening.turn_id, _lease_end(ask.now, opening.lease)
    head.lease_key = None if guard is None else guard.key
    if keyed is not None:
        _idempotency.resume(txn, head, keyed.key, opening.turn_id)
    if opening.keeping is not None and keep(head, opening.keeping):
        save_profile(txn, head)
    _log.trim(txn, head)
    window = _log.window(txn.execute, head, opening.window)
    save(txn, head, ask.now)
    return OpenTurn(
        id=opening.turn_id,
        number=number,
        scope=scope,
        session=session_of(head),
        state=TurnState.RESUMED if resumed else TurnState.OPENED,
        words=words,
        window=window,
        lease=opening.lease,
        lease_until=from_micros(head.lease_until),
        created=created,
        expired=expired,
        last_active_at=last_active,
    )


def finish(
    txn: Transaction, ask: Ask, turn: OpenTurn, closing: FinishTurn, bodies: Sequence[bytes], trace: bytes | None
) -> AppendResult:
    """Append the reply, add the usage, apply the changes, keep the trace, give the lease back."""
    head = _require_turn_head(txn, ask, turn)
    if head.lease != turn.id:
        if head.closed == turn.id or _idempotency.is_keyed_completed(txn, head, turn.id):
            return AppendResult(session=session_of(head), duplicate=True)
        raise TurnLost(turn.session.id, turn.id)
    if bodies and closing.producer is not None:
        if _idempotency.check_producer(txn, head, closing.producer):
            bodies = ()
        else:
            _idempotency.advance(txn, head, closing.producer)

    reply = _log.add(txn, head, closing.reply, bodies, [turn.number] * len(bodies)) if bodies else ()
    if not closing.abandoned:
        head.closed = turn.id
        if head.lease_key is not None:
            _idempotency.complete(txn, head, head.lease_key, _stored_range(head, reply) if reply else _NOTHING)
    head.lease = head.lease_until = head.lease_key = None
    head.tokens += closing.usage.tokens
    head.cost_nanos += closing.usage.cost_nanos
    if closing.changes is not None:
        apply(head, closing.changes)
        save_profile(txn, head)
    if trace is not None:
        _log.add_trace(txn, head, turn.number, trace)
    _log.trim(txn, head)
    save(txn, head, ask.now)
    return AppendResult(session=session_of(head), messages=reply)


def renew(txn: Transaction, ask: Ask, turn: OpenTurn) -> OpenTurn:
    """Hold the lease for as long again."""
    head = _require_turn_head(txn, ask, turn)
    if head.lease != turn.id:
        raise TurnLost(turn.session.id, turn.id)
    head.lease_until = _lease_end(ask.now, turn.lease)
    txn.execute("UPDATE session SET lease_until = ? WHERE id = ?", (head.lease_until, head.id))
    txn.hot.put(head)
    return replace(turn, lease_until=from_micros(head.lease_until))


# What every turn does, a hundred microseconds or less each; an append may bring ten thousand messages.
BRIEF: Final[frozenset[Callable[..., Any]]] = frozenset({begin_turn, finish, renew})


def append(txn: Transaction, ask: Ask, scope: Scope, batch: AppendBatch, bodies: Sequence[bytes]) -> AppendResult:
    """Append messages outside a turn."""
    head, expired = _find_or_none(txn, ask, batch.create)
    guard = None if batch.once is None else _idempotency.key_digest(batch.once)
    if head is not None and guard is not None:
        keyed = _idempotency.find_keyed(txn, head, guard)
        if keyed is not None:
            messages = _log.between(txn.execute, head, keyed.words_first, keyed.words_last)
            return AppendResult(session=session_of(head), messages=messages, duplicate=True)
    if batch.producer is not None and _idempotency.check_producer(txn, head, batch.producer) and head is not None:
        return AppendResult(session=session_of(head), duplicate=True)

    created = head is None
    if head is None:
        head = _create_session(txn, ask, scope, batch.create, batch.id, expired)
    if batch.producer is not None:
        _idempotency.advance(txn, head, batch.producer)
    number = head.turns + 1
    turns = [number + offset for offset in turn_offsets(batch.messages)]
    stored = _log.add(txn, head, batch.messages, bodies, turns)
    if guard is not None:
        _idempotency.note(txn, head, guard, batch.id, _stored_range(head, stored), finished=True)
    head.tokens += batch.total_usage.tokens
    head.cost_nanos += batch.total_usage.cost_nanos
    _log.trim(txn, head)
    save(txn, head, ask.now)
    return AppendResult(session=session_of(head), messages=stored, created=created, expired=expired)


def _find_or_none(txn: Transaction, ask: Ask, create: NewSession | None) -> tuple[Head | None, bool]:
    """The session, or nothing where one may be made; and whether an expired one stands in its place."""
    try:
        return require_head_for_write(txn, ask), False
    except (SessionForeign, CorruptRow):
        raise
    except SessionNotFound as absent:
        if create is None:
            raise
        return None, isinstance(absent, SessionExpired)


def _create_session(
    txn: Transaction, ask: Ask, scope: Scope, create: NewSession | None, token: str, expired: bool
) -> Head:
    assert create is not None, "without it an absent session was refused"
    old = take_head(txn, ask) if expired else None
    if old is not None:
        remove(txn, old.id, old.key)
    return plant(txn, ask, scope, create, token)


def _require_turn_head(txn: Transaction, ask: Ask, turn: OpenTurn) -> Head:
    try:
        head = require_head_for_write(txn, ask)
    except CorruptRow:
        raise
    except SessionNotFound:
        raise TurnLost(turn.session.id, turn.id) from None
    if head.incarnation != turn.session.incarnation:
        raise TurnLost(turn.session.id, turn.id)
    return head


def _lease_end(now: int, lease: timedelta) -> int:
    return check_instant(now + lease // _MICROSECOND)


def _finished_turn(txn: Transaction, scope: Scope, head: Head, keyed: KeyedRow) -> OpenTurn:
    return OpenTurn(
        id=keyed.turn_id,
        number=keyed.number,
        scope=scope,
        session=session_of(head),
        state=TurnState.FINISHED,
        words=_log.between(txn.execute, head, keyed.words_first, keyed.words_last),
        window=(),
        reply=_log.between(txn.execute, head, keyed.reply_first, keyed.reply_last),
        last_active_at=from_micros(head.updated_at),
    )


def _stored_range(head: Head, stored: Sequence[Message]) -> tuple[int, int]:
    """The sequence numbers of what was just stored; an empty stretch lies behind the log's end."""
    return head.last_seq - len(stored) + 1, head.last_seq
