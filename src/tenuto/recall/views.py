"""Memories as JSON: the same over HTTP and in the CLI."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Self

from tenuto.model.memory import Memory, MemoryHit, MemoryKind, MemorySource
from tenuto.model.values import View
from tenuto.recall.cursors import next_cursor
from tenuto.recall.lexical import readable_words
from tenuto.recall.prepared_search import RecallResult


class MemoryBrief(View, frozen=True, kw_only=True):
    """What a model can use of a memory."""

    id: str
    kind: MemoryKind
    text: str
    subject: str | None
    said_at: datetime
    session_id: str | None

    @classmethod
    def of(cls, value: Memory) -> Self:
        """The view of a memory; what it does not have is null."""
        empty = {name: None for name in cls.__struct_fields__ if getattr(value, name) == ""}
        return cls.derive(value, **empty)


class MemoryView(MemoryBrief, frozen=True, kw_only=True):
    """One memory. `session_id` and `seqs` are where it was said, by `speaker` (null: the owner).

    `superseded_by` is the later memory of the same subject, and `valid_until` is when it was replaced. `identity` is
    the user who said it, where several are one person: only this user can open the session.
    """

    source: MemorySource
    speaker: str | None
    seqs: tuple[int, ...]
    persona: str | None
    mentions: int
    valid_until: datetime | None
    superseded_by: str | None
    expires_at: datetime | None
    identity: str | None


class MemoryList(View, frozen=True, kw_only=True):
    """Part of a listing; `cursor` continues it, null ends it. `unread` if what was said last is not read yet."""

    memories: list[MemoryView]
    cursor: str | None
    unread: bool

    @classmethod
    def page(cls, memories: Sequence[Memory], limit: int, *, unread: bool) -> Self:
        """The view of at most `limit` memories."""
        return cls(memories=list(map(MemoryView.of, memories)), cursor=next_cursor(memories, limit), unread=unread)


class MemoryScoreView(View, frozen=True, kw_only=True):
    """What a memory's score is the sum of: what the search by words and by meaning give, what the rest of the session
    adds, and whether the query names the time or the speaker."""

    lexical: float
    vector: float
    session: float
    period: float
    speaker: float


class MemoryScoresView(MemoryScoreView, frozen=True, kw_only=True):
    """Why a memory was found: its score, `cosine`, the similarity to the query, `coverage`, the share of the query's
    weight that the shared `terms` hold, and `similarity`, the greatest one to a memory ranked above it."""

    cosine: float
    coverage: float
    similarity: float
    terms: tuple[str, ...]


class MemoryHitView(View, frozen=True, kw_only=True):
    """A memory that was found, its `score`, and what the score is made of."""

    memory: MemoryView
    score: float
    scores: MemoryScoresView

    @classmethod
    def of(cls, value: MemoryHit) -> Self:
        """The view of a hit."""
        scores = MemoryScoresView.derive(value.scores, terms=shared_words(value))
        return cls.derive(value, memory=MemoryView.of(value.memory), scores=scores)


class MemoryHits(View, frozen=True, kw_only=True):
    """What a search found, best first; `degraded` if some memories were ranked by words alone, or are `unread`.

    Then the embedder loads or does not answer, or it has not embedded all memories yet; or what was said last is not
    read for memories yet.
    """

    hits: list[MemoryHitView]
    degraded: bool
    unread: bool

    @classmethod
    def of(cls, value: RecallResult) -> Self:
        """The view of what a search found."""
        return cls(hits=list(map(MemoryHitView.of, value.hits)), degraded=value.degraded, unread=value.unread)


def shared_words(hit: MemoryHit) -> tuple[str, ...]:
    """The terms that a memory shares with the query, as the memory writes them: `live`, where the index has `liv`."""
    word_of = dict(readable_words(hit.memory.text)[0]) if hit.scores.terms else {}
    return tuple(word_of.get(term, term) for term in hit.scores.terms)
