"""Compress a session: read what no summary covers, summarise it, append the summary to the log.

The entry is appended under a key derived from its range, so that two processes that compress the same range store one
entry. No lock is held during a model request. If messages are removed meanwhile (a truncation, a reset), a check just
before the entry is stored discards it; after a removal in the last moment, readers ignore the entry (see
`tenuto.context.compression`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from tenuto.context import TokenCounter
from tenuto.context.compression import (
    DueCompression,
    SummaryLimits,
    compression_due,
    covered_instructions,
    find_summary,
    summary_draft,
    summary_limits,
)
from tenuto.context.extract import summarise
from tenuto.context.summary_request import SummaryRequest, append_shown, build_summary_request, portions, usable
from tenuto.context.wording import majority_language
from tenuto.errors import SessionNotFound
from tenuto.model import Message, Page, Rewrite, Role, Scope, Session, Usage
from tenuto.model.generation import Summary, TurnSnapshot
from tenuto.model.media import shown_media, with_media_named
from tenuto.model.message import readable_messages
from tenuto.model.policy import ContextPolicy
from tenuto.model.prompt import Language
from tenuto.ports import Clock
from tenuto.privacy.turn_redaction import UpkeepRedaction
from tenuto.sessions import AppendRequest, Sessions, derived_id, fresh_id
from tenuto.upkeep.jobs import SPARE, SmallModel

# One page holds the uncovered messages of a compressed session, and more.
_LOOK: Final = 100
_PAGE: Final = 500
# A log that was never compressed is worked off in steps of so many messages.
_STEP: Final = 5000
_STEPS: Final = 1000
# How many portions a model summarises; what precedes them is extracted.
_MOST_REQUESTS: Final = 3
_ENTRY_BYTES: Final = 600
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _UncoveredLog:
    """Uncovered messages, and the head before they were read; `more`: newer messages were not loaded."""

    session: Session
    messages: tuple[Message, ...]
    previous: Summary | None
    more: bool


class Compressor:
    """Compresses sessions when they are due."""

    def __init__(
        self,
        *,
        sessions: Sessions,
        model: SmallModel | None,
        redaction: UpkeepRedaction,
        counter: TokenCounter,
        clock: Clock,
    ) -> None:
        self._sessions = sessions
        self._model = model
        self._redaction = redaction
        self.counter = counter
        self._clock = clock

    async def compress(self, turn: TurnSnapshot, *, adding: int = 0, at_once: bool = False) -> None:
        """Cover what is due; `at_once` uses no model."""
        for _ in range(_STEPS):
            try:
                talk = await self._load_uncovered(turn)
            except SessionNotFound:
                return
            if talk.session.incarnation != turn.session.incarnation:
                return
            compression = compression_due(
                talk.session,
                talk.messages,
                self.counter,
                turn.prompt,
                turn.policies.context,
                persona=turn.persona,
                previous=talk.previous,
                overhead=turn.reserved_tokens,
                adding=adding + SPARE if adding else 0,
                more=talk.more,
            )
            if (
                compression is None
                or not await self._store_summary(turn, talk.session, compression, at_once)
                or not talk.more
            ):
                return

    async def retell(self, scope: Scope, messages: Sequence[Message], otherwise: Language) -> str:
        """The messages in short, by the model if there is one, for a memory; in the language that users wrote."""
        limits = self._storable(SummaryLimits(tokens=ContextPolicy().summary_tokens))
        texts = [message.text for message in messages if message.role is Role.USER]
        language = majority_language(texts, otherwise)
        return (await self._summarize(scope, language, messages, "", limits))[0]

    async def _load_uncovered(self, turn: TurnSnapshot) -> _UncoveredLog:
        """Load what no summary covers, from the newest message backwards to the summary."""
        page = await self._sessions.messages(turn.scope, turn.session.id, Page(limit=_LOOK))
        session, messages = page.session, page.messages
        while True:
            previous = find_summary(messages, session.window_start, turn.persona)
            begins = max(previous.through + 1 if previous is not None else 1, session.window_start)
            if not page.more_before or messages[0].seq <= begins:
                return _UncoveredLog(session, messages, previous, more=False)
            if len(messages) >= _STEP:
                # A long log that was never compressed is covered from its oldest messages on.
                page = await self._sessions.messages(turn.scope, session.id, Page(limit=_STEP, after=begins - 1))
                return _UncoveredLog(session, page.messages, previous, page.more_after)
            before = Page(limit=_PAGE, before=messages[0].seq)
            page = await self._sessions.messages(turn.scope, turn.session.id, before)
            messages = (*page.messages, *messages)

    async def _store_summary(
        self, turn: TurnSnapshot, session: Session, compression: DueCompression, at_once: bool
    ) -> bool:
        """Store the summary; returns whether it is stored, by this or another process."""
        limits = self._summary_limits(turn)
        previous = compression.previous.text if compression.previous is not None else ""
        language = _summary_language(compression, turn.language)
        text, made_by = await self._summarize(
            turn.scope, language, compression.cover, previous, limits, at_once=at_once
        )
        last = compression.cover[-1]
        summary = Summary(
            text=text,
            through=last.seq,
            through_id=last.id,
            messages=_covered_count(compression),
            tokens=self.counter.count(text),
            made_by=made_by,
            instructions=await self._covered_instructions(session, compression),
        )
        if not await self._is_unchanged(turn, session, last):
            _log.info("session %s: summarised messages were removed", session.id)
            return False
        base = compression.previous.through if compression.previous is not None else 0
        draft = summary_draft(
            summary,
            message_id=fresh_id(),
            sent_at=self._clock(),
            seen=compression.last_seq,
            since=compression.since,
            persona=turn.persona,
        )
        key = derived_id("summary:", str(base), last.id, *filter(None, (turn.persona,)))
        request = AppendRequest(messages=(draft,), usage=Usage(), idempotency_key=key, fingerprint="summary")
        try:
            await self._sessions.append(turn.scope, session.id, request)
            await self._redact_covered(session, compression.cover)
        except SessionNotFound:
            return False
        return True

    async def _covered_instructions(self, session: Session, compression: DueCompression) -> tuple[str, ...]:
        """The system messages that are covered now, as they will be stored."""
        covered = [message for message in compression.cover if message.role is Role.SYSTEM]
        redacted = {one.id: one for one in await self._redaction.redact_past(session, covered, self._clock())}
        return covered_instructions(compression.previous, [redacted.get(one.id, one) for one in covered])

    async def _redact_covered(self, session: Session, messages: Sequence[Message]) -> None:
        """Redact covered messages where an operator chose that for past messages; by default they stay as they are.

        A process that dies right before this leaves them unredacted; `tenuto privacy scan` finds them.
        """
        redacted = await self._redaction.redact_past(session, messages, self._clock())
        if redacted:
            messages = tuple(self.counter.with_count(replace(message, tokens=0)) for message in redacted)
            await self._sessions.rewrite(session.scope, session.id, Rewrite(messages=messages))

    async def _is_unchanged(self, turn: TurnSnapshot, session: Session, last: Message) -> bool:
        try:
            page = await self._sessions.messages(turn.scope, session.id, Page(limit=1, after=last.seq - 1))
        except SessionNotFound:
            return False
        same_log = (session.incarnation, session.window_start) == (page.session.incarnation, page.session.window_start)
        return same_log and bool(page.messages) and page.messages[0].id == last.id

    def _summary_limits(self, turn: TurnSnapshot) -> SummaryLimits:
        """How long the summary may be; the size limit of messages holds for it too."""
        return self._storable(summary_limits(turn.prompt, turn.policies.context, self.counter))

    def _storable(self, limits: SummaryLimits) -> SummaryLimits:
        storable = max(16, (self._sessions.policy.max_message_bytes - _ENTRY_BYTES) // 4)
        return replace(limits, characters=min(limits.characters or storable, storable))

    async def _summarize(
        self,
        scope: Scope,
        language: Language,
        cover: Sequence[Message],
        previous: str,
        limits: SummaryLimits,
        *,
        at_once: bool = False,
    ) -> tuple[str, str]:
        """The summary and its source: a model if there is one and its answer is usable, else extraction."""
        shown: list[str] = []
        if self._redaction.names_media(scope):
            cover, shown = with_media_named(cover, language), shown_media(cover, language)
        cover = readable_messages(cover)
        text, made_by = await self._summarize_words(scope, language, cover, previous, limits, at_once=at_once)
        names = [self._redaction.for_summary(scope, name) for name in shown]
        return append_shown(text, names, language, limits, self.counter), made_by

    async def _summarize_words(
        self,
        scope: Scope,
        language: Language,
        cover: Sequence[Message],
        previous: str,
        limits: SummaryLimits,
        *,
        at_once: bool,
    ) -> tuple[str, str]:
        if self._model is None or at_once:
            return await self._extract(scope, language, cover, previous, limits), "extract"
        parts = portions(cover, self.counter)
        oldest = [message for part in parts[:-_MOST_REQUESTS] for message in part]
        if oldest:
            previous = await self._extract(scope, language, oldest, previous, limits)
        made_by, redaction = "extract", self._redaction
        for part in parts[-_MOST_REQUESTS:]:
            # In a thread: long messages take a while, and other turns need not wait.
            request = await asyncio.to_thread(
                build_summary_request,
                part,
                previous,
                language,
                limits,
                lambda text: redaction.for_model(scope, redaction.for_summary(scope, text)),
                self.counter,
                in_chat=scope.chat is not None,
            )
            summary = await self._ask_model(scope, request)
            made_by = "extract" if summary is None else "model"
            previous = summary or await self._extract(scope, language, part, previous, limits)
        return previous, made_by

    async def _ask_model(self, scope: Scope, request: SummaryRequest) -> str | None:
        assert self._model is not None
        request = replace(request, text=await self._redaction.to_model(scope, request.text))
        try:
            answer = await self._model(scope, request.system, request.text, request.limits.tokens)
        except Exception as error:
            # Extraction replaces any failed model; the message of the exception may quote user text.
            _log.warning("a summary was extracted without the model, which failed: %s", type(error).__name__)
            return None
        summary = usable(answer, request, self.counter)
        if summary is None:
            _log.warning("a summary was extracted without the model, whose answer was unusable")
            return None
        return self._redaction.for_summary(scope, summary)

    async def _extract(
        self, scope: Scope, language: Language, messages: Sequence[Message], previous: str, limits: SummaryLimits
    ) -> str:
        # In a thread: hundreds of long messages take a while, and other turns need not wait.
        return await asyncio.to_thread(
            summarise,
            messages,
            previous,
            tokens=limits.tokens,
            characters=limits.characters,
            language=language,
            counter=self.counter,
            redact=lambda text: self._redaction.for_summary(scope, text),
            in_chat=scope.chat is not None,
        )


def _covered_count(compression: DueCompression) -> int:
    """How many messages the new summary covers; 0 (unknown) if the previous one has no count."""
    before = compression.previous
    if before is None:
        return len(compression.cover)
    return before.messages + len(compression.cover) if before.messages else 0


def _summary_language(compression: DueCompression, otherwise: Language) -> Language:
    """The language of most user messages and the previous summary; `otherwise` if undecided."""
    before = [compression.previous.text] if compression.previous is not None else []
    texts = [message.text for message in compression.cover if message.role is Role.USER]
    return majority_language([*before, *texts], otherwise)
