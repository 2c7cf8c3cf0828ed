"""Capture: after a turn, remember what the user said of themselves.

Only the user's own sentences are captured, never an answer: what was recalled into an answer is not remembered again.
With a model, it chooses and labels them. Without one, those that state something about the user are quoted.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import Task
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import msgspec

from tenuto.background import run_in_background
from tenuto.errors import Invalid, SessionNotFound, TenutoError
from tenuto.model import Message, Page, Scope
from tenuto.model.generation import TurnSnapshot
from tenuto.model.memory import Memory, MemoryKind, MemorySource
from tenuto.model.message import is_said_by_user
from tenuto.model.policy import ContextPolicy, Preset, SessionPolicy
from tenuto.model.prompt import Language, PromptPolicy
from tenuto.model.scope import speaker_tag
from tenuto.ports import Clock
from tenuto.privacy.turn_redaction import UpkeepRedaction
from tenuto.process_identity import with_holder
from tenuto.recall.records import MemoryLog
from tenuto.recall.service import Memories, captured_id
from tenuto.recall.unread_marks import Marks, ReadThrough, UnreadMark, claim_marks, is_claimed, remove_marks, set_mark
from tenuto.sessions import Sessions, fresh_id
from tenuto.upkeep.capture_queue import WITH_MODEL, WITHOUT_MODEL, Captured, CaptureQueue
from tenuto.upkeep.jobs import Jobs, SmallModel
from tenuto.upkeep.model_notes import CapturedNote, quoted_notes
from tenuto.upkeep.note_taking import NoteTaker
from tenuto.upkeep.quotes import READ, states_something
from tenuto.upkeep.quotes import quotable_sentences as quotable_sentences  # Scripts that measure recall import it here.
from tenuto.upkeep.standing_instructions import InstructionFinder
from tenuto.upkeep.unread import CaptureBacklog, UnreadStatements, oldest_due

# Statements of a session and sessions of an owner that are read and stored together, and messages that are looked
# through for them.
_READ_AT_ONCE: Final = 10
_SESSIONS_AT_ONCE: Final = 8
_PAGE: Final = 100
_MOST_MEMORIES: Final = 500
_NO_POLICIES: Final = Preset(sessions=SessionPolicy(), context=ContextPolicy())
_log = logging.getLogger(__name__)


class Capturer:
    """Remembers after turns."""

    def __init__(
        self,
        *,
        memories: Memories,
        sessions: Sessions,
        model: SmallModel | None,
        redaction: UpkeepRedaction,
        jobs: Jobs,
        clock: Clock,
    ) -> None:
        self._memories = memories
        self._sessions = sessions
        self._model = model
        self._redaction = redaction
        self._notes = NoteTaker(model=model, redaction=redaction)
        self._instructions = InstructionFinder(memories.embedder)
        self._clock = clock
        self._unread = UnreadStatements(self._may_matter)
        self._storing: set[Task[None]] = set()
        # By which other processes of the machine tell whether this one is gone.
        self._reader = with_holder(fresh_id())
        self.queue = CaptureQueue(
            jobs=jobs,
            unread=self._unread,
            capture=self._capture,
            adopt=self._adopt,
            is_claimed=self._is_claimed,
            pace=WITHOUT_MODEL if model is None else WITH_MODEL,
        )

    @property
    def backlog(self) -> CaptureBacklog:
        """What was said and not read yet, as far as this process knows."""
        return self._unread.backlog

    def hear(self, turn: TurnSnapshot) -> Task[None] | None:
        """Note what the user said in a turn, which is captured later.

        Returns what stores a mark of that, if the session has none, and forgets what an edit has removed: waited for
        before the turn is answered, it makes sure that neither is lost with this process.
        """
        if not self._covers(turn):
            return None
        statements = self._unread.note(turn)
        # What waits holds no history.
        turn = msgspec.structs.replace(turn, log_tail=(), question="", answer="")
        work: list[Callable[[TurnSnapshot], Awaitable[None]]] = []
        if self._unread.is_due(turn):
            self.queue.add(turn, statements)
            # A search waits a second for what is read, and the weights of an encoder take longer.
            self._memories.vectors.warm()
            if not self._is_marked(turn):
                work.append(self._mark)
        if turn.edited_from:
            work.append(self._forget_edited)
        if not work:
            return None
        storing = run_in_background(_in_turn(work, turn), "capture mark")
        self._storing.add(storing)
        storing.add_done_callback(self._storing.discard)
        return storing

    def _is_marked(self, turn: TurnSnapshot) -> bool:
        number, stored = self._unread.last_mark(turn), self._memories.last_marks(turn.scope).get(turn.session.id)
        return bool(number) and stored is not None and stored.number == number

    async def _mark(self, turn: TurnSnapshot) -> None:
        mark = set_mark(turn.session.id, self._clock(), isolated=turn.persona is not None)
        try:
            log = await self._memories.change_marks(turn.scope, mark)
        except TenutoError as error:
            # The next turn of the session finds it all the same. In an outage this is so of every turn.
            _log.info("that a session has something to be remembered was not stored: %s", error.code)
        else:
            self._unread.set_mark(turn, log.unread[turn.session.id].number)

    async def stop(self) -> None:
        """Capture nothing by itself any more until the next turn; what is left stays due."""
        await self.queue.stop()
        while self._storing:
            await asyncio.wait(self._storing)

    async def _adopt(self, scope: Scope, session_id: str, marks: Marks) -> TurnSnapshot | None:
        """A session that another process has marked; a mark of one that is gone is removed."""
        try:
            session = (await self._sessions.messages(scope, session_id, Page(limit=1, touch=False))).session
        except SessionNotFound:
            await self._memories.drop_sessions(scope, {session_id: marks[session_id].number})
            return None
        language = session.context.get("language")
        turn = TurnSnapshot(
            scope=session.scope,
            session=session,
            assistant="",
            language=Language.CHINESE if language == Language.CHINESE else Language.ENGLISH,
            # The types of private data that its assistants keep out of records are noted in the session.
            policies=_NO_POLICIES,
            prompt=PromptPolicy(),
            question="",
            # Its messages name the persona.
            persona="" if marks[session_id].isolated else None,
            recalls=True,
        )
        if not self._covers(turn):
            # The policy was changed since.
            await self._memories.change_marks(scope, remove_marks({session_id: marks[session_id].number}))
            return None
        self._unread.find_due(turn)
        return turn

    async def _capture(self, turns: Sequence[TurnSnapshot]) -> Captured:
        """Remember a portion of what was said in sessions of one owner, each statement once.

        The stored marks move with what was stored, and not before: what a process that ends has not read stays due.
        """
        turns = turns[:_SESSIONS_AT_ONCE]
        log = await self._claim(turns)
        portions: dict[str, _Portion] = {}
        read: dict[str, TurnSnapshot] = {}
        progress: dict[str, ReadThrough] = {}
        failed: dict[str, Exception] = {}
        for turn in turns:
            mark = log.unread.get(turn.session.id, UnreadMark(0))
            if self._is_claimed(mark):
                continue
            read[turn.session.id] = turn
            through = max(self._unread.read_through(turn) or 0, log.captured.get(turn.session.id, 0))
            try:
                portion = await self._read_unread(turn, through, mark.since)
            except SessionNotFound:
                self._unread.drop(turn)
                portion = _Portion([], 0, more=False, incarnation="")
                # Nothing else is stored: its user may have been erased.
                await self._memories.drop_sessions(turn.scope, {turn.session.id: mark.number})
                mark = UnreadMark(0)
            except Exception as error:
                # It may be damaged for good: what was said elsewhere is captured all the same.
                failed[turn.session.id] = error
                continue
            portions[turn.session.id] = portion
            if portion.messages or mark.number:
                progress[turn.session.id] = ReadThrough(portion.through, 0 if portion.more else mark.number)
        names = [name for name, one in portions.items() if one.messages]
        extractions = [self._extract(read[name], portions[name].messages) for name in names]
        notes: list[Memory] = []
        for name, extracted in zip(names, await asyncio.gather(*extractions, return_exceptions=True), strict=True):
            if isinstance(extracted, Exception):
                failed[name] = extracted
                del portions[name], progress[name]
            elif isinstance(extracted, BaseException):
                raise extracted
            else:
                notes += extracted
        if progress:
            await self._store(turns[0].scope, portions, notes, progress)
        for name, portion in portions.items():
            self._unread.settle(read[name], portion.through, more=portion.more)
        done = {name for name, one in portions.items() if not one.more}
        any_read = any(one.messages or one.more for one in portions.values())
        return Captured(done, any_read=any_read, failed=failed)

    def _is_claimed(self, mark: UnreadMark) -> bool:
        return is_claimed(mark, self._reader, self._clock())

    async def _claim(self, turns: Sequence[TurnSnapshot]) -> MemoryLog:
        """How far the sessions were read, and who reads them: with a model this process, unless another one does."""
        scope = turns[0].scope
        for turn in turns:
            # What is said from now on has a mark of its own.
            self._unread.begin(turn)
        if self._model is None:
            # Two processes that quote the same make one memory.
            return await self._memories.last_log(scope)
        names = [turn.session.id for turn in turns]
        return await self._memories.change_marks(scope, claim_marks(names, self._reader, self._clock()))

    async def _read_unread(self, turn: TurnSnapshot, through: int, marked_since: float) -> _Portion:
        """The oldest statements after a message of the stored session."""
        since, last = oldest_due(turn.session, marked_since), through
        read = _Portion([], through, more=True, incarnation="")
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
                if is_said_by_user(one) and (through or one.sent_at >= since) and self._may_matter(one.text)
            ]
            last = page.messages[-1].seq if page.messages else last
            session = page.session
            read = _Portion(statements[:_READ_AT_ONCE], last, page.more_after, session.incarnation, session.version)
            if len(statements) > _READ_AT_ONCE:
                read = read._replace(through=read.messages[-1].seq, more=True)
        return read

    async def _forget_edited(self, turn: TurnSnapshot) -> None:
        """Take back what was captured from messages that an edit has removed; what was said elsewhere, too, stays."""
        try:
            memories = await self._memories.list(
                turn.scope, session_id=turn.session.id, superseded=True, limit=_MOST_MEMORIES
            )
            for one in memories:
                from_messages = one.source is not MemorySource.WRITTEN and bool(one.seqs)
                if from_messages and one.seqs[-1] >= turn.edited_from and one.seqs[0] < turn.edited_until:
                    await self._memories.unmention(turn.scope, one.id)
        except TenutoError as error:
            _log.warning("what was remembered of an edited message was not forgotten: %s", error.code)

    def _covers(self, turn: TurnSnapshot) -> bool:
        policy, scope = self._memories.policy, turn.scope
        return turn.recalls and policy.covers(scope) and (scope.chat is None or policy.in_groups)

    async def _store(
        self,
        scope: Scope,
        portions: Mapping[str, _Portion],
        memories: Sequence[Memory],
        progress: Mapping[str, ReadThrough],
    ) -> None:
        """Store memories of what is still there: a model may have taken a minute to make them."""
        gone: set[str] = set()
        if self._model is not None:
            gone, removed = await self._find_gone(scope, portions)
            memories = [one for one in memories if one.session_id not in gone and not _is_of(one, removed)]
        there = {name: one for name, one in progress.items() if name not in gone}
        stored: Sequence[Memory] = ()
        if there:
            try:
                stored = await self._memories.remember(scope, memories, there)
            except Invalid:
                _log.warning("preferences are remembered as facts: the user has as many as are kept")
                facts = [msgspec.structs.replace(one, kind=MemoryKind.FACT) for one in memories]
                stored = await self._memories.remember(scope, facts, there)
        if stored:
            since, removed = await self._find_gone(scope, portions)
            gone |= since
            for one in stored:
                if _is_of(one, removed):
                    await self._memories.unmention(scope, one.id)
        if gone:
            # It was deleted, or its user erased, since it was read.
            marks = {name: progress[name].mark for name in gone if name in progress}
            await self._memories.withdraw(scope, [one.id for one in stored if one.session_id in gone], marks)

    async def _find_gone(self, scope: Scope, portions: Mapping[str, _Portion]) -> tuple[set[str], set[tuple[str, int]]]:
        """The sessions that are not there any more, or are others of the same id; of the others, messages that are
        not there any more."""
        gone: set[str] = set()
        removed: set[tuple[str, int]] = set()
        for session_id, portion in portions.items():
            read = [one.seq for one in portion.messages]
            try:
                session = await self._sessions.get(scope, session_id)
                if session.incarnation != portion.incarnation:
                    gone.add(session_id)
                elif read and session.version != portion.version:
                    query = Page(limit=_PAGE, after=read[0] - 1, touch=False)
                    page = await self._sessions.messages(scope, session_id, query)
                    seen = {one.seq for one in page.messages}
                    last = max(seen) if page.more_after else read[-1]
                    removed |= {(session_id, seq) for seq in read if seq <= last and seq not in seen}
            except SessionNotFound:
                gone.add(session_id)
        return gone, removed

    def _may_matter(self, text: str) -> bool:
        return states_something(text) or self._instructions.may_find(text)

    async def _extract(self, turn: TurnSnapshot, messages: Sequence[Message]) -> list[Memory]:
        """What is to be remembered of these statements of a session."""
        if cut := sum(len(one.text) > READ for one in messages):
            _log.info("%s messages were read for memories up to their character %s only", cut, READ)
        taken = await self._notes.take_notes(turn, messages)
        quoted = ["" if notes is not None else one.text for one, notes in zip(messages, taken, strict=True)]
        instructions = await self._instructions.find(turn.scope, quoted)
        memories = await asyncio.gather(*map(partial(self._make_memories, turn), messages, taken, instructions))
        return [memory for each in memories for memory in each]

    async def _make_memories(
        self, turn: TurnSnapshot, message: Message, notes: list[CapturedNote] | None, instructions: Sequence[str]
    ) -> Sequence[Memory]:
        source = MemorySource.MODEL if notes is not None else MemorySource.QUOTE
        if notes is None:
            notes = quoted_notes(message.text, instructions)
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
                persona=(message.persona or turn.persona or None) if turn.persona is not None else None,
                subject=subject,
                replaces=note.replaces,
            )
            for note, text, subject in zip(notes, clean[::2], clean[1::2], strict=True)
            if text
        ]

    async def _redact(self, turn: TurnSnapshot, message: str, notes: Sequence[str]) -> list[str]:
        """Notes as the policy and the types of the session and its assistant allow them."""
        return await self._redaction.for_memory(turn.session, turn.policies.privacy_also, message, notes)


async def _in_turn(work: Sequence[Callable[[TurnSnapshot], Awaitable[None]]], turn: TurnSnapshot) -> None:
    for each in work:
        await each(turn)


class _Portion(NamedTuple):
    """Statements that are read together, the last message that is read with them, whether more come, and the session
    as it was then."""

    messages: list[Message]
    through: int
    more: bool
    incarnation: str
    version: int = 0


def _is_of(memory: Memory, messages: Collection[tuple[str, int]]) -> bool:
    return any((memory.session_id, seq) in messages for seq in memory.seqs)
