"""Capture of stale sessions: what a conversation was about is remembered once, whatever ends in between (D10 to D13).

A stretch is noted as due before it ceases to be context, and settled when its memory is stored. What a process could
not capture is due after the next turn of its owner in any session, here or in another process, and in the daily sweep.
The memory is an episode: the assistant's answers are in it, so no fact of the user is made of it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from tenuto.context.compression import of_persona
from tenuto.errors import SessionNotFound, TenutoError
from tenuto.lru_cache import LruCache
from tenuto.model import Changes, Message, Page, Role, Scope, Session
from tenuto.model.generation import TurnSnapshot
from tenuto.model.memory import MAX_MEMORY, Memory, MemoryKind, MemorySource
from tenuto.model.message import is_summary
from tenuto.model.scope import owner_key, owner_scope, speaker_tag
from tenuto.privacy.turn_redaction import UpkeepRedaction
from tenuto.recall.service import Memories, captured_id
from tenuto.recall.stale_stretches import StaleStretch
from tenuto.sessions import Sessions
from tenuto.upkeep.compressor import Compressor

# The end of a stretch that is remembered: five turns.
_MESSAGES: Final = 10
# Entries that are looked through for them: calls of tools and summaries stand between.
_PAGE: Final = 100
# Owners whose stretches this process has looked at; those of an evicted one are looked at again.
_OWNERS: Final = 10_000
_log = logging.getLogger(__name__)


class StaleCapture:
    """Remembers stale stretches."""

    def __init__(
        self, *, memories: Memories, sessions: Sessions, redaction: UpkeepRedaction, compressor: Compressor
    ) -> None:
        self._memories = memories
        self._sessions = sessions
        self._redaction = redaction
        self._compressor = compressor
        self._settled = LruCache[bytes, bool](_OWNERS)
        # What could not be noted, since the store was away.
        self._unnoted = LruCache[bytes, tuple[StaleStretch, ...]](_OWNERS)

    async def note(self, turn: TurnSnapshot) -> None:
        """Note what became stale with a turn that has begun, and clear it; neither hinders the turn."""
        scope = turn.scope
        if turn.recalls and self._covers(scope):
            stretch = StaleStretch(
                session_id=turn.session.id,
                incarnation=turn.session.incarnation,
                begins=turn.stale_from,
                ends=turn.stale_before,
                persona=turn.persona,
                private_types=tuple(turn.policies.privacy_also),
                language=turn.language,
            )
            key = owner_key(owner_scope(scope))
            self._unnoted.put(key, (*(self._unnoted.peek(key) or ()), stretch))
            self._settled.pop(key)
            try:
                await self._note_all(scope)
            except TenutoError as error:
                _log.warning("a stale stretch is noted by this process alone: %s", type(error).__name__)
        try:
            # With the answer it would be too late: a process that ends before has forgotten that it was stale.
            await self._clear(scope, turn.session, turn.stale_before)
        except TenutoError as error:
            _log.info("a stale session is cleared with its answer: %s", error.code)

    def may_be_due(self, turn: TurnSnapshot) -> bool:
        """Whether stretches of the owner of a turn may wait, as far as this process knows."""
        if turn.policies.sessions.stale_after is None or not self._covers(turn.scope):
            return False
        return owner_key(owner_scope(turn.scope)) not in self._settled

    async def capture_due(self, scope: Scope) -> None:
        """Remember the stretches of an owner that are due. What fails stays due."""
        key = owner_key(owner_scope(scope))
        # Before the look: what is noted meanwhile is looked for again.
        self._settled.put(key, True)
        try:
            await self._note_all(scope)
            failure: Exception | None = None
            for stretch in await self._memories.stale.due(scope):
                try:
                    await self._capture(scope, stretch)
                    await self._memories.stale.settle(scope, stretch)
                except Exception as error:
                    # The others do not wait for it.
                    failure = error
            if failure is not None:
                raise failure
        except BaseException:
            self._settled.pop(key)
            raise

    def _covers(self, scope: Scope) -> bool:
        policy = self._memories.policy
        return policy.covers(scope) and (scope.chat is None or policy.stale_groups)

    async def _note_all(self, scope: Scope) -> None:
        key = owner_key(owner_scope(scope))
        while stretches := self._unnoted.peek(key):
            await self._memories.stale.note(scope, stretches[0])
            self._unnoted.put(key, tuple([one for one in self._unnoted.peek(key) or () if one is not stretches[0]]))
        self._unnoted.pop(key)

    async def _clear(self, scope: Scope, session: Session, ends: int) -> None:
        if session.window_start < ends:
            await self._sessions.patch(scope, session.id, Changes(window_start=ends))

    async def _capture(self, scope: Scope, stretch: StaleStretch) -> None:
        try:
            page = await self._sessions.messages(
                scope, stretch.session_id, Page(limit=_PAGE, before=stretch.ends, touch=False)
            )
            if page.session.incarnation != stretch.incarnation:
                return
            await self._clear(scope, page.session, stretch.ends)
        except SessionNotFound:
            return
        talk = [
            one
            for one in of_persona(page.messages, stretch.persona)
            if one.seq >= stretch.begins
            and one.role in (Role.USER, Role.ASSISTANT)
            and one.text.strip()
            and not is_summary(one)
        ][-_MESSAGES:]
        if any(one.role is Role.USER for one in talk):
            await self._remember(scope, page.session, stretch, talk)

    async def _remember(self, scope: Scope, session: Session, stretch: StaleStretch, talk: Sequence[Message]) -> None:
        summary = await self._compressor.retell(scope, talk, stretch.language)
        said = "\n".join([one.text for one in talk])
        (text,) = await self._redaction.for_memory(session, stretch.private_types, said, [summary])
        if not text:
            return
        tags = {speaker_tag(scope.tenant, one.speaker) for one in talk if one.role is Role.USER and one.speaker}
        episode = Memory(
            # The same end of the same session is remembered once, by whichever process captures it.
            id=captured_id("stale", session.id, talk[-1].id),
            kind=MemoryKind.EPISODE,
            text=text[:MAX_MEMORY],
            said_at=talk[-1].sent_at,
            source=MemorySource.STALE,
            # Whose words are in it: the erasure of one of them takes it along.
            speaker=" ".join(sorted(tags)) if scope.chat is not None else "",
            session_id=session.id,
            seqs=(talk[0].seq, talk[-1].seq),
            persona=stretch.persona,
        )
        if await self._is_there(scope, session):
            stored = await self._memories.remember(scope, (episode,))
            if stored and not await self._is_there(scope, session):
                # It was deleted, or its user erased, in this moment.
                await self._memories.withdraw(scope, [one.id for one in stored], {})

    async def _is_there(self, scope: Scope, session: Session) -> bool:
        try:
            return (await self._sessions.get(scope, session.id)).incarnation == session.incarnation
        except SessionNotFound:
            return False
