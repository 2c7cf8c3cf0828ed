"""How sessions look here while the store is away: known ones as they were, and everything said since.

It is a store in memory, so leases, keys, windows, numbers, caps and scopes keep the rules they have everywhere.
"""

from __future__ import annotations

import copy
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
from tenuto.stores.journaled.seen_session import SeenSession
from tenuto.stores.memory import MemoryStore
from tenuto.stores.memory.record import KeyedWrite, SessionRecord

# What goes into the outbox of talk that the store has, so that it can go on after a restart as well.
_TAIL_MESSAGES: Final = 40
_TAIL_BYTES: Final = 256 * 1024


class View:
    """Sessions that were taken over, or opened here, each with where it came from."""

    def __init__(self, clock: Clock) -> None:
        store = MemoryStore(clock=clock)
        self.sessions = store.sessions
        self.traces = store.traces
        self._origins: dict[bytes, ReplicaOrigin] = {}

    @property
    def keys(self) -> tuple[bytes, ...]:
        """The sessions that stand here."""
        return tuple(self._origins)

    def has_session(self, key: bytes) -> bool:
        """Whether the session stands here."""
        return key in self._origins

    def origin(self, key: bytes) -> ReplicaOrigin:
        """Where it came from."""
        return self._origins[key]

    def is_write_only(self, key: bytes) -> bool:
        """Whether only ends of turns are taken: how the session looks is not certain, and nothing of it is shown."""
        origin = self._origins.get(key)
        return origin is not None and origin.blind

    def concerns(self, key: bytes, person: Scope) -> bool:
        """Whether somebody has, or may have, a part in a session."""
        record = self.sessions.record(key)
        if record is None:
            return True
        scope = record.session.scope
        if (scope.tenant, scope.site) != (person.tenant, person.site):
            return False
        shared = scope.owner[:1] != ("user",)
        return shared or person.user in {scope.user, *(message.speaker for message in record.log)}

    def load_record(self, key: bytes, record: SessionRecord, *, blind: bool = False) -> None:
        """Go on here with a session as it is known."""
        self.sessions.adopt(record)
        # Where several speak, a row must not hold what others said: it goes with whoever said its own words.
        tail = _newest_for_row(record.log) if record.session.scope.owner[:1] == ("user",) else ()
        self._origins[key] = ReplicaOrigin(head=record.session, tail=tail, blind=blind)

    def set_opened_here(self, key: bytes, turn: OpenTurn) -> None:
        """The session began here, with this turn."""
        self._origins[key] = ReplicaOrigin(opened_by=turn.id)

    def drop_session(self, key: bytes) -> None:
        """The session stands here no more."""
        self.sessions.drop_record(key)
        self._origins.pop(key, None)

    def snapshot(self, key: bytes) -> tuple[SessionRecord | None, ReplicaOrigin | None]:
        """The session as it is, to be put back should what follows fail."""
        record = self.sessions.record(key)
        return _copy_record(record) if record is not None else None, self._origins.get(key)

    def restore(self, key: bytes, saved: tuple[SessionRecord | None, ReplicaOrigin | None]) -> None:
        """Have the session as it was."""
        self.drop_session(key)
        record, origin = saved
        if record is not None:
            self.sessions.adopt(record)
        if origin is not None:
            self._origins[key] = origin

    def lease(self, key: bytes, turn: OpenTurn, opening: BeginTurn) -> None:
        """Give a session to a turn that began in the store, and holds it there."""
        record = self.sessions.record(key)
        assert record is not None
        once, words, last = opening.once, turn.words, record.session.last_seq
        record.lease, record.lease_until = turn.id, turn.lease_until
        record.lease_key = once.key if once is not None else None
        if once is not None and once.key not in record.keyed:
            span = (words[0].seq, words[-1].seq) if words else (last + 1, last)
            record.keyed[once.key] = KeyedWrite(once.fingerprint, turn.id, turn.number, words=span)

    def check_answer_complete(self, key: bytes, opening: BeginTurn, turn: OpenTurn) -> None:
        """Have the whole answer that a key was given before.

        Raises:
            StoreUnavailable: a part of it is not here.
        """
        record, once = self.sessions.record(key), opening.once
        assert record is not None
        assert once is not None
        keyed = record.keyed[once.key]
        for (first, last), found in ((keyed.words, turn.words), (keyed.reply, turn.reply)):
            if len(found) != last - first + 1:
                raise StoreUnavailable

    def is_key_in_log(self, key: bytes, turn: OpenTurn) -> bool:
        """Whether words under the same key stand in the log before a turn's own: it was answered, and not here."""
        record = self.sessions.record(key)
        marks = [word.metadata[ONCE] for word in turn.words if ONCE in word.metadata]
        if record is None or not marks:
            return False
        return any(said.metadata.get(ONCE) in marks and said.seq < turn.words[0].seq for said in record.log)

    async def again(self, key: bytes, rows: list[Row], live: Container[str] = ()) -> None:
        """Build a session from its rows, as after a restart. A turn that nobody ends any more is given up."""
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
        """Hold a turn that is open here."""
        return await self.sessions.renew_turn(self._with_local_session(key, turn))

    async def page(self, scope: Scope, session_id: str, page: Page) -> MessagePage:
        """A page of the log, if this part of it is here."""
        found = await self.sessions.messages(scope, session_id, page)
        if not _covers_query(found, page):
            raise StoreUnavailable
        return found

    def _with_local_session(self, key: bytes, turn: OpenTurn) -> OpenTurn:
        """A turn in its session, which may have been built again since it began."""
        record = self.sessions.record(key)
        return turn if record is None else replace(turn, session=record.session)

    def _load_origin(self, key: bytes, origin: ReplicaOrigin) -> None:
        if origin.head is not None:
            before = max(0, origin.head.messages - len(origin.tail))
            self.sessions.adopt(SessionRecord(session=origin.head, log=list(origin.tail), before=before))
            # The talk before is not here: the row that had it was replayed, or several speak in it.
            origin = replace(origin, blind=origin.blind or (origin.head.messages > 0 and not origin.tail))
        self._origins[key] = origin

    async def _replay_begin(self, key: bytes, row: Row) -> OpenTurn:
        beginning = row.beginning
        if not beginning.there:
            # Who opened it may have been erased since.
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
    """A turn that has begun in this session, as far as its end needs it."""
    opening = beginning.opening
    return OpenTurn(
        id=opening.turn_id,
        number=number,
        scope=beginning.scope,
        session=session,
        state=TurnState.OPENED,
        words=(),
        window=(),
        lease=opening.lease,
    )


def glimpse(key: bytes, entry: SeenSession, clock: Clock) -> View:
    """One known session, to look at."""
    view = View(clock)
    view.load_record(key, entry.record())
    return view


def _copy_record(record: SessionRecord) -> SessionRecord:
    twin = copy.copy(record)
    twin.log, twin.marks, twin.traces = record.log.copy(), record.marks.copy(), record.traces.copy()
    twin.keyed = record.keyed.__class__((key, copy.copy(keyed)) for key, keyed in record.keyed.items())
    return twin


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
    """Whether the page is what the store would bring; of the newest one a part will do."""
    messages = found.messages
    if not found.more_before:
        return True
    if page.before is not None:
        return len(messages) == page.limit
    if page.after is not None:
        return (messages[0].seq if messages else found.session.last_seq + 1) <= page.after + 1
    return bool(messages)
