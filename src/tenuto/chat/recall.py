"""Recall in a turn: what is remembered of the user enters the prompt as quoted context, never as evidence (C1)."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from datetime import datetime
from typing import Final

from tenuto.context.wording import WORDING
from tenuto.model import OpenTurn, Scope
from tenuto.model.memory import Memory, MemoryHit, MemoryKind, MemoryQuery, MemorySource
from tenuto.model.prompt import Language, Piece, PromptInputs
from tenuto.model.values import Value
from tenuto.recall.lexical import terms
from tenuto.recall.service import Memories, PreparedSearch

DEGRADED: Final = "recall"
# Memories in a prompt, and how many are looked at: those that the window shows anyway are left out.
_SHOWN: Final = 5
_FETCHED: Final = 10
# A memory that shares less than this with a question is not about it: of its terms' weight or number, or by meaning.
_LEAST_COVERAGE: Final = 0.2
_LEAST_TERMS: Final = 0.34
_LEAST_SIMILARITY: Final = 0.4
# Messages before the question that a follow-up is understood by.
_TALK: Final = 3
_PREFERENCES: Final = 20
_log = logging.getLogger(__name__)


class Recalled(Value, frozen=True, kw_only=True, gc=True):
    """What a turn knows of earlier conversations; `degraded` if memories could not be searched as usual."""

    hits: tuple[MemoryHit, ...] = ()
    preferences: tuple[Memory, ...] = ()
    degraded: bool = False

    def pieces(self, language: Language) -> tuple[Piece, ...]:
        """The memories for the prompt: each on one line, with its date, as a quotation."""
        return tuple(Piece(id=hit.memory.id, text=quote_memory(hit.memory, language)) for hit in self.hits)

    @property
    def preference_lines(self) -> str:
        """The preferences for the prompt, one line each."""
        return "\n".join(f"- {_on_one_line(one.text)}" for one in self.preferences)


class TurnRecall:
    """Searches memories for a turn. It begins beside the store's part of the turn, and never fails the turn."""

    def __init__(self, memories: Memories) -> None:
        self._memories = memories

    def start(self, scope: Scope, text: str) -> asyncio.Task[PreparedSearch] | None:
        """Begin to load memories and to embed the question; `None` if nothing is remembered for this caller."""
        if not self._memories.policy.covers(scope):
            return None
        return asyncio.create_task(self._memories.prepare(scope, text), name="tenuto recall")

    async def finish(
        self, started: asyncio.Task[PreparedSearch], turn: OpenTurn, inputs: PromptInputs, persona: str | None
    ) -> Recalled:
        """Search with the conversation known; a failure is logged, and nothing is recalled."""
        try:
            prepared = await started
            query = MemoryQuery(
                text=inputs.question,
                limit=_FETCHED,
                kinds=(MemoryKind.FACT, MemoryKind.EPISODE),
                persona=persona,
                talk=tuple([message.text for message in inputs.history[-_TALK:] if message.text]),
            )
            found = await prepared.search(query)
        except Exception as failed:
            # Whatever fails here, the conversation goes on without memories.
            _log.warning("recall failed: %s", type(failed).__name__)
            return Recalled(degraded=True)
        asked = len(set(terms(inputs.question)))
        hits = [hit for hit in found.hits if _is_relevant(hit, asked) and not _is_shown(hit.memory, turn)]
        return Recalled(
            hits=tuple(hits[:_SHOWN]), preferences=tuple(prepared.preferences[-_PREFERENCES:]), degraded=found.degraded
        )


async def cancel_recall(started: asyncio.Task[PreparedSearch]) -> None:
    """End a search whose turn does not need it any more."""
    started.cancel()
    with suppress(asyncio.CancelledError, Exception):
        await started


def quote_memory(memory: Memory, language: Language) -> str:
    """A memory as a line of the prompt: when, who, and the words in quotation marks."""
    words = WORDING[language]
    if memory.kind is MemoryKind.EPISODE:
        who = words.earlier_talk
    elif memory.source is MemorySource.WRITTEN:
        who = words.noted
    else:
        who = words.speaker_said.format(name=memory.speaker) if memory.speaker else words.user_said
    return f"{_day(memory.said_at)}, {who}: “{_on_one_line(memory.text)}”"


def _is_relevant(hit: MemoryHit, asked: int) -> bool:
    scores = hit.scores
    return (
        scores.coverage >= _LEAST_COVERAGE
        or len(scores.terms) >= max(1, asked * _LEAST_TERMS)
        or scores.vector >= _LEAST_SIMILARITY
    )


def _is_shown(memory: Memory, turn: OpenTurn) -> bool:
    """Whether the memory stands in the loaded window of its own session."""
    if memory.session_id != turn.session.id or not memory.seqs or not turn.window:
        return False
    return memory.seqs[-1] >= max(turn.window[0].seq, turn.context_start)


def _on_one_line(text: str) -> str:
    return " ".join(text.split())


def _day(moment: datetime) -> str:
    return moment.date().isoformat()
