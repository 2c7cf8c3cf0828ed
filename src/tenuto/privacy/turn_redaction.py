"""The privacy policy as a turn meets it: what may be said, shown to a model, and told of afterwards.

What is going to be cut is looked at before: half a value is no longer found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from tenuto.model import Message, Scope, Session
from tenuto.model.message import is_summary
from tenuto.model.privacy import Mode, Sink
from tenuto.model.prompt import Piece, PromptInputs
from tenuto.model.turn import Trace
from tenuto.model.values import Json
from tenuto.privacy.crypto.vault import neutralize_text, restore_text
from tenuto.privacy.record_redaction import redact_draft, redact_trace
from tenuto.privacy.redactor import Redactor, Slot, fill_part_slots, fill_slots, part_slots, slots


class TurnRedaction:
    """The redactor, for one step of a turn at a time."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    @property
    def degraded(self) -> bool:
        """Whether the outside detector does not answer at present."""
        return self._redactor.degraded

    async def admit(self, scope: Scope, text: str) -> None:
        """Refuse words that may be neither stored nor shown to a model.

        Raises:
            PrivateData: a policy blocks what is in them; it names the types, not the values.
        """
        policy = self._redactor.policies.of(scope)
        if Mode.BLOCK in (policy.message, policy.model):
            await self._redactor.refuse(scope, [Slot(text)])

    async def for_title(self, scope: Scope, text: str) -> str:
        """A text that a title may be made of."""
        return await self._redactor.for_title(scope, text)

    def own_words(self, scope: Scope, text: str) -> str:
        """A text that somebody gave us for a prompt, without marks: those in it were typed, and open nothing."""
        return neutralize_text(text) if self._redactor.uses_vault(scope) else text

    async def restore(self, session: Session, value: Json) -> Json:
        """A value of the session's own with what its marks stand for, for the session's own turn."""
        values = await self._redactor.values(session)
        return fill_slots(value, (restore_text(slot.text, values) for slot in slots(value))) if values else value

    async def redact_prompt_inputs(
        self, scope: Scope, session: Session | None, materials: PromptInputs
    ) -> PromptInputs | None:
        """What a prompt is made of, as a model may be shown it; `None` where it may be shown everything."""
        if self._redactor.mode(Sink.MODEL, scope) is Mode.KEEP:
            return None
        found = _slots(materials, typed=self._redactor.has_typed_placeholders(scope))
        redaction = await self._redactor.texts(Sink.MODEL, scope, session, found)
        return _fill_prompt_slots(materials, redaction.texts)

    async def before_cut(
        self, scope: Scope, text: str, sinks: Iterable[Sink], shown: int | None = None
    ) -> tuple[str, Mapping[str, int]]:
        """A text that will be cut and then go to these sinks, and what was taken out of it; nothing gets a pseudonym.

        What a sink keeps stays. Where no more than `shown` characters will be left, no more than that is looked for.
        """
        strict = next((sink for sink in sinks if self._redactor.mode(sink, scope) is not Mode.KEEP), None)
        if strict is None:
            return text, {}
        # What one sink had taken out no other one finds any more, so the text is searched once.
        redaction = await self._redactor.ends(strict, scope, text, len(text) if shown is None else shown)
        return redaction.texts[0], redaction.taken

    async def redact_trace(self, scope: Scope, trace: Trace) -> Trace:
        """A trace that was not stored, as it might have been; nothing gets a pseudonym."""
        return await redact_trace(self._redactor, scope, None, trace)


def _slots(materials: PromptInputs, *, typed: bool) -> list[Slot]:
    """Every text a prompt is made of. Marks that were `typed` are escaped; those in a summary are always ours."""
    pieces = (*(materials.memories or ()), *(materials.evidence or ()))
    said = [Slot(materials.question), *(slot for message in materials.history for slot in part_slots(message.parts))]
    said += [Slot(piece.text) for piece in pieces]
    if typed:
        said = [slot._replace(text=neutralize_text(slot.text)) for slot in said]
    return [Slot(materials.system), Slot(materials.preferences), Slot(materials.summary), *said]


def _fill_prompt_slots(materials: PromptInputs, texts: Iterable[str]) -> PromptInputs:
    """The materials with other texts, taken in the order of `_slots`. What was counted before counts no more."""
    filled = iter(texts)
    system, preferences, summary, question = (next(filled) for _ in range(4))

    def message(one: Message) -> Message:
        parts = fill_part_slots(one.parts, filled)
        return one if parts == one.parts else replace(one, parts=parts, tokens=0)

    def piece(one: Piece) -> Piece:
        text = next(filled)
        return one if text == one.text else replace(one, text=text, tokens=0)

    return replace(
        materials,
        system=system,
        preferences=preferences,
        summary=summary,
        question=question,
        question_tokens=materials.question_tokens if question == materials.question else 0,
        history=tuple([message(one) for one in materials.history]),
        memories=None if materials.memories is None else tuple(map(piece, materials.memories)),
        evidence=None if materials.evidence is None else tuple(map(piece, materials.evidence)),
    )


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
