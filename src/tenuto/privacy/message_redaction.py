"""Messages and session heads on their way into the store."""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import replace

from tenuto.model import Changes, Draft, NewSession, Scope, Session
from tenuto.model.message import STATE, is_summary
from tenuto.model.privacy import Mode, Sink
from tenuto.model.session import MAX_TITLE_CHARACTERS
from tenuto.privacy.crypto.vault import neutralize_text
from tenuto.privacy.record_redaction import draft_slots, redact_draft, redact_session_values
from tenuto.privacy.redactor import Redactor
from tenuto.privacy.text_slots import Slot, fill_part_slots, fill_slots, part_slots, slots

_Head = TypeVar("_Head", NewSession, Changes)


class MessageRedaction:
    """The redactor, for what is going to be stored. Without a session there is no vault: values are redacted."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    async def admit_messages(self, scope: Scope, words: tuple[Draft, ...]) -> tuple[Draft, ...]:
        """Words as they came in: refused where the policy blocks what is in them, and without marks that were typed.

        Raises:
            PrivateData: a policy blocks what is in them.
        """
        if self._redactor.mode(Sink.MESSAGE, scope) is Mode.BLOCK:
            for draft in words:
                if not is_summary(draft):
                    await self._redactor.refuse(scope, draft_slots(draft))
        return self.neutralize_drafts(scope, words)

    def neutralize_drafts(self, scope: Scope, words: tuple[Draft, ...]) -> tuple[Draft, ...]:
        """Words without marks: those in them were typed by somebody, or made up. A summary's are ours."""
        if self._redactor.mode(Sink.MESSAGE, scope) is not Mode.PSEUDONYM:
            return words
        return tuple(draft if is_summary(draft) else _neutralize_draft(draft) for draft in words)

    async def messages(self, scope: Scope, session: Session | None, drafts: tuple[Draft, ...]) -> tuple[Draft, ...]:
        """Messages as they may be stored; the very same where nothing is to be done."""
        if self._redactor.mode(Sink.MESSAGE, scope) is Mode.KEEP and not any(map(is_summary, drafts)):
            return drafts
        return tuple([await redact_draft(self._redactor, _sink_of(draft), scope, session, draft) for draft in drafts])

    async def head(self, scope: Scope, session: Session | None, head: _Head) -> _Head:
        """A head, or what is to change in one."""
        title = head.title
        if title and isinstance(title, str):
            head = replace(head, title=await self.title(scope, session, title))
        if self._redactor.mode(Sink.MESSAGE, scope) is Mode.KEEP:
            return head
        values = (head.context, head.attributes, head.metadata)
        context, attributes, metadata = await redact_session_values(
            self._redactor, Sink.MESSAGE, scope, session, values
        )
        return replace(head, context=context, attributes=attributes, metadata=metadata)

    async def title(self, scope: Scope, session: Session | None, title: str) -> str:
        """A title; marks may be longer than what they stand for."""
        redaction = await self._redactor.texts(Sink.TITLE, scope, session, [Slot(title)])
        return redaction.texts[0][:MAX_TITLE_CHARACTERS]


def _sink_of(draft: Draft) -> Sink:
    return Sink.SUMMARY if is_summary(draft) else Sink.MESSAGE


def _neutralize_draft(draft: Draft) -> Draft:
    parts = fill_part_slots(draft.parts, (neutralize_text(slot.text) for slot in part_slots(draft.parts)))
    if STATE not in draft.metadata:
        return replace(draft, parts=parts)
    # The next turn opens the marks it finds there.
    state = draft.metadata[STATE]
    state = fill_slots(state, (neutralize_text(slot.text) for slot in slots(state)))
    return replace(draft, parts=parts, metadata={**draft.metadata, STATE: state})
