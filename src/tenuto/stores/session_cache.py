"""Sessions as this process has last seen them: the one copy of heads and newest messages, held by `CachedStore`.

What calls return is stored by reference and written through: a version that grew by our own change alone confirms the
cached messages. There are two ways to read:

- `current` serves reads in place of the store: the feed has not lost track since the entry was requested, and reported
  no change but our own.
- `get` serves the journal in an outage. A feed loses track when an outage begins, when the cache is needed most: so
  entries stay until a call that was sent later is answered. From then on entries from before the loss, or seen without
  a listening feed, are not trusted, nor are old ones. The next answer restores trust.

A change that a feed cannot attribute is taken for ours during our calls and for a moment after. In that moment a change
of another process goes unnoticed by `get` until our next call; `current` asks again. Removals are never ours.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
from types import TracebackType
from typing import Final, Self

import msgspec

from tenuto.model import IdempotencyKey, Message, OpenTurn, Scope, Session, Touch
from tenuto.model.message import memory_bytes
from tenuto.model.scope import session_key
from tenuto.model.store_reports import Invalidation
from tenuto.ports import ChangeFeed

NEVER: Final = -1
MOMENT: Final = 2.0
"""Seconds by which an invalidation may arrive after the answer, on a machine under load."""

_KEYS_KEPT: Final = 8
_seq: Final = attrgetter("seq")
_HEAD_BYTES: Final = 2048
_LEAST_WANTED: Final = 20
_TRUSTED_FOR: Final = 15 * 60.0
"""Seconds after the store's last answer about a session."""
_MAY_STILL_APPLY: Final = 60.0
"""Seconds after which a call without an answer is not applied any more; a feed is in doubt long before."""


@lru_cache(maxsize=10_000)
def _session_key(tenant: str, site: str, session_id: str) -> bytes:
    return session_key(Scope(tenant=tenant, site=site), session_id)


def cache_key(scope: Scope, session_id: str) -> bytes:
    """The `session_key`, computed once for a session in use."""
    return _session_key(scope.tenant, scope.site, session_id)


@dataclass(slots=True)
class KeyedTurn:
    """A turn that began under an idempotency key: the sequence numbers of its words and of its reply."""

    fingerprint: str
    turn_id: str
    number: int
    words: tuple[int, int]
    reply: tuple[int, int] | None = None


@dataclass(slots=True)
class CachedSession:
    """A session as last seen: its newest messages without a gap, and the idempotency keys of its last turns."""

    session: Session
    tail: tuple[Message, ...]
    size: int = 0
    wanted: int = 0
    """The most messages that a call asked for; the tail is not longer."""
    keyed: dict[str, KeyedTurn] = field(default_factory=dict)
    seen_at: float = 0.0
    since: int = NEVER
    """The losses of the feed before this was requested; `NEVER` if a change may have been missed since."""
    exact: bool = False
    """Whether every change reported since is known to be our own, and included."""
    apart: tuple[Message, ...] = ()
    """Messages before the tail, from which an answer that is still to come is missing."""

    @property
    def whole(self) -> bool:
        """Whether no messages precede those here."""
        return len(self.tail) >= self.session.messages

    def reaches(self, back: int) -> bool:
        """Whether the newest `back` messages are here, or all that exist."""
        if len(self.tail) >= min(back, self.session.messages):
            return True
        return bool(self.tail) and self.tail[0].seq <= self.session.window_start


class Call:
    """One call on a session, sent `since` so many losses of the feed.

    It is `certain` if the feed reports no later change than its answer, and `exact` if all that it reported meanwhile
    is ours. `before` is the entry that the journal goes on from.
    """

    __slots__ = ("_cache", "before", "certain", "changing", "exact", "key", "since")

    def __init__(
        self, cache: SessionCache, key: bytes, certain: bool, changing: bool, before: CachedSession | None = None
    ) -> None:
        self._cache = cache
        self.key = key
        self.since = cache.losses
        self.certain = self.exact = certain
        self.changing = changing
        self.before = before

    def __enter__(self) -> Self:
        self._cache.add_call(self)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._cache.complete_call(self)


@dataclass(slots=True)
class _Activity:
    """Our calls on one session: those under way, and until when invalidations of earlier ones may arrive."""

    under_way: list[Call] = field(default_factory=list)
    until: float = 0.0

    @property
    def changing(self) -> bool:
        return any(call.changing for call in self.under_way)


class SessionCache:
    """The sessions by their keys: an LRU cache bounded by sessions and bytes."""

    def __init__(
        self, feed: ChangeFeed, *, max_sessions: int, max_bytes: int, ticks: Callable[[], float] = time.monotonic
    ) -> None:
        self._feed = feed
        self._max_sessions = max_sessions
        self._max_bytes = max_bytes
        self._ticks = ticks
        self._entries: OrderedDict[bytes, CachedSession] = OrderedDict()
        self._activity: OrderedDict[bytes, _Activity] = OrderedDict()
        self._unanswered: OrderedDict[bytes | None, float] = OrderedDict()
        self._trusted_since = 0
        self.bytes = 0
        """The approximate memory use."""
        self.losses = 0
        """How often the feed has lost track."""
        self.on_answer: Callable[[], None] = lambda: None
        """Called when the store answers."""
        self.on_foreign: Callable[[bytes], None] = lambda _: None
        """Called with a session that another process changed."""

    def __len__(self) -> int:
        return len(self._entries)

    # Reading

    def current(self, key: bytes) -> CachedSession | None:
        """A session as the store has it, if the feed is caught up."""
        entry = self._entries.get(key)
        if entry is None or not entry.exact or entry.since != self.losses:
            return None
        self._entries.move_to_end(key)
        return entry

    def get(self, key: bytes) -> CachedSession | None:
        """A session as last seen, if the entry is trusted."""
        return self.still(self._entries.get(key))

    def still(self, entry: CachedSession | None) -> CachedSession | None:
        """An entry, if it is trusted now."""
        if entry is None or entry.since < self._trusted_since or self._ticks() - entry.seen_at >= _TRUSTED_FOR:
            return None
        return entry

    def head(self, key: bytes) -> Session | None:
        """A session's head as last seen, trusted or not."""
        entry = self._entries.get(key)
        return entry.session if entry is not None else None

    # Calls of our own

    def changes(self, key: bytes) -> Call:
        """Track a call that changes a session."""
        return Call(self, key, self._feed.listening, True)

    def reads(self, key: bytes) -> Call:
        """Track a read, which changes the expiry of a session with `Touch.READ`."""
        listening = self._feed.listening  # First: it may report what has arrived by now.
        head = self.head(key)
        return Call(self, key, listening, head is not None and head.retention.touch is Touch.READ)

    def follow(self, key: bytes) -> Call:
        """Keep the session as it is before a call that is tracked itself."""
        return Call(self, key, True, False, self.get(key))

    def add_call(self, call: Call) -> None:
        """A call is about to be sent."""
        activity = self._activity.get(call.key)
        if activity is None:
            activity = self._activity[call.key] = _Activity()
        activity.under_way.append(call)

    def complete_call(self, call: Call) -> None:
        """A call was answered or cancelled."""
        calls, now = self._activity, self._ticks()
        activity = calls[call.key]
        activity.under_way.remove(call)
        if call.changing:
            activity.until = now + MOMENT
            calls.move_to_end(call.key)
        while calls:
            oldest = next(iter(calls.values()))
            if oldest.under_way or now < oldest.until:
                break
            calls.popitem(last=False)

    def observe_answer(self, since: int) -> bool:
        """The store answered a call sent after `since` losses of the feed: entries seen before are not trusted.

        Returns whether the feed listens, which reports what has arrived by now: later reports are of later changes.
        """
        listening = self._feed.listening
        self._trusted_since = max(self._trusted_since, since)
        self.on_answer()
        return listening

    def observe_unanswered(self, key: bytes | None) -> None:
        """A call has no answer and may still be applied, to any session if the key is `None`."""
        now = self._ticks()
        self._unanswered.pop(key, None)
        self._unanswered[key] = now + _MAY_STILL_APPLY
        while next(iter(self._unanswered.values())) <= now:
            self._unanswered.popitem(last=False)
        for each in (key,) if key is not None else (*self._entries, *self._activity):
            self._doubt(each)

    # Results of calls

    def observe_begin(self, call: Call, turn: OpenTurn, once: IdempotencyKey | None, wanted: int) -> None:
        """Store the head and the newest messages that a turn began with."""
        words = turn.user_messages
        entry = self._store(call, turn.session, turn.window or words, wanted)
        if once is not None and words:
            entry.keyed[once.key] = KeyedTurn(once.fingerprint, turn.id, turn.number, (words[0].seq, words[-1].seq))
            if len(entry.keyed) > _KEYS_KEPT:
                del entry.keyed[next(iter(entry.keyed))]

    def observe_added(
        self, call: Call, session: Session, messages: tuple[Message, ...] = (), turn_id: str | None = None
    ) -> None:
        """Store a changed head and add messages: the reply of a turn, or of no turn."""
        entry = self._store(call, session, messages)
        for keyed in entry.keyed.values():
            if keyed.turn_id == turn_id:
                keyed.reply = (messages[0].seq, messages[-1].seq) if messages else (0, -1)

    def observe_page(self, call: Call, session: Session, newest: tuple[Message, ...], wanted: int) -> None:
        """Store a head and newest messages that were read; keep the cached ones if they are more of the same."""
        if session.retention.touch is Touch.READ:
            call.changing = True  # It was not known before whether its expiry would move.
        self._store(call, session, newest, wanted)

    def observe_renewal(self, key: bytes) -> None:
        """The lease of a turn was renewed, so the session exists."""
        entry = self._entries.get(key)
        if entry is not None:
            entry.seen_at = self._ticks()

    # The feed

    def on_invalidate(self, news: Invalidation | None) -> None:
        """Drop the sessions that others changed; `None` means that any may have changed."""
        if news is None:
            self.losses += 1
            return
        for key in news.keys:
            activity = self._activity.get(key)
            under_way = activity is not None and activity.changing
            own = news.local
            if own is None:
                own = under_way or (activity is not None and self._ticks() < activity.until)
            if news.removed or not own:
                # A removal never counts as our own: a cancelled caller does not know whether its call was applied.
                self.drop_session(key)
                self.on_foreign(key)
            elif news.mixed or not (news.local or under_way) or self._may_be_unanswered(key):
                self._doubt(key)

    def drop_session(self, key: bytes) -> None:
        """Drop a session, and ignore the results of calls under way."""
        self._overtake(key)
        self._remove(key)

    def drop_site(self, person: Scope) -> None:
        """Drop every session of a user's tenant and site."""
        place = person.tenant, person.site
        for key in self._activity:
            self._overtake(key)
        for key, entry in list(self._entries.items()):
            if (entry.session.scope.tenant, entry.session.scope.site) == place:
                self._remove(key)

    def clear(self) -> None:
        """Drop everything."""
        for key in self._activity:
            self._overtake(key)
        self._entries.clear()
        self.bytes = 0

    # Entries

    def _overtake(self, key: bytes) -> None:
        """The session changed: answers of calls under way may be older."""
        activity = self._activity.get(key)
        for call in activity.under_way if activity is not None else ():
            call.before, call.certain = None, False

    def _doubt(self, key: bytes) -> None:
        """A change may be another's: the session is not served until it is read again."""
        activity = self._activity.get(key)
        for call in activity.under_way if activity is not None else ():
            call.exact = False
        entry = self._entries.get(key)
        if entry is not None:
            entry.exact = False

    def _may_be_unanswered(self, key: bytes) -> bool:
        """Whether a change of ours may be one whose answer we do not have."""
        unanswered, now = self._unanswered, self._ticks()
        return bool(unanswered) and (now < unanswered.get(key, 0.0) or now < unanswered.get(None, 0.0))

    def _store(self, call: Call, session: Session, tail: tuple[Message, ...], wanted: int = 0) -> CachedSession:
        key, old = call.key, self._entries.get(call.key)
        since = call.since if call.certain else NEVER
        if old is not None:
            delta = _version_delta(old, session)
            is_older = delta is not None and (delta < 0 or (delta == 0 and since < old.since))
            if is_older and self.still(old) is not None:
                if call.certain:
                    self._fill_gap(old, tail, wanted)
                return old  # Answers may arrive out of order.
            self._remove(key)
            old = old if delta is not None else None
        apart: tuple[Message, ...] = ()
        if old is not None and (_version_delta(old, session) in (0, 1) or old.since == since != NEVER):
            # Only changes of our own lie between, which remove nothing.
            tail, apart = _join(old.tail or old.apart, tail, session.last_seq)
            apart = apart or (old.apart if old.tail else ())
        wanted = max(wanted, old.wanted) if old is not None else wanted or _LEAST_WANTED
        tail = tail[-min(wanted, session.messages) :] if session.messages else ()
        measured = old is not None and not old.apart and not apart
        size = _update_bytes(old, tail) if measured and old is not None else _estimate_bytes(session, (*apart, *tail))
        keyed = old.keyed if old is not None else {}
        exact = call.exact and call.certain
        entry = CachedSession(session, tail, size, wanted, keyed, self._ticks(), since, exact, apart)
        if size <= self._max_bytes:
            self._entries[key] = entry
            self.bytes += size
        while self.bytes > self._max_bytes or len(self._entries) > self._max_sessions:
            self._remove(next(iter(self._entries)))
        return entry

    def _fill_gap(self, entry: CachedSession, tail: tuple[Message, ...], wanted: int) -> None:
        """Add what an answer brings that was overtaken by a later one."""
        known, _ = _join(entry.apart, tail, -1)
        if not known:
            return
        entry.tail, entry.apart = _join(known, entry.tail, entry.session.last_seq)
        entry.wanted = max(entry.wanted, wanted)
        entry.tail = entry.tail[-entry.wanted :]
        self.bytes -= entry.size
        entry.size = _estimate_bytes(entry.session, (*entry.apart, *entry.tail))
        self.bytes += entry.size

    def _remove(self, key: bytes) -> CachedSession | None:
        old = self._entries.pop(key, None)
        if old is not None:
            self.bytes -= old.size
        return old


def _join(
    before: tuple[Message, ...], after: tuple[Message, ...], last_seq: int
) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """The end of a log made of two pieces; with a gap between them the later piece, and the earlier one apart."""
    if not before:
        return after, ()
    if not after:
        return (before, ()) if before[-1].seq == last_seq else ((), before)
    first, last = after[0].seq, after[-1].seq
    if first > before[-1].seq + 1:
        return after, before
    if before[-1].seq < first:
        return before + after, ()
    begin, end = bisect_left(before, first, key=_seq), bisect_right(before, last, key=_seq)
    return (*before[:begin], *after, *before[end:]), ()


def _version_delta(old: CachedSession, session: Session) -> int | None:
    """The number of changes between; `None` for another session of the same id."""
    if old.session.incarnation != session.incarnation:
        return None
    return session.version - old.session.version


def _estimate_bytes(session: Session, tail: tuple[Message, ...]) -> int:
    """The approximate memory use of a session."""
    values = len(msgspec.json.encode((session.context, session.attributes, session.metadata)))
    return _HEAD_BYTES + values + sum(map(memory_bytes, tail))


def _update_bytes(old: CachedSession, tail: tuple[Message, ...]) -> int:
    """The approximate memory use of an entry with another tail; only new messages are measured."""
    before = old.tail
    if not before or not tail or not before[0].seq <= tail[0].seq <= before[-1].seq:
        return _estimate_bytes(old.session, tail)
    size, last = old.size, before[-1].seq
    came = 0
    while came < len(tail) and tail[-1 - came].seq > last:
        came += 1
    went = max(0, len(before) + came - len(tail))
    # Removed messages count as average; the error goes away with the rest of them.
    size -= (size - _HEAD_BYTES) * went // len(before)
    return size + sum([memory_bytes(message) for message in tail[len(tail) - came :]])
