"""Bringing the outbox to the store: turn by turn, oldest first, each exactly once.

Whether a turn is there already, because its first attempt went unanswered or an earlier replay was killed, its messages
tell: those with its ids that stand behind what the store had. What others wrote meanwhile stays before it.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from tenuto.errors import (
    CircuitOpen,
    DecryptionFailed,
    IdempotencyKeyReused,
    MasterKeyMissing,
    SessionBusy,
    SessionForeign,
    SessionNotFound,
    Superseded,
    TenutoError,
    TurnLost,
    Unavailable,
    VersionConflict,
)
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
from tenuto.model.turn import is_superseded, trace_id
from tenuto.model.values import Json, Value
from tenuto.ports import Clock, SessionStore, StateStore
from tenuto.stores.codec import to_micros
from tenuto.stores.journaled.local_replica import ticket
from tenuto.stores.journaled.outbox import Outbox
from tenuto.stores.journaled.rows import JournaledBegin, JournalRow, Row, RowSealer

ERASURES: Final = "erasures"
"""The drawer of a tenant's own state that tells journals on other machines who was erased, and when."""

# As long as one step may take; should we die in it, nobody waits longer for the session.
_LEASE: Final = timedelta(seconds=10)
# By so much may the clocks of two machines differ: who returns sooner after an erasure is not journaled.
_CLOCKS_DIFFER: Final = timedelta(minutes=5)
_ATTEMPTS: Final = 10
_PAGE: Final = 1000
_log = logging.getLogger(__name__)


class StoredSession(Value, frozen=True, kw_only=True):
    """A session as it is in the store, with what was said since it was known here; `None` where there is none."""

    session_id: str
    session: Session | None = None
    said: tuple[Message, ...] = ()

    def first_stored(self, drafts: Iterable[Draft]) -> Message | None:
        """The first of these messages that is there. An id alone may be anybody's choice."""
        return next(iter(self.stored_messages(drafts)), None)

    def stored_messages(self, drafts: Iterable[Draft]) -> tuple[Message, ...]:
        """Those of these messages that are there."""
        wanted = {_message_identity(draft) for draft in drafts}
        return tuple(message for message in self.said if _message_identity(message) in wanted)

    def lacks_some(self, since: int) -> bool:
        """Whether something that was said behind a sequence number is there no more."""
        last = self.session.last_seq if self.session is not None else since
        return sum(message.seq > since for message in self.said) < last - since


class _RowErased(Exception):
    """The row was erased while it was on its way."""


class OutboxReplay:
    """Brings rows to the store. `moved` are turns that were still open here and go on there."""

    def __init__(
        self, *, sessions: SessionStore, state: StateStore, outbox: Outbox, seals: RowSealer, clock: Clock
    ) -> None:
        self._sessions = sessions
        self._state = state
        self._outbox = outbox
        self._seals = seals
        self._clock = clock
        self.replayed = 0
        self.moved: dict[str, OpenTurn] = {}

    async def session(self, key: bytes, live: Container[str]) -> None:
        """Bring a session's rows to the store; the turns in `live` are open, and are not given up.

        Raises:
            SessionBusy: somebody else's turn holds the session; what is left waits.
            Unavailable: the store is away; what is left waits.
        """
        for seen in await self._outbox.rows(key):
            raw = await self._outbox.row(seen.slot, seen.number)
            if raw is None:
                continue
            try:
                await self._replay_row(raw, live)
            except _RowErased:
                continue
            except (SessionBusy, MasterKeyMissing):
                raise
            except Unavailable as away:
                if not isinstance(away, DecryptionFailed):
                    raise
                await self._withdraw_or_quarantine(raw, away)
            except TenutoError as refused:
                await self._withdraw_or_quarantine(raw, refused)

    async def is_user_erased(self, raw: JournalRow) -> bool:
        """Whether somebody who speaks here was erased since, on whatever machine; clocks may differ a little."""
        space = Scope(tenant=raw.tenant, site=raw.site)
        for person in raw.persons:
            entry = await self._state.read_state(space, ERASURES, person)
            if entry is not None and _began_before(raw.begun_at, entry.value):
                return True
        return False

    async def _replay_row(self, raw: JournalRow, live: Container[str]) -> None:
        """Bring a row to the store and take it out; what an erasure overtakes is taken back."""
        if await self.is_user_erased(raw):
            await self._withdraw_row(raw)
            return
        row = await self._seals.row(raw)
        turn = await self._replay_turn(raw, row, row.turn_id in live)
        if await self.is_user_erased(raw):
            await self._withdraw_row(raw)
            return
        await self._outbox.remove(raw)
        self.replayed += 1
        if turn is not None:
            self.moved[turn.id] = turn

    async def _replay_turn(self, raw: JournalRow, row: Row, live: bool) -> OpenTurn | None:
        """One turn. When this returns, the store has all of it; one that is open goes on there, and is returned."""
        beginning, closing = row.beginning, row.closing or FinishTurn(abandoned=True)
        found = await self._find_session(row)
        if found.first_stored(closing.reply) is not None:
            return None
        words = found.first_stored(beginning.opening.words)
        if words is None and not beginning.there:
            _check_not_removed(row, found)
        session = await self._ensure_session(raw, row, found)
        if not await self._outbox.record_attempt(raw, session.last_seq if words is None else words.seq - 1):
            raise _RowErased
        if words is None and not beginning.there:
            turn = await self._begin_turn(raw, beginning, found, live)
        else:
            turn = ticket(beginning, session, words.turn if words is not None else beginning.number)
            turn = replace(turn, words=(words,) if words is not None else ())
            turn = await self._renew_or_reopen(beginning, turn) if live else turn
        if turn.state is TurnState.FINISHED:
            _check_not_answered(row, turn)
        elif live:
            return turn
        else:
            await self._finish_turn(row, turn, closing)
        return None

    async def _find_session(self, row: Row) -> StoredSession:
        """Where the turn belongs.

        Raises:
            SessionNotFound: the session is gone, or is another one by now: it is not revived.
        """
        beginning = row.beginning
        origin, session_id = beginning.origin, beginning.opening.session_id
        try:
            found = await self._load_since(beginning.scope, session_id, beginning.since)
        except SessionForeign:
            if not origin.opened_by:
                raise
            # Opened here while the store could not say whose it is.
            _log.warning("session %s was opened here and is somebody else's: its turns go to %s",
                         session_id, origin.opened_by)  # fmt: skip
            found = await self._load_since(beginning.scope, origin.opened_by, 0)
        known = origin.head.incarnation if origin.head is not None else row.incarnation
        there = found.session.incarnation if found.session is not None else ""
        may_open = bool(origin.opened_by) and not beginning.there
        if (known and there != known) or not (there or may_open):
            raise SessionNotFound(session_id)
        return found

    async def _ensure_session(self, raw: JournalRow, row: Row, found: StoredSession) -> Session:
        """The session in the store; one that was opened here comes there before its first words do.

        From then on it is known there: if it is not found again, it was deleted, and is not opened anew.
        """
        session, origin, opening = found.session, row.beginning.origin, row.beginning.opening
        if session is None:
            batch = AppendBatch(id=origin.opened_by, create=opening.create or NewSession())
            session = (await self._sessions.append(row.beginning.scope, found.session_id, batch)).session
        if origin.head is None and not row.incarnation:
            await self._outbox.record_incarnation(raw.session, session.incarnation)
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
            session_id=found.session_id,
            create=None,
            lease=beginning.opening.lease if live else _LEASE,
            once=_once(beginning),
        )
        try:
            return await self._sessions.begin_turn(beginning.scope, opening)
        except (SessionBusy, CircuitOpen):
            if raw.tried is None:
                await self._outbox.clear_attempt(raw)
            raise

    async def _renew_or_reopen(self, beginning: JournaledBegin, turn: OpenTurn) -> OpenTurn:
        """An open turn that holds the session in the store."""
        try:
            return await self._sessions.renew_turn(turn)
        except TurnLost:
            return await self._again(beginning, turn, beginning.opening.lease)

    async def _finish_turn(self, row: Row, turn: OpenTurn, closing: FinishTurn) -> None:
        try:
            await self._sessions.finish_turn(turn, retold(closing, turn))
        except TurnLost:
            if closing.abandoned:
                return  # Its words are there, and it holds nothing.
            if not await self._is_question_stored(row):
                raise
            turn = await self._again(row.beginning, turn, _LEASE)
            if turn.state is TurnState.FINISHED:
                _check_not_answered(row, turn)
            else:
                await self._sessions.finish_turn(turn, retold(closing, turn))

    async def _again(self, beginning: JournaledBegin, turn: OpenTurn, lease: timedelta) -> OpenTurn:
        """Take up a turn that lost the session: by its key, or as one that has nothing to say but its answer."""
        opening = replace(
            beginning.opening, session_id=turn.session.id, words=(), create=None, lease=lease, once=_once(beginning)
        )
        again = await self._sessions.begin_turn(beginning.scope, opening)
        return again if again.state is TurnState.FINISHED else replace(again, number=turn.number)

    async def _is_question_stored(self, row: Row) -> bool:
        """Whether what a turn answers is in the log: nobody has reset the session, or cut the words off."""
        beginning = row.beginning
        found = await self._find_session(row)
        if not beginning.there and beginning.opening.words:
            return found.first_stored(beginning.opening.words) is not None
        if not beginning.last_word:
            return found.session is not None and found.session.window_start <= beginning.since
        page = Page(limit=1, after=beginning.last_word - 1)
        after = await self._sessions.messages(beginning.scope, found.session_id, page)
        return any(message.seq == beginning.last_word for message in after.messages)

    async def _withdraw_row(self, raw: JournalRow) -> None:
        """Drop a row of somebody who was erased, with what the store may have of it already."""
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
        """Remove from the store what it has of a turn, and its session if nothing else is in it.

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
        """Take a turn's messages out of the log, and leave what others said behind them."""
        reply = row.closing.reply if row.closing is not None else ()
        going = found.stored_messages((*row.beginning.opening.words, *reply))
        if not going:
            return session
        after = going[0].seq - 1
        sparing = tuple(message.seq for message in found.said if message.seq > after and message not in going)
        truncating = Truncation(after=after, sparing=sparing, if_version=session.version)
        return await self._sessions.truncate(row.beginning.scope, session.id, truncating)

    async def _withdraw_or_quarantine(self, raw: JournalRow, why: TenutoError) -> None:
        """What the store can never take is set aside, but for what an erasure has overtaken."""
        if await self.is_user_erased(raw):
            await self._withdraw_row(raw)
        else:
            await self._quarantine(raw, why)

    async def _quarantine(self, raw: JournalRow, why: TenutoError) -> None:
        _log.warning("a journaled turn of tenant %s was set aside: %s", raw.tenant, why.code)
        await self._outbox.quarantine_row(raw, why.code, self._clock())


def retold(closing: FinishTurn, turn: OpenTurn) -> FinishTurn:
    """How a turn ended, under the name its trace has in the store: others' turns may have come before it."""
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


def _check_not_removed(row: Row, found: StoredSession) -> None:
    """Words that the store may have had, and that are not there, are not said again where something was taken away.

    Raises:
        TurnLost: the log behind them was reset, cut off or trimmed since.
        TakenBack: the same words were said elsewhere, and were replaced there.
    """
    beginning = row.beginning
    if found.session is not None and is_superseded(found.session, beginning.opening.words):
        raise Superseded
    asked = beginning.since if beginning.asked and beginning.origin.head is not None else None
    since = row.tried if row.tried is not None else asked
    if since is not None and found.lacks_some(since):
        raise TurnLost(found.session_id, row.turn_id)


def _once(beginning: JournaledBegin) -> IdempotencyKey:
    """What keeps a turn from being said twice: its caller's key, or one of its own."""
    turn_id = beginning.opening.turn_id
    return beginning.opening.once or IdempotencyKey(key=turn_id, fingerprint=turn_id)


def _began_before(begun_at: datetime, erased: Json) -> bool:
    """Whether a turn began before somebody was erased. What cannot be read counts as now."""
    if not isinstance(erased, int):
        return True
    return to_micros(begun_at - _CLOCKS_DIFFER) <= erased


def _check_not_answered(row: Row, turn: OpenTurn) -> None:
    """Its key was answered before: by this very turn, or by another one when its caller asked again elsewhere."""
    if turn.id != row.turn_id and row.closing is not None and row.closing.reply:
        raise IdempotencyKeyReused


def _message_identity(message: Draft) -> tuple[object, ...]:
    return message.id, message.role, message.sent_at
