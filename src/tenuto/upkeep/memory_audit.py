"""An audit of stored memories: how many are junk, repeated, superseded, expired or cannot be found by meaning."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

import msgspec

from tenuto.model.memory import Memory, MemoryKind, MemorySource
from tenuto.recall.lexical import terms
from tenuto.recall.owner_cache import is_expired, normal_text
from tenuto.recall.records import StoredMemory
from tenuto.upkeep.quotes import junk_reason

# Memories that share so much of their terms say the same.
_NEAR: Final = 0.8


class KindCounts(msgspec.Struct, kw_only=True):
    """The memories of one kind. `exact` and `near` count those that repeat another one, among those that hold."""

    stored: int = 0
    holding: int = 0
    superseded: int = 0
    expired: int = 0
    exact: int = 0
    near: int = 0
    without_vector: int = 0


class MemoryAudit(msgspec.Struct, kw_only=True):
    """What an audit has found so far. `junk` counts quotations of facts that would be refused today, by the
    reason; `quotes` how many there are."""

    owners: int = 0
    kinds: dict[MemoryKind, KindCounts] = msgspec.field(default_factory=dict)
    quotes: int = 0
    junk: dict[str, int] = msgspec.field(default_factory=dict)

    @property
    def junk_rate(self) -> float:
        """The share of junk among quotations, from 0 to 1."""
        return sum(self.junk.values()) / self.quotes if self.quotes else 0.0

    @property
    def total(self) -> KindCounts:
        """All kinds together."""
        return KindCounts(
            **{name: sum(getattr(one, name) for one in self.kinds.values()) for name in KindCounts.__struct_fields__}
        )

    def add(self, rows: Sequence[StoredMemory], now: datetime) -> None:
        """Take in the memories of one owner."""
        self.owners += 1
        holding: dict[MemoryKind, list[Memory]] = defaultdict(list)
        for memory, vector, _ in rows:
            counts = self.kinds.setdefault(memory.kind, KindCounts())
            counts.stored += 1
            counts.without_vector += vector is None
            if is_expired(memory, now):
                counts.expired += 1
            elif memory.superseded_by:
                counts.superseded += 1
            else:
                counts.holding += 1
                holding[memory.kind].append(memory)
        for kind, memories in holding.items():
            self.kinds[kind].exact += count_repeated(memories)
            self.kinds[kind].near += count_near(memories)
        self._judge([memory for memories in holding.values() for memory in memories])

    def _judge(self, memories: Iterable[Memory]) -> None:
        # A preference was told by its meaning, and need not say "I".
        quotes = [
            one.text for one in memories if one.source is MemorySource.QUOTE and one.kind is not MemoryKind.PREFERENCE
        ]
        self.quotes += len(quotes)
        for reason in filter(None, map(junk_reason, quotes)):
            self.junk[reason] = self.junk.get(reason, 0) + 1


def count_repeated(memories: Iterable[Memory]) -> int:
    """How many say, letter for letter, what another one says; case, spaces and who said it apart."""
    texts = Counter((one.speaker, one.persona, normal_text(one.text)) for one in memories)
    return sum(many - 1 for many in texts.values())


def count_near(memories: Iterable[Memory]) -> int:
    """How many have nearly the terms of an earlier one, but not its letters."""
    sets = {one.id: (frozenset(terms(one.text)), (one.speaker, one.persona), normal_text(one.text)) for one in memories}
    frequent = Counter(term for found, _, _ in sets.values() for term in found)
    near = 0
    # Two sets that share most terms share one of the rarest of each: only those need be compared.
    by_term: dict[str, list[str]] = defaultdict(list)
    for memory_id, (found, who, text) in sets.items():
        rarest = sorted(found, key=lambda term: (frequent[term], term))
        telling = rarest[: len(rarest) - math.ceil(_NEAR * len(rarest)) + 1]
        candidates = {other for term in telling for other in by_term[term]}
        near += any(
            sets[other][1] == who and sets[other][2] != text and _share(found, sets[other][0]) >= _NEAR
            for other in candidates
        )
        for term in telling:
            by_term[term].append(memory_id)
    return near


def _share(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / len(one | other)
