"""Recall in a turn: what is remembered of the user enters the prompt as quoted context, never as evidence (C1)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from tenuto.chat.turn_values import Choice
from tenuto.context.wording import WORDING, quote_text
from tenuto.model import OpenTurn
from tenuto.model.memory import Memory, MemoryHit, MemoryKind, MemoryQuery, MemorySource
from tenuto.model.prompt import Language, Piece, PromptInputs
from tenuto.model.scope import speaker_tag
from tenuto.model.values import Value
from tenuto.recall.dates import date_terms, read_query
from tenuto.recall.lexical import terms
from tenuto.recall.service import Memories, PreparedSearch, RecallResult

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
# How long a turn waits for its memories, which is far longer than they take.
_PATIENCE_SECONDS: Final = 2.0
_log = logging.getLogger(__name__)


class Recalled(Value, frozen=True, kw_only=True, gc=True):
    """What a turn knows of earlier conversations; `degraded` if memories could not be searched as usual."""

    hits: tuple[MemoryHit, ...] = ()
    preferences: str = ""
    degraded: bool = False

    def pieces(self, language: Language, names: Mapping[str, str]) -> tuple[Piece, ...]:
        """The memories for the prompt: each on one line, with its date, as a quotation. `names` are of speakers."""
        return tuple(
            Piece(id=hit.memory.id, text=quote_memory(hit.memory, language, names), score=round(hit.score, 4))
            for hit in self.hits
        )


def start_recall(memories: Memories | None, choice: Choice) -> asyncio.Task[PreparedSearch] | None:
    """Begin to load memories and to embed the question, beside the store's part of the turn.

    `None` if nothing is remembered for this caller, or by this assistant.
    """
    if memories is None or not (choice.assistant.remembers and choice.assistant.recalls):
        return None
    if not memories.policy.covers(choice.scope):
        return None
    return asyncio.create_task(memories.prepare(choice.scope, choice.request.question), name="tenuto recall")


async def finish_recall(
    memories: Memories,
    recalling: asyncio.Task[PreparedSearch],
    turn: OpenTurn,
    question: str,
    inputs: PromptInputs,
    persona: str | None,
) -> Recalled:
    """Search with the conversation known; a failure is logged, and nothing is recalled.

    Without a question there are preferences only.
    """
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            prepared = await asyncio.shield(recalling)
        query = MemoryQuery(
            text=question,
            limit=_FETCHED,
            kinds=(MemoryKind.FACT, MemoryKind.EPISODE),
            persona=persona,
            talk=tuple([message.text for message in inputs.history[-_TALK:] if message.text]),
        )
        result = await prepared.search(query) if question else RecallResult((), degraded=False)
    except Exception as error:
        # Whatever fails here, the conversation goes on without memories.
        _log.warning("recall failed: %s", type(error).__name__)
        return Recalled(degraded=True)
    topic = _Question(question, memories.now())
    hits = [hit for hit in result.hits if topic.is_about(hit) and not _is_in_window(hit.memory, turn)]
    return Recalled(
        hits=tuple(hits[:_SHOWN]),
        preferences=quote_preferences(prepared.preferences(persona)),
        # Nothing is missing where the search would have found no vector to compare the question with.
        degraded=result.degraded and prepared.has_vectors,
    )


async def cancel_recall(recalling: asyncio.Task[PreparedSearch] | None) -> None:
    """End a search whose turn does not need it any more."""
    if recalling is None:
        return
    if not recalling.done():
        recalling.cancel()
        await asyncio.wait({recalling})
    if not recalling.cancelled():
        # The turn has ended, so its failure is not raised.
        recalling.exception()


def quote_memory(memory: Memory, language: Language, names: Mapping[str, str]) -> str:
    """A memory as a line of the prompt: when, who, and the words in quotation marks."""
    words = WORDING[language]
    if memory.kind is MemoryKind.EPISODE:
        who = words.earlier_talk
    elif memory.source is not MemorySource.QUOTE:
        who = words.noted
    elif memory.speaker:
        who = words.speaker_said.format(name=names.get(memory.speaker) or words.member.rstrip(": "))
    else:
        who = words.user_said
    return f"{_day(memory.said_at)}, {who}: {quote_text(memory.text)}"


def quote_preferences(preferences: Sequence[Memory]) -> str:
    """The newest preferences for the prompt, each quoted on a line: a user or a model wrote what it says."""
    return "\n".join(f"- {quote_text(one.text)}" for one in preferences[-_PREFERENCES:])


def tagged_names(tenant: str, names: Mapping[str, str]) -> dict[str, str]:
    """The names of speakers by the tags that memories have of them."""
    return {speaker_tag(tenant, user): name for user, name in names.items()}


class _Question:
    """What a question is about. The date of a memory counts only where the question names one."""

    def __init__(self, text: str, now: datetime) -> None:
        self._terms = set(terms(text))
        dated = read_query(text, now)
        self._only_period = dated.only
        self._dated = dated.period is not None or set(dated.terms) != self._terms

    def is_about(self, hit: MemoryHit) -> bool:
        scores = hit.scores
        if self._only_period or scores.cosine >= _LEAST_SIMILARITY:
            return True
        days = () if self._dated else date_terms(hit.memory.said_at)
        shared = [term for term in scores.terms if term not in days]
        enough = len(shared) >= max(1, len(self._terms) * _LEAST_TERMS)
        return bool(shared) and (scores.coverage >= _LEAST_COVERAGE or enough)


def _is_in_window(memory: Memory, turn: OpenTurn) -> bool:
    """Whether the memory stands in the loaded window of its own session."""
    if memory.session_id != turn.session.id or not memory.seqs or not turn.window:
        return False
    return memory.seqs[-1] >= max(turn.window[0].seq, turn.context_start)


def _day(moment: datetime) -> str:
    return moment.date().isoformat()
