"""Messages decoded lately, known by their very bytes.

A turn's window is mostly the window of the turn before. What is stored never changes under its sequence number,
and the bytes are the key, so a message found here is exactly what decoding them again would give.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenuto.model import Message
from tenuto.stores.redis._records import read_messages

_MOST_BYTES = 8 * 1024 * 1024
_LONGEST = 16 * 1024


class Memo:
    """Decodes messages, and remembers the last few thousand of ordinary size."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._known: dict[bytes, Message] = {}
        self._bytes = 0
        self._most_bytes = most_bytes

    def read(self, members: Sequence[bytes]) -> tuple[Message, ...]:
        """Messages in the order given. Raises `Undecodable`."""
        known = self._known
        missing = [member for member in members if member not in known]
        if not missing:
            return tuple([known[member] for member in members])
        fresh = dict(zip(missing, read_messages(missing), strict=True))
        messages = tuple([fresh[member] if member in fresh else known[member] for member in members])
        self._keep(fresh)
        return messages

    def forget(self) -> None:
        """Somebody wants words gone: none of them stay here."""
        self._known.clear()
        self._bytes = 0

    def _keep(self, fresh: dict[bytes, Message]) -> None:
        if self._bytes > self._most_bytes:
            # forgetting all at once costs nothing, and the next windows come back by themselves
            self.forget()
        for member, message in fresh.items():
            if len(member) <= _LONGEST:
                self._known[member] = message
                self._bytes += len(member)
