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

from tenuto.errors import CircuitOpen, SessionBusy, StoreUnavailable, TakenBack, TenutoError, TurnLost, Unavailable
from tenuto.model import Appended, Closing, Opening, OpenTurn, Scope, TurnState
from tenuto.model.news import News
from tenuto.model.scope import person_digest
from tenuto.model.taken_back import was_taken_back
from tenuto.model.values import Value
from tenuto.ports import ChangeFeed, Ciphers, Clock, Store
from tenuto.stores.journaled.calls import Call
from tenuto.stores.journaled.entry import Entry
from tenuto.stores.journaled.known import Known
from tenuto.stores.journaled.outbox import Outbox
from tenuto.stores.journaled.pauses import Pauses
from tenuto.stores.journaled.replay import Replay
from tenuto.stores.journaled.rows import Beginning, Raw, Seals, persons_in, place_of
from tenuto.stores.journaled.running import Begun, Running, as_begun
from tenuto.stores.journaled.view import View, glimpse
from tenuto.stores.memory.record import is_closed

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


class _Here(NamedTuple):
    """A turn that is open here, and where its row lies."""

    key: bytes
    slot: int
    number: int
    opening: Opening


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
        self.known = Known(feed, ticks=ticks)
        self._upkeep = store.upkeep
        self._outbox = outbox
        self._clock = clock
        self._every = every
        self._ticks = ticks
        self._seals = Seals(ciphers, clock)
        self._replay = Replay(sessions=store.sessions, state=store.state, outbox=outbox, seals=self._seals, clock=clock)
        self._view = View(clock)
        self._here: dict[str, _Here] = {}
        self._running = Running()
        self._locks: WeakValueDictionary[bytes, asyncio.Lock] = WeakValueDictionary()
        self._pauses = Pauses(every, ticks)
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

    def holds(self, key: bytes) -> bool:
        """Whether turns of this session wait for the store."""
        return self._outbox.holds(key)

    # What the store does

    def saw_away(self) -> None:
        """It did not answer."""
        self._shaky_until = self._ticks() + self._every
        if self._away_since is None:
            self._away_since = self._clock()
            self._tell("the store is away: turns that may be are journaled")

    def saw_answer(self, since: int) -> None:
        """It answered what was sent `since` the feed lost track so often. One that failed to a moment ago, as a part of
        it may, is not back yet."""
        if self._away_since is not None and self._ticks() >= self._shaky_until:
            self._away_since = None
            self._tell(f"the store answers again; {self._outbox.counts.waiting} journaled turns wait for it")
            if self._outbox.sessions:
                self._wake.set()
        self.known.answered(since)

    def saw_begun(self, call: Call, opening: Opening, turn: OpenTurn) -> None:
        """It began a turn, whose end may come when it is away; or had it answered before."""
        if turn.state is TurnState.FINISHED:
            call.changed_nothing()
            return
        self.known.saw_begun(call, turn, opening.once)
        if opening.journaled:
            self._running.add(call.key, opening, turn, doubtful=not call.certain)

    def heard(self, news: News | None) -> None:
        """What its feed tells: these sessions changed, or any may have."""
        for key in self.known.heard(news):
            self._running.doubt(key)

    def is_foreign(self, scope: Scope, key: bytes) -> bool:
        """Whether a session was last seen as somebody else's: what a stranger asks for changes nothing of it."""
        running = self._running.of(key)
        head = self.known.head(key) or (running[-1].turn.session if running else None)
        return head is not None and not scope.reaches(head.scope)

    def took_away(self, key: bytes, by: str | None = None) -> None:
        """What was said in a session is gone, or may be: a turn that answers to it, but for the one it was done `by`,
        must not bring it back."""
        self.known.forget(key)
        self._running.drop_session(key, sparing=by)

    def lost(self, key: bytes, turn_id: str) -> None:
        """It does not have a turn any more."""
        self.known.forget(key)
        self._running.drop(turn_id)

    @property
    def sealing(self) -> bool:
        """Whether what is journaled is sealed."""
        return self._seals.sealing

    async def keep_keys(self, scope: Scope) -> None:
        """Have at hand what the journal is sealed with: when the store is away it cannot be asked."""
        await self._seals.keep_at_hand(scope)

    def saw_renewed(self, turn: OpenTurn) -> None:
        """It holds a session on for a turn."""
        self._running.renewed(turn)

    def begun(self, turn_id: str) -> Begun | None:
        """A turn that began in the store and has not ended."""
        return self._running.get(turn_id)

    def saw_end(self, call: Call, turn_id: str, done: Appended) -> None:
        """It ended a turn, or had done so before."""
        self._running.drop(turn_id)
        if done.duplicate:
            call.changed_nothing()
        else:
            self.known.saw_finished(call, turn_id, done.session, done.messages)

    # Turns while it is away

    async def begin_behind(self, scope: Scope, opening: Opening, key: bytes) -> OpenTurn | None:
        """Begin behind turns that wait: here, if they still must; `None` when the store has them all by now.

        Raises:
            SessionBusy: the store is back, and somebody else's turn runs there.
        """
        async with self._alone(key):
            if await self._settled(key):
                return None
            if not opening.journaled:
                raise StoreUnavailable
            await self._show_no_more_than_waits(key)
            # The store has not been asked for it: none of it can be there.
            return await self._begin_here(scope, opening, key, StoreUnavailable(), self.known.get(key))

    async def begin(self, scope: Scope, opening: Opening, call: Call, away: StoreUnavailable) -> OpenTurn:
        """Begin a turn here, in a session that is known, or is opened with it.

        The store was asked and did not answer. What was known before counts: what was seen since may be this turn.

        Raises:
            StoreUnavailable: whose session it is, nobody can tell now.
        """
        key = call.key
        async with self._alone(key), self._leaving_alone(key, away):
            before = self.known.still(call.before)
            since = before.session.last_seq if before is not None else 0
            sent = not isinstance(away, CircuitOpen)
            return await self._begin_here(scope, opening, key, away, before, since if sent else None)

    async def finish_behind(self, turn: OpenTurn, closing: Closing, key: bytes) -> Appended | None:
        """Finish a turn that began here; `None` when it goes on in the store, or began there."""
        async with self._alone(key):
            if turn.id in self._here:
                with suppress(SessionBusy, Unavailable):
                    await self._settled(key)
            if turn.id in self._here:
                return await self._finish_here(turn, closing, key)
            record = self._view.sessions.record(key)
            if record is None or not is_closed(record, turn):
                return None
            return await self._view.sessions.finish_turn(turn, closing)

    async def finish(self, turn_id: str, closing: Closing, call: Call, away: StoreUnavailable) -> Appended:
        """Finish a turn here that began in the store, with what was known before that was asked to."""
        key = call.key
        async with self._alone(key), self._leaving_alone(key, away):
            begun = self._running.get(turn_id)
            if begun is None:
                raise away
            turn, saved = begun.turn, self._view.saved(key)
            try:
                await self._stands_for(begun, call)
                opening = replace(begun.opening, words=(), create=None)
                beginning = self._beginning(key, turn, opening, turn.session.last_seq, there=True)
                done = await self._view.sessions.finish_turn(turn, closing)
                await self._note(key, beginning, closing)
            except BaseException:
                self._view.put_back(key, saved)
                raise
            self._running.drop(turn_id)
            return replace(done, journaled=True)

    async def renew(self, turn: OpenTurn) -> OpenTurn | None:
        """Hold a turn that is open here; `None` when it is not."""
        here = self._here.get(turn.id)
        return await self._view.renew_turn(here.key, turn) if here is not None else None

    # Reading while it is away

    async def standing_in(self, key: bytes) -> View | None:
        """Where a session with waiting turns can be read; `None` when the store has them all by now.

        Raises:
            Unavailable: they cannot be read here either.
        """
        async with self._alone(key):
            with suppress(SessionBusy, Unavailable):
                if await self._settled(key):
                    return None
            await self._show_no_more_than_waits(key)
            if not self._view.holds(key):
                await self._rebuilt(key)
            if self._view.is_blind(key):
                raise StoreUnavailable
            return self._view if self._view.holds(key) else None

    def seen(self, key: bytes) -> View | None:
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
        async with self._alone(key):
            if not await self._settled(key):
                raise StoreUnavailable

    async def run(self) -> None:
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
        if await self._is_back():
            # Not in an outage: there the process that comes back for them goes on with their sessions.
            await self._outbox.adopt()
            # Those that were asked for in vain come last: another server may answer.
            for key in sorted(self._outbox.sessions, key=self._pauses.until):
                await self._tried(key)
            await self._look_at_set_aside()
        await self._outbox.tidy(self._clock() - KEPT_ASIDE)
        for key in self._view.keys:
            async with self._alone(key):
                if not self._outbox.holds(key):
                    self._let_go(key)  # Its file was given up.
        return not self._outbox.sessions

    # Forgetting

    async def forget_session(self, key: bytes) -> None:
        """Keep nothing of a session that was deleted."""
        self.took_away(key)
        if self._outbox.holds(key):
            async with self._alone(key):
                for raw in await self._outbox.rows(key):
                    await self._outbox.remove(raw)
                self._let_go(key)

    async def forget_person(self, person: Scope) -> int:
        """Keep nothing of somebody; tells how many turns that were. None of them is on its way to the store then."""
        async with AsyncExitStack() as alone:
            for key in sorted(self._outbox.sessions):
                await alone.enter_async_context(self._alone(key))
            return await self._person_forgotten(person)

    async def _person_forgotten(self, person: Scope) -> int:
        assert person.user is not None
        digest = person_digest(person.tenant, person.user)
        self.forget_running(person)
        count = await self._outbox.erase(person.tenant, person.site, digest)
        for key in self._view.keys:
            if self._view.concerns(key, person):
                await self._shown_anew(key)
        await self._outbox.tidy()
        return count

    def forget_running(self, person: Scope) -> None:
        """Keep nothing of what somebody says in turns that run, nor of what others of the tenant have seen of it."""
        self._running.drop_person(person)
        self._running.doubt_space(person)
        self.known.forget_space(person)

    # What is inside

    def _tell(self, news: str) -> None:
        """Warn, but of a store that comes and goes no more than now and then."""
        quiet = self._ticks() < self._told_at + _TELL_EVERY
        _log.log(logging.INFO if quiet else logging.WARNING, news)
        if not quiet:
            self._told_at = self._ticks()

    def _alone(self, key: bytes) -> asyncio.Lock:
        return self._locks.setdefault(key, asyncio.Lock())

    @asynccontextmanager
    async def _leaving_alone(self, key: bytes, away: StoreUnavailable) -> AsyncIterator[None]:
        """A call was not answered, which matters as long as turns of its session wait."""
        self._pauses.begin(key, away)
        try:
            yield
        finally:
            if not self._outbox.holds(key):
                self._pauses.end(key)

    async def _settled(self, key: bytes) -> bool:
        """Bring a session's turns to the store, if it is back; tells whether none waits any more."""
        if not self._outbox.holds(key):
            return True
        if self._pauses.lasts(key):
            return False
        call = self.known.changes(key)
        try:
            with call:
                await self._replay.session(key, self._here)
        except StoreUnavailable as away:
            self.saw_away()
            self._pauses.begin(key, away)
            return False
        finally:
            self._follow_moved(call)
        self.saw_answer(call.since)
        return not self._outbox.holds(key)

    def _follow_moved(self, call: Call) -> None:
        """Turns that were open here go on in the store; a session that has none waiting is the store's again."""
        key = call.key
        if not self._outbox.holds(key):
            self.known.forget(key)
        for turn_id in [turn_id for turn_id in self._replay.moved if self._here[turn_id].key == key]:
            turn, here = self._replay.moved.pop(turn_id), self._here.pop(turn_id)
            self.saw_begun(call, here.opening, turn)
        if not self._outbox.holds(key):
            self._let_go(key)  # Rows of turns that are open still were erased or set aside.

    def _let_go(self, key: bytes) -> None:
        """Nothing of a session waits: it stands here no more, and no turn of it is open here."""
        self._pauses.end(key)
        self._view.forget(key)
        for turn_id in [turn_id for turn_id, here in self._here.items() if here.key == key]:
            del self._here[turn_id]

    async def _begin_here(
        self,
        scope: Scope,
        opening: Opening,
        key: bytes,
        away: StoreUnavailable,
        before: Entry | None,
        since: int | None = None,
    ) -> OpenTurn:
        if opening.producer is not None:
            raise away  # What its numbers mean, the store alone knows.
        saved = self._view.saved(key)
        try:
            stands = await self._stands_here(key, before, opening)
            if (not stands and self._is_there(key, opening)) or self._view.is_blind(key):
                raise away
            turn = await self._view.sessions.begin_turn(scope, opening)
            if turn.state is TurnState.FINISHED:
                self._view.check_answer(key, opening, turn)
                if not self._outbox.holds(key):
                    self._view.forget(key)
            elif was_taken_back(turn.session, opening.words):
                raise TakenBack  # Noted here, the words would be said again.
            elif turn.state is TurnState.OPENED and self._view.was_said(key, turn):
                raise away
            else:
                if turn.created:
                    self._view.opened(key, turn)
                beginning = self._beginning(key, turn, opening, since)
                self._here[turn.id] = await self._note(key, beginning)
        except BaseException:
            self._view.put_back(key, saved)
            raise
        return replace(turn, journaled=True)

    async def _finish_here(self, turn: OpenTurn, closing: Closing, key: bytes) -> Appended:
        if not self._view.holds(key):
            await self._rebuilt(key)
        here, saved = self._here[turn.id], self._view.saved(key)
        try:
            done = await self._view.finish_turn(key, turn, closing)
            text = await self._seals.text(turn.scope, closing, place_of(key, here.number, "closing"))
            if not await self._outbox.close_turn(here.slot, here.number, text):
                raise TurnLost(turn.session.id, turn.id)  # Somebody was erased, or the store refused the turn.
        except BaseException as failed:
            self._view.put_back(key, saved)
            if isinstance(failed, TurnLost):
                del self._here[turn.id]
            raise
        del self._here[turn.id]
        return replace(done, journaled=True)

    def _is_there(self, key: bytes, opening: Opening) -> bool:
        """Whether a session that does not stand here is no new one: it must be there, or was seen there."""
        return opening.create is None or self.known.head(key) is not None

    async def _stands_here(self, key: bytes, entry: Entry | None, opening: Opening) -> bool:
        """Have a session in the view, if it can be had: with all of its talk that the turn should see."""
        if self._outbox.holds(key):
            return self._view.holds(key) or await self._rebuilt(key)
        self._view.forget(key)
        if entry is None or not entry.reaches(opening.window - len(opening.words)):
            return False
        self._view.take_over(key, entry.record())
        self._lease_to_running(key)
        return True

    async def _stands_for(self, begun: Begun, call: Call) -> None:
        """Have the session of a turn that ends in the view; as it was, where that is certain."""
        key = begun.key
        if self._outbox.holds(key) and (self._view.holds(key) or await self._rebuilt(key)):
            return
        entry = as_begun(begun, self.known.still(call.before))
        seen = entry or Entry(begun.turn.session, (), 0)
        self._view.forget(key)
        self._view.take_over(key, seen.record(), blind=entry is None)
        self._lease_to_running(key)

    def _lease_to_running(self, key: bytes) -> None:
        for begun in self._running.of(key):
            self._view.lease(key, begun.turn, begun.opening)

    async def _show_no_more_than_waits(self, key: bytes) -> None:
        """What another process of this machine has erased, or a damaged file has lost, is not shown here either."""
        if await self._outbox.lacks_some(key):
            self.known.forget(key)
            self._running.doubt(key)
            await self._shown_anew(key)

    async def _shown_anew(self, key: bytes) -> None:
        """Show of a session no more than its rows tell; one without open turns is built when it is asked for."""
        self._view.forget(key)
        if any(here.key == key for here in self._here.values()):
            with suppress(Unavailable):
                await self._rebuilt(key)

    async def _rebuilt(self, key: bytes) -> bool:
        """Build a session from its rows; tells whether there are any."""
        rows = [await self._seals.row(raw) for raw in await self._outbox.rows(key)]
        try:
            await self._view.again(key, rows, self._here)
        except TenutoError as failed:
            self._view.forget(key)
            raise StoreUnavailable from failed
        return bool(rows)

    def _beginning(
        self, key: bytes, turn: OpenTurn, opening: Opening, since: int | None, *, there: bool = False
    ) -> Beginning:
        """A turn for the outbox; without `since` the store was not asked for it since it was taken over here."""
        origin, asked = self._view.origin(key), since is not None and not there
        if since is None:
            since = origin.head.last_seq if origin.head is not None else 0
        return Beginning(
            scope=turn.scope,
            opening=opening,
            # The first row of a session tells how it looked.
            origin=replace(origin, tail=()) if self._outbox.holds(key) else origin,
            number=turn.number,
            # As the store tells: what words say of themselves is their sender's choice.
            begun_at=min(self._clock(), turn.session.updated_at) if there else self._clock(),
            since=since,
            there=there,
            asked=asked,
            last_word=turn.words[-1].seq if there and turn.words else 0,
        )

    async def _note(self, key: bytes, beginning: Beginning, closing: Closing | None = None) -> _Here:
        """Put a turn into the outbox: when this returns, it is on disk."""
        slot, number = await self._outbox.number()
        scope, seals = beginning.scope, self._seals
        raw = Raw(
            slot=slot,
            number=number,
            session=key,
            tenant=scope.tenant,
            site=scope.site,
            persons=persons_in(beginning),
            begun_at=beginning.begun_at,
            beginning=await seals.text(scope, beginning, place_of(key, number, "beginning")),
            closing=await seals.text(scope, closing, place_of(key, number, "closing")) if closing else None,
        )
        await self._outbox.add(raw)
        if self._outbox.counts.waiting == 1:
            self._wake.set()
        return _Here(key, slot, number, beginning.opening)

    async def _look_at_set_aside(self) -> None:
        """Drop what was set aside of persons who were erased since, a few rows now and then."""
        if self._ticks() < self._look_aside_at:
            return
        self._look_aside_at = self._ticks() + self._every
        with suppress(StoreUnavailable):
            for raw in await self._outbox.set_aside_next(_ASIDE_AT_ONCE):
                if await self._replay.was_erased(raw):
                    await self._outbox.remove(raw)

    async def _is_back(self) -> bool:
        since = self.known.losses
        try:
            await self._upkeep.ping()
        except StoreUnavailable:
            self.saw_away()
            return False
        self.saw_answer(since)
        return True

    async def _tried(self, key: bytes) -> None:
        """Bring a session's turns to the store; what stands in the way of one does not stop the others."""
        async with self._alone(key):
            try:
                await self._settled(key)
            except SessionBusy:
                return  # The turn that runs there ends by itself.
            except TenutoError as failed:
                _log.warning("journaled turns of a session wait on: %s", failed.code)
            except Exception as failed:
                _log.warning("journaled turns of a session wait on: %s", type(failed).__name__)
