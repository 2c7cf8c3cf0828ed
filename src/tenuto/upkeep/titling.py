"""Finding a session its title: a small model's, or a phrase of the talk where there is no model."""

from __future__ import annotations

import asyncio
from typing import Final

from tenuto.errors import ModelFailed, SessionNotFound, VersionConflict
from tenuto.model import Session
from tenuto.model.talk import TurnEnded
from tenuto.privacy.upkeep_redaction import UpkeepRedaction
from tenuto.sessions import Sessions
from tenuto.sessions.titles import By, clipped, fallback, from_talk, made, tidy, title_request, titled
from tenuto.upkeep.small import Small

_TIMEOUT_SECONDS: Final = 30.0
_TITLE_TOKENS: Final = 64


class Titler:
    """Gives titles; a name that somebody gave meanwhile stays."""

    def __init__(self, *, sessions: Sessions, small: Small | None, redaction: UpkeepRedaction) -> None:
        self._sessions = sessions
        self._small = small
        self._redaction = redaction

    async def title(self, ended: TurnEnded) -> None:
        """Find a title and give it. When none is found the fallback stays, and a later turn tries again."""
        text: str | None = None
        try:
            text = await self._found(ended)
        finally:
            # Whatever became of the search, a session without any title gets the fallback.
            await self._give(ended, text)

    async def _found(self, ended: TurnEnded) -> str | None:
        question = await self._redaction.for_title(ended.scope, ended.question)
        answer = await self._redaction.for_title(ended.scope, ended.answer)
        if self._small is None:
            return from_talk(question, answer, ended.language)
        question, answer = (self._redaction.for_model(ended.scope, text) for text in (question, answer))
        system, text = title_request(question, answer, ended.language)
        shown = await self._redaction.to_model(ended.scope, text)
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                said = await self._small(ended.scope, system, shown, _TITLE_TOKENS)
        except TimeoutError:
            raise ModelFailed("for titles", "took too long") from None
        title = tidy(said, ended.language)
        return clipped(await self._redaction.for_title(ended.scope, title)) if title is not None else None

    async def _give(self, ended: TurnEnded, text: str | None) -> None:
        by = By.EXTRACT if self._small is None else By.MODEL
        instead = fallback(await self._redaction.for_title(ended.scope, ended.question), ended.language)
        while True:
            try:
                session = await self._sessions.get(ended.scope, ended.session.id)
                if session.incarnation != ended.session.incarnation or _overtaken(session, ended.session):
                    return
                changes = titled(session, text, by, instead)
                if changes is not None:
                    await self._sessions.patch(ended.scope, session.id, changes)
            except VersionConflict:
                # Somebody changed the session in this moment; look again whether the title is still ours to give.
                continue
            except SessionNotFound:
                return
            return


def _overtaken(session: Session, left: Session) -> bool:
    """Whether the words that this title is made of were taken back meanwhile: a later turn makes another one."""
    now, then = made(session), made(left)
    return now is not None and now.stale and (then is None or now.tried_at != then.tried_at)
