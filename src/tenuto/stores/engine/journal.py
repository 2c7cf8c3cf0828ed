"""Outages: commands acknowledged into a folder that all processes of a machine share, and submitted again afterwards.

The folder decides for all its processes whether the store is away. A session with rows in the folder is *fenced*: no
process reads or changes it in the store before its rows are there, its own or not. So the order of what was
acknowledged is kept wherever a client goes, and a killed process leaves nothing that others cannot go on with.

- The store is taken for away only when every living process of the folder says so. One that alone lost it refuses. Of
  a store on several servers the ping decides: a majority must answer, and sessions on the others are refused.
- Then each process leaves what it knows to be current in the folder: any of them can go on with any session that one of
  them held. Others are refused, with the same answer whether they exist or not. A session whose id was made for the
  request is created here.
- A row is a command and its time: `journal_rows` says how it is carried out, `journal_replay` how it is stored.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, TypeVar, cast

from msgspec.structs import replace

from tenuto.background import running
from tenuto.errors import CircuitOpen, SessionElsewhere, SessionNotFound, StoreUnavailable, Unavailable
from tenuto.lru_cache import LruCache
from tenuto.model import AppendResult, Content, OpenTurn, Scope
from tenuto.model.scope import site_scope, user_digest, user_scope
from tenuto.ports import Clock, RecordStore
from tenuto.stores.encoding import Undecodable, digest_id, from_micros, to_micros
from tenuto.stores.engine.breaker_records import BreakerRecords, are_sharded
from tenuto.stores.engine.cache import RecordCache
from tenuto.stores.engine.codec import Codec, UnknownFormat
from tenuto.stores.engine.commands import Append, Begin, Command, JournaledCommand, Renew
from tenuto.stores.engine.journal_folder import (
    ALWAYS,
    JournaledSession,
    JournalFolder,
    JournalState,
    Offer,
    StoredBase,
    StoredRow,
)
from tenuto.stores.engine.journal_replay import CodecOf, Queue, ReadsState, Replay
from tenuto.stores.engine.journal_rows import (
    Row,
    Unplaceable,
    decode_base,
    decode_row,
    encode_base,
    encode_row,
    is_stored,
    replay_row,
)
from tenuto.stores.engine.lane import Rule, is_outcome_unknown
from tenuto.stores.engine.record import MessagesMissing, Record, TracesMissing
from tenuto.stores.engine.rules.attachments import contents_of

_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")
_PROBE_EVERY: Final = 1.0
_AGREED_WITHIN: Final = 6.0
_ANY_NUMBER: Final = 2**31
_MOST_OFFERED: Final = 2000
_OFFERED_WITHIN: Final = 2.0
_PAUSE: Final = 0.02
_LOCKED_WITHIN: Final = 30.0
_OFFERED_AT_ONCE: Final = 32
_FOLDS_KEPT: Final = 256
_QUARANTINE_TTL: Final = timedelta(days=30)
_PURGE_EVERY: Final = 60.0


class _Held(NamedTuple):
    """A session in an outage: with its rows, the base they go on from as stored, its last message, the next row."""

    record: Record | None
    base: StoredBase
    base_seq: int = 0
    next_row: int = 1
    origin: bytes | None = None


class _Fold(NamedTuple):
    """The rows of a session carried out up to the `last`, so that a long outage is not folded anew with each call."""

    base: tuple[int, str]
    base_seq: int
    record: Record | None
    last: StoredRow | None = None
    origin: bytes | None = None

    def continues_in(self, session: JournaledSession) -> bool:
        """Whether what a folder holds now is this, and rows behind it."""
        if self.base != (session.base.revision, session.base.incarnation):
            return False
        # A row that was set aside leaves its number to another one.
        return self.last is None or self.last in session.rows


class Journal:
    """The way of every call on a session: to the store, or in an outage to the folder.

    `queue` puts a rule on the lane of a session, `codec` is that of a tenant's site. The owner runs `run`.
    """

    def __init__(
        self,
        folder: JournalFolder,
        records: RecordStore,
        cache: RecordCache,
        state: ReadsState,
        *,
        clock: Clock,
        name: str,
        codec: CodecOf,
        queue: Queue,
    ) -> None:
        self._folder = folder
        self._breaker = records if isinstance(records, BreakerRecords) else None
        self._probe = records.ping if self._breaker is None else self._breaker.probe
        self._cache = cache
        self._clock = clock
        self._name = name
        self._codec = codec
        self._replay = Replay(folder, cache, state, clock=clock, codec=codec, queue=queue, sharded=are_sharded(records))
        self._folds = LruCache[bytes, _Fold](_FOLDS_KEPT)
        self._agreeing: asyncio.Task[bool] | None = None
        self._store_answers = True
        self._refuted_until = self._offers_until = float("-inf")
        self._away_since: datetime | None = None
        self._refused = 0
        self._purge_at = float("-inf")
        cache.on_commit = self._on_commit

    @property
    def status(self) -> JournalState:
        """The state of the journal."""
        counts = self._folder.counts
        return JournalState(
            away=self._folder.is_down,
            since=self._away_since,
            waiting=counts.waiting,
            oldest=None if counts.oldest is None else from_micros(counts.oldest),
            quarantined=counts.quarantined,
            replayed=self._replay.replayed,
            refused=self._refused,
        )

    # Calls

    async def change(self, key: bytes, command: Command[_Answer], send: Callable[[], Awaitable[_Answer]]) -> _Answer:
        """Carry out a command in the store, or acknowledge it in the folder."""
        held = self._cache.get(key)
        since = held.head.last_seq if held is not None else 0
        failure: StoreUnavailable | None = None
        if not self._folder.is_down:
            try:
                return await self._in_store_or_once_more(key, send)
            except StoreUnavailable as error:
                if not await self._is_away(error):
                    raise
                failure = error if is_outcome_unknown(error) else None
        try:
            # The union is of all commands; which one it is decides the type of the answer.
            answer: _Answer = await self._acknowledge(key, cast(JournaledCommand, command), since, failure)
        except Unavailable:
            self._refused += not isinstance(command, Renew)
            raise
        return answer

    async def read(
        self, scope: Scope, key: bytes, rule: Rule[_Answer], send: Callable[[], Awaitable[_Answer]]
    ) -> _Answer:
        """Read from the store, or in an outage from what the folder holds."""
        if not self._folder.is_down:
            try:
                return await self._in_store_or_once_more(key, send)
            except StoreUnavailable as error:
                if not await self._is_away(error):
                    raise
        held = await self._hold(key, await self._codec(scope))
        try:
            return rule(held.record, self._clock()).answer
        except (SessionNotFound, MessagesMissing, TracesMissing):
            raise StoreUnavailable from None

    async def content(self, key: bytes, attachment_id: str, codec: Codec) -> Content | None:
        """In an outage, content that came with a row which waits; the store has the others."""
        session = await self._folder.read_session(key) if self._folder.is_down else None
        for stored in () if session is None else session.rows:
            with suppress(Undecodable):
                for content in contents_of(decode_row(key, stored, codec).command.messages):
                    if content.id == attachment_id:
                        return content
        return None

    async def refuse_in_outage(self, key: bytes, send: Callable[[], Awaitable[_Answer]]) -> _Answer:
        """A change that no journal acknowledges: it waits for the rows before it, and fails while the store is away."""
        if self._folder.is_down:
            raise StoreUnavailable
        return await self._in_store(key, send)

    async def _in_store_or_once_more(self, key: bytes, send: Callable[[], Awaitable[_Answer]]) -> _Answer:
        """A call that a breaker rejected is sent again if the store answers by now."""
        try:
            return await self._in_store(key, send)
        except CircuitOpen as error:
            if await self._is_away(error) or not self._store_answers:
                raise
            return await self._in_store(key, send)

    async def _in_store(self, key: bytes, send: Callable[[], Awaitable[_Answer]]) -> _Answer:
        if self._folder.may_have_rows:
            await self._replay.session(key)
        answer = await send()
        if self._folder.is_down:
            # Others have begun to go on from what they knew: they must know this before the caller does.
            record = self._cache.get(key)
            if record is not None:
                await self._offer([(key, record)])
        return answer

    def _on_commit(self, key: bytes, record: Record | None) -> None:
        if record is None:
            self._folder.note(key, 0, "")
        else:
            self._folder.note(key, record.revision, record.profile.incarnation)

    # In an outage

    async def _acknowledge(
        self, key: bytes, command: JournaledCommand, since: int, failure: StoreUnavailable | None
    ) -> Any:
        """Add a row for a command; one that the store may have carried out before the `failure` is looked for."""
        codec = await self._codec(command.scope)
        while True:
            if not self._folder.is_down:
                raise SessionElsewhere
            held, now = await self._hold(key, codec, creating=_creates(command)), self._clock()
            record = held.record
            if not _may_be_journaled(record, command):
                raise failure or StoreUnavailable()
            try:
                if failure is not None and record is not None and is_stored(record, command, since):
                    raise failure
                step = command.apply(record, now)
            except SessionNotFound:
                raise failure or StoreUnavailable() from None
            except MessagesMissing:
                command = self._narrow(command, 0 if record is None else len(record.tail))
                continue
            if not step.changed:
                return step.answer
            assert step.record is not None
            row = Row(
                number=held.next_row,
                at=now,
                command=command,
                writer=self._name,
                since=min(since, held.base_seq),
                incarnation=step.record.profile.incarnation,
                creates=step.created,
                origin=_key_of(command) if step.created else held.origin,
            )
            stored = encode_row(key, row, step.record.profile.scope, codec)
            if await self._folder.append(key, site_scope(command.scope), held.base, stored):
                return _mark_as_journaled(step.answer)

    async def _hold(self, key: bytes, codec: Codec, *, creating: bool = False) -> _Held:
        """What the folder holds of a session, or else this process; neither may know whether there is more."""
        while True:
            session, fold = await self._read_journaled(key)
            if session is not None:
                return await self._fold(key, session, fold, codec)
            record = self._cache.last_confirmed(key)
            if record is not None and self._folder.is_current(key, record.revision, record.profile.incarnation):
                base = encode_base(key, record, codec)
                return _Held(replace(record, reach=_ANY_NUMBER), base, record.head.last_seq)
            if creating and self._cache.get(key) is None and not self._folder.is_noted(key):
                return _Held(None, StoredBase())
            if self._folder.are_offers_complete or asyncio.get_running_loop().time() > self._offers_until:
                raise StoreUnavailable
            await asyncio.sleep(_PAUSE)

    async def _read_journaled(self, key: bytes) -> tuple[JournaledSession | None, _Fold | None]:
        """What the folder holds of a session, and what of it is folded: then of these rows only the last one."""
        fold = self._folds.get(key)
        if fold is not None and fold.last is not None:
            session = await self._folder.read_session(key, fold.last.number)
            if session is not None and fold.continues_in(session):
                return session, fold
        session, fold = await self._folder.read_session(key), self._folds.get(key)
        return session, fold if fold is not None and session is not None and fold.continues_in(session) else None

    async def _fold(self, key: bytes, session: JournaledSession, fold: _Fold | None, codec: Codec) -> _Held:
        """The session with its rows. It forgets none of their messages, which are nowhere else."""
        if fold is None:
            try:
                record = decode_base(key, session.base, codec)
            except Undecodable as error:
                raise Unavailable("journal", "holds a session that cannot be read") from error
            base_seq = 0 if record is None else record.head.last_seq
            fold = _Fold((session.base.revision, session.base.incarnation), base_seq, record)
        record, last, origin = fold.record, fold.last, fold.origin
        for stored in session.rows:
            if last is None or stored.number > last.number:
                try:
                    row = decode_row(key, stored, codec)
                    record, last, origin = replay_row(record, row).record, stored, row.origin
                except UnknownFormat as error:
                    raise Unavailable("journal", "has turns that a newer release wrote") from error
                except Undecodable:
                    await self._replay.set_aside(key, stored, "torn")
                except (MessagesMissing, Unplaceable):
                    raise StoreUnavailable from None
            if record is not None and record.contents:
                record = replace(record, contents=())  # The row has them.
            if record is not None and record.reach != _ANY_NUMBER:
                record = replace(record, reach=_ANY_NUMBER)
        self._folds.put(key, _Fold(fold.base, fold.base_seq, record, last, origin))
        return _Held(record, session.base, fold.base_seq, 1 if last is None else last.number + 1, origin)

    def _narrow(self, command: JournaledCommand, held: int) -> JournaledCommand:
        """A turn whose window is what is held of the session; nothing else goes on without older messages."""
        if isinstance(command, Begin) and command.request.window > held:
            return replace(command, request=replace(command.request, window=held))
        raise StoreUnavailable

    # Agreement

    async def _is_away(self, lost: StoreUnavailable) -> bool:
        """Whether all living processes of the folder have lost the store; else the caller's failure stands."""
        if self._folder.is_down:
            return True
        if isinstance(lost, SessionElsewhere):
            return False
        if isinstance(lost, CircuitOpen) and asyncio.get_running_loop().time() < self._refuted_until:
            return False  # It was asked a moment ago, and calls are to be rejected at once.
        if self._agreeing is None:
            self._agreeing = asyncio.create_task(self._agree())
            self._agreeing.add_done_callback(self._on_agreed)
        # Shield: one cancelled caller must not cancel the shared attempt.
        return await asyncio.shield(self._agreeing)

    def _on_agreed(self, done: asyncio.Task[bool]) -> None:
        self._agreeing = None
        self._refuted_until = asyncio.get_running_loop().time() + _PROBE_EVERY
        if not done.cancelled():
            done.exception()  # Marks it as retrieved: all callers may have been cancelled.

    async def _agree(self) -> bool:
        loop, folder = asyncio.get_running_loop(), self._folder
        until = loop.time() + _AGREED_WITHIN
        try:
            folder.ask()
            await self._answer_vote()
            while loop.time() < until:
                agreed = await folder.is_agreed()
                if agreed:
                    self._on_down()
                if agreed is not None:
                    return agreed
                await asyncio.sleep(0.05)
        except Unavailable as error:
            _log.warning("the journal cannot be used: %s", error)
        return False

    async def _answer_vote(self) -> None:
        """A process has lost the store: look whether this one has."""
        try:
            await self._probe()
        except Unavailable:
            self._store_answers = False
        else:
            self._store_answers = True
        self._folder.vote(not self._store_answers)

    async def _on_change(self) -> None:
        """The folder went down or up, or another process has joined it."""
        if not self._folder.is_down:
            if self._away_since is not None:
                self._away_since = None
                _log.warning("the store answers again; %d journaled turns wait for it", self._folder.counts.waiting)
            return
        self._on_down()
        if self._folder.is_shared:
            await self._offer_all()
        self._folder.mark_offered()

    def _on_down(self) -> None:
        if self._away_since is None:
            self._away_since = self._clock()
            self._offers_until = asyncio.get_running_loop().time() + _OFFERED_WITHIN
            _log.warning("the store does not answer: turns that may be are journaled")

    async def _offer_all(self) -> None:
        """Leave in the folder what this process knows to be current, the most recently used first."""
        confirmed = self._cache.all_confirmed()[:_MOST_OFFERED]
        for first in range(0, len(confirmed), _OFFERED_AT_ONCE):
            if not self._folder.is_down:
                return
            await self._offer(confirmed[first : first + _OFFERED_AT_ONCE])

    async def _offer(self, records: list[tuple[bytes, Record]]) -> None:
        offers = list[Offer]()
        try:
            for key, record in records:
                site = site_scope(record.profile.scope)
                offers.append(Offer(key=key, site=site, base=encode_base(key, record, await self._codec(site))))
            await self._folder.offer(offers)
        except Unavailable as error:
            _log.warning("sessions cannot be left for the other processes: %s", error)

    # The way back

    async def run(self) -> None:
        """Vote when asked, look for the store while it is away, and store what waits; for as long as the process
        lives."""
        async with running(self._folder.watch(self._answer_vote, self._on_change), "journal watch"):
            while True:
                await self._look()
                await asyncio.sleep(_PROBE_EVERY)

    async def _look(self) -> None:
        self._cache.listen()
        try:
            if self._folder.is_down:
                await self._probe()
                await self._folder.reopen()
            elif self._breaker is not None and self._breaker.is_resting:
                # The other processes reach the store: a server that has come back is not refused any longer.
                await self._probe()
            # What the feed has missed is known at the latest now, should it be lost again.
            self._cache.listen()
            if self._folder.may_have_rows:
                await self._replay.all()
            now = asyncio.get_running_loop().time()
            if self._folder.counts.quarantined and now >= self._purge_at:
                self._purge_at = now + _PURGE_EVERY
                await self._purge()
        except StoreUnavailable:
            return
        except Unavailable as error:
            _log.warning("the journal cannot be used: %s", error)
        except Exception:
            # It looks again in a second, whatever this was.
            _log.exception("the journal has met an error")

    async def _purge(self) -> None:
        """Remove quarantined rows that are too old, or of users that were erased on another machine."""
        await self._folder.purge(to_micros(self._clock() - _QUARANTINE_TTL))
        users_by_site = dict[Scope, list[str]]()
        for site, user in await self._folder.users_aside():
            users_by_site.setdefault(site, []).append(user)
        for site, users in users_by_site.items():
            await self._replay.remove_erased(site, users)

    async def replay(self) -> bool:
        """Store what waits now; returns whether nothing waits any more."""
        await self._look()
        return not await self._folder.fenced_keys()

    async def forget_user(self, scope: Scope) -> int:
        """Remove a user's rows, while none of them is being stored; returns how many.

        Raises:
            SessionElsewhere: another process has one of the sessions for too long.
        """
        person = user_scope(scope)
        assert person.user is not None
        site, user = site_scope(person), user_digest(person.tenant, person.user)
        loop, locked = asyncio.get_running_loop(), list[bytes]()
        until = loop.time() + _LOCKED_WITHIN
        try:
            # Sorted, so that two erasures do not wait for each other in a circle.
            for key in sorted(await self._folder.keys_of_user(site, user)):
                while not await self._folder.lock(key):
                    if loop.time() >= until:
                        raise SessionElsewhere
                    await asyncio.sleep(_PAUSE)
                locked.append(key)
            self._folds.clear()
            return await self._folder.erase(site, user, ALWAYS)
        finally:
            for key in locked:
                with suppress(Unavailable):  # The folder unlocks it later.
                    await self._folder.unlock(key)


def _creates(command: JournaledCommand) -> bool:
    """Whether no other caller can know the session, and it may be created here."""
    return isinstance(command, Begin) and command.request.new_id and command.request.create is not None


def _key_of(command: JournaledCommand) -> bytes | None:
    request_key = command.request.idempotency_key if isinstance(command, Begin) else None
    return None if request_key is None else digest_id(request_key.key)


def _may_be_journaled(record: Record | None, command: JournaledCommand) -> bool:
    """Whether the policy of the caller lets a journal acknowledge it; the end of a turn is as its begin was."""
    match command:
        case Begin(request=request):
            return request.journaled
        case Append(batch=batch):
            return batch.journaled
        case _:
            lease = None if record is None else record.head.lease
            return lease is None or lease.journaled


def _mark_as_journaled(answer: Any) -> Any:
    return replace(answer, journaled=True) if isinstance(answer, OpenTurn | AppendResult) else answer
