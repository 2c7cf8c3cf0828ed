"""The records in use, as objects: one cache for a process, bounded by sessions and bytes.

A cached record is always good as the base of a commit, since the store compares its revision. It is good for an answer
that writes nothing only while it is confirmed: it was read or written while the feed listened, and the feed has told of
no revision beyond it since.
"""

from __future__ import annotations

from asyncio import get_running_loop
from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from tenuto.model import Scope
from tenuto.model.message import memory_bytes
from tenuto.model.stored import Entry, Part
from tenuto.ports import RecordFeed
from tenuto.stores.engine.record import Fetched, Record

_RECORD_BYTES: Final = 2048
# What a message takes beyond the size of its body.
_MESSAGE_BYTES: Final = 700
_PAGE_BYTES: Final = 400
# Weighing a record takes as long as a turn; in between, what commits add tells enough.
_WEIGH_EVERY: Final = 64
_NOTHING_FETCHED: Final = Fetched()
UNCONFIRMED: Final = -1
_MOST_NOTED: Final = 10_000
_IDLE: Final = timedelta(minutes=1)


class Trip(Struct):
    """A call to the store that is under way, and what the feed told of its record meanwhile."""

    key: bytes
    losses: int
    is_caught_up: bool
    heard: int = 0
    removed: bool = False

    def confirms(self, revision: int) -> bool:
        """Whether its answer is what the store held, as far as the feed told before its next loss."""
        return not self.removed and self.heard <= revision


class _Entry(Struct):
    """A record, the losses of the feed when it was confirmed, and its size: that of its tail, and of the rest.

    `seen_losses` are those when it was read or written, though the feed was behind: enough for an outage.
    """

    record: Record
    losses: int
    seen_losses: int
    weighed_at: int
    tail_size: int = 0
    rest_size: int = 0

    @property
    def size(self) -> int:
        return self.tail_size + self.rest_size


class RecordCache:
    """Records by their keys, least recently used first out; `caught_up` tells whether the feed listens."""

    def __init__(self, feed: RecordFeed | None, *, max_sessions: int, max_bytes: int) -> None:
        self._feed = feed
        self._is_caught_up = feed is None
        self._max_sessions = max_sessions
        self._max_bytes = max_bytes
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        self._trips: dict[bytes, Trip] = {}
        self._losses = 0
        # The losses when the feed was last heard: it tells of one when it stops listening and when it listens again.
        self._losses_heard = 0
        self.on_commit: Callable[[bytes, Record | None], None] = lambda key, record: None
        """Called with each record that this process has stored or, without one, removed; before its callers know."""
        self.held_bytes = 0
        """The approximate memory use."""
        self.hits = self.misses = 0
        """Reads that were answered from here, and that were not."""

    def __len__(self) -> int:
        return len(self._entries)

    # Reading

    def get(self, key: bytes) -> Record | None:
        """A record as last seen, as the base of a commit."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry.record

    def confirmed(self, key: bytes) -> Record | None:
        """A record as the store holds it now."""
        entry = self._entries.get(key)
        if entry is None or not self._caught_up():
            return None
        # The feed may have told of changes just now.
        return self.get(key) if self._entries.get(key) is entry and entry.losses == self._losses else None

    def last_confirmed(self, key: bytes) -> Record | None:
        """A record as the store held it when the feed was last heard, or since, for an outage."""
        entry = self._entries.get(key)
        return None if entry is None or entry.seen_losses < self._losses_heard else entry.record

    def all_confirmed(self) -> list[tuple[bytes, Record]]:
        """All such records, the most recently used first."""
        entries = reversed(self._entries.items())
        return [(key, entry.record) for key, entry in entries if entry.seen_losses >= self._losses_heard]

    def listen(self) -> None:
        """Hear what the feed tells, if it is connected; else what is held from before counts on."""
        self._caught_up()

    def _caught_up(self) -> bool:
        """Whether the feed has told everything; what is told now holds until the loop has looked for new calls."""
        if not self._is_caught_up and self._feed is not None and self._feed.caught_up():
            self._is_caught_up = True
            self._losses_heard = self._losses
            get_running_loop().call_soon(self._look_again)
        return self._is_caught_up

    def _look_again(self) -> None:
        self._is_caught_up = False

    # Writing

    def start_trip(self, key: bytes) -> Trip:
        """Track a call that is about to be sent; a record has one at a time."""
        is_caught_up = self._is_caught_up or self._caught_up()
        trip = self._trips[key] = Trip(key, self._losses, is_caught_up)
        return trip

    def end_trip(self, trip: Trip) -> None:
        """The call was answered, or failed."""
        del self._trips[trip.key]

    def put(self, record: Record, trip: Trip, loaded: Sequence[Entry] = (), *, written: Sequence[Entry] = ()) -> None:
        """Store a record that a call brought or wrote. Messages that were `loaded` and entries that were `written`
        tell how it has grown; where all its messages were loaded, they tell its size."""
        seen_losses = trip.losses if trip.confirms(record.revision) else UNCONFIRMED
        entry = self._store(trip.key, record, seen_losses if trip.is_caught_up else UNCONFIRMED, seen_losses)
        self.held_bytes -= entry.size
        before, entry.record = entry.record, _without_fetched(record)
        # Of the messages held before and those since.
        gone = len(before.tail) + record.head.last_seq - before.head.last_seq - len(record.tail)
        is_due = not 0 <= record.revision - entry.weighed_at < _WEIGH_EVERY
        if is_due or gone < 0 or before.head.edition != record.head.edition:
            entry.weighed_at = record.revision
            entry.tail_size, entry.rest_size = _weigh_tail(record, loaded), _weigh_rest(record)
        else:
            _add(entry, loaded or written)
            if gone:
                entry.tail_size -= entry.tail_size * gone // (gone + len(record.tail))
        self.held_bytes += entry.size
        while len(self._entries) > self._max_sessions or (self.held_bytes > self._max_bytes and self._entries):
            self.held_bytes -= self._entries.popitem(last=False)[1].size

    def renew(self, key: bytes, record: Record) -> None:
        """Store a record whose deadline was moved: its revision is the same."""
        entry = self._entries.get(key)
        if entry is not None and entry.record.revision == record.revision:
            entry.record = _without_fetched(record)

    def drop(self, key: bytes) -> None:
        """Remove a record."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.held_bytes -= entry.size

    def clear(self) -> None:
        """Remove all records."""
        self._entries.clear()
        self.held_bytes = 0

    def is_news(self, key: bytes, revision: int) -> bool:
        """Whether a record that the feed tells of is at another revision here; 0 if it was removed."""
        entry = self._entries.get(key)
        return entry is None or revision == 0 or revision > entry.record.revision

    def on_change(self, key: bytes | None, revision: int) -> None:
        """The feed tells that a record is at this revision, or removed (0); without a key that it lost track."""
        if key is None:
            self._losses += 1
            return
        trip = self._trips.get(key)
        if trip is not None:
            trip.heard = max(trip.heard, revision)
            trip.removed = trip.removed or revision == 0
        entry = self._entries.get(key)
        if entry is None:
            return
        if revision == 0:
            self.drop(key)
        elif revision > entry.record.revision:
            entry.losses = entry.seen_losses = UNCONFIRMED

    def _store(self, key: bytes, record: Record, losses: int, seen_losses: int) -> _Entry:
        """The entry of a record, which may be new, as the one used last."""
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry(record, losses, seen_losses, -_WEIGH_EVERY)
        else:
            self._entries.move_to_end(key)
            entry.losses, entry.seen_losses = losses, seen_losses
        return entry


class Unindexed:
    """The sessions that this process has written whose words are not indexed, with the time of the last commit."""

    def __init__(self) -> None:
        # Their names alone: the records are bound by the cache.
        self._noted: dict[bytes, tuple[Scope, str, datetime]] = {}

    def note(self, key: bytes, record: Record | None, now: datetime) -> None:
        """A commit was made. Of too many the oldest are forgotten here: their marks are in the store."""
        if record is None or record.head.is_indexed:
            self._noted.pop(key, None)
            return
        self._noted[key] = record.profile.scope, record.profile.id, now
        if len(self._noted) > _MOST_NOTED:
            del self._noted[next(iter(self._noted))]

    def take_idle(self, now: datetime) -> list[tuple[Scope, str]]:
        """Those without a commit for a while, by scope and id; they are noted no more."""
        idle = [(key, scope, session_id) for key, (scope, session_id, at) in self._noted.items() if now - at >= _IDLE]
        for key, _, _ in idle:
            del self._noted[key]
        return [(scope, session_id) for _, scope, session_id in idle]


def _without_fetched(record: Record) -> Record:
    return record if record.fetched is _NOTHING_FETCHED else replace(record, fetched=_NOTHING_FETCHED)


def _add(entry: _Entry, added: Sequence[Entry]) -> None:
    for one in added:
        if one.part is Part.MESSAGES:
            entry.tail_size += _MESSAGE_BYTES + len(one.body)
        elif one.part is Part.KEYS:
            entry.rest_size += _PAGE_BYTES + len(one.body)


def _weigh_rest(record: Record) -> int:
    return _RECORD_BYTES + sum([_PAGE_BYTES + len(page.packed) for page in record.pages])


def _weigh_tail(record: Record, loaded: Sequence[Entry]) -> int:
    if len(loaded) == len(record.tail):
        return sum([_MESSAGE_BYTES + len(entry.body) for entry in loaded])
    return sum([memory_bytes(message) for message in record.tail])
