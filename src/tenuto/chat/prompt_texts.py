"""What the model saw, in words: the parts of an earlier prompt, joined from what is stored today.

A trace holds counts and ids, and no second copy of what was said: a message or memory that was erased is gone here as
well. Every text passes the privacy policy of traces and that of models.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from tenuto.assistants import Assistant
from tenuto.chat.deps import ChatDeps
from tenuto.chat.recall import quote_memory, quote_preferences
from tenuto.context import counter_for, profile_text, truncate_text
from tenuto.context.compression import summaries_in
from tenuto.context.layout import Layout, layout_for
from tenuto.context.tokens import TokenCounter, to_text
from tenuto.errors import AssistantNotFound, MemoryNotFound
from tenuto.model import Message, Page, Scope, Session
from tenuto.model.message import readable_messages
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
    RecallPosition,
)
from tenuto.model.session import PROFILE, record_types
from tenuto.model.turn import Trace
from tenuto.model.values import Json, Value
from tenuto.privacy.turn_redaction import TurnRedaction

_PAGE: Final = 500
_SINKS: Final = (Sink.TRACE, Sink.MODEL)
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
    texts = await _Reader(deps, session, trace, trace.manifest).read_entries()
    if show_assistant:
        return texts
    read = zip(trace.manifest.entries, texts, strict=True)
    return tuple([_WITHHELD if entry.kind in _OF_ASSISTANT else part for entry, part in read])


class _Found(Value, frozen=True, kw_only=True):
    """A text as it is stored today, and its tokens in a prompt: without them nothing tells whether it has changed."""

    text: str
    tokens: tuple[int, ...] = ()
    around: int = 0


class _Reader:
    def __init__(self, deps: ChatDeps, session: Session, trace: Trace, manifest: Manifest) -> None:
        self._deps, self._session, self._trace, self._manifest = deps, session, trace, manifest
        self._assistant = _find_assistant(deps, trace.assistant)
        model = deps.models(self._assistant.model if self._assistant is not None else None)
        self._counter: TokenCounter = counter_for(model.name)
        known = session.context.get("language")
        self._language = next((each for each in Language if each.value == known), Language.ENGLISH)
        self._layout: Layout = layout_for(
            manifest.layout, self._language, self._counter, {}, RecallPosition.BEFORE_QUESTION
        )
        self._redaction = self._redaction_for(deps.redaction)

    def _redaction_for(self, redaction: TurnRedaction) -> TurnRedaction:
        also = self._assistant.policies.privacy_also if self._assistant is not None else ()
        return redaction.for_records({*record_types(self._session.metadata), *also})

    async def read_entries(self) -> tuple[PartText, ...]:
        log = await self._load_log()
        return tuple([await self._read_entry(entry, log) for entry in self._manifest.entries])

    async def _load_log(self) -> list[Message]:
        """The messages that the prompt showed, and the summaries between them."""
        single = [entry.first for entry in self._manifest.entries if entry.kind is Kind.MESSAGE and entry.id]
        summed = [entry.last + 1 for entry in self._manifest.entries if entry.kind is Kind.SUMMARY and entry.last]
        starts = [seq for seq in (*single, *summed) if seq is not None]
        log: list[Message] = []
        after = min(starts) - 1 if starts else None
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
        found = await self._find_text(entry, log)
        if found is None:
            return _UNSTORED if entry.kind is Kind.EVIDENCE else _GONE
        redacted, _ = await self._redaction.before_cut(self._session.scope, found.text, _SINKS)
        now = {*found.tokens, self._counter.count(redacted)}
        known = self._manifest.encoding == self._counter.encoding and found.tokens
        changed = known and entry.uncut_tokens - found.around not in now
        if entry.disposition is Disposition.CUT:
            redacted = truncate_text(redacted, entry.tokens - found.around, self._counter.count)
        return PartText(state=PartState.CHANGED if changed else PartState.STORED, text=redacted)

    async def _find_text(self, entry: ManifestEntry, log: list[Message]) -> _Found | None:
        match entry.kind:
            case Kind.MESSAGE:
                return self._find_message(entry, log)
            case Kind.SUMMARY:
                return self._find_summary(entry, log)
            case Kind.MEMORY:
                return await self._find_memory(entry)
            case Kind.EVIDENCE:
                return self._find_evidence(entry)
            case Kind.PREFERENCES:
                return self._counted(await self._preferences())
            case Kind.QUESTION:
                # Stored with the trace, shortened and under the same policy.
                return _Found(text=self._trace.request) if self._trace.request else None
            case Kind.SYSTEM:
                return self._counted(self._system_prompt())
            case _:
                return self._tool_specs()

    def _counted(self, text: str) -> _Found | None:
        return _Found(text=text, tokens=(self._counter.count(text),)) if text else None

    def _find_message(self, entry: ManifestEntry, log: list[Message]) -> _Found | None:
        stored = next((message for message in log if message.id == entry.id), None)
        if stored is None:
            return None
        message = readable_messages((stored,))[0]
        around = self._layout.around_all if self._session.scope.chat is None else None
        counts = (stored.tokens, self._counter.count_parts(message.parts)) if around is not None else ()
        return _Found(text="\n".join(_part_texts(message)), tokens=counts, around=around or 0)

    def _find_summary(self, entry: ManifestEntry, log: list[Message]) -> _Found | None:
        alone = self._trace.persona if self._assistant is not None and self._assistant.isolated else None
        fitting = [
            summary
            for summary in summaries_in(log, alone)
            if summary.since == entry.first
            and summary.through <= (entry.last or 0)
            and summary.messages in (0, entry.count)
        ]
        return self._counted(fitting[-1].text) if fitting else None

    async def _find_memory(self, entry: ManifestEntry) -> _Found | None:
        memories, scope = self._deps.memories, self._session.scope
        if memories is None or entry.id is None or not memories.policy.covers(scope):
            return None
        try:
            memory = await memories.get(scope, entry.id)
        except MemoryNotFound:
            return None
        text = self._layout.escape_lines(quote_memory(memory, self._language, {}))
        around = self._layout.snippet_overhead(Piece(id=memory.id, text=text), evidence=False)
        # In a group the line names its speaker, by a name that is not stored.
        counts = (self._counter.count(text),) if not memory.speaker else ()
        return _Found(text=text, tokens=counts, around=around)

    def _find_evidence(self, entry: ManifestEntry) -> _Found | None:
        found = next((piece for run in self._trace.tools for piece in _pieces_in(run.output, entry.id)), None)
        if found is None:
            # A tool that ran before the model and named no pieces is one itself.
            found = next((to_text(run.output) for run in self._trace.tools if run.name == entry.id), None)
        return _Found(text=found) if found is not None else None

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

    def _tool_specs(self) -> _Found | None:
        tools = self._assistant.tools if self._assistant is not None else ()
        specs = [msgspec.json.encode(tool.spec).decode() for tool in tools]
        if not specs:
            return None
        return _Found(text="\n".join(specs), tokens=(sum(map(self._counter.count, specs)),))


def _find_assistant(deps: ChatDeps, name: str) -> Assistant | None:
    try:
        return deps.assistants.find(name)
    except AssistantNotFound:
        return None


def _part_texts(message: Message) -> Iterator[str]:
    """What a model reads of a message: its words, calls with their arguments, results."""
    for part in message.parts:
        match part["type"]:
            case "text":
                yield part["text"]
            case "tool_call":
                yield f"{part.get('name', '')} {to_text(part.get('arguments'))}"
            case "tool_result":
                yield to_text(part.get("output"))


def _pieces_in(output: Json, piece: str | None) -> Iterator[str]:
    """The texts of a piece of evidence of that id in what a tool answered."""
    inside: list[Json] = [output]
    while inside:
        value = inside.pop()
        if isinstance(value, Mapping):
            if value.get("id") == piece and isinstance(text := value.get("text"), str):
                yield f"{title}: {text}" if isinstance(title := value.get("title"), str) else text
            inside += value.values()
        elif isinstance(value, list | tuple):
            inside += value
