"""The index over the memories of one owner (to be replaced by the measured one)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TypeAlias

from tenuto.model.memory import Memory, MemoryHit, MemoryQuery, MemoryScores
from tenuto.recall.lexical import LexicalIndex

Vector: TypeAlias = Sequence[float]


class MemoryIndex:
    """Searches the memories of one owner in this process; the caller stores them."""

    def __init__(self, memories: Iterable[Memory] = (), vectors: Mapping[str, Vector] | None = None) -> None:
        self._all = {one.id: one for one in memories}

    def put(self, memory: Memory, vector: Vector | None = None) -> None:
        """Add a memory, or replace the one of the same id."""
        self._all[memory.id] = memory

    def remove(self, memory_id: str) -> None:
        """Remove a memory, if it is there."""
        self._all.pop(memory_id, None)

    def search(self, query: MemoryQuery, vector: Vector | None, now: datetime) -> tuple[MemoryHit, ...]:
        """The best memories for a query, best first; `vector` is the query's, `None` to search by words alone."""
        rows = [
            one
            for one in self._all.values()
            if not one.superseded_by and (one.expires_at is None or one.expires_at > now)
        ]
        found = LexicalIndex(one.text for one in rows).search(query.text, query.limit)
        return tuple(
            MemoryHit(memory=rows[h.position], score=h.score, scores=MemoryScores(lexical=h.score, coverage=h.coverage))
            for h in found
        )
