"""Sessions as this process has last seen them, so that only new messages are transferred.

Within an epoch stored messages never change under their sequence number; they are only added, or removed by limits. The
head counts changes (`version`), and rewrites and other removals (`epoch`). A call that names both gets only numbers if
nothing changed; one that names the epoch and its last message gets the messages after it. The server confirms every use
of the cache. A lost connection clears it, since a server after a restart or failover may have lost writes.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from tenuto.model import Message, Session
from tenuto.model.message import memory_bytes
from tenuto.stores.redis._records import encode_variables

# The least and the most of a session's newest messages that are cached, for any window.
_LEAST_MESSAGES = 20
_MOST_MESSAGES = 64
_MOST_SESSIONS = 16 * 1024
_MOST_BYTES = 128 * 1024 * 1024
_LARGEST = 256 * 1024
# Measured memory of a session without its texts.
_SESSION_BYTES = 2048


@dataclass(slots=True)
class CachedWindow:
    """A session and the end of its log, without gaps."""

    epoch: int
    session: Session
    messages: tuple[Message, ...]
    sizes: tuple[int, ...]
    """Of each message, in bytes of memory."""
    wanted: int = _LEAST_MESSAGES
    """The largest requested window; older messages are dropped."""
    variables: bytes = b""
    """A copy of the session's variables, which callers may alter."""
    size: int = field(init=False)
    """In bytes. Variables count twice: the copy, and those of the session."""

    def __post_init__(self) -> None:
        texts = sum(self.sizes) + 2 * len(self.variables) + len(self.session.title) + len(self.session.id)
        self.size = texts + _SESSION_BYTES

    @property
    def whole(self) -> bool:
        """Whether no messages precede those here."""
        return len(self.messages) >= self.session.messages


class WindowCache:
    """An LRU cache of windows."""

    def __init__(self) -> None:
        self._seen: OrderedDict[bytes, CachedWindow] = OrderedDict()
        self._size = 0

    def get(self, key: bytes, window: int = 0) -> CachedWindow | None:
        """The cached window, if it has this many messages or all."""
        seen = self._seen.get(key)
        return seen if seen is not None and (len(seen.messages) >= window or seen.whole) else None

    def keep(
        self, key: bytes, session: Session, epoch: int, log: tuple[Message, ...], fresh: int, window: int = 0
    ) -> None:
        """Cache the end of a log, whose last `fresh` messages are new."""
        old = self._seen.pop(key, None)
        if old is not None:
            self._size -= old.size
        if not log:
            return
        known = old.sizes[-(len(log) - fresh) :] if old is not None and fresh < len(log) else ()
        sizes = (*known, *[memory_bytes(message) for message in log[len(known) :]])
        wanted = min(_MOST_MESSAGES, max(window, _LEAST_MESSAGES if old is None else old.wanted))
        seen = CachedWindow(epoch, session, log[-wanted:], sizes[-wanted:], wanted, encode_variables(session))
        if seen.size > _LARGEST:
            return
        self._seen[key] = seen
        self._size += seen.size
        while len(self._seen) > _MOST_SESSIONS or self._size > _MOST_BYTES:
            self._size -= self._seen.popitem(last=False)[1].size

    def extend(self, key: bytes, session: Session, epoch: int, messages: tuple[Message, ...] = ()) -> None:
        """Cache a change and added messages, if they follow the cached ones."""
        seen = self._seen.get(key)
        if seen is not None and seen.epoch == epoch and seen.session.last_seq + len(messages) == session.last_seq:
            log = seen.messages + messages
            self.keep(key, session, epoch, log[-session.messages :] if session.messages else (), len(messages))

    def drop(self, key: bytes) -> None:
        """Forget a session."""
        seen = self._seen.pop(key, None)
        if seen is not None:
            self._size -= seen.size

    def clear(self) -> None:
        """Forget everything."""
        self._seen.clear()
        self._size = 0
