"""Replay of the outbox: turn by turn, oldest first, each exactly once.

A turn may be in the store already, if its first attempt was not answered or an earlier replay was killed: then messages
of its ids follow what the store had before. What others wrote meanwhile stays before it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from tenuto.errors import (
    CircuitOpen,
    DecryptionFailed,
    IdempotencyKeyReused,
    MasterKeyMissing,
    SessionBusy,
    SessionElsewhere,
    SessionForeign,
    SessionNotFound,
    Superseded,
    TenutoError,
    TurnLost,
    Unavailable,
    VersionConflict,
)
from tenuto.holder import without_holder
from tenuto.model import (
    AppendBatch,
    Draft,
    FinishTurn,
    IdempotencyKey,
    Message,
    NewSession,
    OpenTurn,
    Page,
    Scope,
    Session,
    Truncation,
    TurnState,
)
from tenuto.model.turn import JOURNALED_AFTER, is_superseded, trace_id
from tenuto.model.values import Value
from tenuto.ports import Clock, SessionStore, StateStore
from tenuto.stores.codec import to_micros
from tenuto.stores.journaled.local_replica import ticket
from tenuto.stores.journaled.outbox import Outbox
from tenuto.stores.journaled.rows import JournaledBegin, JournalRow, Row, RowSealer

ERASURES: Final = "erasures"
"""The namespace of a tenant's state with the erased users and times, for journals on other machines."""

# The time one step may take, and after a crash the longest wait for the session.
_LEASE: Final = timedelta(seconds=10)
# By how much the clocks of two machines may differ: turns that begin sooner after an erasure are dropped.
_CLOCKS_DIFFER: Final = timedelta(minutes=5)
_ATTEMPTS: Final = 10
_PAGE: Final = 1000
_log = logging.getLogger(__name__)


class StoredSession(Value, frozen=True, kw_only=True):
    """A session as it is in the store, if it is, with the messages since it was last seen here."""

    session_id: str
    session: Session | None = None
    said: tuple[Message, ...] = ()

    def first_stored(self, drafts: Iterable[Draft]) -> Message | None:
        """The first of these messages that is stored."""
        return next(iter(self.stored_messages(drafts)), None)

    def stored_messages(self, drafts: Iterable[Draft]) -> tuple[Message, ...]:
        """Those of these messages that are stored. Clients choose ids, so role and time must match, too."""
        wanted = {_message_identity(draft) for draft in drafts}
        return tuple(message for message in self.said if _message_identity(message) in wanted)

    def lacks_some(self, since: int) -> bool:
        """Whether a message after a sequence number was deleted."""
        last = self.session.last_seq if self.session is not None else since
        return sum(message.seq > since for message in self.said) < last - since


class _RowErased(Exception):
    """The row was erased during its replay."""


class OutboxReplay:
    """Replays rows. `moved` are turns that were still open here and go on in the store.

    `is_behind` tells whether another process has to replay a turn of a session before the one that began at a time.
    """

    def __init__(
        self,
        *,
        sessions: SessionStore,
        state: StateStore,
        outbox: Outbox,
        seals: RowSealer,
        clock: Clock,
        is_behind: Callable[[bytes, int], bool],
    ) -> None:
        self._sessions = sessions
        self._state = state
        self._outbox = outbox
        self._seals = seals
        self._clock = clock
        self._is_behind = is_behind
        self.replayed = 0
        self.moved: dict[str, OpenTurn] = {}
        self._created: dict[bytes, str] = {}

    async def session(self, key: bytes, live: Container[str]) -> None:
        """Replay a session's rows; the turns in `live` are open, and are not abandoned.

        Raises:
            SessionBusy: a turn of another process holds the session; the other rows wait.
            SessionElsewhere: another process has to replay its turns first; the other rows wait.
            Unavailable: the store is down; the other rows wait.
        """
        removals = list[asyncio.Task[None]]()
        cleared: frozenset[str] = frozenset()
        try:
            for seen in await self._outbox.rows(key):
                if self._is_behind(key, to_micros(seen.begun_at)):
                    raise SessionElsewhere
                raw = replace(seen, incarnation=seen.incarnation or self._created.get(key, ""))
                # Checked after the row before: who was not erased then was not for a later turn.
                if not cleared.issuperset(raw.persons) and await self.is_user_erased(raw):
                    await self._withdraw_row(raw)
                elif await self._replay_or_quarantine(raw, live):
                    cleared = frozenset(raw.persons)
                    # While the next row is replayed: they share the fsync.
                    removals.append(asyncio.create_task(self._remove_stored(raw)))
        finally:
            self._created.pop(key, None)
            await asyncio.gather(*removals)

    async def _replay_or_quarantine(self, raw: JournalRow, live: Container[str]) -> bool:
        """Replay a row; returns whether it is stored and must be deleted."""
        try:
            return await self._replay_row(raw, live)
        except _RowErased:
            return False
        except (SessionBusy, MasterKeyMissing):
            raise
        except Unavailable as away:
            if not isinstance(away, DecryptionFailed):
                raise
            await self._withdraw_or_quarantine(raw, away)
        except TenutoError as refused:
            await self._withdraw_or_quarantine(raw, refused)
        return False

    async def is_user_erased(self, raw: JournalRow) -> bool:
        """Whether a user of the row was erased since, on any machine. An unreadable time counts as now."""
        space = Scope(tenant=raw.tenant, site=raw.site)
        for person in raw.persons:
            entry = await self._state.read_state(space, ERASURES, person)
            if entry is None:
                continue
            if not isinstance(entry.value, int) or to_micros(raw.begun_at - _CLOCKS_DIFFER) <= entry.value:
                return True
        return False

    async def _replay_row(self, raw: JournalRow, live: Container[str]) -> bool:
        """Replay a row, and delete that of an open turn; undo it and return False if a user was erased meanwhile."""
        row = await self._seals.row(raw)
        turn = await self._replay_turn(raw, row, row.turn_id in live)
        if await self.is_user_erased(raw):
            await self._withdraw_row(raw)
            return False
        if turn is not None:
            await self._remove_stored(raw)
            self.moved[turn.id] = turn
        return turn is None

    async def _remove_stored(self, raw: JournalRow) -> None:
        await self._outbox.remove(raw)
        self.replayed += 1

    async def _replay_turn(self, raw: JournalRow, row: Row, live: bool) -> OpenTurn | None:
        """Replay one turn; returns it if it is open and goes on in the store."""
        beginning, closing = row.beginning, row.closing or FinishTurn(abandoned=True)
        found = await self._find_session(row)
        if found.first_stored(closing.reply) is not None:
            return None
        words = found.first_stored(beginning.opening.user_messages)
        if words is None and not beginning.there:
            _check_not_removed(row, found)
        session = await self._ensure_session(raw, row, found)
        if not await self._outbox.record_attempt(raw, session.last_seq if words is None else words.seq - 1):
            raise _RowErased
        if words is None and not beginning.there:
            turn = await self._begin_turn(raw, beginning, found, live)
        else:
            turn = ticket(beginning, session, words.turn if words is not None else beginning.number)
            turn = replace(turn, user_messages=(words,) if words is not None else ())
            if live:
                try:
                    turn = await self._sessions.renew_turn(turn)
                except TurnLost:
                    turn = await self._reopen_turn(beginning, turn, beginning.opening.turn_id, beginning.opening.lease)
        if turn.state is TurnState.FINISHED:
            _check_not_answered(row, turn)
        elif live:
            return turn
        else:
            await self._finish_turn(row, turn, closing)
        return None

    async def _find_session(self, row: Row) -> StoredSession:
        """Find the session of a turn.

        Raises:
            SessionNotFound: it was deleted, or is another one by now: it is not created again.
        """
        beginning = row.beginning
        origin, session_id = beginning.origin, beginning.opening.session_id
        try:
            found = await self._load_since(beginning.scope, session_id, beginning.since)
        except SessionForeign:
            if not origin.opened_by:
                raise
            # Created here while its owner in the store could not be looked up.
            _log.warning("session %s was created here but has another owner: its turns go to session %s",
                         session_id, origin.opened_by)  # fmt: skip
            found = await self._load_since(beginning.scope, origin.opened_by, 0)
        known = origin.head.incarnation if origin.head is not None else row.incarnation
        there = found.session.incarnation if found.session is not None else ""
        may_open = bool(origin.opened_by) and not beginning.there
        if (known and there != known) or not (there or may_open):
            raise SessionNotFound(session_id)
        return found

    async def _ensure_session(self, raw: JournalRow, row: Row, found: StoredSession) -> Session:
        """The session in the store; one that was created here is created there before its first message.

        Its incarnation is recorded: if it is not found again, it was deleted, and is not created again.
        """
        session, origin, opening = found.session, row.beginning.origin, row.beginning.opening
        if session is None:
            batch = AppendBatch(id=origin.opened_by, create=opening.create or NewSession())
            session = (await self._sessions.append(row.beginning.scope, found.session_id, batch)).session
        if origin.head is None and not row.incarnation:
            await self._outbox.record_incarnation(raw.session, session.incarnation)
            self._created[raw.session] = session.incarnation
        return session

    async def _load_since(self, scope: Scope, session_id: str, seq: int) -> StoredSession:
        said = list[Message]()
        while True:
            try:
                page = await self._sessions.messages(scope, session_id, Page(limit=_PAGE, after=seq))
            except SessionForeign:
                raise
            except SessionNotFound:
                return StoredSession(session_id=session_id)
            said += page.messages
            if not page.more_after:
                return StoredSession(session_id=session_id, session=page.session, said=tuple(said))
            seq = page.messages[-1].seq

    async def _begin_turn(
        self, raw: JournalRow, beginning: JournaledBegin, found: StoredSession, live: bool
    ) -> OpenTurn:
        opening = replace(
            beginning.opening,
            turn_id=beginning.opening.turn_id if live else without_holder(beginning.opening.turn_id),
            session_id=found.session_id,
            create=None,
            lease=beginning.opening.lease if live else _LEASE,
            idempotency_key=_once(beginning),
            user_messages=_mark_place(beginning.opening.user_messages, beginning),
        )
        try:
            return await self._sessions.begin_turn(beginning.scope, opening)
        except (SessionBusy, CircuitOpen):
            if raw.tried is None:
                await self._outbox.clear_attempt(raw)
            raise

    async def _finish_turn(self, row: Row, turn: OpenTurn, closing: FinishTurn) -> None:
        closing = replace(closing, reply=_mark_place(closing.reply, row.beginning))
        try:
            await self._sessions.finish_turn(turn, rename_trace(closing, turn))
        except TurnLost:
            if closing.abandoned:
                return  # Its user messages are stored, and it holds no lease.
            if not await self._is_question_stored(row):
                raise
            turn = await self._reopen_turn(row.beginning, turn, without_holder(row.turn_id), _LEASE)
            if turn.state is TurnState.FINISHED:
                _check_not_answered(row, turn)
            else:
                await self._sessions.finish_turn(turn, rename_trace(closing, turn))

    async def _reopen_turn(self, beginning: JournaledBegin, turn: OpenTurn, turn_id: str, lease: timedelta) -> OpenTurn:
        """Begin a turn again that lost its lease: by its key, or without user messages."""
        opening = replace(
            beginning.opening,
            turn_id=turn_id,
            session_id=turn.session.id,
            user_messages=(),
            create=None,
            lease=lease,
            idempotency_key=_once(beginning),
        )
        again = await self._sessions.begin_turn(beginning.scope, opening)
        return again if again.state is TurnState.FINISHED else replace(again, number=turn.number)

    async def _is_question_stored(self, row: Row) -> bool:
        """Whether the messages that a turn answers are still in the log."""
        beginning = row.beginning
        found = await self._find_session(row)
        if not beginning.there and beginning.opening.user_messages:
            return found.first_stored(beginning.opening.user_messages) is not None
        if not beginning.last_word:
            return found.session is not None and found.session.window_start <= beginning.since
        page = Page(limit=1, after=beginning.last_word - 1)
        after = await self._sessions.messages(beginning.scope, found.session_id, page)
        return any(message.seq == beginning.last_word for message in after.messages)

    async def _withdraw_row(self, raw: JournalRow) -> None:
        """Delete a row of an erased user, with what the store has of it."""
        try:
            row = await self._seals.row(raw)
        except MasterKeyMissing:
            raise
        except DecryptionFailed:
            await self._outbox.remove(raw)
            return
        with suppress(SessionNotFound):
            await self._remove_from_store(row)
        await self._outbox.remove(raw)

    async def _remove_from_store(self, row: Row) -> None:
        """Delete a turn from the store, and its session if nothing else is in it.

        Raises:
            SessionNotFound: it is gone anyway.
            SessionBusy: others write there all the time.
        """
        scope, session_id = row.beginning.scope, row.beginning.opening.session_id
        for _ in range(_ATTEMPTS):
            found = await self._find_session(row)
            if found.session is None:
                return
            try:
                left = await self._truncate_turn(row, found, found.session)
            except VersionConflict:
                continue
            if not left.messages and left.incarnation == row.beginning.origin.opened_by:
                await self._sessions.delete(scope, left.id)
            return
        raise SessionBusy(session_id, timedelta(0))

    async def _truncate_turn(self, row: Row, found: StoredSession, session: Session) -> Session:
        """Delete a turn's messages from the log, but none of others after them."""
        reply = row.closing.reply if row.closing is not None else ()
        going = found.stored_messages((*row.beginning.opening.user_messages, *reply))
        if not going:
            return session
        after = going[0].seq - 1
        sparing = tuple(message.seq for message in found.said if message.seq > after and message not in going)
        truncating = Truncation(after=after, keep_seqs=sparing, if_version=session.version)
        return await self._sessions.truncate(row.beginning.scope, session.id, truncating)

    async def _withdraw_or_quarantine(self, raw: JournalRow, why: TenutoError) -> None:
        """Quarantine a row that the store can never take, or delete it if a user was erased."""
        if await self.is_user_erased(raw):
            await self._withdraw_row(raw)
            return
        _log.warning("a journaled turn of tenant %s was quarantined: %s", raw.tenant, why.code)
        await self._outbox.quarantine_row(raw, why.code, self._clock())


def rename_trace(closing: FinishTurn, turn: OpenTurn) -> FinishTurn:
    """The end of a turn with its trace id in the store: other turns may have been stored before it."""
    trace = closing.trace
    if trace is None:
        return closing
    name = trace_id(turn.session.id, turn.number, trace.turn_id)
    if name == trace.id:
        return closing
    reply = tuple(
        replace(draft, metadata={**draft.metadata, "trace": name}) if draft.metadata.get("trace") == trace.id else draft
        for draft in closing.reply
    )
    renamed = replace(trace, id=name, number=turn.number, session_id=turn.session.id)
    return replace(closing, reply=reply, trace=renamed)


def _mark_place(drafts: tuple[Draft, ...], beginning: JournaledBegin) -> tuple[Draft, ...]:
    """The messages of a journaled turn, marked with the place where they belong."""
    place = {JOURNALED_AFTER: beginning.since}
    return tuple(replace(draft, metadata={**draft.metadata, **place}) for draft in drafts)


def _check_not_removed(row: Row, found: StoredSession) -> None:
    """Refuse user messages that the store may have had and deleted.

    Raises:
        TurnLost: the log was reset or truncated since.
        Superseded: the same messages were stored by another process, and replaced.
    """
    beginning = row.beginning
    if found.session is not None and is_superseded(found.session, beginning.opening.user_messages):
        raise Superseded
    asked = beginning.since if beginning.asked and beginning.origin.head is not None else None
    since = row.tried if row.tried is not None else asked
    if since is not None and found.lacks_some(since):
        raise TurnLost(found.session_id, row.turn_id)


def _once(beginning: JournaledBegin) -> IdempotencyKey:
    """The idempotency key of a turn: its caller's, or its id."""
    turn_id = beginning.opening.turn_id
    return beginning.opening.idempotency_key or IdempotencyKey(key=turn_id, fingerprint=turn_id)


def _check_not_answered(row: Row, turn: OpenTurn) -> None:
    """Refuse a turn whose key was answered by another one, when the caller repeated the request elsewhere."""
    if without_holder(turn.id) != without_holder(row.turn_id) and row.closing is not None and row.closing.reply:
        raise IdempotencyKeyReused


def _message_identity(message: Draft) -> tuple[object, ...]:
    return message.id, message.role, message.sent_at
