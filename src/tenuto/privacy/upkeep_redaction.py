"""The privacy policy as upkeep meets it: what titles and summaries are made of, and what becomes of past words."""

from __future__ import annotations

from collections.abc import Sequence

from tenuto.model import Message, Scope, Session
from tenuto.model.message import is_summary
from tenuto.model.privacy import Mode, Sink
from tenuto.privacy.record_redaction import redact_draft
from tenuto.privacy.redactor import Redactor
from tenuto.privacy.text_slots import Slot


class UpkeepRedaction:
    """The redactor, for one part of the work that follows a turn at a time."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    async def for_title(self, scope: Scope, text: str) -> str:
        """A text that a title may be made of."""
        return await self._redactor.for_title(scope, text)

    def for_summary(self, scope: Scope, text: str) -> str:
        """A text that a summary may be made of."""
        return self._redactor.redact(Sink.SUMMARY, scope, text)

    def for_model(self, scope: Scope, text: str) -> str:
        """A part of what a model may be shown, before it is cut: what it may not see in the clear is redacted."""
        if self._redactor.mode(Sink.MODEL, scope) is Mode.KEEP:
            return text
        return self._redactor.policies.finder(scope).redact(text)

    async def to_model(self, scope: Scope, text: str) -> str:
        """A whole request to a model: the outside detector is asked as well."""
        return (await self._redactor.texts(Sink.MODEL, scope, None, [Slot(text)])).texts[0]

    async def redact_past(self, session: Session, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Messages that a summary speaks for from now on, as they shall read: those that change."""
        scope = session.scope
        if self._redactor.mode(Sink.PAST, scope) is Mode.KEEP:
            return ()
        changed = []
        for message in messages:
            past = message
            if not is_summary(message):
                past = await redact_draft(self._redactor, Sink.PAST, scope, session, message)
            if past is not message:
                changed.append(past)
        return tuple(changed)
