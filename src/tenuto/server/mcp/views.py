"""Answers that only tools of MCP give.

What they are made of is in the `views.py` of its room: of the fields that HTTP shows, those that a model can use.
"""

from __future__ import annotations

from typing import Annotated, Self

from msgspec import Meta

from tenuto.model.memory import MemoryHit
from tenuto.model.values import View
from tenuto.recall.views import MemoryBrief, MemoryScoreView
from tenuto.sessions.views import MatchView, MessageBrief, SessionBrief
from tenuto.tasks.views import BoardEntryView


class SessionPageBrief(View, frozen=True, kw_only=True):
    """Sessions, the latest change first."""

    sessions: list[SessionBrief]
    cursor: str | None


class FoundBrief(View, frozen=True, kw_only=True):
    """A session that was found, and its best messages."""

    session: SessionBrief
    matches: Annotated[
        list[MatchView], Meta(description="The best messages, the best one first; none where only the title was found.")
    ]


class FoundPageBrief(View, frozen=True, kw_only=True):
    """Sessions that were found, the latest change first."""

    found: Annotated[list[FoundBrief], Meta(description="The sessions that were found.")]
    cursor: str | None
    unsearched: Annotated[
        int, Meta(description="How many sessions with new messages were not looked into; search again to find those.")
    ]


class HistoryView(View, frozen=True, kw_only=True):
    """Messages, oldest first."""

    session: SessionBrief
    messages: list[MessageBrief]
    more_before: bool
    more_after: bool


class AttachmentBrief(View, frozen=True, kw_only=True):
    """What is known of an attachment, whose bytes are a content block beside this."""

    id: str
    media_type: Annotated[str, Meta(description="The media type.")]
    size: Annotated[int, Meta(description="How many bytes it has.")]
    name: Annotated[str | None, Meta(description="The name of the file, if it came with one.")]


class AppendedView(View, frozen=True, kw_only=True):
    """A stored message; a `duplicate` of the same idempotency key stored nothing."""

    message: MessageBrief
    duplicate: bool


class MemoryHitBrief(View, frozen=True, kw_only=True):
    """A memory that was found, its `score`, and what the score is made of."""

    memory: MemoryBrief
    score: float
    scores: MemoryScoreView

    @classmethod
    def of(cls, hit: MemoryHit) -> Self:
        """The view of a hit."""
        return cls.derive(hit, memory=MemoryBrief.of(hit.memory), scores=MemoryScoreView.derive(hit.scores))


class MemoryHitsBrief(View, frozen=True, kw_only=True):
    """Memories, best first; `degraded` where words alone decided about some: the embedder loads or does not answer; or
    where some are `unread`: what was said last is not read for memories yet."""

    hits: list[MemoryHitBrief]
    degraded: bool
    unread: bool


class ForgottenView(View, frozen=True, kw_only=True):
    """How many memories were forgotten."""

    forgotten: int


class AssembledContext(View, frozen=True, kw_only=True):
    """What a model should see of a session: the summary stands for messages before the window."""

    summary: str
    messages: list[MessageBrief]
    memories: list[MemoryBrief]
    omitted: Annotated[int, Meta(description="How many older messages the window does not hold.")]
    cut: Annotated[list[str], Meta(description="The ids of messages of which the window holds a part.")]


class BoardEntries(View, frozen=True, kw_only=True):
    """Entries of a board, in order of their keys."""

    entries: list[BoardEntryView]
