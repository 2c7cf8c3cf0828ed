"""Windows that this process has seen, so that only what is new has to travel.

Stored messages never change under their sequence number; they are only added at the end, or removed. The head
counts removals other than by caps (`epoch`), and a begin that names the epoch and the last message it knows gets
the messages after it. Nothing here is ever believed without the store's word for it.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from tenuto.model import Message, Session

_MOST_MESSAGES = 64
_MOST_SESSIONS = 4096
_MOST_CHARACTERS = 16 * 1024 * 1024
_LARGEST = 256 * 1024


@dataclass(frozen=True, slots=True)
class Seen:
    """The end of a log: all of it from the first message here up to `last`; `whole` when none stood before."""

    epoch: int
    last: int
    messages: tuple[Message, ...]
    whole: bool
    size: int
    """In characters of the messages' words."""


class Windows:
    """What was seen last of the sessions in use. The least recently changed go first."""

    def __init__(self) -> None:
        self._seen: OrderedDict[bytes, Seen] = OrderedDict()
        self._size = 0

    def get(self, key: bytes, window: int) -> Seen | None:
        """What was seen last, if a window of this many messages can be built on it."""
        seen = self._seen.get(key)
        return seen if seen is not None and (seen.whole or len(seen.messages) >= window) else None

    def keep(self, key: bytes, session: Session, epoch: int, log: tuple[Message, ...], fresh: int) -> None:
        """Remember the end of a log, up to the session's last message; before the `fresh` ones stand those seen."""
        seen = self._seen.pop(key, None)
        size = sum(map(_size, log[-fresh:])) if fresh else 0
        if seen is not None:
            self._size -= seen.size
            size += seen.size if fresh < len(log) else 0
        kept = log[-_MOST_MESSAGES:]
        if not kept or size > _LARGEST:
            return
        # what falls off the beginning takes its share of the size along
        size = size * len(kept) // len(log)
        whole = len(kept) >= session.messages
        self._seen[key] = Seen(epoch=epoch, last=session.last_seq, messages=kept, whole=whole, size=size)
        self._size += size
        while len(self._seen) > _MOST_SESSIONS or self._size > _MOST_CHARACTERS:
            self._size -= self._seen.popitem(last=False)[1].size

    def extend(self, key: bytes, session: Session, epoch: int, messages: tuple[Message, ...]) -> None:
        """Remember what was added since, where it follows on what was seen."""
        seen = self._seen.get(key)
        if seen is not None and messages and seen.epoch == epoch and seen.last + 1 == messages[0].seq:
            self.keep(key, session, epoch, seen.messages + messages, len(messages))

    def drop(self, key: bytes) -> None:
        """Forget a session."""
        seen = self._seen.pop(key, None)
        if seen is not None:
            self._size -= seen.size

    def clear(self) -> None:
        """Somebody wants words gone: none of them stay here."""
        self._seen.clear()
        self._size = 0


def _size(message: Message) -> int:
    return sum(len(part.get("text") or "") for part in message.parts)
