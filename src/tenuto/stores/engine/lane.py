"""The queue of one session in this process.

Calls that wait while a commit is under way are applied one after another and become one commit. A lane ends each call
exactly once: with its answer when that is stored, with what a rule refused on a record that the store confirmed, or
with the failure of the store. A caller that gives up changes nothing: its call goes on, or never began.

A batch whose commit was not answered is in doubt. It stays as it is, unmerged, until the record tells by the number of
our last commit whether it was made. Where it was not, it is committed again a few times.
"""

from __future__ import annotations

import logging
from asyncio import Future, get_running_loop
from collections.abc import Callable, Sequence
from datetime import datetime
from random import Random
from typing import Any, Final, Generic, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from tenuto.errors import (
    CircuitOpen,
    DecryptionFailed,
    SessionCorrupt,
    SessionNotFound,
    StoreFull,
    StoreReadOnly,
    StoreRejected,
    StoreUnavailable,
    TenutoError,
    Unavailable,
)
from tenuto.model.stored import Action, Entry, EntryPage, Part, RecordChange, Refused, StoredRecord
from tenuto.ports import Clock, RecordStore
from tenuto.stores.encoding import Undecodable, to_micros
from tenuto.stores.engine.cache import RecordCache, Trip, Unindexed
from tenuto.stores.engine.changes import WRITERS, build_change, known_of
from tenuto.stores.engine.codec import Codec, TornRecord, UnknownFormat
from tenuto.stores.engine.record import TAIL, WIDEST_TAIL, Answer, MessagesMissing, Record, Step, TracesMissing, numbers

_log = logging.getLogger(__name__)
Rule: TypeAlias = Callable[[Record | None, datetime], Step[Answer]]
_EAGER_RETRIES: Final = 2
_LONGEST_PAUSE: Final = 0.05
LOADED: Final = 20
"""How many messages to load with a record that is not held, unless a call needs more."""
_DOES_NOT_OPEN: Final = "did not answer, and does not open"
_MOST_RETRIES: Final = 100
_MOST_DOUBTS: Final = 3
_TORN_LOADS: Final = 2
_ALL: Final = 2**31


class SourceChanged(Exception):
    """The session that a fork copies from has changed."""


class QueuedCall(Struct, Generic[Answer]):
    """One command on a session: its rule, and the future of its answer.

    One that is `alone` shares no commit: it changes stored messages. `source` is the record that a fork copies from,
    `tail` how many messages the rule is likely to need.
    """

    rule: Rule[Answer]
    future: Future[Answer]
    alone: bool
    source: tuple[bytes, int] | None
    tail: int


class Attempt(Struct):
    """What a batch comes to on one record: the record afterwards, the steps that change it, and each call's end."""

    base: Record | None
    after: Record | None
    now: datetime
    steps: list[Step[Any]] = []
    ends: list[tuple[QueuedCall[Any], Any]] = []
    creates: bool = False
    touched: bool = False
    refused_access: bool = False


class LaneContext:
    """What all lanes of a process share. `writer` names the process in the heads it commits."""

    def __init__(
        self, records: RecordStore, cache: RecordCache, *, clock: Clock, chance: Random, searchable: bool = True
    ) -> None:
        self.records = records
        self.cache = cache
        self.clock = clock
        self.chance = chance
        self.searchable = searchable
        self.writer = chance.getrandbits(48)
        self.commits = 0
        self.lanes: dict[bytes, Lane] = {}
        self.unindexed = Unindexed()

    def submit(
        self,
        key: bytes,
        session_id: str,
        codec: Codec,
        rule: Rule[Answer],
        *,
        alone: bool = False,
        source: tuple[bytes, int] | None = None,
        tail: int = 0,
    ) -> Future[Answer]:
        """Queue a command; the future brings its answer."""
        future: Future[Answer] = get_running_loop().create_future()
        lane = self.lanes.get(key)
        if lane is None:
            lane = self.lanes[key] = Lane(self, key, session_id, codec)
        lane.codec = codec  # The newest keys count: a lane that is always busy must not go on with those it began with.
        lane.add(QueuedCall(rule, future, alone, source, tail))
        return future


class Lane:
    """One session's queue and the batch under way."""

    __slots__ = (
        "_batch", "_context", "_doubts", "_failure", "_key", "_retries", "_session_id", "_torn", "_waiting", "codec",
    )  # fmt: skip

    def __init__(self, context: LaneContext, key: bytes, session_id: str, codec: Codec) -> None:
        self._context = context
        self._key = key
        self._session_id = session_id
        self.codec = codec
        self._waiting: list[QueuedCall[Any]] = []
        self._batch: list[QueuedCall[Any]] = []
        self._doubts: dict[int, Attempt] | None = None
        # Of the first commit in doubt.
        self._failure: BaseException | None = None
        self._retries = self._torn = 0

    def add(self, call: QueuedCall[Any]) -> None:
        """Queue a call, and begin at once if none is under way."""
        if not self._batch:
            self._batch.append(call)
            self._begin()
        else:
            self._waiting.append(call)

    def _begin_batch(self) -> None:
        self._batch, self._retries, self._torn = self._extend_batch([]), 0, 0
        self._doubts = self._failure = None
        if self._batch:
            self._begin()
        else:
            del self._context.lanes[self._key]

    def _begin(self) -> None:
        self._guard(self._attempt, self._context.cache.get(self._key))

    def _end_batch(self) -> None:
        """Go on with what has come meanwhile, in a turn of the loop of its own: batches in a row must not nest.

        The callers of one batch tend to come again at once: they run before that turn, and go together once more.
        """
        if self._waiting or len(self._batch) > 1:
            get_running_loop().call_soon(self._begin_batch)
        else:
            del self._context.lanes[self._key]

    def _extend_batch(self, batch: list[QueuedCall[Any]]) -> list[QueuedCall[Any]]:
        """The batch with what waits: a call that is alone shares it with no other."""
        waiting, self._waiting = self._waiting, []
        for place, call in enumerate(waiting):
            if batch and (call.alone or batch[-1].alone):
                self._waiting = waiting[place:]
                break
            if not call.future.done():  # Else its caller has given up.
                batch.append(call)
        return batch

    def _guard(self, step: Callable[..., None], *args: Any) -> None:
        """Run a step of a batch; what goes wrong in it ends the batch's calls, so that no caller waits for ever."""
        try:
            step(*args)
        except BaseException as error:
            self._context.cache.drop(self._key)
            self._fail(error)
            if not isinstance(error, Exception):
                raise

    # Rules

    def _attempt(self, base: Record | None, *, is_fresh: bool = False) -> None:
        """Apply the batch to a record; `is_fresh` if the store said in this trip that it stands so."""
        attempt = self._apply(base, self._context.clock())
        if attempt is None:
            return
        if attempt.steps and self._failure is not None and len(self._doubts or ()) >= _MOST_DOUBTS:
            self._fail(self._failure)
        elif attempt.steps and (is_fresh or base is None or not attempt.creates):
            self._commit(attempt)
        elif is_fresh or (not attempt.steps and not attempt.refused_access and self._is_confirmed(base)):
            self._conclude_unchanged(attempt)
        else:
            self._load(base)

    def _is_confirmed(self, base: Record | None) -> bool:
        if base is None:
            return False
        held = self._context.cache.confirmed(self._key)
        return held is not None and held.revision == base.revision

    def _apply(self, base: Record | None, now: datetime) -> Attempt | None:
        """What the batch comes to; `None` if messages are missing, which are being read now."""
        attempt = Attempt(base, base, now)
        for place, call in enumerate(self._batch):
            try:
                step = call.rule(attempt.after, now)
            except (MessagesMissing, TracesMissing) as error:
                if attempt.steps:
                    # What is missing may be what the calls before it add: it waits for them.
                    self._put_back(place)
                    return attempt
                self._fetch(base, error)
                return None
            except Undecodable as error:
                assert base is not None, "what is decoded in a step was stored"
                self._refuse_record(error, base.revision)
                return None
            except Exception as error:
                attempt.refused_access |= isinstance(error, SessionNotFound)
                attempt.ends.append((call, error))
                continue
            attempt.ends.append((call, step.answer))
            if step.changed:
                attempt.after = step.record
                attempt.steps.append(step)
                attempt.creates |= step.created
            elif step.touched:
                attempt.after, attempt.touched = step.record, True
        return attempt

    def _put_back(self, place: int) -> None:
        self._waiting[:0] = self._batch[place:]
        del self._batch[place:]

    # Reading what is needed

    def _load(self, held: Record | None) -> None:
        context = self._context
        trip = context.cache.start_trip(self._key)
        loading = context.records.load(self._key, self._tail(held), known_of(held))
        loading.add_done_callback(lambda done: self._guard(self._loaded, done, trip, held))

    def _tail(self, held: Record | None) -> int:
        """How many messages to load beyond what is held of a record: the first time as many as its calls need."""
        if held is not None:
            return held.reach
        return min(WIDEST_TAIL, max(LOADED, *[call.tail for call in self._batch]))

    def _loaded(self, loading: Future[StoredRecord | None], trip: Trip, held: Record | None) -> None:
        self._context.cache.end_trip(trip)
        failure = loading.exception()
        if failure is not None:
            self._fail(failure)
            return
        self._go_on(loading.result(), trip, held)

    def _go_on(self, standing: StoredRecord | None, trip: Trip, held: Record | None, *, is_fresh: bool = True) -> None:
        """Apply the batch to what stands in the store, unless it is in there already.

        It is not `is_fresh` for calls that came after the store had told it.
        """
        record: Record | None = None
        if standing is not None:
            tail = self._tail(held)
            try:
                record = self.codec.decode_record(standing, self._session_id, held, tail=tail)
            except TornRecord:
                self._load_torn(standing.revision)
                return
            except Undecodable as error:
                self._refuse_record(error, standing.revision)
                return
            except DecryptionFailed as error:
                self._fail(error)
                return
            if record is None:
                self._load(None)
                return
            self._context.cache.put(record, trip, standing.messages)
        else:
            self._context.cache.drop(self._key)
        if not self._resolve_doubt(record):
            self._attempt(record, is_fresh=is_fresh)

    def _load_torn(self, revision: int) -> None:
        """Load a record anew whose messages do not belong to its head; after a few times it is corrupt."""
        self._torn += 1
        if self._torn <= _TORN_LOADS:
            self._load(None)
        else:
            self._set_aside(revision)

    def _resolve_doubt(self, record: Record | None) -> bool:
        """End the batch if one of its commits was made after all, or if that cannot be told."""
        if not self._doubts:
            return False
        if record is None:
            made = next((attempt for attempt in self._doubts.values() if attempt.after is None), None)
        else:
            last = dict(record.head.writers).get(self._context.writer)
            if last is None and len(record.head.writers) == WRITERS:
                self._fail(StoreUnavailable(why="did not answer, and others have changed the session since"))
                return True
            made = None if last is None else self._doubts.get(last)
        if made is None:
            return False
        self._context.cache.on_commit(self._key, record)
        self._conclude(made)
        return True

    def _fetch(self, base: Record | None, missing: MessagesMissing | TracesMissing) -> None:
        assert base is not None
        if isinstance(missing, MessagesMissing):
            part, (first, last) = Part.MESSAGES, missing.span
        else:
            part, first, last = Part.TRACES, min(missing.numbers), max(missing.numbers)
        paging = self._context.records.page(self._key, part, first, last, _ALL)
        paging.add_done_callback(lambda done: self._guard(self._fetched, done, base, missing))

    def _fetched(self, paging: Future[EntryPage], base: Record, missing: MessagesMissing | TracesMissing) -> None:
        failure = paging.exception()
        if failure is not None:
            self._fail(failure)
            return
        page = paging.result()
        if page.revision != base.revision:
            # Entries of another moment do not belong to this head.
            self._count_retry()
            self._load(base)
            return
        if isinstance(missing, MessagesMissing):
            try:
                messages = self.codec.decode_messages(page.entries, base.profile)
            except Undecodable as error:
                self._refuse_record(error, page.revision)
                return
            record = with_messages(base, missing.span, messages)
            if [message.seq for message in messages if message.seq >= base.first_seq] != numbers(
                base.head.stored_spans, *missing.span
            ):
                self._load_torn(page.revision)
                return
        else:
            wanted = [entry for entry in page.entries if entry.number in missing.numbers]
            traces = self.codec.decode_traces(wanted, self._session_id)
            record = replace(base, fetched=replace(base.fetched, trace_numbers=missing.numbers, traces=traces))
        # The page was of this revision, so the head is confirmed with it.
        self._attempt(record, is_fresh=True)

    # Commits

    def _commit(self, attempt: Attempt) -> None:
        context = self._context
        context.commits += 1
        number = context.commits
        base = attempt.base
        # A fork shares no commit.
        source = self._batch[0].source
        attempt.after, change = build_change(
            self._key,
            base,
            attempt.after,
            attempt.steps,
            self.codec,
            revision=context.chance.getrandbits(48) + 1 if base is None else base.revision + 1,
            writer=(context.writer, number),
            source=source,
            tail=self._tail(base),
            searchable=context.searchable,
        )
        trip = context.cache.start_trip(self._key)
        committing = context.records.commit((change,))
        committing.add_done_callback(
            lambda done: self._guard(self._committed, done, trip, attempt, number, change.puts)
        )

    def _committed(
        self, committing: Future[Refused | None], trip: Trip, attempt: Attempt, number: int, written: Sequence[Entry]
    ) -> None:
        cache = self._context.cache
        cache.end_trip(trip)
        failure = committing.exception()
        if failure is not None:
            if is_outcome_unknown(failure):
                self._doubts = {**(self._doubts or {}), number: attempt}
                self._failure = self._failure or failure
                self._load(attempt.base)
            else:
                self._fail(failure)
            return
        refused = committing.result()
        if refused is None:
            if attempt.after is None:
                cache.drop(self._key)
            else:
                cache.put(attempt.after, trip, written=written)
            cache.on_commit(self._key, attempt.after)
            if self._context.searchable:
                self._context.unindexed.note(self._key, attempt.after, attempt.now)
            self._conclude(attempt)
        elif refused.source_changed:
            self._fail(SourceChanged())
        else:
            self._retry(refused, trip, attempt.base)

    def _retry(self, refused: Refused, trip: Trip, held: Record | None) -> None:
        """Go on from what another process stored; after some conflicts in a row with a pause of random length."""
        self._count_retry()
        asked = len(self._batch)
        if not self._doubts:
            # Nothing of the batch is stored, so that what has come meanwhile can join it and ride on its commit.
            self._batch = self._extend_batch(self._batch)
        if refused.has_turn or self._retries <= _EAGER_RETRIES:
            self._go_on(refused.standing[0], trip, held, is_fresh=len(self._batch) == asked)
            return
        pause = min(_LONGEST_PAUSE, 0.001 * 2.0**self._retries) * self._context.chance.random()
        get_running_loop().call_later(pause, self._guard, self._load, held)

    def _count_retry(self) -> None:
        self._retries += 1
        if self._retries > _MOST_RETRIES:
            raise StoreUnavailable(why="keeps being changed by other writers")

    def _refuse_record(self, failure: Undecodable, revision: int) -> None:
        if isinstance(failure, UnknownFormat):
            self._fail(Unavailable("session", "was written by a newer release"))
        else:
            self._set_aside(revision)

    def _set_aside(self, revision: int) -> None:
        """Keep a record that cannot be decoded apart, and free its id."""
        _log.warning("a stored session cannot be decoded and was set aside")
        change = RecordChange(key=self._key, if_revision=revision, action=Action.SET_ASIDE, tail=TAIL)
        committing = self._context.records.commit((change,))
        committing.add_done_callback(lambda done: self._guard(self._was_set_aside, done))

    def _was_set_aside(self, committing: Future[Refused | None]) -> None:
        failure = committing.exception()
        if failure is not None:
            self._fail(failure)
            return
        self._context.cache.drop(self._key)
        if committing.result() is None:
            self._fail(SessionCorrupt(self._session_id))
        else:
            self._count_retry()
            self._load(None)

    # Ends

    def _conclude_unchanged(self, attempt: Attempt) -> None:
        """Give answers that write nothing but, after a read, a later deadline."""
        record = attempt.after
        if not attempt.touched or record is None or record.head.expires_at is None:
            self._conclude(attempt)
            return
        touching = self._context.records.touch(self._key, to_micros(record.head.expires_at))
        touching.add_done_callback(lambda done: self._guard(self._touched, done, attempt, record))

    def _touched(self, touching: Future[None], attempt: Attempt, record: Record) -> None:
        failure = touching.exception()
        if isinstance(failure, StoreFull | StoreReadOnly) and attempt.base is not None:
            # What cannot be written can be read; the deadline stays.
            untouched = self._apply(replace(attempt.base, keeps_deadline=True), attempt.now)
            assert untouched is not None, "it reads what it read before"
            self._conclude(untouched)
        elif failure is not None:
            self._fail(failure)
        else:
            self._context.cache.renew(self._key, record)
            self._conclude(attempt)

    def _conclude(self, attempt: Attempt) -> None:
        for call, end in attempt.ends:
            if call.future.done():
                continue
            if isinstance(end, Exception):
                call.future.set_exception(end)
            else:
                call.future.set_result(end)
        self._end_batch()

    def _fail(self, failure: BaseException) -> None:
        if self._doubts and isinstance(failure, Unavailable) and not is_outcome_unknown(failure):
            # An earlier commit of the batch may have been made, or may be yet: callers must not take it for refused.
            failure = StoreUnavailable(
                why=_DOES_NOT_OPEN if isinstance(failure, DecryptionFailed) else "does not answer"
            )
        for call in self._batch:
            if not call.future.done():
                call.future.set_exception(failure)
        self._end_batch()


def with_messages(record: Record, span: tuple[int, int], messages: Sequence[Any]) -> Record:
    """The record with messages read beside its tail, or in a longer tail if they join it.

    A rule that appends shortens the tail, and may ask for what is in the tail before the step.
    """
    stored = tuple([message for message in messages if message.seq >= record.first_seq])
    if span[1] == record.tail_from - 1 and len(stored) + len(record.tail) <= WIDEST_TAIL:
        tail = (*stored, *record.tail)
        return replace(record, tail=tail, tail_from=span[0], reach=max(record.reach, len(tail)))
    return replace(record, fetched=replace(record.fetched, spans=(*record.fetched.spans, (span, stored))))


def is_outcome_unknown(failure: BaseException) -> bool:
    """Whether a failed commit may have been made, or may be yet."""
    return not isinstance(failure, TenutoError) or (
        isinstance(failure, Unavailable)
        and not isinstance(failure, CircuitOpen | StoreRejected | StoreFull | StoreReadOnly | DecryptionFailed)
    )
