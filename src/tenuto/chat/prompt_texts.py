"""What the model saw, in words: the parts of an earlier prompt, joined from what is stored today.

A trace holds counts, ids and keyed digests, and no second copy of what was said: a message or memory that was erased is
gone here as well. By the digests one sees whether a text is what the model saw, under the policy for models of then.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec.structs import replace

from tenuto.assistants import Assistant
from tenuto.chat.deps import ChatDeps
from tenuto.chat.loading import quote_memory, quote_preferences, tagged_names
from tenuto.context import counter_for, profile_text, truncate_text
from tenuto.context.assembly import last_words, message_text
from tenuto.context.compression import summaries_in
from tenuto.context.layout import Layout, layout_for
from tenuto.context.speakers import speaker_names
from tenuto.context.tokens import TokenCounter
from tenuto.errors import AssistantNotFound, DecryptionFailed, MemoryNotFound, PrivateData
from tenuto.model import Message, Page, Role, Scope, Session
from tenuto.model.media import shown_media
from tenuto.model.message import readable_messages
from tenuto.model.patterns import lazy_pattern
from tenuto.model.privacy import Sink
from tenuto.model.prompt import (
    Disposition,
    Kind,
    Language,
    Manifest,
    ManifestEntry,
    PartState,
    PartText,
    Piece,
    PromptInputs,
    Reason,
    RecallPosition,
    digest_text,
)
from tenuto.model.session import PROFILE, record_types
from tenuto.model.turn import Trace
from tenuto.model.values import Value
from tenuto.privacy.turn_redaction import TurnRedaction

_PAGE: Final = 500
# A placeholder of any type, those of a tenant's own patterns included. Quoted values have round brackets.
_PLACEHOLDER: Final = lazy_pattern(r"[\[(](?:REDACTED_[A-Z][A-Z0-9_]*|[A-Z][A-Z0-9_]*_[0-9]{1,4}|WITHHELD)[\])]")
_TEXTS: Final = ("system", "preferences", "summary", "question")
_GONE: Final = PartText(state=PartState.GONE)
_UNSTORED: Final = PartText(state=PartState.UNSTORED)
_WITHHELD: Final = PartText(state=PartState.WITHHELD)
_OF_ASSISTANT: Final = (Kind.SYSTEM, Kind.TOOLS)


async def load_prompt_texts(
    deps: ChatDeps, scope: Scope, trace: Trace, *, show_assistant: bool
) -> tuple[PartText, ...]:
    """The text of each entry of the trace's manifest, in its order; nothing where no model was asked.

    Without `show_assistant`, the assistant's prompt and tools are withheld: they are the tenant's, not the user's.

    Raises:
        SessionNotFound: the session is gone, or not this caller's.
    """
    if trace.manifest is None:
        return ()
    session = await deps.sessions.get(scope, trace.session_id)
    key = await _find_digest_key(deps, session.scope, trace)
    texts = await _Reader(deps, session, trace, trace.manifest, key).read_entries()
    if show_assistant:
        return texts
    read = zip(trace.manifest.entries, texts, strict=True)
    return tuple([_WITHHELD if entry.kind in _OF_ASSISTANT else part for entry, part in read])


class _Found(Value, frozen=True, kw_only=True):
    """A part as it is stored today: its text, the prompt inputs that it would be, and the tokens around it.

    `spoken` is the message that it is.
    """

    text: str
    inputs: PromptInputs
    around: int = 0
    spoken: Message | None = None


class _Reader:
    def __init__(self, deps: ChatDeps, session: Session, trace: Trace, manifest: Manifest, key: bytes) -> None:
        self._deps, self._session, self._trace, self._manifest = deps, session, trace, manifest
        self._assistant = _find_assistant(deps, trace.assistant)
        model = deps.models(self._assistant.model if self._assistant is not None else None)
        self._counter: TokenCounter = counter_for(model.name)
        known = session.context.get("language")
        self._language = next((each for each in Language if each.value == known), Language.ENGLISH)
        self._layout: Layout = layout_for(
            manifest.layout, self._language, self._counter, {}, RecallPosition.BEFORE_QUESTION
        )
        self._key = key
        self._records = self._records_for(deps.redaction)

    def _records_for(self, redaction: TurnRedaction) -> TurnRedaction | None:
        """What takes types out of texts that the assistant's records must not show; `None` if there are none."""
        also = self._assistant.policies.privacy_also if self._assistant is not None else ()
        types = {*record_types(self._session.metadata), *also}
        return redaction.for_records(types) if types else None

    async def read_entries(self) -> tuple[PartText, ...]:
        log = await self._load_log()
        return tuple([await self._read_entry(entry, log) for entry in self._manifest.entries])

    async def _load_log(self) -> list[Message]:
        """The messages that the prompt showed, the question included, and the summaries between them."""
        single = [entry.first for entry in self._manifest.entries if entry.kind is Kind.MESSAGE and entry.id]
        # Behind what the prompt left out stands at least the question.
        behind = [entry.last + 1 for entry in self._manifest.entries if entry.last and not entry.id]
        starts = [seq for seq in (*single, *behind) if seq is not None]
        log: list[Message] = []
        after: int | None = min(starts, default=1) - 1
        while after is not None:
            query = Page(limit=_PAGE, after=after, touch=False)
            page = await self._deps.sessions.messages(self._session.scope, self._session.id, query)
            log += [message for message in page.messages if message.turn <= self._trace.number]
            more = page.more_after and page.messages[-1].turn <= self._trace.number
            after = page.messages[-1].seq if more else None
        return log

    async def _read_entry(self, entry: ManifestEntry, log: list[Message]) -> PartText:
        if entry.kind in (Kind.FRAME, Kind.CHAT_CONTEXT) or (entry.kind is Kind.MESSAGE and entry.id is None):
            return _UNSTORED
        if entry.kind is Kind.QUESTION and not entry.uncut_tokens:
            return _UNSTORED  # The turn answered outputs of tools.
        found = await self._find_part(entry, log)
        spoken = found.spoken if found is not None else None
        messages = self._asked(log) if entry.kind is Kind.QUESTION else [spoken] if spoken else []
        media = [f"[{name}]" for name in shown_media(messages, self._language)]
        if found is None and not media:
            return _UNSTORED if entry.kind is Kind.EVIDENCE else _GONE
        state, text = (PartState.STORED, "") if found is None else await self._compare(entry, found)
        text = "\n".join(filter(None, (text, *media)))
        if self._records is not None and (shown := await self._without_record_types(text)) != text:
            state, text = PartState.REDACTED if state is PartState.STORED else state, shown
        if found is not None and entry.disposition is Disposition.CUT and entry.reason is not Reason.NO_MEDIA:
            text = truncate_text(text, entry.tokens - found.around, self._counter.count)
        if spoken is None:
            return PartText(state=state, text=text)
        return PartText(state=state, text=text, role=spoken.role, speaker=spoken.speaker or spoken.persona)

    async def _compare(self, entry: ManifestEntry, found: _Found) -> tuple[PartState, str]:
        """Whether the part is as the model saw it, and its text for the session's owner.

        The owner may read what is stored. Values of the vault, which a model may see, need the right to reveal them.
        """
        stored = found.text
        if not (self._key and entry.digest):
            return PartState.REDACTED if _PLACEHOLDER.search(stored) else PartState.UNCHECKED, stored
        seen = {text: text for text in (stored, await self._as_prompted(found.inputs))}
        restored = await self._restored(found.inputs)
        if restored is not None:
            seen = {_text_of(restored): stored, await self._as_prompted(restored): stored} | seen
        for text, shown in seen.items():
            if digest_text(text, self._key) == entry.digest:
                # Placeholders of the vault were values for a model that may see them.
                hides = restored is not None and _text_of(restored) != stored
                hides = hides and self._deps.redaction.restores_for_model(self._session.scope)
                return PartState.REDACTED if hides or shown != text else PartState.STORED, shown
        return PartState.REDACTED if _PLACEHOLDER.search(stored) else PartState.CHANGED, stored

    async def _as_prompted(self, inputs: PromptInputs) -> str:
        """The part as a prompt shows it under the policy for models."""
        try:
            redacted = await self._deps.redaction.redact_prompt_inputs(self._session.scope, self._session, inputs)
        except PrivateData:
            redacted = None
        return _text_of(inputs if redacted is None else redacted)

    async def _restored(self, inputs: PromptInputs) -> PromptInputs | None:
        """The part with the values of the session's vault; `None` if it has no placeholders of them."""
        if not _PLACEHOLDER.search(_text_of(inputs)):
            return None
        values = [msgspec.to_builtins(message.parts) for message in inputs.history]
        texts = {name: getattr(inputs, name) for name in _TEXTS}
        restored: Any = await self._deps.redaction.restore(self._session, [values, texts])
        history = zip(inputs.history, restored[0], strict=True)
        return replace(
            inputs, history=tuple([replace(message, parts=tuple(parts)) for message, parts in history]), **restored[1]
        )

    async def _without_record_types(self, text: str) -> str:
        assert self._records is not None
        return (await self._records.before_cut(self._session.scope, text, (Sink.TRACE,)))[0]

    async def _find_part(self, entry: ManifestEntry, log: list[Message]) -> _Found | None:
        match entry.kind:
            case Kind.MESSAGE:
                return self._find_message(entry, log)
            case Kind.SUMMARY:
                return _part(summary=self._find_summary(entry, log))
            case Kind.MEMORY:
                return await self._find_memory(entry, log)
            case Kind.EVIDENCE:
                return self._find_evidence(entry)
            case Kind.PREFERENCES:
                own = self._deps.redaction.own_words(self._session.scope, await self._preferences())
                return _part(preferences=own)
            case Kind.QUESTION:
                # If its message is gone, the trace may have it, shortened and under its own policy.
                return _part(question=self._find_question(log) or self._trace.request)
            case Kind.SYSTEM:
                return _part(system=self._system_prompt())
            case _:
                return _part(system=self._tool_specs())

    def _find_message(self, entry: ManifestEntry, log: list[Message]) -> _Found | None:
        stored = next((message for message in log if message.id == entry.id), None)
        if stored is None:
            return None
        message = readable_messages((stored,))[0]
        inputs = PromptInputs(question="", history=(message,))
        around = self._layout.around_all if self._session.scope.chat is None else 0
        return _Found(text=message_text(message), inputs=inputs, around=around or 0, spoken=message)

    def _find_question(self, log: list[Message]) -> str:
        """The user's words of the turn; of a regeneration, those that it answered anew."""
        return "\n".join([message.text for message in self._asked(log)])

    def _asked(self, log: list[Message]) -> tuple[Message, ...]:
        return last_words([message for message in log if message.role is Role.USER])

    def _find_summary(self, entry: ManifestEntry, log: list[Message]) -> str:
        alone = self._trace.persona if self._assistant is not None and self._assistant.isolated else None
        fitting = [
            summary
            for summary in summaries_in(log, alone)
            if summary.since == entry.first
            and summary.through <= (entry.last or 0)
            and summary.messages in (0, entry.count)
        ]
        return fitting[-1].text if fitting else ""

    async def _find_memory(self, entry: ManifestEntry, log: list[Message]) -> _Found | None:
        memories, scope, assistant = self._deps.memories, self._session.scope, self._assistant
        if memories is None or entry.id is None or not memories.policy.covers(scope):
            return None
        try:
            memory = await memories.get(scope, entry.id)
        except MemoryNotFound:
            return None
        personas = [name for each in assistant.personas.values() for name in each.names.values()] if assistant else []
        names = speaker_names(log, scope.tenant, self._language, in_chat=scope.chat is not None, personas=personas)
        text = quote_memory(memory, self._language, tagged_names(scope.tenant, names))
        piece = Piece(id=memory.id, text=text)
        around = self._layout.snippet_overhead(piece, evidence=False)
        return _Found(text=text, inputs=PromptInputs(question="", memories=(piece,)), around=around)

    def _find_evidence(self, entry: ManifestEntry) -> _Found | None:
        found = self._trace.evidence_text(entry.id)
        if found is None:
            return None
        piece = Piece(id=entry.id or "", text=found)
        around = self._layout.snippet_overhead(piece, evidence=True)
        return _Found(text=found, inputs=PromptInputs(question="", evidence=(piece,)), around=around)

    async def _preferences(self) -> str:
        profile = self._session.context.get(PROFILE) if self._session.scope.chat is None else None
        known = profile_text(profile, self._language) if isinstance(profile, dict) and profile else ""
        memories, scope = self._deps.memories, self._session.scope
        liked = await memories.preferences(scope) if memories is not None and memories.policy.covers(scope) else ()
        alone = self._trace.persona if self._assistant is not None and self._assistant.isolated else None
        lines = quote_preferences([memory for memory in liked if memory.persona in (None, alone)])
        return "\n".join(filter(None, (known, lines)))

    def _system_prompt(self) -> str:
        if self._assistant is None:
            return ""
        persona = self._assistant.personas.get(self._trace.persona or "")
        return self._assistant.system_prompt(persona, self._language)

    def _tool_specs(self) -> str:
        tools = self._assistant.tools if self._assistant is not None else ()
        return "\n".join([msgspec.json.encode(tool.spec).decode() for tool in tools])


def _part(**text: str) -> _Found | None:
    """A part with this text of the prompt inputs; `None` if there is none."""
    [(name, value)] = text.items()
    return _Found(text=value, inputs=replace(PromptInputs(question=""), **{name: value})) if value else None


def _text_of(inputs: PromptInputs) -> str:
    """The text of inputs that have one part."""
    pieces = (*(inputs.memories or ()), *(inputs.evidence or ()))
    messages = [message_text(message) for message in inputs.history]
    texts = (*(getattr(inputs, name) for name in _TEXTS), *messages, *(piece.text for piece in pieces))
    return next(filter(None, texts), "")


async def _find_digest_key(deps: ChatDeps, scope: Scope, trace: Trace) -> bytes:
    """The key of the trace's digests; empty if what it was derived from is gone, or on another machine."""
    try:
        name, key = await deps.redaction.digest_key(scope, trace.id)
    except DecryptionFailed:
        return b""
    return key if name == trace.digest_key else b""


def _find_assistant(deps: ChatDeps, name: str) -> Assistant | None:
    try:
        return deps.assistants.find(name)
    except AssistantNotFound:
        return None
