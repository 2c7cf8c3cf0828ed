"""The records of the memory store: a session with its log, the rules for one session, and the tables of all."""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from msgspec import UNSET
from msgspec.structs import replace

from tenuto.errors import IdempotencyKeyReused, SequenceGap, SessionExpired, SessionForeign, SessionNotFound
from tenuto.model import (
    BeginTurn,
    Changes,
    Draft,
    IdempotencyKey,
    Message,
    NewSession,
    OpenTurn,
    Producer,
    Scope,
    Session,
    StateEntry,
    TurnState,
)
from tenuto.model.scope import session_key
from tenuto.model.session import drop_nulls, merge_patch
from tenuto.model.turn import KEYS_REMEMBERED, TRACES_KEPT, Trace, turn_offsets
from tenuto.ports import Clock
from tenuto.stores.codec import digest_id, number_drafts, to_micros


@dataclass(slots=True)
class KeyedWrite:
    """A write that came with an idempotency key: what it stored, and whether it is complete."""

    fingerprint: str
    turn_id: str
    number: int
    words: tuple[int, int]
    reply: tuple[int, int] = (0, -1)
    finished: bool = False


@dataclass(slots=True)
class SessionRecord:
    """A session with its log, of which the oldest `before` messages may be missing."""

    session: Session
    log: list[Message] = field(default_factory=list)
    before: int = 0
    keyed: OrderedDict[str, KeyedWrite] = field(default_factory=OrderedDict)
    marks: dict[str, int] = field(default_factory=dict)
    lease: str | None = None
    lease_until: datetime | None = None
    lease_key: str | None = None
    closed: str | None = None
    traces: dict[int, Trace] = field(default_factory=dict)

    def between(self, span: tuple[int, int]) -> tuple[Message, ...]:
        """The messages of a range of sequence numbers that still exist."""
        first, last = span
        return tuple(self.log[log_index(self.log, first) : log_index(self.log, last + 1)])


def log_index(log: list[Message], seq: int) -> int:
    """The index of a sequence number in a log, or where it would be."""
    return bisect_left(log, seq, key=lambda message: message.seq)


def new_session(scope: Scope, session_id: str, new: NewSession, token: str, now: datetime) -> Session:
    """A session created now."""
    return Session(
        id=session_id,
        scope=scope,
        incarnation=token,
        created_at=now,
        updated_at=now,
        expires_at=new.retention.deadline(now, now),
        retention=new.retention,
        version=0,
        title=new.title,
        context=drop_nulls(new.context),
        attributes=drop_nulls(new.attributes),
        metadata=drop_nulls(new.metadata),
    )


def find_keyed_write(record: SessionRecord, once: IdempotencyKey | None) -> KeyedWrite | None:
    """The earlier write of this key.

    Raises:
        IdempotencyKeyReused: it had another fingerprint.
    """
    if once is None:
        return None
    keyed = record.keyed.get(stored_key(record.keyed, once.key))
    if keyed is not None and keyed.fingerprint not in (once.fingerprint, digested(once.fingerprint)):
        raise IdempotencyKeyReused
    return keyed


def digested(name: str | bytes) -> str:
    """The name of a key, fingerprint or producer of which another store knew the digest alone; no id holds a NUL."""
    return "\0" + (digest_id(name) if isinstance(name, str) else name).hex()


def stored_key(names: Container[str], name: str) -> str:
    """The form in which a name is stored."""
    return digested(name) if name not in names and digested(name) in names else name


def to_finished_turn(scope: Scope, record: SessionRecord, keyed: KeyedWrite) -> OpenTurn:
    """The finished turn of this key."""
    return OpenTurn(
        id=keyed.turn_id,
        number=keyed.number,
        scope=scope,
        session=record.session,
        state=TurnState.FINISHED,
        user_messages=record.between(keyed.words),
        window=(),
        reply=record.between(keyed.reply),
        last_active_at=record.session.updated_at,
    )


def check_producer(record: SessionRecord, producer: Producer) -> bool:
    """Whether the producer's number was seen before; raises `SequenceGap` if numbers were skipped."""
    mark = record.marks.get(stored_key(record.marks, producer.id), 0)
    if producer.seq > mark + 1:
        raise SequenceGap(producer.id, mark + 1)
    return producer.seq <= mark


def append_turn(record: SessionRecord, opening: BeginTurn) -> tuple[int, tuple[Message, ...]]:
    """Append the user messages of a turn; returns its number."""
    number = record.session.turns + 1
    words = append_messages(record, opening.user_messages, number, opening.producer)
    record.session = replace(record.session, turns=number)
    remember_key(record, opening.idempotency_key, opening.turn_id, words, finished=False)
    return number, words


def append_messages(
    record: SessionRecord, drafts: tuple[Draft, ...], number: int, producer: Producer | None, spread: bool = False
) -> tuple[Message, ...]:
    """Append messages to the log, and number them."""
    if producer is not None:
        if check_producer(record, producer):
            return ()
        record.marks[stored_key(record.marks, producer.id)] = producer.seq
    offsets = turn_offsets(drafts) if spread else [0] * len(drafts)
    seq = record.session.last_seq
    stored = number_drafts(drafts, seq + 1, [number + offset for offset in offsets])
    record.log.extend(stored)
    turns = number + offsets[-1] if offsets else 0
    record.session = replace(record.session, last_seq=seq + len(stored), turns=max(record.session.turns, turns))
    return stored


def remember_key(
    record: SessionRecord, once: IdempotencyKey | None, turn_id: str, words: tuple[Message, ...], *, finished: bool
) -> None:
    """Record what a keyed write stored, and drop the oldest keys."""
    if once is None:
        return
    span = (words[0].seq, words[-1].seq) if words else (record.session.last_seq + 1, record.session.last_seq)
    record.keyed[once.key] = KeyedWrite(once.fingerprint, turn_id, record.session.turns, words=span, finished=finished)
    if len(record.keyed) > KEYS_REMEMBERED:
        record.keyed.popitem(last=False)


def take_lease(record: SessionRecord, opening: BeginTurn, now: datetime) -> None:
    """Lease the session to this turn."""
    record.lease = opening.turn_id
    record.lease_until = now + opening.lease
    once = opening.idempotency_key
    record.lease_key = stored_key(record.keyed, once.key) if once is not None else None
    if record.lease_key is not None:
        record.keyed[record.lease_key].turn_id = opening.turn_id


def is_turn_finished(record: SessionRecord, turn: OpenTurn) -> bool:
    """Whether this turn has ended before."""
    return record.closed == turn.id or any(
        keyed.finished and keyed.turn_id == turn.id for keyed in record.keyed.values()
    )


def close_turn(record: SessionRecord, turn: OpenTurn, reply: tuple[Message, ...]) -> None:
    """Record the end of a turn and the reply of its key."""
    record.closed = turn.id
    keyed = record.keyed.get(record.lease_key) if record.lease_key is not None else None
    if keyed is not None:
        keyed.finished = True
        keyed.reply = (reply[0].seq, reply[-1].seq) if reply else (0, -1)


def store_trace(record: SessionRecord, number: int, trace: Trace) -> None:
    """Store a trace, and drop those of old turns."""
    record.traces[number] = trace
    for old in [kept for kept in record.traces if kept <= number - TRACES_KEPT]:
        del record.traces[old]


def reword(record: SessionRecord, new: Message) -> bool:
    """Replace a message; false if it is gone."""
    at = log_index(record.log, new.seq)
    if at == len(record.log) or (record.log[at].seq, record.log[at].id) != (new.seq, new.id):
        return False
    record.log[at] = replace(new, turn=record.log[at].turn)
    return True


def replace_trace(record: SessionRecord, new: Trace) -> bool:
    """Replace a trace; false if it is gone."""
    old = record.traces.get(new.number)
    if old is None or old.id != new.id:
        return False
    record.traces[new.number] = new
    return True


def spend(record: SessionRecord, tokens: int, cost_nanos: int) -> None:
    """Add to the totals."""
    session = record.session
    record.session = replace(session, tokens=session.tokens + tokens, cost_nanos=session.cost_nanos + cost_nanos)


def apply_changes(record: SessionRecord, changes: Changes) -> None:
    """Apply a patch to the head."""
    session = record.session
    record.session = replace(
        session,
        title=session.title if changes.title is UNSET else changes.title,
        status=session.status if changes.status is UNSET else changes.status,
        window_start=session.window_start if changes.window_start is UNSET else changes.window_start,
        context=merge_patch(session.context, changes.context),
        attributes=merge_patch(session.attributes, changes.attributes),
        metadata=merge_patch(session.metadata, changes.metadata),
    )


def load_window(record: SessionRecord, size: int) -> tuple[Message, ...]:
    """The newest messages."""
    first = max(log_index(record.log, record.session.window_start), len(record.log) - size)
    return tuple(record.log[first:]) if size else ()


def trim(record: SessionRecord, max_messages: int | None, max_turns: int | None) -> None:
    """Delete the oldest messages beyond the limits."""
    log, turns = record.log, record.session.turns
    first = max(0, len(log) - max_messages) if max_messages is not None else 0
    if max_turns is not None:
        # Turn numbers may decrease (the reply of a resumed turn follows later turns): delete a prefix of the log.
        oldest = turns - max_turns
        first = max(first, next((i for i, message in enumerate(log) if message.turn > oldest), len(log)))
    if first:
        record.before = 0
    elif max_messages is not None:
        record.before = min(record.before, max_messages - len(log))
    del log[:first]


class MemoryTables:
    """Sessions by `session_key`, state by `state_key`, and each owner's namespaces by `owner_key`."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.records: dict[bytes, SessionRecord] = {}
        self.state: dict[bytes, dict[str, StateEntry]] = {}
        # Each owner's drawers, with their scope and namespace; of the tenant's own, their site and owner.
        self.drawers: dict[bytes, dict[bytes, tuple[Scope, str]]] = {}
        self.homes: dict[bytes, tuple[bytes, bytes]] = {}

    def reach(self, scope: Scope, session_id: str) -> SessionRecord:
        """The session, if the scope reaches it."""
        record = self.records.get(session_key(scope, session_id))
        if record is None:
            raise SessionNotFound(session_id)
        if record.session.expired(self.clock()):
            raise SessionExpired(session_id)
        if not scope.reaches(record.session.scope):
            raise SessionForeign(session_id, ":".join(record.session.scope.owner))
        return record

    def remove_drawer(self, owner: bytes, place: bytes) -> None:
        """Remove an empty drawer of state."""
        del self.state[place]
        self.homes.pop(place, None)
        drawers = self.drawers.get(owner, {})
        drawers.pop(place, None)
        if not drawers:
            self.drawers.pop(owner, None)

    def visible(self, scope: Scope) -> Iterator[tuple[int, bytes]]:
        """The times of the last change and the keys of the sessions that the scope reaches."""
        now = self.clock()
        for key, record in self.records.items():
            if scope.reaches(record.session.scope) and not record.session.expired(now):
                yield to_micros(record.session.updated_at), key
