"""Memories for tests: over any store, with an embedder that counts letters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count

from tenuto.errors import Unavailable
from tenuto.model import Scope
from tenuto.model.memory import MemoryPolicy, MemoryQuery
from tenuto.ports import Clock, OwnersOf, Store, owner_alone
from tenuto.recall.embedding import CachedEmbedder
from tenuto.recall.service import Memories
from tests.clock import FakeClock

_numbers = count(1)


@dataclass
class LetterEmbedder:
    """An embedder whose vectors count letters: texts of the same letters are near each other."""

    name: str = "letters"
    remote: bool = True
    away: bool = False
    asked: list[str] = field(default_factory=list)

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        if self.away:
            raise Unavailable("embedder", "is away")
        self.asked += texts
        return [[float(text.lower().count(chr(97 + n))) + 0.01 for n in range(26)] for text in texts]


async def unredacted(_: Scope, text: str) -> str | None:
    """No policy."""
    return text


def memories_over(
    store: Store,
    clock: Clock | None = None,
    embedder: LetterEmbedder | None = None,
    policy: MemoryPolicy | None = None,
    owners_of: OwnersOf = owner_alone,
) -> Memories:
    """The memories of one process."""
    clock = clock or FakeClock()
    return Memories(
        state=store.state,
        redact=unredacted,
        clock=clock,
        policy=policy or MemoryPolicy(),
        new_id=lambda: f"m{next(_numbers)}",
        embedder=CachedEmbedder(embedder, clock=clock, time_limit=timedelta(minutes=1)) if embedder else None,
        owners_of=owners_of,
    )


async def memory_texts(memories: Memories, scope: Scope) -> set[str]:
    """All that is remembered and holds."""
    return {one.text for one in await memories.list(scope)}


async def search_texts(memories: Memories, scope: Scope, query: str) -> list[str]:
    """What a search finds, best first."""
    return [hit.memory.text for hit in (await memories.search(scope, MemoryQuery(text=query))).hits]
