"""The relevance gate by embeddings: whether the history is relevant to a question (B10).

It runs after the lexical gate, for assistants that have one. If the embedder does not answer in time, the lexical
decision stays.
"""

from __future__ import annotations

import logging
from asyncio import timeout
from collections import OrderedDict
from collections.abc import Sequence
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Final, NamedTuple, TypeAlias

from tenuto.chat.deps import ChatDeps
from tenuto.context import near_enough, points_back, spoken
from tenuto.errors import Unavailable
from tenuto.model import Message, Scope
from tenuto.model.generation import ToolContext
from tenuto.model.prompt import PromptInputs
from tenuto.ports import Embedder

Vector: TypeAlias = Sequence[float]

DEGRADED: Final = "embedder"
_RECENT: Final = 12
_CHARACTERS: Final = 1_000
"""Of a text; its beginning shows what it is about."""
_KNOWN: Final = 2_048
_LIFE: Final = timedelta(minutes=10)
"""How long an unused vector is cached. The next question evicts it: an idle process keeps it, even after another
process has erased its user."""
_REST: Final = timedelta(seconds=30)
_log = logging.getLogger(__name__)


class Gate:
    """Compares questions with the history, and caches vectors of recent texts."""

    def __init__(self, means: ChatDeps, embedder: Embedder) -> None:
        self._embedder = embedder
        self._redaction = means.redaction
        self._clock = means.clock
        self._patience = means.limits.embedder_timeout.total_seconds()
        self._known: OrderedDict[bytes, _CachedVector] = OrderedDict()
        self._forgotten = 0
        self._rests_until: datetime | None = None

    async def opens(self, asked: ToolContext, materials: PromptInputs, relevance: float) -> bool | None:
        """Whether the history is relevant; `None` if the embedder does not answer."""
        talk = PromptInputs(
            question=materials.question,
            summary=materials.summary,
            history=tuple(_recent_messages(asked.history, materials.window_start)),
        )
        if points_back(talk.question) or not (talk.history or talk.summary):
            return materials.history_relevant
        if self._embedder.remote:
            talk = await self._redaction.redact_prompt_inputs(asked.scope, asked.session, talk) or talk
        texts = [talk.question, *spoken(talk.history), *([talk.summary] if talk.summary else [])]
        vectors = await self._embed_in_time(asked.scope, [text[:_CHARACTERS] for text in texts])
        return None if vectors is None else near_enough(vectors[0], vectors[1:], relevance)

    def clear_cache(self) -> None:
        """Drop all vectors, including those being computed; their users are not recorded, so all go."""
        self._forgotten += 1
        self._known.clear()

    async def _embed_in_time(self, scope: Scope, texts: Sequence[str]) -> list[Vector] | None:
        """The vectors of texts. After a failure the embedder rests a while, so that not every turn waits."""
        if self._rests_until is not None and self._clock() < self._rests_until:
            return None
        try:
            async with timeout(self._patience):
                vectors = await self._embed_cached(scope, texts)
        except (Unavailable, TimeoutError) as failed:
            _log.warning("embedder %s failed, the lexical gate decides: %s", self._embedder.name, type(failed).__name__)
            self._rests_until = self._clock() + _REST
            return None
        self._rests_until = None
        return vectors

    async def _embed_cached(self, scope: Scope, texts: Sequence[str]) -> list[Vector]:
        keys = [_cache_key(scope, text) for text in texts]
        self._evict_expired()
        vectors = {key: self._known[key].vector for key in keys if key in self._known}
        unknown = {key: text for key, text in zip(keys, texts, strict=True) if key not in vectors}
        forgotten = self._forgotten
        if unknown:
            vectors.update(zip(unknown, await self._embedder.embed(list(unknown.values())), strict=True))
        if len({len(vector) for vector in vectors.values()}) > 1:
            # The embedder returns another model's vectors under the same name.
            self._known.clear()
            raise Unavailable("embedder", "has changed")
        if forgotten == self._forgotten:
            self._cache_vectors(vectors)
        return [vectors[key] for key in keys]

    def _cache_vectors(self, vectors: dict[bytes, Vector]) -> None:
        now = self._clock()
        for key, vector in vectors.items():
            self._known[key] = _CachedVector(vector, now)
            self._known.move_to_end(key)
        while len(self._known) > _KNOWN:
            self._known.popitem(last=False)

    def _evict_expired(self) -> None:
        """Evict expired vectors; the cache is ordered by last use."""
        before = self._clock() - _LIFE
        while self._known and next(iter(self._known.values())).needed_at <= before:
            self._known.popitem(last=False)


class _CachedVector(NamedTuple):
    """The vector of a text, and when it was last used."""

    vector: Vector
    needed_at: datetime


def _recent_messages(history: Sequence[Message], start: int) -> Sequence[Message]:
    """The newest messages within the context."""
    return [message for message in history if message.seq >= start and spoken((message,))][-_RECENT:]


def _cache_key(scope: Scope, text: str) -> bytes:
    """The key of one user's text: no user learns from response times what others wrote."""
    whose = "\0".join((scope.tenant, scope.site, scope.user or ""))
    return blake2b(f"{len(whose)}\0{whose}\0{text}".encode(errors="surrogatepass"), digest_size=16).digest()
