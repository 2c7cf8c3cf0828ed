"""Turns that begin or end in the local replica while the store is down, and their rows in the outbox."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import NamedTuple

from msgspec.structs import replace

from tenuto.errors import StoreUnavailable, Superseded, TenutoError, TurnLost, Unavailable
from tenuto.model import AppendResult, BeginTurn, FinishTurn, OpenTurn, Session, TurnState
from tenuto.model.scope import Scope
from tenuto.model.turn import is_superseded
from tenuto.ports import Clock
from tenuto.stores.journaled.local_replica import View, record_of
from tenuto.stores.journaled.open_turns import Running, StartedTurn, session_at_begin
from tenuto.stores.journaled.outbox import Outbox
from tenuto.stores.journaled.rows import JournaledBegin, JournalRow, RowSealer, place_of, row_user_digests
from tenuto.stores.memory.record import is_turn_finished
from tenuto.stores.session_cache import CachedSession, Call, SessionCache


class LocalTurn(NamedTuple):
    """A turn that is open here, and its row."""

    key: bytes
    slot: int
    number: int
    opening: BeginTurn


class LocalTurns:
    """The replica of sessions with rows in the outbox, and the turns `open` in it, by id.

    `wake` is set with the first row. Callers hold the session's lock.
    """

    def __init__(
        self,
        *,
        outbox: Outbox,
        seals: RowSealer,
        cache: SessionCache,
        running: Running,
        clock: Clock,
        wake: asyncio.Event,
    ) -> None:
        self.view = View(clock)
        self.open: dict[str, LocalTurn] = {}
        self._outbox = outbox
        self._seals = seals
        self._cache = cache
        self._running = running
        self._clock = clock
        self._wake = wake

    async def begin(
        self,
        scope: Scope,
        opening: BeginTurn,
        key: bytes,
        away: StoreUnavailable,
        before: CachedSession | None,
        since: int | None = None,
    ) -> OpenTurn:
        """Begin a turn in the session as it was `before`, or as its rows show it.

        `since` is the last sequence number before it, if the store was asked to begin the turn and did not answer.
        """
        if opening.producer is not None:
            raise away  # Only the store has the sequence numbers of producers.
        saved = self.view.snapshot(key)
        try:
            loaded = await self._load_for_begin(key, before, opening)
            exists_in_store = opening.create is None or self._cache.head(key) is not None
            if (not loaded and exists_in_store) or self.view.is_write_only(key):
                raise away
            turn = await self.view.sessions.begin_turn(scope, opening)
            if turn.state is TurnState.FINISHED:
                self.view.check_answer_complete(key, opening, turn)
                if not self._outbox.has_rows(key):
                    self.view.drop_session(key)
            elif is_superseded(turn.session, opening.user_messages):
                raise Superseded  # Journaling would store the user messages again.
            elif turn.state is TurnState.OPENED and self.view.is_key_in_log(key, turn):
                raise away
            else:
                if turn.created:
                    self.view.set_opened_here(key, turn)
                beginning = self._make_begin(key, turn, opening, since)
                self.open[turn.id] = await self._write_row(key, beginning)
        except BaseException:
            self.view.restore(key, saved)
            raise
        return replace(turn, journaled=True)

    async def finish(self, turn: OpenTurn, closing: FinishTurn, key: bytes) -> AppendResult | None:
        """Finish a turn that is open here, or was finished here before; `None` if it is neither."""
        if turn.id not in self.open:
            record = self.view.sessions.record(key)
            if record is None or not is_turn_finished(record, turn):
                return None
            return await self.view.sessions.finish_turn(turn, closing)
        if not self.view.has_session(key):
            await self.rebuild(key)
        here, saved = self.open[turn.id], self.view.snapshot(key)
        try:
            done = await self.view.finish_turn(key, turn, closing)
            text = await self._seals.text(turn.scope, closing, place_of(key, here.number, "closing"))
            if not await self._outbox.close_turn(here.slot, here.number, text):
                raise TurnLost(turn.session.id, turn.id)  # A user was erased, or the store refused the turn.
        except BaseException as failed:
            self.view.restore(key, saved)
            if isinstance(failed, TurnLost):
                del self.open[turn.id]
            raise
        del self.open[turn.id]
        return replace(done, journaled=True)

    async def finish_stored(self, begun: StartedTurn, closing: FinishTurn, call: Call) -> AppendResult:
        """Finish a turn here that began in the store."""
        key, turn = begun.key, begun.turn
        saved = self.view.snapshot(key)
        try:
            await self._load_for_finish(begun, call)
            opening = replace(begun.opening, user_messages=(), create=None)
            beginning = self._make_begin(key, turn, opening, turn.session.last_seq, there=True)
            done = await self.view.sessions.finish_turn(turn, closing)
            await self._write_row(key, beginning, closing)
        except BaseException:
            self.view.restore(key, saved)
            raise
        self._running.drop(turn.id)
        return replace(done, journaled=True)

    async def refresh_if_rows_missing(self, key: bytes) -> None:
        """Drop from the replica what another process erased from the outbox, or a damaged file lost."""
        if await self._outbox.lacks_some(key):
            self._cache.drop_session(key)
            self._running.doubt(key)
            await self.reset(key)

    async def reset(self, key: bytes) -> None:
        """Reduce a session to its rows; one without open turns is rebuilt when it is needed."""
        self.view.drop_session(key)
        if any(here.key == key for here in self.open.values()):
            with suppress(Unavailable):
                await self.rebuild(key)

    async def rebuild(self, key: bytes) -> bool:
        """Build a session from its rows; returns whether there are any."""
        rows = [await self._seals.row(raw) for raw in await self._outbox.rows(key)]
        try:
            await self.view.again(key, rows, self.open)
        except TenutoError as failed:
            self.view.drop_session(key)
            raise StoreUnavailable from failed
        return bool(rows)

    async def session(self, key: bytes) -> Session | None:
        """The head of a session with rows; `None` if they cannot be read."""
        if not self.view.has_session(key):
            with suppress(Unavailable):
                await self.rebuild(key)
        record = self.view.sessions.record(key)
        return record.session if record is not None else None

    def drop_session(self, key: bytes) -> None:
        """Drop a session without rows, and its open turns."""
        self.view.drop_session(key)
        for turn_id in [turn_id for turn_id, here in self.open.items() if here.key == key]:
            del self.open[turn_id]

    async def _load_for_begin(self, key: bytes, entry: CachedSession | None, opening: BeginTurn) -> bool:
        """Load a session into the replica, if all messages that the turn should see are here."""
        if self._outbox.has_rows(key):
            return self.view.has_session(key) or await self.rebuild(key)
        self.view.drop_session(key)
        if entry is None or not entry.reaches(opening.window - len(opening.user_messages)):
            return False
        self._load_seen(key, entry)
        return True

    async def _load_for_finish(self, begun: StartedTurn, call: Call) -> None:
        """Load the session of a turn into the replica, write-only if its messages are not certain."""
        key = begun.key
        if self._outbox.has_rows(key) and (self.view.has_session(key) or await self.rebuild(key)):
            return
        entry = session_at_begin(begun, self._cache.still(call.before))
        self.view.drop_session(key)
        self._load_seen(key, entry or CachedSession(begun.turn.session, ()), blind=entry is None)

    def _load_seen(self, key: bytes, entry: CachedSession, *, blind: bool = False) -> None:
        self.view.load_record(key, record_of(entry), blind=blind)
        for begun in self._running.of(key):
            self.view.lease(key, begun.turn, begun.opening)

    def _make_begin(
        self, key: bytes, turn: OpenTurn, opening: BeginTurn, since: int | None, *, there: bool = False
    ) -> JournaledBegin:
        """A turn for the outbox; without `since` the store was not asked to begin it."""
        origin, asked = self.view.origin(key), since is not None and not there
        if since is None:
            since = origin.head.last_seq if origin.head is not None else 0
        return JournaledBegin(
            scope=turn.scope,
            opening=opening,
            # Only the first row of a session holds its messages.
            origin=replace(origin, tail=()) if self._outbox.has_rows(key) else origin,
            number=turn.number,
            # The store's time: clients choose the times of their messages.
            begun_at=min(self._clock(), turn.session.updated_at) if there else self._clock(),
            since=since,
            there=there,
            asked=asked,
            last_word=turn.user_messages[-1].seq if there and turn.user_messages else 0,
        )

    async def _write_row(self, key: bytes, beginning: JournaledBegin, closing: FinishTurn | None = None) -> LocalTurn:
        """Add a turn to the outbox; it is on disk when this returns."""
        slot, number = await self._outbox.number()
        scope, seals = beginning.scope, self._seals
        raw = JournalRow(
            slot=slot,
            number=number,
            session=key,
            tenant=scope.tenant,
            site=scope.site,
            persons=row_user_digests(beginning),
            begun_at=beginning.begun_at,
            beginning=await seals.text(scope, beginning, place_of(key, number, "beginning")),
            closing=await seals.text(scope, closing, place_of(key, number, "closing")) if closing else None,
        )
        await self._outbox.add(raw)
        if self._outbox.counts.waiting == 1:
            self._wake.set()
        return LocalTurn(key, slot, number, beginning.opening)
