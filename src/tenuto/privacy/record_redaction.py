"""Redaction of messages, session heads and traces for a sink, with counts of what was redacted."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Final, TypeVar

from msgspec.structs import replace

from tenuto.errors import PrivateData
from tenuto.model import Changes, Draft, Message, NewSession, Scope, Session
from tenuto.model.media import shows_media, without_media
from tenuto.model.message import STATE, is_summary
from tenuto.model.privacy import ATTACHMENT_TYPE, REDACTED, REDACTED_AT, AttachmentMode, Mode, Sink
from tenuto.model.session import ASSISTANT, INTENT, MAX_TITLE_CHARACTERS, PERSONA, PERSONAS, PRIVACY_ALSO, record_types
from tenuto.model.turn import Trace
from tenuto.model.values import Json, JsonObject, replace_valid
from tenuto.privacy.json_texts import (
    ANY,
    Places,
    Replace,
    Slot,
    collect_slots,
    replace_part_texts,
    replace_texts,
    slots,
)
from tenuto.privacy.placeholders import neutralize_text
from tenuto.privacy.redactor import Redactor
from tenuto.privacy.rules.span import ON_REQUEST

_Words = TypeVar("_Words", bound=Draft)
# Values that this project writes itself, in a message's metadata and in a session's context and metadata: assistants
# and personas, which may have names like people, the model that made an answer or a title, and the ids that a request
# of the OpenAI API named.
_OF_REQUEST: Final[Places] = {"model": {}, "previous_response_id": {}, "conversation": {"id": {}}}
_IN_MESSAGE: Final[Places] = {"model": {}, "trace": {}, "openai": _OF_REQUEST, REDACTED_AT: {}}
_IN_CONTEXT: Final[Places] = {"language": {}, INTENT: {}}
_IN_HEAD: Final[Places] = {ASSISTANT: {}, PERSONA: {}, PERSONAS: {ANY: {}}, "title": {"by": {}}}


TRACE_WORDS: Final = ("request", "answer", "data", "error_message", "parameters")
"""The fields of a trace that may hold private data."""
TOOL_WORDS: Final = ("arguments", "output", "exception")
"""The same of a tool's run in it."""


def draft_slots(draft: Draft) -> list[Slot]:
    """Every text of a message that may hold private data."""
    return collect_slots(partial(replace_draft_texts, draft))[1]


def replace_draft_texts(draft: _Words, new_text: Replace) -> _Words:
    """The message with its texts replaced."""
    return replace(
        draft,
        parts=replace_part_texts(draft.parts, new_text),
        metadata=replace_texts(draft.metadata, new_text, internal=_IN_MESSAGE),
        extra=replace_texts(draft.extra, new_text),
    )


def trace_values(trace: Trace) -> list[Json]:
    """What of a trace may hold private data: `TRACE_WORDS`, then `TOOL_WORDS` of each run."""
    runs: list[Json] = [[getattr(run, name) for name in TOOL_WORDS] for run in trace.tools]
    return [*(getattr(trace, name) for name in TRACE_WORDS), runs]


def message_texts(messages: Iterable[Draft]) -> list[str]:
    """Every text of these messages that may hold private data."""
    return [slot.text for message in messages for slot in draft_slots(message)]


def trace_texts(traces: Iterable[Trace]) -> list[str]:
    """Every text of these traces that may hold private data."""
    return [slot.text for trace in traces for slot in slots(trace_values(trace))]


def session_texts(session: Session) -> list[str]:
    """Every text of a session's head."""
    return [slot.text for slot in slots([session.title, session.context, session.attributes, session.metadata])]


def state_slots(key: str, value: Json) -> list[Slot]:
    """Every text of a state value; the key is its name."""
    return slots(value, key)


async def redact_draft(
    redactor: Redactor, sink: Sink, scope: Scope, session: Session | None, draft: _Words, *, whole: bool = False
) -> _Words:
    """A message redacted for the sink; the same object if nothing was found.

    The tool state in its metadata is redacted as well, but not counted.

    Raises:
        TooManyPrivateValues: it was not searched to its end, and has to be kept `whole`.
    """
    if redactor.mode(sink, scope) is Mode.KEEP:
        return draft
    bare, kept = _split_tool_state(draft)
    changed, redacted = await redactor.redact_walk(
        sink, scope, session, partial(replace_draft_texts, bare), whole=whole
    )
    state, in_state = await redactor.redact_walk(sink, scope, session, partial(replace_texts, kept))
    if not redacted and not in_state:
        return draft
    metadata = _add_redacted_counts(changed.metadata, redacted)
    return replace(changed, metadata={**metadata, STATE: state[0]} if state else metadata)


async def redact_stored(
    redactor: Redactor, sink: Sink, scope: Scope, session: Session, message: Message, now: datetime
) -> Message:
    """A stored message redacted for the sink and marked with the time, so that readers know that it was changed."""
    changed = await redact_draft(redactor, sink, scope, session, message)
    if changed is message:
        return message
    return replace(changed, metadata={**changed.metadata, REDACTED_AT: now.isoformat()})


async def redact_session_values(
    redactor: Redactor, sink: Sink, scope: Scope, session: Session | None, values: Sequence[JsonObject]
) -> list[JsonObject]:
    """A head's context, attributes and metadata, redacted for the sink."""

    def walk(new_text: Replace) -> list[JsonObject]:
        places = zip(values, (_IN_CONTEXT, None, _IN_HEAD), strict=True)
        return [replace_texts(value, new_text, internal=internal) for value, internal in places]

    return (await redactor.redact_walk(sink, scope, session, walk))[0]


async def redact_state(redactor: Redactor, sink: Sink, scope: Scope, key: str, value: Json) -> Json:
    """A state value as it may be stored; the same object if nothing was found.

    Raises:
        TooManyPrivateValues: it was not searched to its end.
    """
    if redactor.mode(sink, scope) is Mode.KEEP:
        return value
    walk = partial(replace_texts, value, name=key)
    changed, redacted = await redactor.redact_walk(sink, scope, None, walk, whole=True)
    return changed if redacted else value


async def redact_trace(redactor: Redactor, scope: Scope, session: Session | None, trace: Trace) -> Trace:
    """A trace as it may be stored."""
    if redactor.mode(Sink.TRACE, scope) is Mode.KEEP:
        return trace
    walk = partial(replace_texts, trace_values(trace))
    after, taken = await redactor.redact_walk(Sink.TRACE, scope, session, walk)
    if not taken:
        return trace
    *words, runs = after
    tools = tuple(
        [replace(run, **dict(zip(TOOL_WORDS, each, strict=True))) for run, each in zip(trace.tools, runs, strict=True)]
    )
    redacted = dict(Counter(trace.redacted) + Counter(taken))
    return replace_valid(trace, **dict(zip(TRACE_WORDS, words, strict=True)), tools=tools, redacted=redacted)


async def redact_export_session(redactor: Redactor, session: Session) -> Session:
    """A session's head redacted for an export; the same object where exports keep private data."""
    scope, redactor = session.scope, redactor.for_records(session.metadata)
    if redactor.mode(Sink.EXPORT, scope) is Mode.KEEP:
        return session
    values = (session.context, session.attributes, session.metadata)
    context, attributes, metadata = await redact_session_values(redactor, Sink.EXPORT, scope, None, values)
    title = (await redactor.texts(Sink.EXPORT, scope, None, [Slot(session.title)])).texts[0]
    return replace(session, title=title, context=context, attributes=attributes, metadata=metadata)


async def redact_export_pages(
    redactor: Redactor, session: Session, pages: AsyncIterator[tuple[Message, ...]]
) -> AsyncIterator[tuple[Message, ...]]:
    """The pages of a session's log, redacted for an export one at a time."""
    scope, redactor = session.scope, redactor.for_records(session.metadata)
    kept = redactor.mode(Sink.EXPORT, scope) is Mode.KEEP
    drops = redactor.policy(scope).attachments[Sink.EXPORT] is not AttachmentMode.KEEP
    async for page in pages:
        if drops:
            page = without_media(page)
        if kept:
            yield page
        else:
            yield tuple([await redact_draft(redactor, Sink.EXPORT, scope, None, message) for message in page])


def _split_tool_state(draft: _Words) -> tuple[_Words, list[Json]]:
    """A message without its tool state, and that state, if there is any."""
    if STATE not in draft.metadata:
        return draft, []
    rest = {name: value for name, value in draft.metadata.items() if name != STATE}
    return replace(draft, metadata=rest), [draft.metadata[STATE]]


def _add_redacted_counts(metadata: JsonObject, taken: Mapping[str, int]) -> JsonObject:
    if not taken:
        return metadata
    earlier = metadata.get(REDACTED)
    known = {name: many for name, many in earlier.items() if type(many) is int} if isinstance(earlier, dict) else {}
    return {**metadata, REDACTED: dict(Counter(known) + Counter(taken))}


_Head = TypeVar("_Head", NewSession, Changes)
_NOTHING: Final[JsonObject] = {}


class MessageRedaction:
    """The redactor for a scope's data on its way into a store. Without a session, which has the vault, it redacts."""

    def __init__(self, redactor: Redactor, scope: Scope) -> None:
        self._redactor = redactor
        self._scope = scope
        policy = redactor.policy(scope)
        self._mode = policy.modes[Sink.MESSAGE]
        self._attachments = policy.attachments[Sink.MESSAGE]
        self.uses_vault = policy.uses_vault
        """Whether values go into a vault."""

    def keeps(self, drafts: tuple[Draft, ...]) -> bool:
        """Whether messages are stored as they come, without a look at them."""
        if self._mode is not Mode.KEEP or self._attachments is not AttachmentMode.KEEP or self.uses_vault:
            return False
        return not any(map(is_summary, drafts))

    async def admit_messages(self, drafts: tuple[Draft, ...]) -> tuple[Draft, ...]:
        """Incoming messages: refused where the policy blocks their content, and with typed placeholders neutralized.

        Raises:
            PrivateData: the policy blocks their content.
        """
        if self._attachments is AttachmentMode.BLOCK and shows_media(drafts):
            raise PrivateData([ATTACHMENT_TYPE])
        if self._mode is Mode.BLOCK:
            for draft in drafts:
                if not is_summary(draft):
                    await self._redactor.refuse(self._scope, draft_slots(draft))
        return self.neutralize_drafts(drafts)

    def neutralize_drafts(self, drafts: tuple[Draft, ...]) -> tuple[Draft, ...]:
        """Messages with neutralized placeholders: a user typed them or a model made them up. Summaries keep theirs."""
        if self._mode is not Mode.PSEUDONYM:
            return drafts
        return tuple(draft if is_summary(draft) else _neutralize_draft(draft) for draft in drafts)

    async def messages(
        self, session: Session | None, drafts: tuple[Draft, ...], *, whole: bool = True
    ) -> tuple[Draft, ...]:
        """Messages as they may be stored; the same tuple if there is nothing to do.

        Raises:
            TooManyPrivateValues: one was not searched to its end, and has to be kept `whole`.
        """
        if self._attachments is not AttachmentMode.KEEP:
            drafts = without_media(drafts)
        if self._mode is Mode.KEEP and not any(map(is_summary, drafts)):
            return drafts
        stored: list[Draft] = []
        for draft in drafts:
            sink = Sink.SUMMARY if is_summary(draft) else Sink.MESSAGE
            stored.append(await redact_draft(self._redactor, sink, self._scope, session, draft, whole=whole))
        return tuple(stored)

    async def head(self, session: Session | None, head: _Head, noted: JsonObject = _NOTHING) -> _Head:
        """A session head, or changes to one, as they may be stored; `noted` is the metadata that is stored already."""
        title = head.title
        if title and isinstance(title, str):
            head = replace(head, title=await self.title(session, title, head.metadata, noted))
        if self._mode is Mode.KEEP:
            return head
        values = (head.context, head.attributes, head.metadata)
        context, attributes, metadata = await redact_session_values(
            self._redactor, Sink.MESSAGE, self._scope, session, values
        )
        return replace(head, context=context, attributes=attributes, metadata=metadata)

    async def title(self, session: Session | None, title: str, *metadata: JsonObject) -> str:
        """A title as it may be stored, cut again: placeholders may be longer than their values."""
        redaction = await self._redactor.for_records(*metadata).texts(Sink.TITLE, self._scope, session, [Slot(title)])
        return redaction.texts[0][:MAX_TITLE_CHARACTERS]


async def redact_title(redactor: Redactor, session: Session) -> Changes:
    """The changes that redact a stored title, and its copy in the metadata, which marks a generated one."""
    title = await MessageRedaction(redactor, session.scope).title(session, session.title, session.metadata)
    copy = session.metadata.get("title")
    if title == session.title:
        return Changes()
    if not isinstance(copy, dict) or copy.get("text") != session.title:
        return Changes(title=title)
    return Changes(title=title, metadata={"title": {**copy, "text": title}})


def keep_record_types(session: Session, changes: Changes) -> Changes:
    """The changes without the removal of a type that the session keeps out of its records."""
    if PRIVACY_ALSO not in changes.metadata:
        return changes
    types = ON_REQUEST.intersection([*record_types(session.metadata), *record_types(changes.metadata)])
    return replace(changes, metadata={**changes.metadata, PRIVACY_ALSO: sorted(types) or None})


def _neutralize_draft(draft: Draft) -> Draft:
    parts = replace_part_texts(draft.parts, lambda slot: neutralize_text(slot.text))
    if STATE not in draft.metadata:
        return replace(draft, parts=parts)
    # The next turn restores the placeholders it finds there.
    state = replace_texts(draft.metadata[STATE], lambda slot: neutralize_text(slot.text))
    return replace(draft, parts=parts, metadata={**draft.metadata, STATE: state})
