"""Setting a session's title after a turn: the small model's, or the first line of the question without one."""

from __future__ import annotations

import asyncio
from typing import Final

from tenuto.errors import ModelFailed, SessionNotFound, VersionConflict
from tenuto.model import Session
from tenuto.model.generation import TurnEnded
from tenuto.privacy.turn_redaction import UpkeepRedaction
from tenuto.sessions import Sessions
from tenuto.sessions.titles import (
    TitleSource,
    clean_title,
    clip_title,
    fallback_title,
    generated_title,
    title_changes,
    title_request,
)
from tenuto.upkeep.jobs import Small

_TIMEOUT_SECONDS: Final = 30.0
_TITLE_TOKENS: Final = 64
_PAUSE_SECONDS: Final = 0.1


class Titler:
    """Sets titles; a user's rename during generation wins."""

    def __init__(self, *, sessions: Sessions, small: Small | None, redaction: UpkeepRedaction) -> None:
        self._sessions = sessions
        self._small = small
        self._redaction = redaction

    async def title(self, ended: TurnEnded) -> None:
        """Set a title. If the model gives none, the fallback stays and a later turn tries again."""
        text: str | None = None
        try:
            if self._small is not None:
                text = await self._generate(ended, self._small)
        finally:
            # A session without any title gets the fallback even if the model failed.
            await self._store(ended, text)

    async def _generate(self, ended: TurnEnded, small: Small) -> str | None:
        question, answer = [
            self._redaction.for_model(ended.scope, await self._redaction.for_title(ended.session, text))
            for text in (ended.question, ended.answer)
        ]
        system, text = title_request(question, answer)
        prompt = await self._redaction.to_model(ended.scope, text)
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                completion = await small(ended.scope, system, prompt, _TITLE_TOKENS)
        except TimeoutError:
            raise ModelFailed("for titles", "took too long") from None
        limit = ended.policies.sessions.title_characters
        title = clean_title(completion, question, limit)
        return clip_title(await self._redaction.for_title(ended.session, title), limit) if title is not None else None

    async def _store(self, ended: TurnEnded, text: str | None) -> None:
        question, limit = ended.question, ended.policies.sessions.fallback_title_characters
        replacement = fallback_title(await self._redaction.for_title(ended.session, question), ended.language, limit)
        while True:
            try:
                session = await self._sessions.get(ended.scope, ended.session.id)
                if session.incarnation != ended.session.incarnation or _is_superseded(session, ended.session):
                    return
                changes = title_changes(session, text, TitleSource.MODEL, replacement)
                if changes is not None:
                    await self._sessions.patch(ended.scope, session.id, changes)
            except VersionConflict:
                # The session changed since it was read: check again whether the title may still be set. Not at once:
                # turns that follow each other without a pause change it each time.
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            except SessionNotFound:
                return
            return


def _is_superseded(session: Session, before: Session) -> bool:
    """Whether the messages that this title is made of were removed meanwhile: a later turn sets another one."""
    now, then = generated_title(session), generated_title(before)
    return now is not None and now.stale and (then is None or now.tried_at != then.tried_at)
