"""What happens to turns while the store is away, and how they get there once it is back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from msgspec.structs import replace

from tenuto.errors import CircuitOpen, SessionBusy, StoreUnavailable, Superseded, TenutoError, TurnLost, Unavailable
from tenuto.model import AppendResult, BeginTurn, FinishTurn, OpenTurn, Scope, TurnState
from tenuto.model.scope import user_digest
from tenuto.model.store_reports import Invalidation
from tenuto.model.turn import is_superseded
from tenuto.model.values import Value
from tenuto.ports import ChangeFeed, Ciphers, Clock, Store
from tenuto.stores.journaled.backoff import SessionBackoff
from tenuto.stores.journaled.inflight import Call
from tenuto.stores.journaled.last_seen import LastSeen
from tenuto.stores.journaled.local_replica import View, glimpse
from tenuto.stores.journaled.open_turns import Running, StartedTurn, session_at_begin
from tenuto.stores.journaled.outbox import Outbox
from tenuto.stores.journaled.replay import OutboxReplay
from tenuto.stores.journaled.rows import JournaledBegin, JournalRow, RowSealer, place_of, row_user_digests
from tenuto.stores.journaled.seen_session import SeenSession
from tenuto.stores.memory.record import is_turn_finished

KEPT_ASIDE: Final = timedelta(days=30)
"""How long turns that the store can never take stay in the journal."""

_LONGEST_PAUSE: Final = 5.0
_LOOK_ROUND_EVERY: Final = 60.0
_TELL_EVERY: Final = 60.0
_ASIDE_AT_ONCE: Final = 100
_log = logging.getLogger(__name__)


class JournalState(Value, frozen=True, kw_only=True):
    """How the journal stands: whether the store is away, since when, and what waits for it."""

    away: bool = False
    since: datetime | None = None
    waiting: int = 0
    aside: int = 0
    replayed: int = 0


class _LocalTurn(NamedTuple):
    """A turn that is open here, and where its row lies."""

    key: bytes
    slot: int
    number: int
    opening: BeginTurn


class Journal:
    """Sessions that have turns in the outbox, each worked on by one call at a time."""

    def __init__(
        self,
        *,
        store: Store,
        outbox: Outbox,
        feed: ChangeFeed,
        ciphers: Ciphers | None,
        clock: Clock,
        every: float,
        ticks: Callable[[], float],
    ) -> None:
        self.known = LastSeen(feed, ticks=ticks)
        self._upkeep = store.upkeep
        self._outbox = outbox
        self._clock = clock
        self._every = every
        self._ticks = ticks
        self._seals = RowSealer(ciphers, clock)
        self._replay = OutboxReplay(
            sessions=store.sessions, state=store.state, outbox=outbox, seals=self._seals, clock=clock
        )
        self._view = View(clock)
        self._here: dict[str, _LocalTurn] = {}
        self._running = Running()
        self._locks: WeakValueDictionary[bytes, asyncio.Lock] = WeakValueDictionary()
        self._pauses = SessionBackoff(every, ticks)
        self._away_since: datetime | None = None
        self._shaky_until = 0.0
        self._told_at = self._look_aside_at = float("-inf")
        self._wake = asyncio.Event()

    @property
    def state(self) -> JournalState:
        """How the journal stands."""
        counts = self._outbox.counts
        return JournalState(
            away=self._away_since is not None,
            since=self._away_since,
            waiting=counts.waiting,
            aside=counts.aside,
            replayed=self._replay.replayed,
        )

    def has_pending(self, key: bytes) -> bool:
        """Whether turns of this session wait for the store."""
        return self._outbox.has_rows(key)

    # What the store does

    def observe_unavailable(self) -> None:
        """It did not answer."""
        self._shaky_until = self._ticks() + self._every
        if self._away_since is None:
            self._away_since = self._clock()
            self._log_status("the store is away: turns that may be are journaled")

    def observe_answer(self, since: int) -> None:
        """It answered what was sent `since` the feed lost track so often. One that failed to a moment ago, as a part of
        it may, is not back yet."""
        if self._away_since is not None and self._ticks() >= self._shaky_until:
            self._away_since = None
            self._log_status(f"the store answers again; {self._outbox.counts.waiting} journaled turns wait for it")
            if self._outbox.sessions:
                self._wake.set()
        self.known.observe_answer(since)

    def saw_begun(self, call: Call, opening: BeginTurn, turn: OpenTurn) -> None:
        """It began a turn, whose end may come when it is away; or had it answered before."""
        if turn.state is TurnState.FINISHED:
            call.mark_unchanged()
            return
        self.known.saw_begun(call, turn, opening.once)
        if opening.journaled:
            self._running.add(call.key, opening, turn, doubtful=not call.certain)

    def on_invalidate(self, news: Invalidation | None) -> None:
        """What its feed tells: these sessions changed, or any may have."""
        for key in self.known.on_invalidate(news):
            self._running.doubt(key)

    def is_foreign(self, scope: Scope, key: bytes) -> bool:
        """Whether a session was last seen as somebody else's: what a stranger asks for changes nothing of it."""
        running = self._running.of(key)
        head = self.known.head(key) or (running[-1].turn.session if running else None)
        return head is not None and not scope.reaches(head.scope)

    def observe_removal(self, key: bytes, by: str | None = None) -> None:
        """What was said in a session is gone, or may be: a turn that answers to it, but for the one it was done `by`,
        must not bring it back."""
        self.known.drop_session(key)
        self._running.drop_session(key, sparing=by)

    def observe_turn_lost(self, key: bytes, turn_id: str) -> None:
        """It does not have a turn any more."""
        self.known.drop_session(key)
        self._running.drop(turn_id)

    @property
    def sealing(self) -> bool:
        """Whether what is journaled is sealed."""
        return self._seals.sealing

    async def cache_keys(self, scope: Scope) -> None:
        """Have at hand what the journal is sealed with: when the store is away it cannot be asked."""
        await self._seals.cache_cipher(scope)

    def observe_renewal(self, turn: OpenTurn) -> None:
        """It holds a session on for a turn."""
        self._running.update_lease(turn)

    def find_open_turn(self, turn_id: str) -> StartedTurn | None:
        """A turn that began in the store and has not ended."""
        return self._running.get(turn_id)

    def observe_finish(self, call: Call, turn_id: str, done: AppendResult) -> None:
        """It ended a turn, or had done so before."""
        self._running.drop(turn_id)
        if done.duplicate:
            call.mark_unchanged()
        else:
            self.known.observe_finish(call, turn_id, done.session, done.messages)

    # Turns while it is away

    async def begin_after_pending(self, scope: Scope, opening: BeginTurn, key: bytes) -> OpenTurn | None:
        """Begin behind turns that wait: here, if they still must; `None` when the store has them all by now.

        Raises:
            SessionBusy: the store is back, and somebody else's turn runs there.
        """
        async with self._session_lock(key):
            if await self._replay_pending(key):
                return None
            if not opening.journaled:
                raise StoreUnavailable
            await self._refresh_if_rows_missing(key)
            # The store has not been asked for it: none of it can be there.
            return await self._begin_in_replica(scope, opening, key, StoreUnavailable(), self.known.get(key))

    async def begin_locally(self, scope: Scope, opening: BeginTurn, call: Call, away: StoreUnavailable) -> OpenTurn:
        """Begin a turn here, in a session that is known, or is opened with it.

        The store was asked and did not answer. What was known before counts: what was seen since may be this turn.

        Raises:
            StoreUnavailable: the owner of the session cannot be looked up now.
        """
        key = call.key
        async with self._session_lock(key), self._backing_off(key, away):
            before = self.known.still(call.before)
            since = before.session.last_seq if before is not None else 0
            sent = not isinstance(away, CircuitOpen)
            return await self._begin_in_replica(scope, opening, key, away, before, since if sent else None)

    async def finish_after_pending(self, turn: OpenTurn, closing: FinishTurn, key: bytes) -> AppendResult | None:
        """Finish a turn that began here; `None` when it goes on in the store, or began there."""
        async with self._session_lock(key):
            if turn.id in self._here:
                with suppress(SessionBusy, Unavailable):
                    await self._replay_pending(key)
            if turn.id in self._here:
                return await self._finish_in_replica(turn, closing, key)
            record = self._view.sessions.record(key)
            if record is None or not is_turn_finished(record, turn):
                return None
            return await self._view.sessions.finish_turn(turn, closing)

    async def finish(self, turn_id: str, closing: FinishTurn, call: Call, away: StoreUnavailable) -> AppendResult:
        """Finish a turn here that began in the store, with what was known before that was asked to."""
        key = call.key
        async with self._session_lock(key), self._backing_off(key, away):
            begun = self._running.get(turn_id)
            if begun is None:
                raise away
            turn, saved = begun.turn, self._view.snapshot(key)
            try:
                await self._ensure_replica_for_finish(begun, call)
                opening = replace(begun.opening, words=(), create=None)
                beginning = self._make_begin(key, turn, opening, turn.session.last_seq, there=True)
                done = await self._view.sessions.finish_turn(turn, closing)
                await self._write_row(key, beginning, closing)
            except BaseException:
                self._view.restore(key, saved)
                raise
            self._running.drop(turn_id)
            return replace(done, journaled=True)

    async def renew(self, turn: OpenTurn) -> OpenTurn | None:
        """Hold a turn that is open here; `None` when it is not."""
        here = self._here.get(turn.id)
        return await self._view.renew_turn(here.key, turn) if here is not None else None

    # Reading while it is away

    async def replica_for(self, key: bytes) -> View | None:
        """Where a session with waiting turns can be read; `None` when the store has them all by now.

        Raises:
            Unavailable: they cannot be read here either.
        """
        async with self._session_lock(key):
            with suppress(SessionBusy, Unavailable):
                if await self._replay_pending(key):
                    return None
            await self._refresh_if_rows_missing(key)
            if not self._view.has_session(key):
                await self._rebuild_replica(key)
            if self._view.is_write_only(key):
                raise StoreUnavailable
            return self._view if self._view.has_session(key) else None

    def last_seen_replica(self, key: bytes) -> View | None:
        """A session as it was last seen."""
        entry = self.known.get(key)
        return glimpse(key, entry, self._clock) if entry is not None else None

    # Bringing it to the store

    async def settle(self, key: bytes) -> None:
        """Have the store take a session's turns before anything else happens to it.

        Raises:
            SessionBusy: somebody else's turn runs there.
            Unavailable: it is away.
        """
        async with self._session_lock(key):
            if not await self._replay_pending(key):
                raise StoreUnavailable

    async def run_replay(self) -> None:
        """Bring what waits to the store, again and again, until cancelled."""
        pause = self._every
        self._wake.set()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause if self._outbox.sessions else _LOOK_ROUND_EVERY):
                    await self._wake.wait()
            self._wake.clear()
            try:
                done = await self.round()
            except Unavailable as failed:
                _log.warning("the journal was not replayed: %s", failed)
                done = False
            except Exception:
                # Whatever one round met, the next ones are still needed.
                _log.exception("the journal was not replayed")
                done = False
            pause = self._every if done else min(pause * 1.5, _LONGEST_PAUSE)

    async def round(self) -> bool:
        """Adopt what dead processes left, and bring to the store what it takes; tells whether nothing waits."""
        if await self._check_store():
            # Not in an outage: there the process that comes back for them goes on with their sessions.
            await self._outbox.adopt()
            # Those that were asked for in vain come last: another server may answer.
            for key in sorted(self._outbox.sessions, key=self._pauses.until):
                await self._try_replay(key)
            await self._purge_quarantine()
        await self._outbox.tidy(self._clock() - KEPT_ASIDE)
        for key in self._view.keys:
            async with self._session_lock(key):
                if not self._outbox.has_rows(key):
                    self._drop_local(key)  # Its file was given up.
        return not self._outbox.sessions

    # Forgetting

    async def forget_session(self, key: bytes) -> None:
        """Keep nothing of a session that was deleted."""
        self.observe_removal(key)
        if self._outbox.has_rows(key):
            async with self._session_lock(key):
                for raw in await self._outbox.rows(key):
                    await self._outbox.remove(raw)
                self._drop_local(key)

    async def forget_user(self, person: Scope) -> int:
        """Keep nothing of somebody; tells how many turns that were. None of them is on its way to the store then."""
        async with AsyncExitStack() as alone:
            for key in sorted(self._outbox.sessions):
                await alone.enter_async_context(self._session_lock(key))
            return await self._forget_user_locked(person)

    async def _forget_user_locked(self, person: Scope) -> int:
        assert person.user is not None
        digest = user_digest(person.tenant, person.user)
        self.forget_open_turns(person)
        count = await self._outbox.erase(person.tenant, person.site, digest)
        for key in self._view.keys:
            if self._view.concerns(key, person):
                await self._reset_replica(key)
        await self._outbox.tidy()
        return count

    def forget_open_turns(self, person: Scope) -> None:
        """Keep nothing of what somebody says in turns that run, nor of what others of the tenant have seen of it."""
        self._running.drop_user(person)
        self._running.mark_site_doubtful(person)
        self.known.drop_site(person)

    # What is inside

    def _log_status(self, news: str) -> None:
        """Warn, but of a store that comes and goes no more than now and then."""
        quiet = self._ticks() < self._told_at + _TELL_EVERY
        _log.log(logging.INFO if quiet else logging.WARNING, news)
        if not quiet:
            self._told_at = self._ticks()

    def _session_lock(self, key: bytes) -> asyncio.Lock:
        return self._locks.setdefault(key, asyncio.Lock())

    @asynccontextmanager
    async def _backing_off(self, key: bytes, away: StoreUnavailable) -> AsyncIterator[None]:
        """A call was not answered, which matters as long as turns of its session wait."""
        self._pauses.start(key, away)
        try:
            yield
        finally:
            if not self._outbox.has_rows(key):
                self._pauses.clear(key)

    async def _replay_pending(self, key: bytes) -> bool:
        """Bring a session's turns to the store, if it is back; tells whether none waits any more."""
        if not self._outbox.has_rows(key):
            return True
        if self._pauses.lasts(key):
            return False
        call = self.known.changes(key)
        try:
            with call:
                await self._replay.session(key, self._here)
        except StoreUnavailable as away:
            self.observe_unavailable()
            self._pauses.start(key, away)
            return False
        finally:
            self._apply_moved_turns(call)
        self.observe_answer(call.since)
        return not self._outbox.has_rows(key)

    def _apply_moved_turns(self, call: Call) -> None:
        """Turns that were open here go on in the store; a session that has none waiting is the store's again."""
        key = call.key
        if not self._outbox.has_rows(key):
            self.known.drop_session(key)
        for turn_id in [turn_id for turn_id in self._replay.moved if self._here[turn_id].key == key]:
            turn, here = self._replay.moved.pop(turn_id), self._here.pop(turn_id)
            self.saw_begun(call, here.opening, turn)
        if not self._outbox.has_rows(key):
            self._drop_local(key)  # Rows of turns that are open still were erased or set aside.

    def _drop_local(self, key: bytes) -> None:
        """Nothing of a session waits: it stands here no more, and no turn of it is open here."""
        self._pauses.clear(key)
        self._view.drop_session(key)
        for turn_id in [turn_id for turn_id, here in self._here.items() if here.key == key]:
            del self._here[turn_id]

    async def _begin_in_replica(
        self,
        scope: Scope,
        opening: BeginTurn,
        key: bytes,
        away: StoreUnavailable,
        before: SeenSession | None,
        since: int | None = None,
    ) -> OpenTurn:
        if opening.producer is not None:
            raise away  # What its numbers mean, the store alone knows.
        saved = self._view.snapshot(key)
        try:
            stands = await self._ensure_replica(key, before, opening)
            if (not stands and self._exists_in_store(key, opening)) or self._view.is_write_only(key):
                raise away
            turn = await self._view.sessions.begin_turn(scope, opening)
            if turn.state is TurnState.FINISHED:
                self._view.check_answer_complete(key, opening, turn)
                if not self._outbox.has_rows(key):
                    self._view.drop_session(key)
            elif is_superseded(turn.session, opening.words):
                raise Superseded  # Noted here, the words would be said again.
            elif turn.state is TurnState.OPENED and self._view.is_key_in_log(key, turn):
                raise away
            else:
                if turn.created:
                    self._view.set_opened_here(key, turn)
                beginning = self._make_begin(key, turn, opening, since)
                self._here[turn.id] = await self._write_row(key, beginning)
        except BaseException:
            self._view.restore(key, saved)
            raise
        return replace(turn, journaled=True)

    async def _finish_in_replica(self, turn: OpenTurn, closing: FinishTurn, key: bytes) -> AppendResult:
        if not self._view.has_session(key):
            await self._rebuild_replica(key)
        here, saved = self._here[turn.id], self._view.snapshot(key)
        try:
            done = await self._view.finish_turn(key, turn, closing)
            text = await self._seals.text(turn.scope, closing, place_of(key, here.number, "closing"))
            if not await self._outbox.close_turn(here.slot, here.number, text):
                raise TurnLost(turn.session.id, turn.id)  # Somebody was erased, or the store refused the turn.
        except BaseException as failed:
            self._view.restore(key, saved)
            if isinstance(failed, TurnLost):
                del self._here[turn.id]
            raise
        del self._here[turn.id]
        return replace(done, journaled=True)

    def _exists_in_store(self, key: bytes, opening: BeginTurn) -> bool:
        """Whether a session that does not stand here is no new one: it must be there, or was seen there."""
        return opening.create is None or self.known.head(key) is not None

    async def _ensure_replica(self, key: bytes, entry: SeenSession | None, opening: BeginTurn) -> bool:
        """Have a session in the view, if it can be had: with all of its talk that the turn should see."""
        if self._outbox.has_rows(key):
            return self._view.has_session(key) or await self._rebuild_replica(key)
        self._view.drop_session(key)
        if entry is None or not entry.reaches(opening.window - len(opening.words)):
            return False
        self._view.load_record(key, entry.record())
        self._lease_open_turns(key)
        return True

    async def _ensure_replica_for_finish(self, begun: StartedTurn, call: Call) -> None:
        """Have the session of a turn that ends in the view; as it was, where that is certain."""
        key = begun.key
        if self._outbox.has_rows(key) and (self._view.has_session(key) or await self._rebuild_replica(key)):
            return
        entry = session_at_begin(begun, self.known.still(call.before))
        seen = entry or SeenSession(begun.turn.session, (), 0)
        self._view.drop_session(key)
        self._view.load_record(key, seen.record(), blind=entry is None)
        self._lease_open_turns(key)

    def _lease_open_turns(self, key: bytes) -> None:
        for begun in self._running.of(key):
            self._view.lease(key, begun.turn, begun.opening)

    async def _refresh_if_rows_missing(self, key: bytes) -> None:
        """What another process of this machine has erased, or a damaged file has lost, is not shown here either."""
        if await self._outbox.lacks_some(key):
            self.known.drop_session(key)
            self._running.doubt(key)
            await self._reset_replica(key)

    async def _reset_replica(self, key: bytes) -> None:
        """Show of a session no more than its rows tell; one without open turns is built when it is asked for."""
        self._view.drop_session(key)
        if any(here.key == key for here in self._here.values()):
            with suppress(Unavailable):
                await self._rebuild_replica(key)

    async def _rebuild_replica(self, key: bytes) -> bool:
        """Build a session from its rows; tells whether there are any."""
        rows = [await self._seals.row(raw) for raw in await self._outbox.rows(key)]
        try:
            await self._view.again(key, rows, self._here)
        except TenutoError as failed:
            self._view.drop_session(key)
            raise StoreUnavailable from failed
        return bool(rows)

    def _make_begin(
        self, key: bytes, turn: OpenTurn, opening: BeginTurn, since: int | None, *, there: bool = False
    ) -> JournaledBegin:
        """A turn for the outbox; without `since` the store was not asked for it since it was taken over here."""
        origin, asked = self._view.origin(key), since is not None and not there
        if since is None:
            since = origin.head.last_seq if origin.head is not None else 0
        return JournaledBegin(
            scope=turn.scope,
            opening=opening,
            # The first row of a session tells how it looked.
            origin=replace(origin, tail=()) if self._outbox.has_rows(key) else origin,
            number=turn.number,
            # As the store tells: what words say of themselves is their sender's choice.
            begun_at=min(self._clock(), turn.session.updated_at) if there else self._clock(),
            since=since,
            there=there,
            asked=asked,
            last_word=turn.words[-1].seq if there and turn.words else 0,
        )

    async def _write_row(self, key: bytes, beginning: JournaledBegin, closing: FinishTurn | None = None) -> _LocalTurn:
        """Put a turn into the outbox: when this returns, it is on disk."""
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
        return _LocalTurn(key, slot, number, beginning.opening)

    async def _purge_quarantine(self) -> None:
        """Drop what was set aside of persons who were erased since, a few rows now and then."""
        if self._ticks() < self._look_aside_at:
            return
        self._look_aside_at = self._ticks() + self._every
        with suppress(StoreUnavailable):
            for raw in await self._outbox.next_quarantined(_ASIDE_AT_ONCE):
                if await self._replay.is_user_erased(raw):
                    await self._outbox.remove(raw)

    async def _check_store(self) -> bool:
        since = self.known.losses
        try:
            await self._upkeep.ping()
        except StoreUnavailable:
            self.observe_unavailable()
            return False
        self.observe_answer(since)
        return True

    async def _try_replay(self, key: bytes) -> None:
        """Bring a session's turns to the store; what stands in the way of one does not stop the others."""
        async with self._session_lock(key):
            try:
                await self._replay_pending(key)
            except SessionBusy:
                return  # The turn that runs there ends by itself.
            except TenutoError as failed:
                _log.warning("journaled turns of a session wait on: %s", failed.code)
            except Exception as failed:
                _log.warning("journaled turns of a session wait on: %s", type(failed).__name__)
