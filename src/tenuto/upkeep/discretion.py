"""What private data becomes in what follows a turn: titles, summaries, and the words a summary has taken over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tenuto.model import Message, Scope, Session


class Discretion(Protocol):
    """The privacy policy, as upkeep meets it."""

    async def for_title(self, scope: Scope, text: str) -> str:
        """A text that a title may be made of."""
        ...

    def for_summary(self, scope: Scope, text: str) -> str:
        """A text that a summary may be made of."""
        ...

    def for_model(self, scope: Scope, text: str) -> str:
        """A part of what a model may be shown, before it is cut."""
        ...

    async def to_model(self, scope: Scope, text: str) -> str:
        """A whole request to a model, for those who take their time to look: it goes out as they leave it."""
        ...

    async def retired(self, session: Session, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Messages that a summary speaks for from now on, as they shall read: those that change."""
        ...


class Indiscreet:
    """Keeps everything as it is: for programs that leave privacy to others."""

    async def for_title(self, scope: Scope, text: str) -> str:
        return text

    def for_summary(self, scope: Scope, text: str) -> str:
        return text

    def for_model(self, scope: Scope, text: str) -> str:
        return text

    async def to_model(self, scope: Scope, text: str) -> str:
        return text

    async def retired(self, session: Session, messages: Sequence[Message]) -> tuple[Message, ...]:
        return ()
