"""Serves turns while the store is down, and replays them once it is back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Final
from weakref import WeakValueDictionary

from tenuto.errors import CircuitOpen, SessionBusy, SessionElsewhere, StoreUnavailable, TenutoError, Unavailable
from tenuto.model import AppendResult, BeginTurn, FinishTurn, OpenTurn, Scope, TurnState
from tenuto.model.scope import user_digest
from tenuto.model.values import Value
from tenuto.ports import Ciphers, Clock
from tenuto.stores.cached import CachedStore
from tenuto.stores.codec import from_micros
from tenuto.stores.journaled.local_replica import View, record_of
from tenuto.stores.journaled.local_turns import LocalTurns
from tenuto.stores.journaled.open_turns import Running
from tenuto.stores.journaled.outbox import Outbox
from tenuto.stores.journaled.own_changes import OwnChanges
from tenuto.stores.journaled.peers import JournalPeers
from tenuto.stores.journaled.replay import OutboxReplay
from tenuto.stores.journaled.rows import RowSealer
from tenuto.stores.session_cache import Call

_QUARANTINE_TTL: Final = timedelta(days=30)
"""How long turns that the store can never take stay in the journal."""

# A call that timed out may still be carried out, until its connection is found dead and reset.
_MAY_STILL_ARRIVE: Final = 3.0
_LONGEST_PAUSE: Final = 1.0
_ADOPT_EVERY: Final = 60.0
_WARN_EVERY: Final = 60.0
_REPLAYED_AT_ONCE: Final = 64
_ASIDE_AT_ONCE: Final = 100
_log = logging.getLogger(__name__)


class JournalState(Value, frozen=True, kw_only=True):
    """Whether the store is down, since when, and the number of turns that wait for it, the oldest since `oldest`."""

    away: bool = False
    since: datetime | None = None
    waiting: int = 0
    oldest: datetime | None = None
    quarantined: int = 0
    replayed: int = 0


class Journal:
    """Sessions that have turns in the outbox, each used by one call at a time."""

    def __init__(
        self,
        *,
        store: CachedStore,
        own: OwnChanges,
        outbox: Outbox,
        ciphers: Ciphers | None,
        clock: Clock,
        every: float,
        ticks: Callable[[], float],
        probe: Callable[[], Awaitable[None]],
        sharded: bool,
    ) -> None:
        self.cache = store.cache
        self.running = Running()
        self.cache.on_answer = self._observe_answer
        self.cache.on_foreign = self.running.doubt
        self.seals = RowSealer(ciphers, clock)
        self.has_pending = outbox.has_rows
        self.own = own
        self._wake = asyncio.Event()
        self.peers = JournalPeers(
            sessions=own, state=store.state, outbox=outbox, probe=probe, ticks=ticks, wake=self._wake, sharded=sharded
        )
        self._probe = probe
        self._upkeep = store.upkeep
        self._outbox = outbox
        self._clock = clock
        self._every = every
        self._ticks = ticks
        self._replay = OutboxReplay(
            sessions=own,
            state=store.state,
            outbox=outbox,
            seals=self.seals,
            clock=clock,
            is_behind=self.peers.is_behind,
        )
        self._local = LocalTurns(
            outbox=outbox, seals=self.seals, cache=self.cache, running=self.running, clock=clock, wake=self._wake
        )
        self._locks: WeakValueDictionary[bytes, asyncio.Lock] = WeakValueDictionary()
        self._backoff: dict[bytes, float] = {}
        self._away_since: datetime | None = None
        self._shaky_until = 0.0
        self._warned_at = self._purge_at = float("-inf")

    @property
    def state(self) -> JournalState:
        """The journal's state."""
        counts = self._outbox.counts
        return JournalState(
            away=self._away_since is not None,
            since=self._away_since,
            waiting=counts.waiting,
            oldest=from_micros(min(next_rows)) if (next_rows := self._outbox.next_rows.values()) else None,
            quarantined=counts.quarantined,
            replayed=self._replay.replayed,
        )

    # Results of calls to the store

    def observe_unavailable(self, away: StoreUnavailable) -> None:
        """The store did not answer."""
        self.peers.observe_outage(away)
        self._shaky_until = self._ticks() + self._every
        if self._away_since is None:
            self._away_since = self._clock()
            self._log_status("the store does not answer: turns go to the journal where they may")

    def _observe_answer(self) -> None:
        """The store answered.

        A store that failed a moment ago, as one of its nodes may, does not count as back yet.
        """
        if self._away_since is not None and self._ticks() >= self._shaky_until:
            self._away_since = None
            self._log_status(f"the store answers again: delivering {self._outbox.counts.waiting} journaled turns")
            if self._outbox.sessions:
                self._wake.set()

    def observe_begin(self, key: bytes, opening: BeginTurn, turn: OpenTurn) -> None:
        """The store began a turn, which may end during an outage."""
        if opening.journaled and turn.state is not TurnState.FINISHED:
            self.running.add(key, opening, turn, doubtful=self.cache.get(key) is None)

    def is_foreign(self, scope: Scope, key: bytes) -> bool:
        """Whether a session was last seen outside the scope, so that calls within the scope cannot change it."""
        running = self.running.of(key)
        head = self.cache.head(key) or (running[-1].turn.session if running else None)
        return head is not None and not scope.reaches(head.scope)

    async def reaches_pending(self, scope: Scope, key: bytes) -> bool:
        """Whether a session with waiting turns is the caller's; if its rows cannot be read, the answer is yes."""
        async with self._session_lock(key):
            session = await self._local.session(key)
        return session is None or scope.reaches(session.scope)

    # Turns during an outage

    async def begin_after_pending(self, scope: Scope, opening: BeginTurn, key: bytes) -> OpenTurn | None:
        """Begin after turns that wait: here, if they still do; `None` if the store has them all by now.

        Raises:
            SessionBusy: the store is back, and a turn of another process holds the session there.
            SessionElsewhere: the store is back, and another process has to replay its turns first.
        """
        async with self._session_lock(key):
            if await self._replay_pending(key):
                return None
            if not opening.journaled:
                raise StoreUnavailable
            await self._local.refresh_if_rows_missing(key)
            # The store was not asked to begin this turn, so it has nothing of it.
            return await self._local.begin(scope, opening, key, StoreUnavailable(), self.cache.get(key))

    async def begin_locally(self, scope: Scope, opening: BeginTurn, call: Call, away: StoreUnavailable) -> OpenTurn:
        """Begin a turn here, in a cached session or a new one, after the store did not answer.

        The session as cached before the call counts: what was seen since may be this turn.

        Raises:
            StoreUnavailable: the owner of the session cannot be looked up now.
        """
        key = call.key
        async with self._session_lock(key), self._backing_off(key, away):
            before = self.cache.still(call.before)
            if before is not None and not (self.peers.alone or self.own.is_last(key) or self.has_pending(key)):
                raise away  # Another process may go on with it.
            since = before.session.last_seq if before is not None else 0
            sent = not isinstance(away, CircuitOpen)
            return await self._local.begin(scope, opening, key, away, before, since if sent else None)

    async def finish_after_pending(self, turn: OpenTurn, closing: FinishTurn, key: bytes) -> AppendResult | None:
        """Finish a turn that began here; `None` if the store has it."""
        async with self._session_lock(key):
            if turn.id in self._local.open:
                with suppress(SessionBusy, Unavailable):
                    await self._replay_pending(key)
            return await self._local.finish(turn, closing, key)

    async def finish(self, turn_id: str, closing: FinishTurn, call: Call, away: StoreUnavailable) -> AppendResult:
        """Finish a turn here that began in the store, after that did not answer."""
        async with self._session_lock(call.key), self._backing_off(call.key, away):
            begun = self.running.get(turn_id)
            if begun is None:
                raise away
            return await self._local.finish_stored(begun, closing, call)

    async def renew(self, turn: OpenTurn) -> OpenTurn | None:
        """Renew a turn that is open here; `None` if it is not."""
        here = self._local.open.get(turn.id)
        return await self._local.view.renew_turn(here.key, turn) if here is not None else None

    # Reading during an outage

    async def replica_for(self, key: bytes) -> View | None:
        """The replica with a session that has waiting turns; `None` if the store has them all by now.

        Raises:
            Unavailable: the session cannot be read here either.
        """
        async with self._session_lock(key):
            with suppress(SessionBusy, Unavailable):
                if await self._replay_pending(key):
                    return None
            await self._local.refresh_if_rows_missing(key)
            view = self._local.view
            if not view.has_session(key):
                await self._local.rebuild(key)
            if view.is_write_only(key):
                raise StoreUnavailable
            return view if view.has_session(key) else None

    def last_seen_replica(self, key: bytes, away: StoreUnavailable) -> View:
        """A session as last seen, for a read that the store did not answer.

        Raises:
            StoreUnavailable: it is not cached.
        """
        self.observe_unavailable(away)
        entry = self.cache.get(key)
        if entry is None:
            raise StoreUnavailable
        view = View(self._clock)
        view.load_record(key, record_of(entry))
        return view

    # Replay

    async def settle(self, key: bytes) -> None:
        """Replay a session's turns before another change to it.

        Raises:
            SessionBusy: a turn of another process holds the session.
            Unavailable: the store is down.
        """
        async with self._session_lock(key):
            if not await self._replay_pending(key):
                raise StoreUnavailable

    async def run_replay(self) -> None:
        """Replay the outbox periodically, until cancelled."""
        pause = self._every
        self._wake.set()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause if self._outbox.sessions else _ADOPT_EVERY):
                    await self._wake.wait()
            self._wake.clear()
            try:
                done = await self.round()
            except Unavailable as failed:
                _log.warning("the journal was not replayed: %s", failed)
                done = False
            except Exception:
                # The next rounds run whatever this one met.
                _log.exception("the journal was not replayed")
                done = False
            pause = self._every if done else min(pause * 1.5, _LONGEST_PAUSE)

    async def round(self) -> bool:
        """Adopt the files of dead processes and replay all sessions; returns whether nothing waits."""
        if await self._check_store():
            # Not during an outage: a restarted process continues the sessions of its own file.
            await self._outbox.adopt()
            # Sessions whose last call failed come last: another server may answer for the others.
            keys = iter(sorted(self._outbox.sessions, key=lambda key: self._backoff.get(key, 0.0)))
            await self._replay_each(keys)
            await self._purge_quarantine()
        await self._outbox.tidy(self._clock() - _QUARANTINE_TTL)
        for key in self._local.view.keys:
            async with self._session_lock(key):
                if not self._outbox.has_rows(key):
                    self._drop_session(key)  # Its file was given up.
        return not self._outbox.sessions

    async def _replay_each(self, keys: Iterator[bytes]) -> None:
        """Replay several sessions at a time, each in its order: they share the fsyncs of the outbox."""

        async def replay_next() -> None:
            for key in keys:
                await self._try_replay(key)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(_REPLAYED_AT_ONCE):
                    group.create_task(replay_next())
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None

    async def _check_store(self) -> bool:
        try:
            if self._away_since is not None:
                await self._probe()
            await self._upkeep.ping()
        except StoreUnavailable as away:
            self.observe_unavailable(away)
            return False
        return True

    async def _try_replay(self, key: bytes) -> None:
        """Replay a session; its failure does not stop the others."""
        async with self._session_lock(key):
            try:
                await self._replay_pending(key)
            except (SessionBusy, SessionElsewhere):
                return  # The turn that holds it ends by itself, and the other process goes on.
            except TenutoError as failed:
                _log.warning("journaled turns of a session are kept for later: %s", failed.code)
            except Exception as failed:
                _log.warning("journaled turns of a session are kept for later: %s", type(failed).__name__)

    async def _replay_pending(self, key: bytes) -> bool:
        """Replay a session's turns, unless it backs off; returns whether none waits any more.

        Raises:
            SessionElsewhere: another process has to replay its turns first.
        """
        if not self._outbox.has_rows(key):
            return True
        if self._ticks() < self._backoff.get(key, 0.0):
            return False
        try:
            if not await self.peers.admit_replay():
                return False
            with self.peers.replaying(key):
                await self._replay.session(key, self._local.open)
        except SessionElsewhere:
            raise
        except StoreUnavailable as away:
            self.observe_unavailable(away)
            self._back_off(key, away)
            return False
        finally:
            self._apply_moved_turns(key)
        return not self._outbox.has_rows(key)

    def _apply_moved_turns(self, key: bytes) -> None:
        """Continue replayed open turns in the store, and drop the local session once it has no rows."""
        for turn_id in [turn_id for turn_id in self._replay.moved if self._local.open[turn_id].key == key]:
            turn, here = self._replay.moved.pop(turn_id), self._local.open.pop(turn_id)
            self.observe_begin(key, here.opening, turn)
        if not self._outbox.has_rows(key):
            self._drop_session(key)  # Rows of turns that are still open were erased or quarantined.

    async def _purge_quarantine(self) -> None:
        """Delete quarantined rows of users who were erased since, a few per round."""
        if self._ticks() < self._purge_at:
            return
        self._purge_at = self._ticks() + self._every
        with suppress(StoreUnavailable):
            for raw in await self._outbox.next_quarantined(_ASIDE_AT_ONCE):
                if await self._replay.is_user_erased(raw):
                    await self._outbox.remove(raw)

    # Deletion

    async def forget_session(self, key: bytes) -> None:
        """Drop everything of a deleted session."""
        self.running.drop_session(key)
        if self._outbox.has_rows(key):
            async with self._session_lock(key):
                for raw in await self._outbox.rows(key):
                    await self._outbox.remove(raw)
                self._drop_session(key)

    async def forget_user(self, person: Scope) -> int:
        """Delete a user's turns, while no replay is under way; returns their number."""
        assert person.user is not None
        async with AsyncExitStack() as locked:
            for key in sorted(self._outbox.sessions):
                await locked.enter_async_context(self._session_lock(key))
            self.forget_open_turns(person)
            count = await self._outbox.erase(person.tenant, person.site, user_digest(person.tenant, person.user))
            for key in self._local.view.keys:
                if self._local.view.concerns(key, person):
                    await self._local.reset(key)
            await self._outbox.tidy()
            return count

    def forget_open_turns(self, person: Scope) -> None:
        """Drop a user's open turns, and every cached session of the site: any may hold the user's messages."""
        self.running.drop_user(person)
        self.running.mark_site_doubtful(person)
        self.cache.drop_site(person)

    def _drop_session(self, key: bytes) -> None:
        """Drop the local session, which has no rows."""
        self._backoff.pop(key, None)
        self._local.drop_session(key)

    # Locks and pauses

    def _session_lock(self, key: bytes) -> asyncio.Lock:
        return self._locks.setdefault(key, asyncio.Lock())

    @asynccontextmanager
    async def _backing_off(self, key: bytes, away: StoreUnavailable) -> AsyncIterator[None]:
        """Back off after a call that was not answered, as long as the session has waiting turns."""
        self._back_off(key, away)
        try:
            yield
        finally:
            if not self._outbox.has_rows(key):
                self._backoff.pop(key, None)

    def _back_off(self, key: bytes, away: StoreUnavailable) -> None:
        pause = self._every if isinstance(away, CircuitOpen) else max(self._every, _MAY_STILL_ARRIVE)
        self._backoff[key] = max(self._backoff.get(key, 0.0), self._ticks() + pause)

    def _log_status(self, news: str) -> None:
        """Log as a warning, at most once in `_WARN_EVERY` seconds."""
        quiet = self._ticks() < self._warned_at + _WARN_EVERY
        _log.log(logging.INFO if quiet else logging.WARNING, news)
        if not quiet:
            self._warned_at = self._ticks()
