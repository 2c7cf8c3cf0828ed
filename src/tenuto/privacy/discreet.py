"""The privacy policy as upkeep meets it: what titles and summaries are made of, and what becomes of past words."""

from __future__ import annotations

from collections.abc import Sequence

from tenuto.model import Message, Scope, Session
from tenuto.model.message import is_summary
from tenuto.model.privacy import Mode, Sink
from tenuto.privacy.pages import screened_draft
from tenuto.privacy.screening import Screen


class Discreet:
    """Upkeep's `Discretion`, by the policies of a screen."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    async def for_title(self, scope: Scope, text: str) -> str:
        """A text that a title may be made of."""
        return await self._screen.for_title(scope, text)

    def for_summary(self, scope: Scope, text: str) -> str:
        """A text that a summary may be made of."""
        return self._screen.redacted(Sink.SUMMARY, scope, text)

    def for_model(self, scope: Scope, text: str) -> str:
        """A part of what a model may be shown."""
        return self._screen.for_model(scope, text)

    async def to_model(self, scope: Scope, text: str) -> str:
        """A whole request to a model."""
        return await self._screen.to_model(scope, text)

    async def retired(self, session: Session, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Messages that a summary speaks for from now on, as they shall read: those that change."""
        scope = session.scope
        if self._screen.mode(Sink.PAST, scope) is Mode.KEEP:
            return ()
        changed = []
        for message in messages:
            past = message
            if not is_summary(message):
                past = await screened_draft(self._screen, Sink.PAST, scope, session, message)
            if past is not message:
                changed.append(past)
        return tuple(changed)
