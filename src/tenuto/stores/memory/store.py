"""Sessions in this process's memory: for tests, for state that may vanish, and as the plain statement of the rules.

Each method runs without waiting in between, so it is atomic under asyncio.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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
    Compaction,
    Erased,
    Forking,
    ForkPoint,
    Gone,
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
    StateEntry,
    StateName,
    Stats,
    Truncating,
    TurnState,
)
from tenuto.model.scope import owner_alone, owner_key, person_of, session_key, space_key, state_key
from tenuto.model.trace import Trace
from tenuto.model.values import Json, checked_id, checked_json
from tenuto.ports import Clock, utc_now
from tenuto.stores.codec import decode_cursor, encode_cursor, to_micros
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
from tenuto.stores.naming import in_order, stretch


class MemoryStore:
    """The `Store` port over plain dictionaries."""

    def __init__(self, *, clock: Clock = utc_now) -> None:
        self._clock = clock
        self._records: dict[bytes, Record] = {}
        self._state: dict[bytes, dict[str, StateEntry]] = {}
        # Whose they are: each owner's drawers, with the names they were opened by.
        self._drawers: dict[bytes, dict[bytes, tuple[Scope, str]]] = {}

    # Turns

    async def begin_turn(self, scope: Scope, opening: Opening) -> OpenTurn:
        now = self._clock()
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
        now = self._clock()
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
        now = self._clock()
        record = self._leased(turn)
        if record.lease != turn.id:
            raise TurnLost(turn.session.id, turn.id)
        record.lease_until = now + turn.lease
        return replace(turn, lease_until=record.lease_until)

    async def append(self, scope: Scope, session_id: str, batch: Batch) -> Appended:
        now = self._clock()
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
        places = sorted(self._places(scope), reverse=True)
        if query.cursor is not None:
            behind = decode_cursor(query.cursor)
            places = [place for place in places if place < behind]
        chosen = [place for place in places if matches(self._records[place[1]].session, query)]
        page = chosen[: query.limit]
        return SessionPage(
            sessions=tuple(self._records[key].session for _, key in page),
            cursor=encode_cursor(*page[-1]) if len(chosen) > len(page) else None,
        )

    # Changing

    async def patch(self, scope: Scope, session_id: str, changes: Changes) -> Session:
        record = self._reach(scope, session_id)
        version = record.session.version
        if changes.if_version is not None and changes.if_version != version:
            raise VersionConflict(changes.if_version, version)
        apply_changes(record, changes)
        self._changed(record, self._clock())
        return record.session

    async def reset(self, scope: Scope, session_id: str, *, sparing: Sequence[str] = ()) -> Session:
        record = self._reach(scope, session_id)
        record.log.clear()
        record.keyed.clear()
        record.traces.clear()
        record.lease = record.lease_until = record.lease_key = record.closed = None
        start = record.session.last_seq + 1
        kept = {name: value for name, value in record.session.metadata.items() if name in sparing}
        record.session = replace(record.session, messages=0, window_start=start, context={}, metadata=kept)
        self._changed(record, self._clock())
        return record.session

    async def fork(self, scope: Scope, session_id: str, forking: Forking) -> Session:
        source = self._reach(scope, session_id)
        now = self._clock()
        target = self._records.get(session_key(scope, forking.new_id))
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
        self._records[session_key(scope, forking.new_id)] = Record(session=session, log=log)
        return session

    async def truncate(self, scope: Scope, session_id: str, truncating: Truncating) -> Session:
        record = self._reach(scope, session_id)
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
        self._changed(record, self._clock())
        return record.session

    async def rewrite(self, scope: Scope, session_id: str, rewriting: Rewriting) -> Session:
        record = self._reach(scope, session_id)
        replaced = [reword(record, message) for message in rewriting.messages]
        replaced += [retell(record, trace) for trace in rewriting.traces]
        if any(replaced):
            record.session = replace(record.session, version=record.session.version + 1)
        return record.session

    async def delete(self, scope: Scope, session_id: str) -> None:
        self._reach(scope, session_id)
        del self._records[session_key(scope, session_id)]

    # Traces

    async def trace(self, scope: Scope, session_id: str, number: int) -> Trace | None:
        return self._reach(scope, session_id).traces.get(number)

    async def traces(
        self, scope: Scope, session_id: str, limit: int = 20, before: int | None = None
    ) -> tuple[Trace, ...]:
        kept = self._reach(scope, session_id).traces
        numbers = sorted((number for number in kept if before is None or number < before), reverse=True)
        return tuple(kept[number] for number in numbers[:limit])

    # State

    async def read_state(self, scope: Scope, namespace: str, key: str) -> StateEntry | None:
        return self._state.get(state_key(scope, namespace), {}).get(key)

    async def write_state(
        self, scope: Scope, namespace: str, key: str, value: Json, if_version: int | None = None
    ) -> StateEntry:
        checked_id(key, "the state key")
        checked_json(value, "the state value")
        place = state_key(scope, namespace)
        before = self._state.get(place, {}).get(key)
        version = before.version if before is not None else 0
        if if_version is not None and if_version != version:
            raise VersionConflict(if_version, version)
        entry = self._state.setdefault(place, {})[key] = StateEntry(key=key, value=value, version=version + 1)
        self._drawers.setdefault(owner_key(scope), {})[place] = (owner_alone(scope), namespace)
        return entry

    async def delete_state(self, scope: Scope, namespace: str, key: str) -> bool:
        place = state_key(scope, namespace)
        drawer = self._state.get(place, {})
        gone = drawer.pop(key, None) is not None
        if gone and not drawer:
            self._forget_drawer(owner_key(scope), place)
        return gone

    async def list_state(
        self, scope: Scope, namespace: str, after: str = "", limit: int = 100
    ) -> tuple[StateEntry, ...]:
        drawer = self._state.get(state_key(scope, namespace), {})
        return tuple(drawer[key] for key in sorted(drawer) if key > after)[:limit]

    async def state_keys(self, scope: Scope, namespace: str, after: str = "", limit: int = 100) -> tuple[str, ...]:
        return tuple(entry.key for entry in await self.list_state(scope, namespace, after, limit))

    async def state_names(
        self, scope: Scope, after: StateName | None = None, limit: int = 100
    ) -> tuple[StateName, ...]:
        *behind, last = stretch(scope, after)
        found = sorted(
            (owner, place, key)
            for owner, drawers in self._drawers.items()
            for place, (whose, _) in drawers.items()
            if whose.owner and scope.reaches(whose)
            for key in self._state[place]
        )
        wanted = [one for one in found if [*one] > behind and one[0] <= last][: max(0, limit)]
        return tuple(self._named(*one) for one in wanted)

    # Upkeep

    async def sweep(self, limit: int = 1000) -> tuple[Gone, ...]:
        now = self._clock()
        over = [key for key, record in self._records.items() if record.session.expired(now)]
        return self._remove(over[:limit])

    async def evict(self, scope: Scope, keep: int, sparing: str | None = None) -> tuple[Gone, ...]:
        space = space_key(scope)
        spared = session_key(scope, sparing) if sparing is not None else None
        places = sorted(
            (to_micros(record.session.updated_at), key)
            for key, record in self._records.items()
            if space_key(record.session.scope) == space
        )
        beyond = max(0, len(places) - keep)
        return self._remove([key for _, key in places if key != spared][:beyond])

    async def erase(self, scope: Scope, limit: int = 100) -> Erased:
        owner = owner_key(person_of(scope))
        places = sorted(
            (to_micros(record.session.updated_at), key)
            for key, record in self._records.items()
            if owner_key(record.session.scope) == owner
        )
        going = [key for _, key in places[: max(0, limit)]]
        records = [self._records[key] for key in going]
        more = len(places) > len(going)
        return Erased(
            gone=self._remove(going),
            messages=sum(len(record.log) for record in records),
            traces=sum(len(record.traces) for record in records),
            states=0 if more else self._empty_drawers(owner),
            more=more,
        )

    async def spaces(self, after: Scope | None = None, limit: int = 100) -> tuple[Scope, ...]:
        behind = b"" if after is None else space_key(after)
        held = [record.session.scope for record in self._records.values()]
        held += [
            whose
            for drawers in self._drawers.values()
            for place, (whose, _) in drawers.items()
            if whose.owner and self._state[place]
        ]
        return in_order((scope for scope in held if space_key(scope) > behind), limit)

    async def compact(self) -> Compaction:
        return Compaction(cleared=True)

    async def stats(self, scope: Scope) -> Stats:
        heads = [self._records[key].session for _, key in self._places(scope)]
        return Stats(
            sessions=len(heads),
            messages=sum(head.messages for head in heads),
            tokens=sum(head.tokens for head in heads),
            cost_nanos=sum(head.cost_nanos for head in heads),
        )

    async def ping(self) -> None:
        return None

    async def close(self) -> None:
        return None

    # One session as it is known from elsewhere, whose rules hold here meanwhile

    def adopt(self, record: Record) -> None:
        """Have this session as it is, in the place of what stood here."""
        self._records[session_key(record.session.scope, record.session.id)] = record

    def record(self, key: bytes) -> Record | None:
        """The session of this key, whoever asks."""
        return self._records.get(key)

    def forget(self, key: bytes) -> None:
        """Have it no more."""
        self._records.pop(key, None)

    # What the methods share

    def _remove(self, keys: Iterable[bytes]) -> tuple[Gone, ...]:
        gone = (self._records.pop(key).session for key in keys)
        return tuple(Gone(scope=session.scope, session_id=session.id) for session in gone)

    def _named(self, owner: bytes, place: bytes, key: str) -> StateName:
        whose, namespace = self._drawers[owner][place]
        return StateName(scope=whose, namespace=namespace, key=key)

    def _forget_drawer(self, owner: bytes, place: bytes) -> None:
        del self._state[place], self._drawers[owner][place]
        if not self._drawers[owner]:
            del self._drawers[owner]

    def _empty_drawers(self, owner: bytes) -> int:
        return sum(len(self._state.pop(place)) for place in self._drawers.pop(owner, ()))

    def _places(self, scope: Scope) -> Iterator[tuple[int, bytes]]:
        now = self._clock()
        for key, record in self._records.items():
            if scope.reaches(record.session.scope) and not record.session.expired(now):
                yield to_micros(record.session.updated_at), key

    def _reach(self, scope: Scope, session_id: str) -> Record:
        record = self._records.get(session_key(scope, session_id))
        if record is None:
            raise SessionNotFound(session_id)
        if record.session.expired(self._clock()):
            raise SessionExpired(session_id)
        if not scope.reaches(record.session.scope):
            raise SessionForeign(session_id, owner_of(record.session))
        return record

    def _read(self, scope: Scope, session_id: str) -> Record:
        record = self._reach(scope, session_id)
        deadline = record.session.read_deadline(self._clock())
        if deadline is not None:
            record.session = replace(record.session, expires_at=deadline)
        return record

    def _find_or_create(
        self, scope: Scope, session_id: str, create: NewSession | None, token: str, now: datetime
    ) -> tuple[Record, bool, bool]:
        expired = False
        try:
            return self._reach(scope, session_id), False, False
        except SessionForeign:
            raise
        except SessionNotFound as absent:
            if create is None:
                raise
            expired = isinstance(absent, SessionExpired)
        return Record(session=new_session(scope, session_id, create, token, now)), True, expired

    def _leased(self, turn: OpenTurn) -> Record:
        try:
            record = self._reach(turn.scope, turn.session.id)
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
        self._records[session_key(session.scope, session.id)] = record
