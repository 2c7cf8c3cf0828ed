"""Sessions as this process has last seen them, for outages: heads and newest messages, by reference.

An LRU cache bounded by sessions and bytes. Sessions that others change are dropped as the feed reports them. A feed
also loses track when an outage begins, when the cache is needed most: so entries stay until a call that was sent later
is answered. From then on entries from before the loss, or seen without a listening feed, are not trusted, nor are old
ones. The next answer restores trust: a version that grew by our own change alone confirms the cached messages.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from tenuto.model import IdempotencyKey, Message, OpenTurn, Scope, Session, Touch
from tenuto.model.store_reports import Invalidation
from tenuto.ports import ChangeFeed
from tenuto.stores.journaled.inflight import Call, Calls
from tenuto.stores.journaled.seen_session import NEVER, SeenSession, estimate_bytes, update_bytes
from tenuto.stores.memory.record import KeyedWrite

_KEYS_KEPT: Final = 8
_TRUSTED_FOR: Final = 15 * 60.0
"""Seconds after the store's last answer about a session."""


class LastSeen:
    """The sessions that were seen, by their keys."""

    def __init__(
        self,
        feed: ChangeFeed,
        *,
        max_sessions: int = 10_000,
        max_bytes: int = 64 * 1024 * 1024,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._feed = feed
        self._max_sessions = max_sessions
        self._max_bytes = max_bytes
        self._ticks = ticks
        self._calls = Calls(ticks)
        self._entries: OrderedDict[bytes, SeenSession] = OrderedDict()
        self._bytes = 0
        self.losses = 0
        """How often the feed has lost track."""
        self._trusted_since = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def weight(self) -> int:
        """The approximate memory use in bytes."""
        return self._bytes

    def get(self, key: bytes) -> SeenSession | None:
        """A session, if the entry is trusted."""
        return self.still(self._entries.get(key))

    def still(self, entry: SeenSession | None) -> SeenSession | None:
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
        return self._start_call(key, changing=True)

    def reads(self, key: bytes) -> Call:
        """Track a read, which changes the expiry of a session with `Touch.READ`."""
        entry = self._entries.get(key)
        return self._start_call(key, changing=entry is not None and entry.session.retention.touch is Touch.READ)

    def observe_answer(self, since: int) -> None:
        """The store answered a call sent after `since` losses of the feed: entries seen before are not trusted."""
        # Changes reported before must not be taken for later ones.
        self._feed.drain_invalidations()
        self._trusted_since = max(self._trusted_since, since)

    # Results of calls

    def observe_begin(self, call: Call, turn: OpenTurn, once: IdempotencyKey | None) -> None:
        """Store the head and the newest messages that a turn began with."""
        entry = self._store(call, turn.session, turn.window)
        if once is not None and turn.user_messages:
            span = turn.user_messages[0].seq, turn.user_messages[-1].seq
            entry.keyed[once.key] = KeyedWrite(once.fingerprint, turn.id, turn.number, words=span)
            if len(entry.keyed) > _KEYS_KEPT:
                entry.keyed.popitem(last=False)

    def observe_finish(self, call: Call, turn_id: str, session: Session, reply: tuple[Message, ...]) -> None:
        """Store the head and add the reply of a finished turn."""
        old = self._entries.get(call.key)
        tail = old.tail if old is not None and _is_next_version(old, session) else ()
        follows = bool(tail) and (not reply or tail[-1].seq + 1 == reply[0].seq)
        entry = self._store(call, session, (*tail, *reply) if follows else reply)
        for keyed in entry.keyed.values():
            if keyed.turn_id == turn_id:
                keyed.finished = True
                keyed.reply = (reply[0].seq, reply[-1].seq) if reply else (0, -1)

    def observe_page(self, call: Call, session: Session, newest: tuple[Message, ...]) -> None:
        """Store a head and newest messages that were read; keep the cached ones if they are more of the same."""
        old = self._entries.get(call.key)
        if old is not None and _version_delta(old, session) == 0 and len(old.tail) > len(newest):
            newest = old.tail
        if session.retention.touch is Touch.READ:
            call.changing = True  # It was not known before whether its expiry would move.
        self._store(call, session, newest)

    def observe_patch(self, call: Call, session: Session) -> None:
        """Store a patched head with the messages as they were."""
        old = self._entries.get(call.key)
        self._store(call, session, old.tail if old is not None and _is_next_version(old, session) else ())

    def observe_renewal(self, key: bytes) -> None:
        """The lease of a turn was renewed, so the session exists."""
        entry = self._entries.get(key)
        if entry is not None:
            entry.seen_at = self._ticks()

    # The feed

    def on_invalidate(self, news: Invalidation | None) -> list[bytes]:
        """Drop and return the sessions that others changed; `None` means that any may have changed."""
        if news is None:
            self.losses += 1
            return []
        # A removal never counts as our own: a cancelled caller does not know whether its call was applied.
        others = [
            key
            for key in news.keys
            if news.removed or not (self._calls.explain(key) if news.local is None else news.local)
        ]
        for key in others:
            self.drop_session(key)
        return others

    def drop_session(self, key: bytes) -> None:
        """Drop a session, and ignore the results of calls under way."""
        self._calls.overtake(key)
        self._remove(key)

    def drop_site(self, person: Scope) -> None:
        """Drop every session of a user's tenant and site."""
        place = person.tenant, person.site
        self._calls.mark_all_outdated()
        for key, entry in list(self._entries.items()):
            if (entry.session.scope.tenant, entry.session.scope.site) == place:
                self._remove(key)

    def forget_all(self) -> None:
        """Drop everything."""
        self._calls.mark_all_outdated()
        self._entries.clear()
        self._bytes = 0

    # Entries

    def _start_call(self, key: bytes, *, changing: bool) -> Call:
        certain = self._feed.listening  # First: it may report what has arrived by now.
        return Call(self._calls, key, self.get(key), self.losses, certain=certain, changing=changing)

    def _store(self, call: Call, session: Session, tail: tuple[Message, ...]) -> SeenSession:
        old = self.get(call.key)
        if old is not None and (_version_delta(old, session) or 0) < 0:
            return old  # Answers may arrive out of order.
        old = self._remove(call.key)
        if old is not None and old.session.incarnation == session.incarnation:
            size, keyed = update_bytes(old, tail), old.keyed
        else:
            size, keyed = estimate_bytes(session, tail), OrderedDict[str, KeyedWrite]()
        since = call.since if call.certain else NEVER
        entry = self._entries[call.key] = SeenSession(session, tail, size, keyed, self._ticks(), since)
        self._bytes += size
        while self._bytes > self._max_bytes or len(self._entries) > self._max_sessions:
            self._remove(next(iter(self._entries)))
        return entry

    def _remove(self, key: bytes) -> SeenSession | None:
        old = self._entries.pop(key, None)
        if old is not None:
            self._bytes -= old.size
        return old


def _is_next_version(old: SeenSession, session: Session) -> bool:
    """Whether only our own change lies between: each change increments the version."""
    return _version_delta(old, session) == 1


def _version_delta(old: SeenSession, session: Session) -> int | None:
    """The number of changes between; `None` for another session of the same id."""
    if old.session.incarnation != session.incarnation:
        return None
    return session.version - old.session.version
