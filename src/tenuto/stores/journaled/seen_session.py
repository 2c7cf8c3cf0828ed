"""A session as this process has last seen it."""

from __future__ import annotations

import copy
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

import msgspec

from tenuto.model import Message, Session
from tenuto.model.message import memory_bytes
from tenuto.stores.memory.record import KeyedWrite, SessionRecord

NEVER: Final = -1
_HEAD_BYTES: Final = 2048


@dataclass(slots=True)
class SeenSession:
    """A session as last seen: its newest messages without a gap, and the idempotency keys of its last turns."""

    session: Session
    tail: tuple[Message, ...]
    size: int
    keyed: OrderedDict[str, KeyedWrite] = field(default_factory=OrderedDict)
    seen_at: float = 0.0
    since: int = NEVER
    """The losses of the feed before this was requested; `NEVER` if a change may have been missed since."""

    def reaches(self, back: int) -> bool:
        """Whether the newest `back` messages are here, or all that exist."""
        if len(self.tail) >= min(back, self.session.messages):
            return True
        return bool(self.tail) and self.tail[0].seq <= self.session.window_start

    def record(self) -> SessionRecord:
        """The session as a record of the memory store."""
        return SessionRecord(
            session=self.session,
            log=list(self.tail),
            before=max(0, self.session.messages - len(self.tail)),
            keyed=OrderedDict((key, copy.copy(keyed)) for key, keyed in self.keyed.items()),
        )


def estimate_bytes(session: Session, tail: tuple[Message, ...]) -> int:
    """The approximate memory use of a session."""
    values = len(msgspec.json.encode((session.context, session.attributes, session.metadata)))
    return _HEAD_BYTES + values + sum(map(memory_bytes, tail))


def update_bytes(old: SeenSession, tail: tuple[Message, ...]) -> int:
    """The approximate memory use of an entry with another tail; only new messages are measured."""
    before = old.tail
    if not before or not tail or not before[0].seq <= tail[0].seq <= before[-1].seq:
        return estimate_bytes(old.session, tail)
    size, last = old.size, before[-1].seq
    came = 0
    while came < len(tail) and tail[-1 - came].seq > last:
        came += 1
    went = max(0, len(before) + came - len(tail))
    # Removed messages count as average; the error goes away with the rest of them.
    size -= (size - _HEAD_BYTES) * went // len(before)
    return size + sum([memory_bytes(message) for message in tail[len(tail) - came :]])
