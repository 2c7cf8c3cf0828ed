"""An embedder within a time limit: it rests after a failure, so that turns do not wait, and caches vectors.

Bulk work, captures among it, reaches it piece by piece, one piece at a time in all, and texts of several callers share
a piece. The question of a turn waits for one piece at most, and a piece whose callers are all gone ends.
"""

from __future__ import annotations

import logging
from array import array
from asyncio import CancelledError, Future, Task, ensure_future, gather, get_running_loop, timeout
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from hashlib import blake2b
from math import hypot
from operator import mul
from typing import Final, NamedTuple, TypeAlias

from tenuto.background import run_in_background
from tenuto.errors import Unavailable
from tenuto.lru_cache import LruCache
from tenuto.model import Scope
from tenuto.ports import Clock, Embedder

Vector: TypeAlias = Sequence[float]

EMBEDDED_CHARACTERS: Final = 1_000
"""Of a text; its beginning shows what it is about."""
# What bulk work gives to the embedder at once: less than a tenth of a second of the local one's time. A provider
# answers many texts as fast as one.
_PIECE_CHARACTERS: Final = 2 * EMBEDDED_CHARACTERS
_PIECE_TEXTS: Final = 8
_REMOTE_PIECE: Final = 64
_BULK_LIMITS: Final = 10
"""How many times the time limit of a turn bulk work takes at most, what it waits for other bulk work included."""
_MOST_VECTORS: Final = 2_048
_LIFE: Final = timedelta(minutes=10)
"""How long an unused vector is cached. The next text evicts it: an idle process keeps it, even after another process
has erased its user."""
_REST: Final = timedelta(seconds=30)
_log = logging.getLogger(__name__)


class CachedEmbedder:
    """Embeds texts of one scope; `None` instead of vectors while the embedder does not answer."""

    def __init__(self, embedder: Embedder, *, clock: Clock, time_limit: timedelta) -> None:
        self._embedder = embedder
        self._clock = clock
        self._time_limit = time_limit.total_seconds()
        self._vectors = LruCache[bytes, _CachedVector](_MOST_VECTORS)
        self._generation = 0
        self._rests_until: datetime | None = None
        self._bulk: deque[_BulkText] = deque()
        self._embedding_bulk: Task[None] | None = None
        # Weights on this machine take a second or more to load; a provider is always there.
        self.ready = embedder.remote

    @property
    def name(self) -> str:
        """The embedder's name."""
        return self._embedder.name

    @property
    def remote(self) -> bool:
        """Whether texts leave this machine."""
        return self._embedder.remote

    async def embed(self, scope: Scope, texts: Sequence[str]) -> list[Vector] | None:
        """The vectors of the texts' beginnings, for a turn that waits; `None` if the embedder rests, fails or takes too
        long."""
        if self._resting:
            return None
        try:
            async with timeout(self._time_limit):
                vectors = await self._embed_cached(scope, texts)
        except (Unavailable, TimeoutError) as error:
            self._rest_after(error)
            return None
        self._rests_until, self.ready = None, True
        return vectors

    async def embed_later(self, scope: Scope, texts: Sequence[str]) -> list[Vector] | None:
        """As `embed`, behind the questions of turns, and with time for the work before it."""
        if self._resting:
            return None
        try:
            async with timeout(_BULK_LIMITS * self._time_limit):
                vectors = await self._embed_cached(scope, texts, bulk=True)
        except (Unavailable, TimeoutError) as error:
            self._rest_after(error)
            return None
        self._rests_until, self.ready = None, True
        return vectors

    def _rest_after(self, error: Exception) -> None:
        _log.warning("embedder %s failed, ranking by words alone: %s", self._embedder.name, type(error).__name__)
        self._rests_until = self._clock() + _REST

    async def warm(self) -> None:
        """Load what the embedder needs, however long it takes; it is `ready` afterwards, unless it fails."""
        self.ready = await self.embed_patiently(["."]) is not None or self.ready

    async def embed_patiently(self, texts: Sequence[str]) -> list[Vector] | None:
        """As `embed`, without a time limit and without the cache, for background work."""
        if self._resting:
            return None
        try:
            return await self._embed_bulk([text[:EMBEDDED_CHARACTERS] for text in texts])
        except Unavailable:
            self._rests_until = self._clock() + _REST
            return None

    async def embed_whole(self, texts: Sequence[str]) -> list[Vector]:
        """The vectors of whole texts, without time limit, rest and cache.

        The local embedder reads a long text in chunks, whose mean is its vector: a call takes little memory and time.

        Raises:
            Unavailable: the embedder does not answer.
        """
        if self._embedder.remote:
            return await self._embed_bulk(texts)
        chunks = [list(_chunks(text)) for text in texts]
        vectors = iter(await self._embed_bulk([chunk for each in chunks for chunk in each]))
        return [_mean([(len(chunk), next(vectors)) for chunk in each]) for each in chunks]

    async def _embed_bulk(self, texts: Sequence[str]) -> list[Vector]:
        """Embed piece by piece, with the texts of other callers; the question of a turn may come between two."""
        loop = get_running_loop()
        waiting = [_BulkText(text, loop.create_future()) for text in texts]
        self._bulk.extend(waiting)
        if self._embedding_bulk is None:
            self._embedding_bulk = run_in_background(self._embed_pieces(), "embedder")
        return await gather(*[one.vector for one in waiting])

    async def _embed_pieces(self) -> None:
        """Embed what waits until nothing does; callers that are gone have cancelled their texts."""
        piece: list[_BulkText] = []
        try:
            while piece := _take_piece(self._bulk, remote=self._embedder.remote):
                try:
                    vectors = await self._begin_piece(piece)
                except CancelledError:
                    if self._embedding_bulk is None or self._embedding_bulk.cancelling():
                        raise
                    # Its callers have gone.
                    continue
                except Exception as error:
                    _fail(piece, error)
                    continue
                for one, vector in zip(piece, vectors, strict=True):
                    if not one.vector.done():
                        one.vector.set_result(vector)
        finally:
            self._embedding_bulk = None
            # Only where the loop ends.
            _fail([*piece, *self._bulk], Unavailable("embedder", "was closed"))

    def _begin_piece(self, piece: Sequence[_BulkText]) -> Future[Sequence[Vector]]:
        """Begin to embed a piece; it ends when its last caller has gone."""
        embedding = ensure_future(self._embedder.embed([one.text for one in piece]))

        def end(_: Future[Vector]) -> None:
            if all(one.vector.done() for one in piece):
                embedding.cancel()

        for one in piece:
            one.vector.add_done_callback(end)
        return embedding

    @property
    def _resting(self) -> bool:
        return self._rests_until is not None and self._clock() < self._rests_until

    def clear_cache(self) -> None:
        """Drop all vectors, including those being computed; their users are not recorded, so all go."""
        self._generation += 1
        self._vectors.clear()

    async def _embed_cached(self, scope: Scope, texts: Sequence[str], *, bulk: bool = False) -> list[Vector]:
        texts = [text[:EMBEDDED_CHARACTERS] for text in texts]
        keys = [_cache_key(scope, text) for text in texts]
        self._evict_expired()
        vectors = {key: entry.vector for key in keys if (entry := self._vectors.peek(key)) is not None}
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in vectors}
        generation = self._generation
        if missing:
            embed = self._embed_bulk if bulk or len(missing) > _PIECE_TEXTS else self._embedder.embed
            vectors.update(zip(missing, await embed(list(missing.values())), strict=True))
        if len({len(vector) for vector in vectors.values()}) > 1:
            # The embedder returns another model's vectors under the same name.
            self._vectors.clear()
            raise Unavailable("embedder", "has changed")
        if generation == self._generation:
            self._cache_vectors(vectors)
        return [vectors[key] for key in keys]

    def _cache_vectors(self, vectors: dict[bytes, Vector]) -> None:
        now = self._clock()
        for key, vector in vectors.items():
            self._vectors.put(key, _CachedVector(vector, now))

    def _evict_expired(self) -> None:
        """Evict expired vectors; the cache is ordered by last use."""
        before = self._clock() - _LIFE
        while self._vectors and next(iter(self._vectors.items()))[1].needed_at <= before:
            self._vectors.drop_oldest()


class _BulkText(NamedTuple):
    """A text of bulk work, and its vector to come."""

    text: str
    vector: Future[Vector]


class _CachedVector(NamedTuple):
    """The vector of a text, and when it was last used."""

    vector: Vector
    needed_at: datetime


def _cache_key(scope: Scope, text: str) -> bytes:
    """The key of one owner's text: no other owner learns from response times what it wrote."""
    whose = "\0".join((scope.tenant, scope.site, scope.user or "", *scope.owner))
    return blake2b(f"{len(whose)}\0{whose}\0{text}".encode(errors="surrogatepass"), digest_size=16).digest()


def _chunks(text: str) -> Iterator[str]:
    """The text in parts that are embedded as a whole; an empty text is one."""
    for start in range(0, max(1, len(text)), EMBEDDED_CHARACTERS):
        yield text[start : start + EMBEDDED_CHARACTERS]


def _take_piece(waiting: deque[_BulkText], *, remote: bool) -> list[_BulkText]:
    """Texts that are embedded at once: few enough that a question behind them does not wait."""
    piece: list[_BulkText] = []
    characters, limit = 0, _REMOTE_PIECE if remote else _PIECE_TEXTS
    while waiting and len(piece) < limit:
        characters += len(waiting[0].text)
        if piece and not remote and characters > _PIECE_CHARACTERS:
            break
        one = waiting.popleft()
        if one.vector.done():
            characters -= len(one.text)
        else:
            piece.append(one)
    return piece


def _fail(texts: Iterable[_BulkText], error: Exception) -> None:
    for one in texts:
        if not one.vector.done():
            one.vector.set_exception(error)


def _mean(parts: Sequence[tuple[int, Vector]]) -> Vector:
    """The mean of the vectors of chunks, each by its length, of length 1; that of a single chunk is its own."""
    if len(parts) == 1:
        return parts[0][1]
    weights = [weight for weight, _ in parts]
    columns = zip(*(vector for _, vector in parts), strict=True)
    sums = [sum(map(mul, weights, column)) for column in columns]
    length = hypot(*sums) or 1.0
    return array("f", [number / length for number in sums])
