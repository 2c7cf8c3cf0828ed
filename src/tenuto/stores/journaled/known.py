"""What this process has lately seen of sessions, for when the store is away: heads and newest messages, by reference.

Least recently used out first, bounded by sessions and by bytes. What somebody else changes is dropped when the feed
tells so. A feed that lost track says so when an outage begins too: then what is here is needed most, so it stays until
the store has answered again. What is in doubt, or was last seen long ago, is not known.
"""

from __future__ import annotations

import copy
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from tenuto.model import Message, Once, OpenTurn, Session, Touch
from tenuto.model.message import weight_of
from tenuto.stores.journaled.echoes import Echoes
from tenuto.stores.memory.record import Keyed, Record

_HEAD_BYTES: Final = 2048
_KEYS_KEPT: Final = 8
_TRUSTED_FOR: Final = 15 * 60.0
"""Seconds after the store's last answer about a session: then nobody can tell what became of it."""


@dataclass(slots=True)
class Entry:
    """A session as it was last seen: its newest messages without a gap, and the keys its last turns came under."""

    session: Session
    tail: tuple[Message, ...]
    size: int
    keyed: OrderedDict[str, Keyed] = field(default_factory=OrderedDict)
    seen_at: float = 0.0
    doubted: bool = False
    """Whether a change may have been missed since; the version in our next answer tells."""

    def record(self) -> Record:
        """As a store in memory holds it."""
        return Record(
            session=self.session,
            log=list(self.tail),
            before=max(0, self.session.messages - len(self.tail)),
            keyed=OrderedDict((key, copy.copy(keyed)) for key, keyed in self.keyed.items()),
        )


class Known:
    """The sessions that were seen, by their keys."""

    def __init__(
        self,
        *,
        max_sessions: int = 10_000,
        max_bytes: int = 64 * 1024 * 1024,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_sessions = max_sessions
        self._max_bytes = max_bytes
        self._ticks = ticks
        self._echoes = Echoes(ticks)
        self._entries: OrderedDict[bytes, Entry] = OrderedDict()
        self._bytes = 0
        self._lost_track = False

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def weight(self) -> int:
        """About how many bytes of memory it takes."""
        return self._bytes

    def get(self, key: bytes) -> Entry | None:
        """What is known of a session for certain."""
        entry = self._entries.get(key)
        if entry is None or entry.doubted or self._ticks() - entry.seen_at >= _TRUSTED_FOR:
            return None
        return None if self._echoes.overdue(key) else entry

    # Calls of our own

    def changes(self, key: bytes) -> None:
        """A change of our own is on its way to the store."""
        self._sent(key, changing=True)

    def reads(self, key: bytes) -> None:
        """A question is on its way to the store, and moves the deadline of a session that reads touch."""
        entry = self._entries.get(key)
        self._sent(key, changing=entry is not None and entry.session.keeping.touch is Touch.READ)

    def changed(self, key: bytes) -> bool:
        """A change of our own was made; tells whether what the store said of it is the last word."""
        return self._echoes.came_back(key)

    def unchanged(self, key: bytes) -> None:
        """The store answered a change of our own, and made none."""
        if not self._echoes.came_back(key, unchanged=True):
            self.forget(key)

    def in_doubt(self, key: bytes) -> None:
        """What became of a change of our own nobody knows."""
        self._echoes.came_back(key)

    def held(self, key: bytes) -> None:
        """A turn holds its session for longer: some stores tell of it, and then have done so by now."""
        self._echoes.came_back_silent(key)
        entry = self._entries.get(key)
        if entry is not None:
            entry.seen_at = self._ticks()

    def read(self, key: bytes, session: Session, newest: tuple[Message, ...]) -> None:
        """A question was answered."""
        old = self._entries.get(key)
        touched = old is not None and old.session.keeping.touch is Touch.READ
        moved = old is None or old.session.expires_at != session.expires_at
        if self._echoes.came_back(key, unchanged=touched and not moved):
            self.saw_page(key, session, newest)
        else:
            self.forget(key)

    # What they brought

    def saw_begun(self, key: bytes, turn: OpenTurn, once: Once | None) -> None:
        """A turn has begun, and brought the newest messages."""
        entry = self._saw(key, turn.session, turn.window)
        if once is not None and turn.words:
            span = turn.words[0].seq, turn.words[-1].seq
            entry.keyed[once.key] = Keyed(once.fingerprint, turn.id, turn.number, words=span)
            if len(entry.keyed) > _KEYS_KEPT:
                entry.keyed.popitem(last=False)

    def saw_finished(self, key: bytes, turn_id: str, session: Session, reply: tuple[Message, ...]) -> None:
        """A turn has ended, and these are its last words."""
        old = self._entries.get(key)
        tail = old.tail if old is not None and _only_ours(old, session) else ()
        follows = bool(tail) and (not reply or tail[-1].seq + 1 == reply[0].seq)
        entry = self._saw(key, session, (*tail, *reply) if follows else reply)
        for keyed in entry.keyed.values():
            if keyed.turn_id == turn_id:
                keyed.finished = True
                keyed.reply = (reply[0].seq, reply[-1].seq) if reply else (0, -1)

    def saw_page(self, key: bytes, session: Session, newest: tuple[Message, ...]) -> None:
        """The head was read, and some of the newest messages; more may be known of the same."""
        old = self._entries.get(key)
        if old is not None and _still_holds(old, session) and len(old.tail) > len(newest):
            newest = old.tail
        self._saw(key, session, newest)

    def saw_patched(self, key: bytes, session: Session) -> None:
        """The head was changed by us; the messages are what they were."""
        old = self._entries.get(key)
        self._saw(key, session, old.tail if old is not None and _only_ours(old, session) else ())

    def answered(self, sparing: Callable[[bytes], bool]) -> None:
        """The store answers: what the feed may have missed is in doubt now, but for what others still need."""
        if self._lost_track:
            self._lost_track = False
            for key, entry in self._entries.items():
                entry.doubted = entry.doubted or not sparing(key)

    def drop(self, keys: Iterable[bytes] | None) -> list[bytes]:
        """What the feed tells: these sessions changed, or any may have. Returns those that others changed."""
        if keys is None:
            self._lost_track = True
            for key in self._echoes.lost():
                self._doubt(key)
            return []
        others = [key for key in keys if not self._echoes.heard(key)]
        for key in others:
            self.forget(key)
        return others

    def forget(self, key: bytes) -> None:
        """Know nothing of a session."""
        old = self._entries.pop(key, None)
        if old is not None:
            self._bytes -= old.size

    def forget_all(self) -> None:
        """Know nothing of anybody."""
        self._entries.clear()
        self._bytes = 0

    def _doubt(self, key: bytes) -> None:
        entry = self._entries.get(key)
        if entry is not None:
            entry.doubted = True

    def _sent(self, key: bytes, *, changing: bool) -> None:
        if self._echoes.overdue(key):
            self._echoes.write_off(key)
            self._doubt(key)
        unwatched = self._echoes.sent(key, changing=changing)
        if unwatched is not None:
            self.forget(unwatched)

    def _saw(self, key: bytes, session: Session, tail: tuple[Message, ...]) -> Entry:
        old = self._entries.pop(key, None)
        if old is not None:
            self._bytes -= old.size
        same = old is not None and old.session.incarnation == session.incarnation
        size = _grown(old, tail) if old is not None and same else _weighed(session, tail)
        keyed = old.keyed if old is not None and same else OrderedDict[str, Keyed]()
        entry = self._entries[key] = Entry(session, tail, size, keyed, self._ticks())
        self._bytes += size
        while self._bytes > self._max_bytes or len(self._entries) > self._max_sessions:
            self.forget(next(iter(self._entries)))
        return entry


def _still_holds(old: Entry, session: Session) -> bool:
    """Whether the messages are those that were seen."""
    return (old.session.incarnation, old.session.version) == (session.incarnation, session.version)


def _only_ours(old: Entry, session: Session) -> bool:
    """Whether nothing but one change of our own lies between: each makes the version grow by one."""
    grown = session.version - old.session.version
    return old.session.incarnation == session.incarnation and (1 if old.doubted else 0) <= grown <= 1


def _weighed(session: Session, tail: tuple[Message, ...]) -> int:
    values = len(msgspec.json.encode((session.context, session.attributes, session.metadata)))
    return _HEAD_BYTES + values + sum(map(weight_of, tail))


def _grown(old: Entry, tail: tuple[Message, ...]) -> int:
    """About what an entry takes whose messages have slid on by a few: only those that came are weighed."""
    before = old.tail
    if not before or not tail or not before[0].seq <= tail[0].seq <= before[-1].seq:
        return _weighed(old.session, tail)
    size, last = old.size, before[-1].seq
    came = 0
    while came < len(tail) and tail[-1 - came].seq > last:
        came += 1
    went = max(0, len(before) + came - len(tail))
    # Those that went weighed as much as the others: what is wrong with that goes as they do.
    size -= (size - _HEAD_BYTES) * went // len(before)
    return size + sum([weight_of(message) for message in tail[len(tail) - came :]])
