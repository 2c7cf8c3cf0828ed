"""The privacy policy for a turn and for the upkeep that follows it.

Texts that will be cut are redacted before: half a value would not be found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial

from msgspec.structs import replace

from tenuto.errors import PrivateData
from tenuto.model import Draft, Message, Scope, Session
from tenuto.model.media import shows_media
from tenuto.model.message import is_summary
from tenuto.model.privacy import ATTACHMENT_TYPE, AttachmentMode, Mode, Sink
from tenuto.model.prompt import Piece, PromptInputs
from tenuto.model.scope import speaker_tag
from tenuto.model.session import record_types
from tenuto.model.turn import Trace
from tenuto.model.values import Json, JsonObject
from tenuto.privacy.json_texts import Replace, Slot, collect_slots, neutralizing, replace_part_texts, replace_texts
from tenuto.privacy.placeholders import neutralize_text, restore_text
from tenuto.privacy.record_redaction import MessageRedaction, draft_slots, redact_stored, redact_trace
from tenuto.privacy.redactor import WITHHELD, Redactor


class TurnRedaction:
    """The redactor for the steps of a turn."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    @property
    def degraded(self) -> bool:
        """Whether the external detector does not answer at present."""
        return self._redactor.degraded

    async def admit(
        self, scope: Scope, text: str, messages: Sequence[Draft] = (), parts: Sequence[JsonObject] = ()
    ) -> None:
        """Refuse a text and the `parts` beside it, or messages, that may not be stored or shown to a model.

        Raises:
            PrivateData: the policy blocks its content; the error names types, not values.
        """
        policy = self._redactor.policy(scope)
        modes, attachments = policy.modes, policy.attachments
        if AttachmentMode.BLOCK in (attachments[Sink.MESSAGE], attachments[Sink.MODEL]) and (
            parts or shows_media(messages)
        ):
            raise PrivateData([ATTACHMENT_TYPE])
        if Mode.BLOCK in (modes[Sink.MESSAGE], modes[Sink.MODEL]):
            _, beside = collect_slots(lambda new_text: replace_part_texts(parts, new_text))
            of_messages = [slot for one in messages for slot in draft_slots(one)]
            await self._redactor.refuse(scope, [Slot(text), *beside, *of_messages])

    def for_records(self, types: Iterable[str]) -> TurnRedaction:
        """The same for titles and traces of an assistant to which these types are private as well."""
        redactor = self._redactor.looking_for(types)
        return self if redactor is self._redactor else TurnRedaction(redactor)

    async def for_title(self, scope: Scope, text: str) -> str:
        """A text that a title may be made of."""
        return await self._redactor.for_title(scope, text)

    def own_words(self, scope: Scope, text: str) -> str:
        """A text of a caller for a prompt, with neutralized placeholders: they were typed, and must not be restored."""
        return neutralize_text(text) if self._redactor.policy(scope).uses_vault else text

    def restores_for_model(self, scope: Scope) -> bool:
        """Whether a model sees values where stored texts have placeholders of the vault."""
        policy = self._redactor.policy(scope)
        return policy.uses_vault and policy.modes[Sink.MODEL] is Mode.KEEP

    async def digest_key(self, scope: Scope, trace_id: str, *, create: bool = False) -> tuple[str, bytes]:
        """The name and the key of the digests in a trace; without a master key both are this machine's, else the name
        is empty and the key as `Vault.digest_key` says."""
        vault, machine_key = self._redactor.vault, self._redactor.machine_key
        if vault is None:
            return machine_key.name, machine_key.derive(trace_id)
        return "", await vault.digest_key(scope, trace_id, create=create)

    def shows_media_to_model(self, scope: Scope) -> bool:
        """Whether a model gets the pictures, sounds and files of a conversation."""
        return self._redactor.policy(scope).attachments[Sink.MODEL] is AttachmentMode.KEEP

    def names_media(self, scope: Scope) -> bool:
        """Whether titles, summaries and memories name the pictures, sounds and files of a conversation."""
        return self._redactor.policy(scope).attachments[Sink.MEMORY] is AttachmentMode.KEEP

    async def restore(self, session: Session, value: Json) -> Json:
        """A value of the session with its placeholders restored, for the session's own turn."""
        values = await self._redactor.values(session)
        return replace_texts(value, lambda slot: restore_text(slot.text, values)) if values else value

    async def as_stored(self, session: Session, drafts: Sequence[Draft]) -> tuple[Draft, ...]:
        """Messages of a request as the session has them."""
        redaction = MessageRedaction(self._redactor, session.scope)
        return await redaction.messages(session, redaction.neutralize_drafts(tuple(drafts)), whole=False)

    async def redact_prompt_inputs(
        self, scope: Scope, session: Session | None, inputs: PromptInputs
    ) -> PromptInputs | None:
        """The prompt inputs redacted for a model; `None` where the model may see everything."""
        policy = self._redactor.policy(scope)
        if policy.modes[Sink.MODEL] is Mode.KEEP:
            return None
        walk = partial(_replace_prompt_texts, inputs, scope.tenant, policy.has_typed_placeholders)
        return (await self._redactor.redact_walk(Sink.MODEL, scope, session, walk))[0]

    async def before_cut(
        self, scope: Scope, text: str, sinks: Iterable[Sink], shown: int | None = None
    ) -> tuple[str, Mapping[str, int]]:
        """A text redacted for these sinks before it is cut, and counts of what was redacted; without pseudonyms.

        If all sinks keep private data, the text stays. With `shown`, only characters that will be left are searched.
        """
        modes = self._redactor.policy(scope).modes
        strict = next((sink for sink in sinks if modes[sink] is not Mode.KEEP), None)
        if strict is None:
            return text, {}
        # Once redacted for one sink, the text has nothing left for the others: it is searched once.
        redaction = await self._redactor.ends(strict, scope, text, len(text) if shown is None else shown)
        return redaction.texts[0], redaction.redacted

    def keeps_messages(self, scope: Scope) -> bool:
        """Whether messages are stored as they are said."""
        return self._redactor.mode(Sink.MESSAGE, scope) is Mode.KEEP

    async def as_message(self, scope: Scope, value: Json) -> Json:
        """A value with its texts as a message may store them; without pseudonyms."""
        walk = partial(replace_texts, value)
        return (await self._redactor.redact_walk(Sink.MESSAGE, scope, None, walk))[0]

    async def redact_trace(self, scope: Scope, trace: Trace) -> Trace:
        """A trace that was not stored, redacted as for the store; without pseudonyms."""
        return await redact_trace(self._redactor, scope, None, trace)


def _replace_prompt_texts(inputs: PromptInputs, tenant: str, typed: bool, new_text: Replace) -> PromptInputs:
    """The inputs with their texts replaced. Token counts of changed texts are reset.

    `typed` placeholders are neutralized before; those in a summary are always ours.
    """

    new_typed_text = neutralizing(new_text) if typed else new_text

    def message(one: Message) -> Message:
        parts = replace_part_texts(one.parts, new_typed_text)
        return one if parts == one.parts else replace(one, parts=parts, tokens=0)

    def name(user: str, given: str) -> str:
        # Two names may become the same placeholder.
        text = new_typed_text(Slot(given))
        return text if text == given else f"{text} {speaker_tag(tenant, user)}"

    def piece(one: Piece) -> Piece:
        text = new_typed_text(Slot(one.text))
        return one if text == one.text else replace(one, text=text, tokens=0)

    question = new_typed_text(Slot(inputs.question))
    return replace(
        inputs,
        system=new_text(Slot(inputs.system)),
        preferences=new_text(Slot(inputs.preferences)),
        summary=new_text(Slot(inputs.summary)),
        question=question,
        question_parts=replace_part_texts(inputs.question_parts, new_typed_text),
        question_tokens=inputs.question_tokens if question == inputs.question else 0,
        instructions=new_typed_text(Slot(inputs.instructions)),
        history=tuple([message(one) for one in inputs.history]),
        memories=None if inputs.memories is None else tuple(map(piece, inputs.memories)),
        evidence=None if inputs.evidence is None else tuple(map(piece, inputs.evidence)),
        chat_context=tuple(map(piece, inputs.chat_context)),
        speaker_names={user: name(user, given) for user, given in inputs.speaker_names.items()},
    )


class UpkeepRedaction:
    """The redactor for the upkeep after a turn."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    async def for_title(self, session: Session, text: str) -> str:
        """A text that a title of this session may be made of."""
        return await self._redactor.for_records(session.metadata).for_title(session.scope, text)

    def for_summary(self, scope: Scope, text: str) -> str:
        """A text that a summary may be made of."""
        return self._redactor.redact(Sink.SUMMARY, scope, text)

    def names_media(self, scope: Scope) -> bool:
        """Whether summaries and memories name the pictures, sounds and files of a conversation."""
        return self._redactor.policy(scope).attachments[Sink.MEMORY] is AttachmentMode.KEEP

    def for_model(self, scope: Scope, text: str) -> str:
        """A part of a model request, redacted before it is cut; without pseudonyms."""
        if self._redactor.mode(Sink.MODEL, scope) is Mode.KEEP:
            return text
        return self._redactor.policies.finder(scope).redact(text)

    async def for_memory(self, session: Session, types: Iterable[str], said: str, notes: Sequence[str]) -> list[str]:
        """Notes on what was `said` in this session, as they may be remembered; of a withheld one nothing is left.

        `types` are those that the assistant keeps out of its records, besides those that the session notes.
        """
        redactor = self._redactor.looking_for({*record_types(session.metadata), *types})
        # Together: a value that its context shows in the message is found in a note without it.
        slots = [Slot(said), *map(Slot, notes)]
        clean = (await redactor.texts(Sink.MEMORY, session.scope, None, slots)).texts[1:]
        return ["" if text == WITHHELD else text for text in clean]

    async def to_model(self, scope: Scope, text: str) -> str:
        """A whole request to a model: the external detector is asked as well."""
        return (await self._redactor.texts(Sink.MODEL, scope, None, [Slot(text)])).texts[0]

    async def redact_past(self, session: Session, messages: Sequence[Message], now: datetime) -> tuple[Message, ...]:
        """Messages that a summary now covers, redacted if the policy asks for it: only those that change."""
        scope = session.scope
        if self._redactor.mode(Sink.PAST, scope) is Mode.KEEP:
            return ()
        changed = []
        for message in messages:
            past = message
            if not is_summary(message):
                past = await redact_stored(self._redactor, Sink.PAST, scope, session, message, now)
            if past is not message:
                changed.append(past)
        return tuple(changed)
