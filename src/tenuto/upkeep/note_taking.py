"""Having a model take notes on what a user said: one request for a batch of messages, and one more if it fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from tenuto.model import Message
from tenuto.model.generation import TurnSnapshot
from tenuto.privacy.turn_redaction import UpkeepRedaction
from tenuto.upkeep.jobs import SmallModel
from tenuto.upkeep.model_notes import (
    NOTES_SCHEMA,
    NOTES_SYSTEM,
    CapturedNote,
    batches,
    notes_text,
    notes_tokens,
    read_notes,
)
from tenuto.upkeep.quotes import READ

_REQUESTS_AT_ONCE: Final = 4
_log = logging.getLogger(__name__)


class NoteTaker:
    """Asks the model; without one, all is to be quoted."""

    def __init__(self, *, model: SmallModel | None, redaction: UpkeepRedaction) -> None:
        self._model = model
        self._redaction = redaction
        self._requests = asyncio.Semaphore(_REQUESTS_AT_ONCE)

    async def take_notes(self, turn: TurnSnapshot, messages: Sequence[Message]) -> list[list[CapturedNote] | None]:
        """What the model notes of each message; `None` for one whose sentences are to be quoted instead."""
        model = self._model
        if model is None:
            return [None] * len(messages)
        texts = await asyncio.gather(*[self._redaction.to_model(turn.scope, one.text[:READ]) for one in messages])
        parts = [texts[part.start : part.stop] for part in batches(texts)]
        results = await asyncio.gather(*[self._ask(model, turn, part) for part in parts])
        return [notes for each in results for notes in each]

    async def _ask(
        self, model: SmallModel, turn: TurnSnapshot, texts: Sequence[str]
    ) -> list[list[CapturedNote] | None]:
        system, tokens = NOTES_SYSTEM[turn.language], notes_tokens(texts)
        why = "whose answer was unusable"
        for again in (False, True):
            request = notes_text(texts, turn.language, again=again)
            try:
                async with self._requests:
                    answer = await model(turn.scope, system, request, tokens, NOTES_SCHEMA)
            except Exception as error:
                # Quotations replace any failed model; the message of the exception may quote user text.
                why = f"which failed: {type(error).__name__}"
                break
            notes = read_notes(answer, texts)
            if notes is not None:
                return notes
        _log.warning("%s messages were quoted without the model, %s", len(texts), why)
        return [None] * len(texts)
