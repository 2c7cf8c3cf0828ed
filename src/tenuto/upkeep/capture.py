"""Capture: after a turn, remember what the user said of themselves.

Only the user's own sentences are captured, never an answer: what was recalled into an answer is not remembered again.
With a model, it chooses and labels them. Without one, those that state something about the user are quoted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

import msgspec

from tenuto.errors import Invalid, SessionNotFound
from tenuto.model import Message, Page, Role
from tenuto.model.generation import TurnEnded
from tenuto.model.memory import Memory, MemoryKind, MemorySource
from tenuto.model.scope import speaker_tag
from tenuto.privacy.turn_redaction import UpkeepRedaction
from tenuto.recall.service import Memories, captured_id
from tenuto.sessions import Sessions
from tenuto.upkeep.jobs import SmallModel
from tenuto.upkeep.model_notes import CapturedNote, quoted_notes
from tenuto.upkeep.note_taking import NoteTaker
from tenuto.upkeep.quotes import READ, states_something
from tenuto.upkeep.unread import CaptureBacklog, Due, UnreadStatements, oldest_due

# Statements that are read and stored together, and messages that are looked through for them.
_READ_AT_ONCE: Final = 10
_PAGE: Final = 100
_MOST_MEMORIES: Final = 500
_log = logging.getLogger(__name__)


class Capturer:
    """Remembers after turns."""

    def __init__(
        self, *, memories: Memories, sessions: Sessions, model: SmallModel | None, redaction: UpkeepRedaction
    ) -> None:
        self._memories = memories
        self._sessions = sessions
        self._notes = NoteTaker(model=model, redaction=redaction)
        self._redaction = redaction
        self._unread = UnreadStatements(states_something, _READ_AT_ONCE)

    @property
    def backlog(self) -> CaptureBacklog:
        """What was said and not read yet, as far as this process knows."""
        return self._unread.backlog

    def due(self, turn: TurnEnded) -> Due | None:
        """What is to be read after a turn: all that the user stated since the last message that was read.

        A process that does not know that one asks the store, since another may have died before it read the rest.
        """
        return self._unread.note(turn) if self._covers(turn) else None

    async def capture(self, turn: TurnEnded, due: Due) -> bool:
        """Remember a portion of what the user said, each statement once; returns whether more is due.

        The stored mark moves with what was stored, and not before: what a process that ends has not read stays due.
        """
        through = self._unread.read_through(turn)
        if through is None or len(due.messages) != 1:
            # A single message is this turn's own; others may have been read by another process.
            through = max(through or 0, await self._memories.captured_through(turn.scope, turn.session.id))
        portion = _Portion([one for one in due.messages if one.seq > through], through, more=False)
        if portion.messages:
            portion = portion._replace(through=portion.messages[-1].seq)
        else:
            try:
                portion = await self._read_unread(turn, through)
            except SessionNotFound:
                self._unread.drop(turn)
                return False
        if portion.messages:
            notes = await self._extract(turn, portion.messages)
            await self._remember(turn, notes, (turn.session.id, portion.through))
        self._unread.settle(turn, portion.through)
        return portion.more

    async def _read_unread(self, turn: TurnEnded, through: int) -> _Portion:
        """The oldest statements after a message of the stored session."""
        since, last, read = oldest_due(turn.session), through, _Portion([], through, more=True)
        while read.more and not read.messages:
            query = Page(limit=_PAGE, after=last, touch=False)
            page = await self._sessions.messages(turn.scope, turn.session.id, query)
            if last > page.session.last_seq:
                # The mark is of an earlier session of this id.
                through = last = 0
                continue
            statements = [
                one
                for one in page.messages
                if one.role is Role.USER and (through or one.sent_at >= since) and states_something(one.text)
            ]
            last = page.messages[-1].seq if page.messages else last
            read = _Portion(statements[:_READ_AT_ONCE], last, more=page.more_after)
            if len(statements) > _READ_AT_ONCE:
                read = _Portion(read.messages, read.messages[-1].seq, more=True)
        return read

    async def forget_edited(self, turn: TurnEnded) -> None:
        """Take back what was captured from messages that an edit has removed; what was said elsewhere, too, stays."""
        if not self._covers(turn):
            return
        memories = await self._memories.list(
            turn.scope, session_id=turn.session.id, superseded=True, limit=_MOST_MEMORIES
        )
        for one in memories:
            from_messages = one.source is not MemorySource.WRITTEN and bool(one.seqs)
            if from_messages and one.seqs[-1] >= turn.edited_from and one.seqs[0] < turn.edited_until:
                await self._memories.unmention(turn.scope, one.id)

    def _covers(self, turn: TurnEnded) -> bool:
        policy, scope = self._memories.policy, turn.scope
        return turn.recalls and policy.covers(scope) and (scope.chat is None or policy.in_groups)

    async def _remember(
        self, turn: TurnEnded, memories: Sequence[Memory], progress: tuple[str, int] | None = None
    ) -> None:
        """Store memories of a session that is still there: a model may have taken a minute to make them."""
        if not await self._is_there(turn):
            return
        try:
            stored = await self._memories.remember(turn.scope, memories, progress)
        except Invalid:
            # There are too many preferences: as facts they are found, at least.
            facts = [msgspec.structs.replace(one, kind=MemoryKind.FACT) for one in memories]
            stored = await self._memories.remember(turn.scope, facts, progress)
        if stored and not await self._is_there(turn):
            # It was deleted, or its user erased, in this moment.
            await self._memories.forget(turn.scope, [one.id for one in stored])

    async def _is_there(self, turn: TurnEnded) -> bool:
        try:
            session = await self._sessions.get(turn.scope, turn.session.id)
        except SessionNotFound:
            return False
        return session.incarnation == turn.session.incarnation

    async def _extract(self, turn: TurnEnded, messages: Sequence[Message]) -> list[Memory]:
        """What is to be remembered of these statements of a session."""
        taken = await self._notes.take_notes(turn, messages)
        memories = await asyncio.gather(*map(partial(self._make_memories, turn), messages, taken))
        return [memory for each in memories for memory in each]

    async def _make_memories(
        self, turn: TurnEnded, message: Message, notes: list[CapturedNote] | None
    ) -> Sequence[Memory]:
        source = MemorySource.MODEL if notes is not None else MemorySource.QUOTE
        if notes is None:
            notes = quoted_notes(message.text)
        scope = turn.scope
        texts = [part for note in notes for part in (note.text, note.subject)]
        clean = await self._redact(turn, message.text[:READ], texts)
        speaker = speaker_tag(scope.tenant, message.speaker) if scope.chat is not None and message.speaker else ""
        return [
            Memory(
                # By its place: quoted after a model was asked, or asked again, it is the same memory.
                id=captured_id("said", turn.session.id, message.id, str(note.start), str(len(note.text))),
                kind=MemoryKind(note.kind),
                text=text,
                said_at=message.sent_at,
                source=source,
                speaker=speaker,
                session_id=turn.session.id,
                seqs=(message.seq,),
                persona=(message.persona or turn.persona) if turn.persona is not None else None,
                subject=subject,
                replaces=note.replaces,
            )
            for note, text, subject in zip(notes, clean[::2], clean[1::2], strict=True)
            if text
        ]

    async def _redact(self, turn: TurnEnded, message: str, notes: Sequence[str]) -> list[str]:
        """Notes as the policy and the types of the session and its assistant allow them."""
        return await self._redaction.for_memory(turn.session, turn.policies.privacy_also, message, notes)


class _Portion(NamedTuple):
    """Statements that are read together, the last message that is read with them, and whether more come."""

    messages: list[Message]
    through: int
    more: bool
