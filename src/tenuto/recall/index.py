"""The index over the memories of one owner: BM25 with neighbours, exact vectors, fusion, duplicate threshold, MMR."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TypeAlias

from tenuto.model.memory import Memory, MemoryHit, MemoryQuery

Vector: TypeAlias = Sequence[float]


class MemoryIndex:
    """Searches the memories of one owner in this process; the caller stores them."""

    def __init__(self, memories: Iterable[Memory] = (), vectors: Mapping[str, Vector] | None = None) -> None:
        raise NotImplementedError

    def put(self, memory: Memory, vector: Vector | None = None) -> None:
        """Add a memory, or replace the one of the same id."""
        raise NotImplementedError

    def remove(self, memory_id: str) -> None:
        """Remove a memory, if it is there."""
        raise NotImplementedError

    def search(self, query: MemoryQuery, vector: Vector | None, now: datetime) -> tuple[MemoryHit, ...]:
        """The best memories for a query, best first; `vector` is the query's, `None` to search by words alone."""
        raise NotImplementedError
