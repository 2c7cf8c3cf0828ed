"""Sessions in memory, and the traces that lie in their records."""

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
    Appended,
    Batch,
    Changes,
    Closing,
    Forking,
    ForkPoint,
    MessagePage,
    NewSession,
    Opening,
    OpenTurn,
    Page,
    Rewriting,
    Scope,
    Session,
    SessionPage,
    SessionQuery,
    Truncating,
    TurnState,
)
from tenuto.model.scope import session_key
from tenuto.model.trace import Trace
from tenuto.stores.codec import decode_cursor, encode_cursor
from tenuto.stores.memory._tables import Tables
from tenuto.stores.memory.record import (
    Record,
    append_to,
    apply_changes,
    close_turn,
    finished_turn,
    index_of,
    is_closed,
    keep_trace,
    known_key,
    matches,
    new_session,
    opened_turn,
    owner_of,
    remember_key,
    retell,
    reword,
    spend,
    take_lease,
    trim,
    was_seen,
    window_of,
)


class MemorySessions:
    """The `SessionStore` port over plain dictionaries."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    # Turns

    async def begin_turn(self, scope: Scope, opening: Opening) -> OpenTurn:
        now = self._tables.clock()
        record, created, expired = self._find_or_create(scope, opening.session_id, opening.create, opening.turn_id, now)
        last_active = None if created else record.session.updated_at
        keyed = known_key(record, opening.once)
        if keyed is not None and keyed.finished:
            return finished_turn(scope, record, keyed)
        self._refuse_if_busy(record, now)
        number, words = (keyed.number, record.between(keyed.words)) if keyed else opened_turn(record, opening)
        take_lease(record, opening, now)
        self._changed(record, now, opening=opening)
        resumed = keyed is not None or (bool(opening.words) and not words)
        return OpenTurn(
            id=opening.turn_id,
            number=number,
            scope=scope,
            session=record.session,
            state=TurnState.RESUMED if resumed else TurnState.OPENED,
            words=words,
            window=window_of(record, opening.window),
            lease=opening.lease,
            lease_until=record.lease_until,
            created=created,
            expired=expired,
            last_active_at=last_active,
        )

    async def finish_turn(self, turn: OpenTurn, closing: Closing) -> Appended:
        now = self._tables.clock()
        record = self._leased(turn)
        if record.lease != turn.id:
            if is_closed(record, turn):
                return Appended(session=record.session, duplicate=True)
            raise TurnLost(turn.session.id, turn.id)
        reply = append_to(record, closing.reply, turn.number, closing.producer) if closing.reply else ()
        if not closing.abandoned:
            close_turn(record, turn, reply)
        record.lease = record.lease_until = record.lease_key = None
        spend(record, closing.usage.tokens, closing.usage.cost_nanos)
        if closing.changes is not None:
            apply_changes(record, closing.changes)
        if closing.trace is not None:
            keep_trace(record, turn.number, closing.trace)
        self._changed(record, now)
        return Appended(session=record.session, messages=reply)

    async def renew_turn(self, turn: OpenTurn) -> OpenTurn:
        now = self._tables.clock()
        record = self._leased(turn)
        if record.lease != turn.id:
            raise TurnLost(turn.session.id, turn.id)
        record.lease_until = now + turn.lease
        return replace(turn, lease_until=record.lease_until)

    async def append(self, scope: Scope, session_id: str, batch: Batch) -> Appended:
        now = self._tables.clock()
        record, created, expired = self._find_or_create(scope, session_id, batch.create, batch.id, now)
        keyed = known_key(record, batch.once)
        if keyed is not None:
            return Appended(session=record.session, messages=record.between(keyed.words), duplicate=True)
        if batch.producer is not None and was_seen(record, batch.producer):
            return Appended(session=record.session, duplicate=True)
        number = record.session.turns + 1
        stored = append_to(record, batch.messages, number, batch.producer, spread=True)
        remember_key(record, batch.once, batch.id, stored, finished=True)
        spend(record, batch.spent.tokens, batch.spent.cost_nanos)
        self._changed(record, now)
        return Appended(session=record.session, messages=stored, created=created, expired=expired)

    # Reading

    async def get(self, scope: Scope, session_id: str) -> Session:
        return self._read(scope, session_id).session

    async def messages(self, scope: Scope, session_id: str, page: Page) -> MessagePage:
        record = self._read(scope, session_id)
        log = record.log
        if page.after is not None:
            first = index_of(log, page.after + 1)
            last = min(first + page.limit, len(log))
        else:
            last = len(log) if page.before is None else index_of(log, page.before)
            first = max(0, last - page.limit)
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
        chosen = [place for place in places if matches(self._tables.records[place[1]].session, query)]
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
        self._changed(record, self._tables.clock())
        return record.session

    async def reset(self, scope: Scope, session_id: str, *, sparing: Sequence[str] = ()) -> Session:
        record = self._tables.reach(scope, session_id)
        record.log.clear()
        record.keyed.clear()
        record.traces.clear()
        record.lease = record.lease_until = record.lease_key = record.closed = None
        start = record.session.last_seq + 1
        kept = {name: value for name, value in record.session.metadata.items() if name in sparing}
        record.session = replace(record.session, messages=0, window_start=start, context={}, metadata=kept)
        self._changed(record, self._tables.clock())
        return record.session

    async def fork(self, scope: Scope, session_id: str, forking: Forking) -> Session:
        source = self._tables.reach(scope, session_id)
        now = self._tables.clock()
        target = self._tables.records.get(session_key(scope, forking.new_id))
        if target is not None and not target.session.expired(now):
            if not scope.reaches(target.session.scope):
                raise SessionForeign(forking.new_id, owner_of(target.session))
            raise SessionExists(forking.new_id)
        at = source.session.last_seq if forking.at is None else min(forking.at, source.session.last_seq)
        log = source.log[: index_of(source.log, at + 1)]
        session = replace(
            source.session,
            id=forking.new_id,
            incarnation=forking.new_id,
            created_at=now,
            updated_at=now,
            expires_at=source.session.keeping.deadline(now, now),
            version=1,
            title=source.session.title if forking.title is None else forking.title,
            turns=log[-1].turn if log else 0,
            messages=len(log),
            last_seq=at,
            window_start=min(source.session.window_start, at + 1),
            tokens=0,
            cost_nanos=0,
            forked_from=ForkPoint(session_id=session_id, seq=at),
        )
        self._tables.records[session_key(scope, forking.new_id)] = Record(session=session, log=log)
        return session

    async def truncate(self, scope: Scope, session_id: str, truncating: Truncating) -> Session:
        record = self._tables.reach(scope, session_id)
        after, sparing, within = truncating.after, truncating.sparing, truncating.within
        expected, version = truncating.if_version, record.session.version
        if expected is not None and expected != version:
            raise VersionConflict(expected, version)
        if within is not None and record.lease != within.id:
            raise TurnLost(session_id, within.id)
        cut = index_of(record.log, after + 1)
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
        self._changed(record, self._tables.clock())
        return record.session

    async def rewrite(self, scope: Scope, session_id: str, rewriting: Rewriting) -> Session:
        record = self._tables.reach(scope, session_id)
        replaced = [reword(record, message) for message in rewriting.messages]
        replaced += [retell(record, trace) for trace in rewriting.traces]
        if any(replaced):
            record.session = replace(record.session, version=record.session.version + 1)
        return record.session

    async def delete(self, scope: Scope, session_id: str) -> None:
        self._tables.reach(scope, session_id)
        del self._tables.records[session_key(scope, session_id)]

    # One session as it is known from elsewhere, whose rules hold here meanwhile

    def adopt(self, record: Record) -> None:
        """Have this session as it is, in the place of what stood here."""
        self._tables.records[session_key(record.session.scope, record.session.id)] = record

    def record(self, key: bytes) -> Record | None:
        """The session of this key, whoever asks."""
        return self._tables.records.get(key)

    def forget(self, key: bytes) -> None:
        """Have it no more."""
        self._tables.records.pop(key, None)

    # What the methods share

    def _read(self, scope: Scope, session_id: str) -> Record:
        record = self._tables.reach(scope, session_id)
        deadline = record.session.read_deadline(self._tables.clock())
        if deadline is not None:
            record.session = replace(record.session, expires_at=deadline)
        return record

    def _find_or_create(
        self, scope: Scope, session_id: str, create: NewSession | None, token: str, now: datetime
    ) -> tuple[Record, bool, bool]:
        expired = False
        try:
            return self._tables.reach(scope, session_id), False, False
        except SessionForeign:
            raise
        except SessionNotFound as absent:
            if create is None:
                raise
            expired = isinstance(absent, SessionExpired)
        return Record(session=new_session(scope, session_id, create, token, now)), True, expired

    def _leased(self, turn: OpenTurn) -> Record:
        try:
            record = self._tables.reach(turn.scope, turn.session.id)
        except SessionNotFound:
            raise TurnLost(turn.session.id, turn.id) from None
        if record.session.incarnation != turn.session.incarnation:
            raise TurnLost(turn.session.id, turn.id)
        return record

    def _refuse_if_busy(self, record: Record, now: datetime) -> None:
        if record.lease is not None and record.lease_until is not None and record.lease_until > now:
            raise SessionBusy(record.session.id, record.lease_until - now)

    def _changed(self, record: Record, now: datetime, opening: Opening | None = None) -> None:
        """Every change ends here: caps, counters, version, deadline, and the place of a new record."""
        session = record.session
        keeping = session.keeping if opening is None or opening.keeping is None else opening.keeping
        now = max(now, session.updated_at)
        trim(record, keeping.max_messages, keeping.max_turns)
        record.session = replace(
            session,
            keeping=keeping,
            version=session.version + 1,
            messages=record.before + len(record.log),
            updated_at=now,
            expires_at=keeping.deadline(session.created_at, now),
        )
        self._tables.records[session_key(session.scope, session.id)] = record


class MemoryTraces:
    """The `TraceStore` port over the same dictionaries."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def trace(self, scope: Scope, session_id: str, number: int) -> Trace | None:
        return self._tables.reach(scope, session_id).traces.get(number)

    async def traces(
        self, scope: Scope, session_id: str, limit: int = 20, before: int | None = None
    ) -> tuple[Trace, ...]:
        kept = self._tables.reach(scope, session_id).traces
        numbers = sorted((number for number in kept if before is None or number < before), reverse=True)
        return tuple(kept[number] for number in numbers[:limit])
