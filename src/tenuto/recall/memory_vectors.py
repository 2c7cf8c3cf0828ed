"""The vectors of memories and questions: made at once where the embedder answers, else later, in the background."""

from __future__ import annotations

from asyncio import get_running_loop
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from tenuto.errors import Unavailable
from tenuto.model import Scope
from tenuto.model.scope import owner_key
from tenuto.recall.embedding import CachedEmbedder, Vector
from tenuto.recall.owner_cache import OwnerCache, OwnerMemories
from tenuto.recall.records import MemoryRecords

Redact: TypeAlias = Callable[[Scope, str], Awaitable[str | None]]
"""A text as it may be remembered; `None` if it may not be."""

# Memories that are embedded at a time: a turn that needs the embedder waits no longer than for these.
_BATCH: Final = 8
_WARM: Final = b"warm"


class MemoryVectors:
    """Embeds what is remembered and asked; without an embedder, nothing."""

    def __init__(
        self, *, cache: OwnerCache, records: MemoryRecords, redact: Redact, embedder: CachedEmbedder | None
    ) -> None:
        self.embedder = embedder
        self._cache = cache
        self._records = records
        self._redact = redact

    async def of_question(self, scope: Scope, owner: OwnerMemories, text: str, until: float) -> Vector | None:
        """The vector of a question; weights that load are waited for until this moment of the event loop's clock."""
        if self.embedder is None:
            return None
        vectors: list[Vector] | None = None
        if not self.embedder.ready:
            self.warm()
            await self._cache.wait(_WARM, max(0.0, until - get_running_loop().time()))
            self.add_later(scope, owner)
        if self.embedder.ready:
            question = await self._redact(scope, text) if self.embedder.remote else text
            vectors = await self.embedder.embed(scope, [question or ""])
        return vectors[0] if vectors else None

    async def of_memories(self, scope: Scope, texts: Sequence[str]) -> Sequence[Vector | None]:
        """The vectors of texts that were redacted; those that cannot be had now are added later."""
        if self.embedder is None or not texts:
            return [None] * len(texts)
        if not self.embedder.ready:
            self.warm()
            return [None] * len(texts)
        return await self.embedder.embed_later(scope, texts) or [None] * len(texts)

    async def of_texts(self, scope: Scope, texts: Sequence[str]) -> list[Vector]:
        """Vectors of any texts, whole; those that leave this machine are redacted as memories are.

        Raises:
            Unavailable: there is no embedder, or it does not answer.
        """
        if self.embedder is None:
            raise Unavailable("embedder", "is not configured")
        if self.embedder.remote:
            texts = [await self._redact(scope, text) or "" for text in texts]
        return await self.embedder.embed_whole(texts)

    def add_later(self, scope: Scope, owner: OwnerMemories) -> None:
        """Have memories without a vector embedded in the background, if the embedder is ready."""
        if self.embedder is not None and self.embedder.ready and len(owner.embedded) < len(owner.memories):
            self._cache.run(b"index" + owner_key(scope), self.add_missing(scope))

    async def add_missing(self, scope: Scope) -> int:
        """Embed the memories of an owner that have no vector of this embedder; returns how many were.

        Turns of the owner go on meanwhile.
        """
        owner = await self._cache.load(scope)
        count = 0
        missing = [memory_id for memory_id in owner.memories if memory_id not in owner.embedded]
        for start in range(0, len(missing) if self.embedder is not None else 0, _BATCH):
            batch = [one for name in missing[start : start + _BATCH] if (one := owner.memories.get(name)) is not None]
            vectors = await self.embedder.embed_patiently([memory.text for memory in batch]) if self.embedder else None
            if vectors is None:
                return count
            async with owner.lock:
                for memory, vector in zip(batch, vectors, strict=True):
                    await self._records.write_vector(scope, memory, vector)
                    current = owner.memories.get(memory.id)
                    if current is not None and current.text == memory.text:
                        owner.put(current, vector)
                        count += 1
                await self._cache.announce(scope, owner, [memory.id for memory in batch])
        await self._records.remove_orphaned_vectors(scope, owner.memories)
        return count

    def warm(self) -> None:
        """Have the embedder load its weights; memories without a vector get theirs when they are loaded next."""
        if self.embedder is not None and not self.embedder.ready:
            self._cache.run(_WARM, self.embedder.warm())
