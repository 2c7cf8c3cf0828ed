"""Compressing a session: read what no summary covers, tell it in short, append that to the log.

The entry is appended under a key made of the range it adds, so that two processes that compress the same range store
one entry. Nothing is locked while a model thinks. If words are taken back meanwhile (a truncation, a reset), the look
just before the entry is stored gives it up; should they go in the very last moment, readers pass the entry over
(`tenuto.context.compression` has the law).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from tenuto.context import TokenCounter
from tenuto.context.compression import (
    Due,
    SummaryLimits,
    compresses,
    due,
    find_summary,
    summary_draft,
    summary_limits,
    would_evict_uncovered,
)
from tenuto.context.extract import summarise
from tenuto.context.summary_request import SummaryRequest, build_summary_request, portions, usable
from tenuto.context.wording import majority_language
from tenuto.errors import SessionNotFound
from tenuto.model import Message, Page, Rewrite, Role, Scope, Session, Usage
from tenuto.model.generation import Summary, TurnEnded
from tenuto.model.prompt import Language
from tenuto.ports import Clock
from tenuto.privacy.upkeep_redaction import UpkeepRedaction
from tenuto.sessions import AppendRequest, Sessions, derived_id, fresh_id
from tenuto.upkeep.jobs import Small

_TIMEOUT_SECONDS: Final = 60.0
# One look brings what a compressed session has open, and more.
_LOOK: Final = 100
_PAGE: Final = 500
# A log that was never compressed is worked off in steps of so many messages.
_STEP: Final = 5000
_STEPS: Final = 1000
# How many portions of the talk a model is asked to retell; what lies before them is extracted.
_ASKED: Final = 3
# Beside the answer itself: its summary's entry, and the words the next turn begins with.
_SPARE: Final = 4
_ENTRY_BYTES: Final = 600
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _UncoveredLog:
    """A session's uncovered talk, and its head before any of it was read; `more`: newer talk was not loaded."""

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
        small: Small | None,
        redaction: UpkeepRedaction,
        counter: TokenCounter,
        clock: Clock,
    ) -> None:
        self._sessions = sessions
        self._small = small
        self._redaction = redaction
        self._counter = counter
        self._clock = clock

    def may_be_due(self, ended: TurnEnded) -> bool:
        """Whether to look at the stored session: judged by what the turn had loaded, where it says so."""
        context = ended.policies.context
        if not ended.loaded:
            return compresses(context)
        found = due(ended.session, ended.loaded, self._counter, ended.prompt, context, taken=ended.taken)
        return found is not None

    def would_lose_messages(self, ended: TurnEnded, covered: int, adding: int) -> bool:
        """Whether storing so many messages could push out some that no summary covers."""
        return compresses(ended.policies.context) and would_evict_uncovered(ended.session, covered, adding + _SPARE)

    async def compress(self, ended: TurnEnded, *, adding: int = 0, at_once: bool = False) -> None:
        """Cover what is due; `at_once` asks no model."""
        for _ in range(_STEPS):
            try:
                talk = await self._load_uncovered(ended)
            except SessionNotFound:
                return
            if talk.session.incarnation != ended.session.incarnation:
                return
            found = due(
                talk.session,
                talk.messages,
                self._counter,
                ended.prompt,
                ended.policies.context,
                previous=talk.previous,
                taken=ended.taken,
                adding=adding + _SPARE if adding else 0,
                more=talk.more,
            )
            if found is None or not await self._store_summary(ended, talk.session, found, at_once) or not talk.more:
                return

    async def _load_uncovered(self, ended: TurnEnded) -> _UncoveredLog:
        """What no summary covers: looked for from the newest message backwards, until the summary is found."""
        page = await self._sessions.messages(ended.scope, ended.session.id, Page(limit=_LOOK))
        session, messages = page.session, page.messages
        while True:
            previous = find_summary(messages, session.window_start)
            begins = max(previous.through + 1 if previous is not None else 1, session.window_start)
            if not page.more_before or messages[0].seq <= begins:
                return _UncoveredLog(session, messages, previous, more=False)
            if len(messages) >= _STEP:
                return await self._load_oldest(ended, session, previous, begins)
            before = Page(limit=_PAGE, before=messages[0].seq)
            page = await self._sessions.messages(ended.scope, ended.session.id, before)
            messages = (*page.messages, *messages)

    async def _load_oldest(
        self, ended: TurnEnded, session: Session, previous: Summary | None, begins: int
    ) -> _UncoveredLog:
        """The first step of a long log that was never compressed."""
        page = await self._sessions.messages(ended.scope, session.id, Page(limit=_STEP, after=begins - 1))
        return _UncoveredLog(session, page.messages, previous, page.more_after)

    async def _store_summary(self, ended: TurnEnded, session: Session, found: Due, at_once: bool) -> bool:
        """Store the summary; tells whether it was stored, now or by somebody else before."""
        limits = self._summary_limits(ended)
        text, made_by = await self._summarize(ended, found, limits, at_once)
        last = found.cover[-1]
        summary = Summary(
            text=text,
            through=last.seq,
            through_id=last.id,
            messages=_covered_count(found),
            tokens=self._counter.count(text),
            made_by=made_by,
        )
        if not await self._is_unchanged(ended, session, last):
            _log.info("session %s: what was summarised has been taken back", session.id)
            return False
        base = found.previous.through if found.previous is not None else 0
        draft = summary_draft(summary, message_id=fresh_id(), sent_at=self._clock(), seen=found.seen, since=found.since)
        key = derived_id("summary:", str(base), last.id)
        request = AppendRequest(messages=(draft,), usage=Usage(), key=key, fingerprint="summary")
        try:
            await self._sessions.append(ended.scope, session.id, request)
            await self._redact_covered(session, found.cover)
        except SessionNotFound:
            return False
        return True

    async def _redact_covered(self, session: Session, messages: Sequence[Message]) -> None:
        """What the summary speaks for is no longer live, and is kept as the policy wants what is past.

        A process that dies right before this leaves the words as they were said; `tenuto privacy scan` finds them.
        """
        retired = await self._redaction.redact_past(session, messages)
        if retired:
            counted = tuple(self._counter.with_count(replace(message, tokens=0)) for message in retired)
            await self._sessions.rewrite(session.scope, session.id, Rewrite(messages=counted))

    def _summary_redactor(self, ended: TurnEnded) -> Callable[[str], str]:
        return lambda text: self._redaction.for_summary(ended.scope, text)

    def _model_redactor(self, ended: TurnEnded) -> Callable[[str], str]:
        """What a model may be shown of a text that a summary may be made of."""
        scope = ended.scope
        return lambda text: self._redaction.for_model(scope, self._redaction.for_summary(scope, text))

    async def _is_unchanged(self, ended: TurnEnded, session: Session, last: Message) -> bool:
        try:
            page = await self._sessions.messages(ended.scope, session.id, Page(limit=1, after=last.seq - 1))
        except SessionNotFound:
            return False
        unchanged = (session.incarnation, session.window_start) == (page.session.incarnation, page.session.window_start)
        return unchanged and bool(page.messages) and page.messages[0].id == last.id

    def _summary_limits(self, ended: TurnEnded) -> SummaryLimits:
        """How long the summary may be; a small limit on messages holds for it too."""
        limits = summary_limits(ended.prompt, ended.policies.context, self._counter)
        storable = max(16, (self._sessions.policy.max_message_bytes - _ENTRY_BYTES) // 4)
        return replace(limits, characters=min(limits.characters or storable, storable))

    async def _summarize(self, ended: TurnEnded, found: Due, limits: SummaryLimits, at_once: bool) -> tuple[str, str]:
        """The summary and who made it: a model where there is one and it says something usable, else extraction."""
        previous = found.previous.text if found.previous is not None else ""
        ended = replace(ended, language=_summary_language(found, ended.language))
        if self._small is None or at_once:
            return await self._extract(found.cover, previous, ended, limits), "extract"
        parts = portions(found.cover, self._counter)
        skipped = [message for part in parts[:-_ASKED] for message in part]
        if skipped:
            previous = await self._extract(skipped, previous, ended, limits)
        made_by = "extract"
        for part in parts[-_ASKED:]:
            # Long messages take a while to look through, which other turns need not wait for.
            asked = await asyncio.to_thread(
                build_summary_request,
                part,
                previous,
                ended.language,
                limits,
                self._model_redactor(ended),
                self._counter,
            )
            told = await self._ask_model(ended.scope, asked)
            made_by = "extract" if told is None else "model"
            previous = told or await self._extract(part, previous, ended, limits)
        return previous, made_by

    async def _ask_model(self, scope: Scope, asked: SummaryRequest) -> str | None:
        assert self._small is not None
        asked = replace(asked, text=await self._redaction.to_model(scope, asked.text))
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                said = await self._small(scope, asked.system, asked.text, asked.limits.tokens)
        except Exception as failure:
            # Extraction stands in for whatever the model fails with; its message may quote the talk.
            _log.warning("a summary is extracted, the model failed: %s", type(failure).__name__)
            return None
        told = usable(said, asked, self._counter)
        if told is None:
            _log.warning("a summary is extracted, the model's answer was of no use")
            return None
        return self._redaction.for_summary(scope, told)

    async def _extract(
        self, messages: Sequence[Message], previous: str, ended: TurnEnded, limits: SummaryLimits
    ) -> str:
        # Hundreds of long messages take a while, which other turns need not wait for.
        return await asyncio.to_thread(
            summarise,
            messages,
            previous,
            tokens=limits.tokens,
            characters=limits.characters,
            language=ended.language,
            counter=self._counter,
            redact=self._summary_redactor(ended),
        )


def _covered_count(found: Due) -> int:
    """How many messages the new summary speaks for; on one that nobody counted, nobody can build a count."""
    before = found.previous
    if before is None:
        return len(found.cover)
    return before.messages + len(found.cover) if before.messages else 0


def _summary_language(found: Due, otherwise: Language) -> Language:
    """That of most of the user's words, those before them by their summary; `otherwise` where nothing tells."""
    before = [found.previous.text] if found.previous is not None else []
    said = [message.text for message in found.cover if message.role is Role.USER]
    return majority_language([*before, *said], otherwise)
