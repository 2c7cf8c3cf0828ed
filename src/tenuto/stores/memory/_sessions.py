"""Sessions in memory, and the traces in their records."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from tenuto.errors import (
    SessionBusy,
    SessionExists,
    SessionExpired,
    SessionForeign,
    SessionNotFound,
    TurnLost,
    VersionConflict,
)
from tenuto.model import (
    AppendBatch,
    AppendResult,
    BeginTurn,
    Changes,
    FinishTurn,
    ForkPoint,
    ForkRequest,
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
from tenuto.model.scope import session_key
from tenuto.model.turn import Trace
from tenuto.stores.codec import decode_cursor, encode_cursor
from tenuto.stores.memory.record import (
    MemoryTables,
    SessionRecord,
    append_messages,
    append_turn,
    apply_changes,
    check_producer,
    close_turn,
    find_keyed_write,
    is_turn_finished,
    load_window,
    log_index,
    new_session,
    remember_key,
    replace_trace,
    reword,
    spend,
    store_trace,
    take_lease,
    to_finished_turn,
    trim,
)
from tenuto.stores.paging import matches_query


class MemorySessions:
    """The `SessionStore` port over plain dictionaries."""

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables

    # Turns

    async def begin_turn(self, scope: Scope, request: BeginTurn) -> OpenTurn:
        now = self._tables.clock()
        record, created, expired = self._find_or_create(scope, request.session_id, request.create, request.turn_id, now)
        last_active = None if created else record.session.updated_at
        keyed = find_keyed_write(record, request.idempotency_key)
        if keyed is not None and keyed.finished:
            return to_finished_turn(scope, record, keyed)
        if record.lease is not None and record.lease_until is not None and record.lease_until > now:
            session = record.session
            raise SessionBusy(session.id, record.lease_until - now, record.lease, session.incarnation)
        number, words = (keyed.number, record.between(keyed.words)) if keyed else append_turn(record, request)
        take_lease(record, request, now)
        self._save_change(record, now, opening=request)
        resumed = keyed is not None or (bool(request.user_messages) and not words)
        return OpenTurn(
            id=request.turn_id,
            number=number,
            scope=scope,
            session=record.session,
            state=TurnState.RESUMED if resumed else TurnState.OPENED,
            user_messages=words,
            window=load_window(record, request.window),
            lease=request.lease,
            lease_until=record.lease_until,
            created=created,
            expired=expired,
            last_active_at=last_active,
        )

    async def finish_turn(self, turn: OpenTurn, request: FinishTurn) -> AppendResult:
        now = self._tables.clock()
        record = self._require_turn_record(turn)
        if record.lease != turn.id:
            if is_turn_finished(record, turn):
                return AppendResult(session=record.session, duplicate=True)
            raise TurnLost(turn.session.id, turn.id)
        reply = append_messages(record, request.reply, turn.number, request.producer) if request.reply else ()
        if not request.abandoned:
            close_turn(record, turn, reply)
        record.lease = record.lease_until = record.lease_key = None
        spend(record, request.usage.tokens, request.usage.cost_nanos)
        if request.changes is not None:
            apply_changes(record, request.changes)
        if request.trace is not None:
            store_trace(record, turn.number, request.trace)
        self._save_change(record, now)
        return AppendResult(session=record.session, messages=reply)

    async def renew_turn(self, turn: OpenTurn) -> OpenTurn:
        now = self._tables.clock()
        record = self._require_turn_record(turn)
        if record.lease != turn.id:
            raise TurnLost(turn.session.id, turn.id)
        record.lease_until = now + turn.lease
        return replace(turn, lease_until=record.lease_until)

    async def append(self, scope: Scope, session_id: str, batch: AppendBatch) -> AppendResult:
        now = self._tables.clock()
        record, created, expired = self._find_or_create(scope, session_id, batch.create, batch.id, now)
        keyed = find_keyed_write(record, batch.idempotency_key)
        if keyed is not None:
            return AppendResult(session=record.session, messages=record.between(keyed.words), duplicate=True)
        if batch.producer is not None and check_producer(record, batch.producer):
            return AppendResult(session=record.session, duplicate=True)
        number = record.session.turns + 1
        stored = append_messages(record, batch.messages, number, batch.producer, spread=True)
        remember_key(record, batch.idempotency_key, batch.id, stored, finished=True)
        spend(record, batch.total_usage.tokens, batch.total_usage.cost_nanos)
        self._save_change(record, now)
        return AppendResult(session=record.session, messages=stored, created=created, expired=expired)

    # Reading

    async def get(self, scope: Scope, session_id: str) -> Session:
        return self._read_record(scope, session_id).session

    async def messages(self, scope: Scope, session_id: str, query: Page) -> MessagePage:
        record = (self._read_record if query.touch else self._tables.reach)(scope, session_id)
        log = record.log
        if query.after is not None:
            first = log_index(log, query.after + 1)
            last = min(first + query.limit, len(log))
        else:
            last = len(log) if query.before is None else log_index(log, query.before)
            first = max(0, last - query.limit)
        return MessagePage(
            session=record.session,
            messages=tuple(log[first:last]),
            more_before=first > 0 or record.before > 0,
            more_after=last < len(log),
        )

    async def list(self, scope: Scope, query: SessionQuery) -> SessionPage:
        places = sorted(self._tables.visible(scope), reverse=True)
        if query.cursor is not None:
            behind = decode_cursor(query.cursor)
            places = [place for place in places if place < behind]
        chosen = [place for place in places if matches_query(self._tables.records[place[1]].session, query)]
        page = chosen[: query.limit]
        return SessionPage(
            sessions=tuple(self._tables.records[key].session for _, key in page),
            cursor=encode_cursor(*page[-1]) if len(chosen) > len(page) else None,
        )

    # Changing

    async def patch(self, scope: Scope, session_id: str, changes: Changes) -> Session:
        record = self._tables.reach(scope, session_id)
        version = record.session.version
        if changes.if_version is not None and changes.if_version != version:
            raise VersionConflict(changes.if_version, version)
        apply_changes(record, changes)
        self._save_change(record, self._tables.clock())
        return record.session

    async def reset(self, scope: Scope, session_id: str, *, keep_metadata: Sequence[str] = ()) -> Session:
        record = self._tables.reach(scope, session_id)
        record.log.clear()
        record.keyed.clear()
        record.traces.clear()
        record.lease = record.lease_until = record.lease_key = record.closed = None
        start = record.session.last_seq + 1
        kept = {name: value for name, value in record.session.metadata.items() if name in keep_metadata}
        record.session = replace(record.session, messages=0, window_start=start, context={}, metadata=kept)
        self._save_change(record, self._tables.clock())
        return record.session

    async def fork(self, scope: Scope, session_id: str, request: ForkRequest) -> Session:
        source = self._tables.reach(scope, session_id)
        now = self._tables.clock()
        target = self._tables.records.get(session_key(scope, request.new_id))
        if target is not None and not target.session.expired(now):
            if not scope.reaches(target.session.scope):
                raise SessionForeign(request.new_id, ":".join(target.session.scope.owner))
            raise SessionExists(request.new_id)
        at = source.session.last_seq if request.at is None else min(request.at, source.session.last_seq)
        log = source.log[: log_index(source.log, at + 1)]
        session = replace(
            source.session,
            id=request.new_id,
            incarnation=request.new_id,
            created_at=now,
            updated_at=now,
            expires_at=source.session.retention.deadline(now, now),
            version=1,
            title=source.session.title if request.title is None else request.title,
            turns=log[-1].turn if log else 0,
            messages=len(log),
            last_seq=at,
            window_start=min(source.session.window_start, at + 1),
            tokens=0,
            cost_nanos=0,
            forked_from=ForkPoint(session_id=session_id, seq=at),
        )
        self._tables.records[session_key(scope, request.new_id)] = SessionRecord(session=session, log=log)
        return session

    async def truncate(self, scope: Scope, session_id: str, request: Truncation) -> Session:
        record = self._tables.reach(scope, session_id)
        after, sparing, within = request.after, request.keep_seqs, request.within_turn
        expected, version = request.if_version, record.session.version
        if expected is not None and expected != version:
            raise VersionConflict(expected, version)
        if within is not None and record.lease != within.id:
            raise TurnLost(session_id, within.id)
        cut = log_index(record.log, after + 1)
        gone = [message for message in record.log[cut:] if message.seq not in sparing]
        first_gone = min((message.turn for message in gone), default=record.session.turns + 1)
        record.log[cut:] = [message for message in record.log[cut:] if message.seq in sparing]
        record.traces = {number: trace for number, trace in record.traces.items() if number < first_gone}
        for key, keyed in list(record.keyed.items()):
            if within is not None and key == record.lease_key:
                continue
            if keyed.words[0] > after:
                del record.keyed[key]
            elif keyed.finished and keyed.reply[1] > after:
                keyed.finished, keyed.reply = False, (0, -1)
        if within is None:
            record.lease = record.lease_until = record.lease_key = record.closed = None
        record.session = replace(record.session, messages=len(record.log))
        self._save_change(record, self._tables.clock())
        return record.session

    async def rewrite(self, scope: Scope, session_id: str, request: Rewrite) -> Session:
        record = self._tables.reach(scope, session_id)
        expected, version = request.if_version, record.session.version
        if expected is not None and expected != version:
            raise VersionConflict(expected, version)
        replaced = [reword(record, message) for message in request.messages]
        replaced += [replace_trace(record, trace) for trace in request.traces]
        if any(replaced):
            record.session = replace(record.session, version=record.session.version + 1)
        return record.session

    async def delete(self, scope: Scope, session_id: str) -> None:
        self._tables.reach(scope, session_id)
        del self._tables.records[session_key(scope, session_id)]

    # Records of a local replica

    def adopt(self, record: SessionRecord) -> None:
        """Add or replace a session."""
        self._tables.records[session_key(record.session.scope, record.session.id)] = record

    def record(self, key: bytes) -> SessionRecord | None:
        """The session of this key, without a scope check."""
        return self._tables.records.get(key)

    def drop_record(self, key: bytes) -> None:
        """Remove a session, without a scope check."""
        self._tables.records.pop(key, None)

    # What the methods share

    def _read_record(self, scope: Scope, session_id: str) -> SessionRecord:
        record = self._tables.reach(scope, session_id)
        deadline = record.session.deadline_after_read(self._tables.clock())
        if deadline is not None:
            record.session = replace(record.session, expires_at=deadline)
        return record

    def _find_or_create(
        self, scope: Scope, session_id: str, create: NewSession | None, token: str, now: datetime
    ) -> tuple[SessionRecord, bool, bool]:
        expired = False
        try:
            return self._tables.reach(scope, session_id), False, False
        except SessionForeign:
            raise
        except SessionNotFound as absent:
            if create is None:
                raise
            expired = isinstance(absent, SessionExpired)
        return SessionRecord(session=new_session(scope, session_id, create, token, now)), True, expired

    def _require_turn_record(self, turn: OpenTurn) -> SessionRecord:
        try:
            record = self._tables.reach(turn.scope, turn.session.id)
        except SessionNotFound:
            raise TurnLost(turn.session.id, turn.id) from None
        if record.session.incarnation != turn.session.incarnation:
            raise TurnLost(turn.session.id, turn.id)
        return record

    def _save_change(self, record: SessionRecord, now: datetime, opening: BeginTurn | None = None) -> None:
        """Finish a change: limits, counters, version, expiry, and the table entry of a new record."""
        session = record.session
        retention = session.retention if opening is None or opening.retention is None else opening.retention
        now = max(now, session.updated_at)
        trim(record, retention.max_messages, retention.max_turns)
        record.session = replace(
            session,
            retention=retention,
            version=session.version + 1,
            messages=record.before + len(record.log),
            updated_at=now,
            expires_at=retention.deadline(session.created_at, now),
        )
        self._tables.records[session_key(session.scope, session.id)] = record


class MemoryTraces:
    """The `TraceStore` port over the same dictionaries."""

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables

    async def trace(self, scope: Scope, session_id: str, number: int) -> Trace | None:
        return self._tables.reach(scope, session_id).traces.get(number)

    async def traces(
        self, scope: Scope, session_id: str, limit: int = 20, before: int | None = None
    ) -> tuple[Trace, ...]:
        kept = self._tables.reach(scope, session_id).traces
        numbers = sorted((number for number in kept if before is None or number < before), reverse=True)
        return tuple(kept[number] for number in numbers[:limit])
