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
    """A session as it was last seen: its newest messages without a gap, and the keys its last turns came under."""

    session: Session
    tail: tuple[Message, ...]
    size: int
    keyed: OrderedDict[str, KeyedWrite] = field(default_factory=OrderedDict)
    seen_at: float = 0.0
    since: int = NEVER
    """How often the feed had lost track when this was asked for; `NEVER` if a change may have been missed since."""

    def reaches(self, back: int) -> bool:
        """Whether so many of the newest messages are here, or all that there are."""
        if len(self.tail) >= min(back, self.session.messages):
            return True
        return bool(self.tail) and self.tail[0].seq <= self.session.window_start

    def record(self) -> SessionRecord:
        """As a store in memory holds it."""
        return SessionRecord(
            session=self.session,
            log=list(self.tail),
            before=max(0, self.session.messages - len(self.tail)),
            keyed=OrderedDict((key, copy.copy(keyed)) for key, keyed in self.keyed.items()),
        )


def estimate_bytes(session: Session, tail: tuple[Message, ...]) -> int:
    """About what a session takes of the memory."""
    values = len(msgspec.json.encode((session.context, session.attributes, session.metadata)))
    return _HEAD_BYTES + values + sum(map(memory_bytes, tail))


def update_bytes(old: SeenSession, tail: tuple[Message, ...]) -> int:
    """About what an entry takes whose messages have slid on by a few: only those that came are weighed."""
    before = old.tail
    if not before or not tail or not before[0].seq <= tail[0].seq <= before[-1].seq:
        return estimate_bytes(old.session, tail)
    size, last = old.size, before[-1].seq
    came = 0
    while came < len(tail) and tail[-1 - came].seq > last:
        came += 1
    went = max(0, len(before) + came - len(tail))
    # Those that went weighed as much as the others: what is wrong with that goes as they do.
    size -= (size - _HEAD_BYTES) * went // len(before)
    return size + sum([memory_bytes(message) for message in tail[len(tail) - came :]])
