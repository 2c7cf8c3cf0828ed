"""A search of one owner's memories that begins before the conversation is known."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tenuto.model.memory import Memory, MemoryHit, MemoryQuery
from tenuto.ports import Clock
from tenuto.recall.embedding import Vector
from tenuto.recall.owner_cache import OwnerCache, OwnerMemories, is_expired


class RecallResult:
    """What a search found; `degraded` if words alone decided about some memories, or some are not there yet.

    Then the embedder loads or does not answer, or it has not embedded all memories yet; or what was said a moment ago
    is `unread`.
    """

    __slots__ = ("degraded", "hits", "unread")

    def __init__(self, hits: tuple[MemoryHit, ...], *, degraded: bool, unread: bool = False) -> None:
        self.hits = hits
        self.degraded = degraded
        self.unread = unread


class PreparedSearch:
    """The memories of an owner and the vector of a question, for one search.

    The vector is made by `embed` where a search needs it; without that, words alone are searched by. `complete` says
    that all is remembered that was said.
    """

    def __init__(
        self,
        copies: OwnerCache,
        owner: OwnerMemories,
        embed: Callable[[], Awaitable[Vector | None]] | None,
        clock: Clock,
    ) -> None:
        self.complete = True
        self._cache = copies
        self._owner = owner
        self._embed = embed
        self._vector: Vector | None = None
        self._is_embedded = embed is None
        self._clock = clock

    @property
    def has_vectors(self) -> bool:
        """Whether there is anything to compare the question's vector with."""
        return bool(self._owner.embedded)

    def has_any(self, wanted: Callable[[Memory], bool]) -> bool:
        """Whether there is such a memory."""
        return any(map(wanted, self._owner.memories.values()))

    def preferences(self, persona: str | None) -> list[Memory]:
        """The preferences that hold, the oldest first; of personas that keep to themselves, this one's alone."""
        now = self._clock()
        memories = [
            one
            for one in self._owner.preferences.values()
            if one.persona in (None, persona) and not is_expired(one, now)
        ]
        return sorted(memories, key=lambda one: (one.said_at, one.id))

    async def embed(self) -> None:
        """Embed the question, once."""
        if self._embed is not None and not self._is_embedded:
            self._is_embedded = True
            self._vector = await self._embed()

    async def search(self, query: MemoryQuery) -> RecallResult:
        """Search by meaning and by words."""
        owner = self._owner
        if not owner.memories:
            return RecallResult((), degraded=not self.complete, unread=not self.complete)
        await self.embed()
        by_words = self._embed is not None and (self._vector is None or len(owner.embedded) < len(owner.memories))
        hits = await self._cache.search(owner, query, self._vector)
        return RecallResult(hits, degraded=by_words or not self.complete, unread=not self.complete)
