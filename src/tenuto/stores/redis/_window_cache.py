"""Sessions as this process has seen them last, so that only what is new has to travel.

Within an epoch stored messages never change under their sequence number; they are only added at the end, or removed
by caps. The head counts changes (`version`), and rewritings and other removals (`epoch`). A call that names both gets
nothing but numbers back where nothing has changed, and one that names the epoch and the last message it knows gets the
messages after it. Nothing here is ever believed without the store's word for it, and nothing outlives a connection: a
server that comes back, or takes another's place, may have lost what it had counted.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from tenuto.model import Message, Session
from tenuto.model.message import memory_bytes
from tenuto.stores.redis._records import encode_variables

# At least so many of a session's newest messages are kept, and at most so many, however large a window is asked for.
_LEAST_MESSAGES = 20
_MOST_MESSAGES = 64
_MOST_SESSIONS = 16 * 1024
_MOST_BYTES = 128 * 1024 * 1024
_LARGEST = 256 * 1024
# What a session takes beside the texts in it, as measured.
_SESSION_BYTES = 2048


@dataclass(slots=True)
class CachedWindow:
    """A session and the end of its log: all of it from the first message here up to the session's last."""

    epoch: int
    session: Session
    messages: tuple[Message, ...]
    sizes: tuple[int, ...]
    """Of each message, in bytes of memory."""
    wanted: int = _LEAST_MESSAGES
    """The largest window that was asked for; what is older than that is let go."""
    variables: bytes = b""
    """Of the session, as they were: what it holds itself is in its callers' hands."""
    size: int = field(init=False)
    """In bytes. Variables count twice: as they are kept, and as the session holds them."""

    def __post_init__(self) -> None:
        texts = sum(self.sizes) + 2 * len(self.variables) + len(self.session.title) + len(self.session.id)
        self.size = texts + _SESSION_BYTES

    @property
    def whole(self) -> bool:
        """Whether no message stood before the first one here."""
        return len(self.messages) >= self.session.messages


class WindowCache:
    """What was seen last of the sessions in use. The least recently changed go first."""

    def __init__(self) -> None:
        self._seen: OrderedDict[bytes, CachedWindow] = OrderedDict()
        self._size = 0

    def get(self, key: bytes, window: int = 0) -> CachedWindow | None:
        """What was seen last, if a window of this many messages can be built on it."""
        seen = self._seen.get(key)
        return seen if seen is not None and (len(seen.messages) >= window or seen.whole) else None

    def keep(
        self, key: bytes, session: Session, epoch: int, log: tuple[Message, ...], fresh: int, window: int = 0
    ) -> None:
        """Remember the end of a log, up to the session's last message; before the `fresh` ones stand those seen."""
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
        """Remember what was changed and added since, where it follows on what was seen."""
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
        """Somebody wants words gone: none of them stay here."""
        self._seen.clear()
        self._size = 0
