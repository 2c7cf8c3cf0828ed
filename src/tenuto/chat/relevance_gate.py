"""The relevance gate by embeddings: whether the history is relevant to a question (B10).

It runs after the lexical gate, for assistants that have one. If the embedder does not answer in time, the lexical
decision stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tenuto.context import near_enough, points_back, spoken
from tenuto.model import Message
from tenuto.model.generation import ToolContext
from tenuto.model.prompt import PromptInputs
from tenuto.privacy.turn_redaction import TurnRedaction
from tenuto.recall.embedding import CachedEmbedder

DEGRADED: Final = "embedder"
_RECENT: Final = 12


class Gate:
    """Compares questions with the history."""

    def __init__(self, embedder: CachedEmbedder, redaction: TurnRedaction) -> None:
        self._embedder = embedder
        self._redaction = redaction

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
        vectors = await self._embedder.embed(asked.scope, texts)
        return None if vectors is None else near_enough(vectors[0], vectors[1:], relevance)


def _recent_messages(history: Sequence[Message], start: int) -> Sequence[Message]:
    """The newest messages within the context."""
    return [message for message in history if message.seq >= start and spoken((message,))][-_RECENT:]
