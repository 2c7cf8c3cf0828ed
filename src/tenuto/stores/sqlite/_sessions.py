"""Sessions in a SQLite file, each step one transaction; and the traces of their turns.

The steps of a turn make every check before the first write.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

from msgspec.structs import replace

from tenuto.errors import (
    SessionBusy,
    SessionCorrupt,
    SessionExpired,
    SessionForeign,
    SessionNotFound,
    StoreFull,
    StoreReadOnly,
    TurnLost,
)
from tenuto.model import (
    AppendBatch,
    AppendResult,
    BeginTurn,
    Changes,
    FinishTurn,
    ForkRequest,
    Message,
    MessagePage,
    NewSession,
    OpenTurn,
    Page,
    Rewrite,
    Scope,
    Session,
    SessionPage,
    SessionQuery,
    Truncation,
    TurnState,
)
from tenuto.model.turn import Trace, turn_offsets
from tenuto.stores.codec import encode_draft, encode_trace, from_micros, to_micros
from tenuto.stores.sqlite import _edits, _idempotency, _listing, _log
from tenuto.stores.sqlite._database import Database
from tenuto.stores.sqlite._errors import CorruptRow
from tenuto.stores.sqlite._heads import (
    Ask,
    Head,
    KeyedRow,
    Transaction,
    apply,
    check_instant,
    keep,
    plant,
    reach,
    require_head_for_write,
    save,
    save_profile,
    session_of,
    take_head,
)

_NOTHING = (0, -1)
_MICROSECOND = timedelta(microseconds=1)


def begin_turn(txn: Transaction, ask: Ask, scope: Scope, opening: BeginTurn, bodies: Sequence[bytes]) -> OpenTurn:
    """Find or create the session, append the user messages, take the lease, load the window."""
    head, expired = _find_or_none(txn, ask, opening.create)
    guard = None if opening.idempotency_key is None else _idempotency.key_digest(opening.idempotency_key)
    keyed = _idempotency.find_keyed(txn, head, guard) if head is not None and guard is not None else None
    if head is not None and keyed is not None and keyed.finished:
        return _finished_turn(txn, scope, head, keyed)
    if head is not None and head.lease is not None and head.lease_until is not None and head.lease_until > ask.now:
        rest = timedelta(microseconds=head.lease_until - ask.now)
        raise SessionBusy(head.session_id, rest, head.lease, head.incarnation)
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
            words = _log.add(txn, head, opening.user_messages, bodies, [number] * len(bodies))
        if guard is not None:
            _idempotency.note(txn, head, guard, opening.turn_id, _stored_range(head, words), finished=False)
    head.lease, head.lease_until = opening.turn_id, check_instant(ask.now + opening.lease // _MICROSECOND)
    head.lease_key = None if guard is None else guard.key
    if keyed is not None:
        _idempotency.resume(txn, head, keyed.key, opening.turn_id)
    if opening.retention is not None and keep(head, opening.retention):
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
        user_messages=words,
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
    """Append the reply, add the usage, apply the changes, store the trace, release the lease."""
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
    """Extend the lease by its length from now."""
    head = _require_turn_head(txn, ask, turn)
    if head.lease != turn.id:
        raise TurnLost(turn.session.id, turn.id)
    head.lease_until = check_instant(ask.now + turn.lease // _MICROSECOND)
    txn.execute("UPDATE session SET lease_until = ? WHERE id = ?", (head.lease_until, head.id))
    txn.hot.put(head)
    return replace(turn, lease_until=from_micros(head.lease_until))


# Steps of every turn, at most a hundred microseconds each; an append may bring ten thousand messages.
BRIEF: Final[frozenset[Callable[..., Any]]] = frozenset({begin_turn, finish, renew})


def append(txn: Transaction, ask: Ask, scope: Scope, batch: AppendBatch, bodies: Sequence[bytes]) -> AppendResult:
    """Append messages outside a turn."""
    head, expired = _find_or_none(txn, ask, batch.create)
    guard = None if batch.idempotency_key is None else _idempotency.key_digest(batch.idempotency_key)
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
    usage = batch.total_usage
    head.tokens += usage.tokens
    head.cost_nanos += usage.cost_nanos
    _log.trim(txn, head)
    save(txn, head, ask.now)
    return AppendResult(session=session_of(head), messages=stored, created=created, expired=expired)


def _find_or_none(txn: Transaction, ask: Ask, create: NewSession | None) -> tuple[Head | None, bool]:
    """The session, or `None` where one may be created; and whether an expired one has its key."""
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
    assert create is not None, "`_find_or_none` raised without it"
    old = take_head(txn, ask) if expired else None
    if old is not None:
        _edits.remove(txn, old.id, old.key)
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


def _finished_turn(txn: Transaction, scope: Scope, head: Head, keyed: KeyedRow) -> OpenTurn:
    return OpenTurn(
        id=keyed.turn_id,
        number=keyed.number,
        scope=scope,
        session=session_of(head),
        state=TurnState.FINISHED,
        user_messages=_log.between(txn.execute, head, keyed.words_first, keyed.words_last),
        window=(),
        reply=_log.between(txn.execute, head, keyed.reply_first, keyed.reply_last),
        last_active_at=from_micros(head.updated_at),
    )


def _stored_range(head: Head, stored: Sequence[Message]) -> tuple[int, int]:
    """The sequence numbers of what was just stored; an empty stretch lies behind the log's end."""
    return head.last_seq - len(stored) + 1, head.last_seq


class SqliteSessions:
    """The `SessionStore` port over one SQLite file."""

    def __init__(self, database: Database) -> None:
        self._db = database

    # Turns

    async def begin_turn(self, scope: Scope, request: BeginTurn) -> OpenTurn:
        ask = self._db.ask(scope, request.session_id)
        return await self._db.write(begin_turn, ask, scope, request, tuple(map(encode_draft, request.user_messages)))

    async def finish_turn(self, turn: OpenTurn, request: FinishTurn) -> AppendResult:
        ask = self._db.ask(turn.scope, turn.session.id)
        trace = None if request.trace is None else encode_trace(request.trace)
        try:
            return await self._db.write(finish, ask, turn, request, tuple(map(encode_draft, request.reply)), trace)
        except SessionCorrupt:
            raise TurnLost(turn.session.id, turn.id) from None

    async def renew_turn(self, turn: OpenTurn) -> OpenTurn:
        try:
            return await self._db.write(renew, self._db.ask(turn.scope, turn.session.id), turn)
        except SessionCorrupt:
            raise TurnLost(turn.session.id, turn.id) from None

    async def append(self, scope: Scope, session_id: str, batch: AppendBatch) -> AppendResult:
        ask = self._db.ask(scope, session_id)
        return await self._db.write(append, ask, scope, batch, tuple(map(encode_draft, batch.messages)))

    # Reading

    async def get(self, scope: Scope, session_id: str) -> Session:
        ask = self._db.ask(scope, session_id)
        return await self._touch_if_due(ask, await self._db.read(lambda db: session_of(reach(db.execute, ask))))

    async def messages(self, scope: Scope, session_id: str, query: Page) -> MessagePage:
        ask = self._db.ask(scope, session_id)
        found = await self._db.read(lambda db: _log.page_of(db.execute, reach(db.execute, ask), query))
        session = await self._touch_if_due(ask, found.session) if query.touch else found.session
        return found if session is found.session else replace(found, session=session)

    async def list(self, scope: Scope, query: SessionQuery) -> SessionPage:
        while True:
            try:
                return await self._db.readers.run(_listing.list_sessions, scope, query, self._db.clock())
            except CorruptRow as damage:
                await self._db.quarantine(damage)  # The next attempt no longer finds it.

    # Changing

    async def patch(self, scope: Scope, session_id: str, changes: Changes) -> Session:
        return await self._db.write(_edits.patch, self._db.ask(scope, session_id), changes)

    async def reset(self, scope: Scope, session_id: str, *, keep_metadata: Sequence[str] = ()) -> Session:
        return await self._db.write(_edits.reset, self._db.ask(scope, session_id), keep_metadata)

    async def fork(self, scope: Scope, session_id: str, request: ForkRequest) -> Session:
        ask, target = self._db.ask(scope, session_id), self._db.ask(scope, request.new_id)
        return await self._db.write(_edits.fork, ask, target, request)

    async def truncate(self, scope: Scope, session_id: str, request: Truncation) -> Session:
        return await self._db.write(_edits.truncate, self._db.ask(scope, session_id), request)

    async def rewrite(self, scope: Scope, session_id: str, request: Rewrite) -> Session:
        bodies = tuple(map(encode_draft, request.messages))
        traces = tuple(map(encode_trace, request.traces))
        return await self._db.write(_edits.rewrite, self._db.ask(scope, session_id), request, bodies, traces)

    async def delete(self, scope: Scope, session_id: str) -> None:
        await self._db.write(_edits.delete, self._db.ask(scope, session_id))

    async def _touch_if_due(self, ask: Ask, session: Session) -> Session:
        moved = session.deadline_after_read(self._db.clock())
        if moved is None:
            return session
        try:
            return await self._db.write(_edits.touch, ask, to_micros(moved))
        except (StoreFull, StoreReadOnly):
            return session  # Reading a full or read-only store works; the deadline stays.


class SqliteTraces:
    """The `TraceStore` port over one SQLite file."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def trace(self, scope: Scope, session_id: str, number: int) -> Trace | None:
        return await self._db.read(_log.load_trace, self._db.ask(scope, session_id), number)

    async def traces(
        self, scope: Scope, session_id: str, limit: int = 20, before: int | None = None
    ) -> tuple[Trace, ...]:
        return await self._db.read(_log.load_newest_traces, self._db.ask(scope, session_id), limit, before)
