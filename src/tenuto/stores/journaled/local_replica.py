"""The local replica: sessions during an outage, as last seen and with the turns since.

It is a memory store, so that leases, keys, windows, numbers, limits and scopes follow the same rules.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Container
from typing import Final

from msgspec.structs import replace

from tenuto.errors import StoreUnavailable
from tenuto.model import (
    AppendResult,
    BeginTurn,
    FinishTurn,
    Message,
    MessagePage,
    NewSession,
    OpenTurn,
    Page,
    Scope,
    Session,
    TurnState,
)
from tenuto.model.message import memory_bytes
from tenuto.model.turn import ONCE
from tenuto.ports import Clock
from tenuto.stores.journaled.rows import JournaledBegin, ReplicaOrigin, Row
from tenuto.stores.memory import MemoryStore
from tenuto.stores.memory.record import KeyedWrite, SessionRecord
from tenuto.stores.session_cache import CachedSession

# Bounds on stored messages that a row carries, so that a session can go on after a restart.
_TAIL_MESSAGES: Final = 40
_TAIL_BYTES: Final = 256 * 1024


def record_of(entry: CachedSession) -> SessionRecord:
    """A cached session as a record of the memory store."""
    keyed = OrderedDict(
        (key, KeyedWrite(one.fingerprint, one.turn_id, one.number, one.words, one.reply or (0, -1), bool(one.reply)))
        for key, one in entry.keyed.items()
    )
    before = max(0, entry.session.messages - len(entry.tail))
    return SessionRecord(session=entry.session, log=list(entry.tail), before=before, keyed=keyed)


class View:
    """Sessions that were loaded or created here, each with its origin."""

    def __init__(self, clock: Clock) -> None:
        store = MemoryStore(clock=clock)
        self.sessions = store.sessions
        self.traces = store.traces
        self._origins: dict[bytes, ReplicaOrigin] = {}

    @property
    def keys(self) -> tuple[bytes, ...]:
        """The sessions in the replica."""
        return tuple(self._origins)

    def has_session(self, key: bytes) -> bool:
        """Whether the replica has the session."""
        return key in self._origins

    def origin(self, key: bytes) -> ReplicaOrigin:
        """The origin of a session."""
        return self._origins[key]

    def is_write_only(self, key: bytes) -> bool:
        """Whether turns can only be finished: the session's messages are not certain and not shown."""
        origin = self._origins.get(key)
        return origin is not None and origin.blind

    def concerns(self, key: bytes, person: Scope) -> bool:
        """Whether a user takes part, or may take part, in a session."""
        record = self.sessions.record(key)
        if record is None:
            return True
        scope = record.session.scope
        if (scope.tenant, scope.site) != (person.tenant, person.site):
            return False
        shared = scope.owner[:1] != ("user",)
        return shared or person.user in {scope.user, *(message.speaker for message in record.log)}

    def load_record(self, key: bytes, record: SessionRecord, *, blind: bool = False) -> None:
        """Add a session as it was last seen."""
        self.sessions.adopt(record)
        # In a shared session a row must not hold messages of others: it is erased with its own users only.
        tail = _newest_for_row(record.log) if record.session.scope.owner[:1] == ("user",) else ()
        self._origins[key] = ReplicaOrigin(head=record.session, tail=tail, blind=blind)

    def set_opened_here(self, key: bytes, turn: OpenTurn) -> None:
        """The session was created here, by this turn."""
        self._origins[key] = ReplicaOrigin(opened_by=turn.id)

    def drop_session(self, key: bytes) -> None:
        """Remove a session."""
        self.sessions.drop_record(key)
        self._origins.pop(key, None)

    def snapshot(self, key: bytes) -> tuple[SessionRecord | None, ReplicaOrigin | None]:
        """Copy a session, to restore it if a step fails."""
        record = self.sessions.record(key)
        if record is not None:
            record, old = copy.copy(record), record
            record.log, record.marks, record.traces = old.log.copy(), old.marks.copy(), old.traces.copy()
            record.keyed = OrderedDict((name, copy.copy(keyed)) for name, keyed in old.keyed.items())
        return record, self._origins.get(key)

    def restore(self, key: bytes, saved: tuple[SessionRecord | None, ReplicaOrigin | None]) -> None:
        """Restore a session."""
        self.drop_session(key)
        record, origin = saved
        if record is not None:
            self.sessions.adopt(record)
        if origin is not None:
            self._origins[key] = origin

    def lease(self, key: bytes, turn: OpenTurn, opening: BeginTurn) -> None:
        """Lease a session to a turn that began in the store."""
        record = self.sessions.record(key)
        assert record is not None
        once, words, last = opening.idempotency_key, turn.user_messages, record.session.last_seq
        record.lease, record.lease_until = turn.id, turn.lease_until
        record.lease_key = once.key if once is not None else None
        if once is not None and once.key not in record.keyed:
            span = (words[0].seq, words[-1].seq) if words else (last + 1, last)
            record.keyed[once.key] = KeyedWrite(once.fingerprint, turn.id, turn.number, words=span)

    def check_answer_complete(self, key: bytes, opening: BeginTurn, turn: OpenTurn) -> None:
        """Check that the whole turn of an idempotency key is here.

        Raises:
            StoreUnavailable: a message of it is missing.
        """
        record, once = self.sessions.record(key), opening.idempotency_key
        assert record is not None
        assert once is not None
        keyed = record.keyed[once.key]
        for (first, last), found in ((keyed.words, turn.user_messages), (keyed.reply, turn.reply)):
            if len(found) != last - first + 1:
                raise StoreUnavailable

    def is_key_in_log(self, key: bytes, turn: OpenTurn) -> bool:
        """Whether the log has earlier messages of the same idempotency key: the turn was answered elsewhere."""
        record = self.sessions.record(key)
        marks = [word.metadata[ONCE] for word in turn.user_messages if ONCE in word.metadata]
        if record is None or not marks:
            return False
        return any(said.metadata.get(ONCE) in marks and said.seq < turn.user_messages[0].seq for said in record.log)

    async def again(self, key: bytes, rows: list[Row], live: Container[str] = ()) -> None:
        """Build a session from its rows, as after a restart; open turns that are not `live` are abandoned."""
        for row in rows:
            if not self.has_session(key):
                self._load_origin(key, row.beginning.origin)
            turn = await self._replay_begin(key, row)
            if row.closing is not None or row.turn_id not in live:
                await self.sessions.finish_turn(turn, row.closing or FinishTurn(abandoned=True))

    async def finish_turn(self, key: bytes, turn: OpenTurn, closing: FinishTurn) -> AppendResult:
        """Finish a turn that is open here."""
        return await self.sessions.finish_turn(self._with_local_session(key, turn), closing)

    async def renew_turn(self, key: bytes, turn: OpenTurn) -> OpenTurn:
        """Renew a turn that is open here."""
        return await self.sessions.renew_turn(self._with_local_session(key, turn))

    async def page(self, scope: Scope, session_id: str, page: Page) -> MessagePage:
        """A page of messages, if they are here."""
        found = await self.sessions.messages(scope, session_id, page)
        if not _covers_query(found, page):
            raise StoreUnavailable
        return found

    def _with_local_session(self, key: bytes, turn: OpenTurn) -> OpenTurn:
        """A turn with its session, which may have been rebuilt since."""
        record = self.sessions.record(key)
        return turn if record is None else replace(turn, session=record.session)

    def _load_origin(self, key: bytes, origin: ReplicaOrigin) -> None:
        if origin.head is not None:
            before = max(0, origin.head.messages - len(origin.tail))
            self.sessions.adopt(SessionRecord(session=origin.head, log=list(origin.tail), before=before))
            # Earlier messages are missing: their row was replayed, or the session is shared.
            origin = replace(origin, blind=origin.blind or (origin.head.messages > 0 and not origin.tail))
        self._origins[key] = origin

    async def _replay_begin(self, key: bytes, row: Row) -> OpenTurn:
        beginning = row.beginning
        if not beginning.there:
            # The turn that created the session may have been erased.
            opens = beginning.origin.opened_by and self.sessions.record(key) is None
            opening = beginning.opening
            create = opening.create or NewSession() if opens else opening.create
            return await self.sessions.begin_turn(beginning.scope, replace(opening, create=create))
        record = self.sessions.record(key)
        assert record is not None
        turn = ticket(beginning, record.session, beginning.number)
        self.lease(key, turn, beginning.opening)
        return turn


def ticket(beginning: JournaledBegin, session: Session, number: int) -> OpenTurn:
    """A turn of this session with what finishing it needs."""
    opening = beginning.opening
    return OpenTurn(
        id=opening.turn_id,
        number=number,
        scope=beginning.scope,
        session=session,
        state=TurnState.OPENED,
        user_messages=(),
        window=(),
        lease=opening.lease,
    )


def _newest_for_row(log: list[Message]) -> tuple[Message, ...]:
    """The newest messages, as many as a row may carry."""
    kept: list[Message] = []
    room = _TAIL_BYTES
    for message in reversed(log[-_TAIL_MESSAGES:]):
        room -= memory_bytes(message)
        if room < 0:
            break
        kept.append(message)
    return tuple(reversed(kept))


def _covers_query(found: MessagePage, page: Page) -> bool:
    """Whether the page is what the store would return; the newest page may be a part."""
    messages = found.messages
    if not found.more_before:
        return True
    if page.before is not None:
        return len(messages) == page.limit
    if page.after is not None:
        return (messages[0].seq if messages else found.session.last_seq + 1) <= page.after + 1
    return bool(messages)
