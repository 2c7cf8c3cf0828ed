"""What this process has lately seen of sessions, for when the store is away: heads and newest messages, by reference.

Least recently used out first, bounded by sessions and by bytes. What somebody else changes is dropped when the feed
tells so. A feed that lost track says so when an outage begins too: then what is here is needed most, so it stays until
a call that was sent later is answered. From then on what was seen before the loss is in doubt, as is what was seen
while nobody listened; and what is in doubt, or was last seen long ago, is not known. Our next answer ends a doubt: a
version that grew by our own change alone confirms all that was seen.
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
"""Seconds after the store's last answer about a session: then nobody can tell what became of it."""


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
        """About how many bytes of memory it takes."""
        return self._bytes

    def get(self, key: bytes) -> SeenSession | None:
        """What is known of a session for certain."""
        return self.still(self._entries.get(key))

    def still(self, entry: SeenSession | None) -> SeenSession | None:
        """What was known when a call was sent, if it is trusted now."""
        return entry if entry is not None and self._is_trusted(entry) else None

    def head(self, key: bytes) -> Session | None:
        """A session's head as it was last seen, in doubt or not."""
        entry = self._entries.get(key)
        return entry.session if entry is not None else None

    # Calls of our own

    def changes(self, key: bytes) -> Call:
        """A change of our own, from before it is sent until it has come back."""
        return self._start_call(key, changing=True)

    def reads(self, key: bytes) -> Call:
        """A question, which moves the deadline of a session that reads touch."""
        entry = self._entries.get(key)
        return self._start_call(key, changing=entry is not None and entry.session.keeping.touch is Touch.READ)

    def observe_answer(self, since: int) -> None:
        """The store answered what was sent when the feed had lost track so often: what was seen before is in doubt."""
        # What it told first is not to be taken for news of what it does from now on.
        self._feed.catch_up()
        self._trusted_since = max(self._trusted_since, since)

    # What they brought

    def saw_begun(self, call: Call, turn: OpenTurn, once: IdempotencyKey | None) -> None:
        """A turn has begun, and brought the newest messages."""
        entry = self._store(call, turn.session, turn.window)
        if once is not None and turn.words:
            span = turn.words[0].seq, turn.words[-1].seq
            entry.keyed[once.key] = KeyedWrite(once.fingerprint, turn.id, turn.number, words=span)
            if len(entry.keyed) > _KEYS_KEPT:
                entry.keyed.popitem(last=False)

    def observe_finish(self, call: Call, turn_id: str, session: Session, reply: tuple[Message, ...]) -> None:
        """A turn has ended, and these are its last words."""
        old = self._entries.get(call.key)
        tail = old.tail if old is not None and _is_next_version(old, session) else ()
        follows = bool(tail) and (not reply or tail[-1].seq + 1 == reply[0].seq)
        entry = self._store(call, session, (*tail, *reply) if follows else reply)
        for keyed in entry.keyed.values():
            if keyed.turn_id == turn_id:
                keyed.finished = True
                keyed.reply = (reply[0].seq, reply[-1].seq) if reply else (0, -1)

    def observe_page(self, call: Call, session: Session, newest: tuple[Message, ...]) -> None:
        """The head was read, and some of the newest messages; more may be known of the same."""
        old = self._entries.get(call.key)
        if old is not None and _is_unchanged(old, session) and len(old.tail) > len(newest):
            newest = old.tail
        if session.keeping.touch is Touch.READ:
            call.changing = True  # Nobody knew before whether its deadline would move.
        self._store(call, session, newest)

    def observe_patch(self, call: Call, session: Session) -> None:
        """The head was changed by us; the messages are what they were."""
        old = self._entries.get(call.key)
        self._store(call, session, old.tail if old is not None and _is_next_version(old, session) else ())

    def observe_renewal(self, key: bytes) -> None:
        """A turn holds its session for longer: it is there."""
        entry = self._entries.get(key)
        if entry is not None:
            entry.seen_at = self._ticks()

    # What the feed tells

    def on_invalidate(self, news: Invalidation | None) -> list[bytes]:
        """Forget what others changed, and tell which sessions that were; `None` means that anything may have been."""
        if news is None:
            self.losses += 1
            return []
        others = [key for key in news.keys if not self._is_own_change(key, news)]
        for key in others:
            self.drop_session(key)
        return others

    def drop_session(self, key: bytes) -> None:
        """Know nothing of a session, nor learn from calls that were sent before."""
        self._calls.overtake(key)
        self._remove(key)

    def drop_site(self, person: Scope) -> None:
        """Know nothing of anybody in somebody's tenant and site."""
        place = person.tenant, person.site
        self._calls.mark_all_outdated()
        for key, entry in list(self._entries.items()):
            if (entry.session.scope.tenant, entry.session.scope.site) == place:
                self._remove(key)

    def forget_all(self) -> None:
        """Know nothing of anybody."""
        self._calls.mark_all_outdated()
        self._entries.clear()
        self._bytes = 0

    # What is inside

    def _start_call(self, key: bytes, *, changing: bool) -> Call:
        certain = self._feed.listening  # Asked first: it may tell what has arrived by now.
        return Call(self._calls, key, self.get(key), self.losses, certain=certain, changing=changing)

    def _is_trusted(self, entry: SeenSession) -> bool:
        return entry.since >= self._trusted_since and self._ticks() - entry.seen_at < _TRUSTED_FOR

    def _is_own_change(self, key: bytes, news: Invalidation) -> bool:
        if news.taken_away:
            return False  # Who gave up waiting for its own does not know that it went through.
        return news.ours if news.ours is not None else self._calls.explain(key)

    def _store(self, call: Call, session: Session, tail: tuple[Message, ...]) -> SeenSession:
        old = self.get(call.key)
        if old is not None and (_version_delta(old, session) or 0) < 0:
            return old  # Answers may come in another order than they were given.
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


def _is_unchanged(old: SeenSession, session: Session) -> bool:
    """Whether the messages are those that were seen."""
    return _version_delta(old, session) == 0


def _is_next_version(old: SeenSession, session: Session) -> bool:
    """Whether nothing but one change of our own lies between: each makes the version grow by one."""
    return _version_delta(old, session) == 1


def _version_delta(old: SeenSession, session: Session) -> int | None:
    """How many changes lie between; `None` where it is another session of the same id."""
    if old.session.incarnation != session.incarnation:
        return None
    return session.version - old.session.version
