"""Setting a session's title after a turn: the small model's, or the first line of the question without one."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from tenuto.compare_and_set import retry_on_conflict
from tenuto.errors import SessionNotFound, Unavailable
from tenuto.model import Session
from tenuto.model.generation import TurnSnapshot
from tenuto.privacy.turn_redaction import UpkeepRedaction
from tenuto.sessions import Sessions
from tenuto.sessions.model_titles import ModelTitle, TitleFault, cut_title, read_title, title_request
from tenuto.sessions.titles import TitleSource, fallback_title, generated_title, title_changes
from tenuto.upkeep.jobs import SmallModel

_TITLE_TOKENS: Final = 64


class Titler:
    """Sets titles; a user's rename during generation wins."""

    def __init__(self, *, sessions: Sessions, model: SmallModel | None, redaction: UpkeepRedaction) -> None:
        self._sessions = sessions
        self._model = model
        self._redaction = redaction

    async def title(self, turn: TurnSnapshot) -> None:
        """Set a title. If the model gives none, the fallback stays and a later turn tries again.

        A title that is too long, and an answer that is no title alone, is asked for once more; then it is cut.
        """
        text: str | None = None
        try:
            if self._model is not None:
                text = await self._generate(turn, self._model)
        finally:
            # A session without any title gets the fallback even if the model failed.
            await self._store(turn, text)

    async def _generate(self, turn: TurnSnapshot, model: SmallModel) -> str | None:
        question, answer = [
            self._redaction.for_model(turn.scope, await self._redaction.for_title(turn.session, text))
            for text in (turn.question, turn.answer)
        ]
        title = await self._ask(turn, model, question, answer)
        if title.fault is not None:
            try:
                title = await self._ask(turn, model, question, answer, title.fault)
            except Unavailable:
                if title.text is None:
                    raise
        if title.text is None:
            return None
        # Redacted before it is cut: a part of a private value would not be recognised.
        text = await self._redaction.for_title(turn.session, title.text)
        return cut_title(text, question, turn.policies.sessions.title_characters)

    async def _ask(
        self, turn: TurnSnapshot, model: SmallModel, question: str, answer: str, fault: TitleFault | None = None
    ) -> ModelTitle:
        system, text = title_request(question, answer, fault)
        prompt = await self._redaction.to_model(turn.scope, text)
        completion = await model(turn.scope, system, prompt, _TITLE_TOKENS)
        return read_title(completion, question, answer, turn.policies.sessions.title_characters)

    async def _store(self, turn: TurnSnapshot, text: str | None) -> None:
        question, limit = turn.question, turn.policies.sessions.fallback_title_characters
        replacement = fallback_title(await self._redaction.for_title(turn.session, question), turn.language, limit)

        async def attempt() -> None:
            session = await self._sessions.get(turn.scope, turn.session.id)
            if session.incarnation != turn.session.incarnation or _is_superseded(session, turn.session):
                return
            changes = title_changes(session, text, TitleSource.MODEL, replacement)
            if changes is not None:
                await self._sessions.patch(turn.scope, session.id, changes)

        with suppress(SessionNotFound):
            await retry_on_conflict(attempt)


def _is_superseded(session: Session, before: Session) -> bool:
    """Whether the messages that this title is made of were removed meanwhile: a later turn sets another one."""
    now, then = generated_title(session), generated_title(before)
    return now is not None and now.stale and (then is None or now.tried_at != then.tried_at)
