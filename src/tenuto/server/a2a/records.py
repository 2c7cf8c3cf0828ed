"""What a task of A2A notes beside our task: the turns of its session that belong to it. The session has their words."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from tenuto.chat.revision import digest_of_key
from tenuto.errors import SessionNotFound, Unavailable
from tenuto.model import Content, Message, Page, Scope
from tenuto.model.attachment import ATTACHMENT, SHOWING_PARTS
from tenuto.model.plan import TaskProgress
from tenuto.model.task import Task
from tenuto.model.turn import ONCE
from tenuto.model.values import Json, JsonObject, Value
from tenuto.sessions import Sessions
from tenuto.sessions.ids import derived_id
from tenuto.tasks import Tasks

TASK_TYPE = "a2a"
KEY = "a2a"
"""The key on the board of an unfinished task, and the agent that writes it."""
_PAGE = 200
# Two of them, escaped as JSON, are below the limit of a board's value.
_TEXT_BYTES = 8 * 1024


class TurnRecord(Value, frozen=True, kw_only=True):
    """`text` is the message under way, which has this `number` in the task, for this assistant; what was cut from it
    when it was stored is in the notes `rest`. `parts` are its pictures, sounds and files, which the model must take
    with `require_attachments`. Messages of the session up to `after` are older than the task, and `turns` are the ended
    turns of the task. It `waits` for the next message; `inner` are tasks that a turn ran itself. `reply` is the last
    answer, where no session holds it."""

    assistant: str
    after: int
    persona: str | None = None
    text: str = ""
    rest: tuple[str, ...] = ()
    parts: tuple[JsonObject, ...] = ()
    require_attachments: bool = False
    number: int = 0
    turns: tuple[int, ...] = ()
    waits: bool = False
    inner: tuple[str, ...] = ()
    reply: str = ""

    def to_json(self) -> Json:
        """The record as it is stored. A long text is cut; notes have its rest until the task ends."""
        rest = (*(_note_key(piece) for piece in _pieces(self.text)[1:]), *self.rest)
        built: Json = msgspec.to_builtins(replace(self, text=_cut(self.text), rest=rest, reply=_cut(self.reply)))
        return built


class LoadedTask(Value, frozen=True, kw_only=True):
    """A task with all that its A2A form needs; without a `record` it is a task that was not opened by A2A.

    `contents` are those that the message under way has brought: they are stored with its turn.
    """

    progress: TaskProgress
    record: TurnRecord | None = None
    version: int = 0
    messages: tuple[Message, ...] = ()
    contents: tuple[Content, ...] = ()

    @property
    def task(self) -> Task:
        """The task itself."""
        return self.progress.task

    @property
    def is_under_way(self) -> bool:
        """Whether a turn of it should be running."""
        return self.record is not None and not self.record.waits and not self.task.is_finished


class TaskRecords:
    """Tasks as A2A sees them, in their owner's scope."""

    def __init__(self, tasks: Tasks, sessions: Sessions) -> None:
        self._tasks = tasks
        self._sessions = sessions

    async def load(self, scope: Scope, task_id: str, *, talk: bool = True) -> LoadedTask:
        """A task, and with `talk` what was said in its turns.

        Raises:
            TaskNotFound: absent and foreign alike.
        """
        loaded = await self._with_record(scope, await self._tasks.progress(scope, task_id))
        if not talk or loaded.record is None or loaded.task.session_id is None or not loaded.record.turns:
            return loaded
        said = await self._read_turns(scope, loaded.task.session_id, loaded.record)
        return replace(loaded, messages=said)

    async def glance(self, scope: Scope, task: Task) -> LoadedTask:
        """A task of a listing, without what was said; an ended one costs no read."""
        if task.is_finished:
            return await self._with_record(scope, TaskProgress(task=task))
        return await self.load(scope, task.id, talk=False)

    async def _with_record(self, scope: Scope, progress: TaskProgress) -> LoadedTask:
        task = progress.task
        if task.type != TASK_TYPE:
            return LoadedTask(progress=progress)
        if task.is_finished:
            return LoadedTask(progress=progress, record=_parse(task.result))
        entry = await self._tasks.board(scope, task.id).read_entry(KEY)
        if entry is None:
            return LoadedTask(progress=progress)
        return LoadedTask(progress=progress, record=_parse(entry.value), version=entry.version)

    async def _read_turns(self, scope: Scope, session_id: str, record: TurnRecord) -> tuple[Message, ...]:
        said: list[Message] = []
        after, turns = record.after, frozenset(record.turns)
        try:
            while True:
                asked = Page(limit=_PAGE, after=after, touch=False)
                page = await self._sessions.messages(scope, session_id, asked)
                said += [message for message in page.messages if message.turn in turns and _is_shown(message)]
                if not page.more_after or page.messages[-1].turn > record.turns[-1]:
                    return tuple(said)
                after = page.messages[-1].seq
        except SessionNotFound:  # Deleted since.
            return ()

    async def write(self, scope: Scope, task_id: str, record: TurnRecord, *, if_version: int) -> None:
        """Note a record over the version that was read.

        Raises:
            VersionConflict: another call was faster.
            TaskFinished: the task has ended meanwhile.
        """
        notes, board = self._tasks.notes(scope, task_id, KEY), self._tasks.board(scope, task_id)
        for piece in _pieces(record.text)[1:]:
            await notes.write(_note_key(piece), piece)
        await board.write(KEY, record.to_json(), agent=KEY, if_version=if_version)

    async def whole_text(self, scope: Scope, task_id: str, record: TurnRecord) -> str:
        """The message under way, with what was cut from it.

        Raises:
            Unavailable: its notes have expired.
        """
        if not record.rest:
            return record.text
        noted = {note.key: note.value for note in await self._tasks.notes(scope, task_id, KEY).list()}
        if not noted.keys() >= set(record.rest):
            raise Unavailable("end of the message", "is no longer kept: send it again")
        return record.text + "".join(str(noted[key]) for key in record.rest)

    async def stored_parts(self, scope: Scope, session_id: str, record: TurnRecord, key: str) -> tuple[JsonObject, ...]:
        """The parts of the message under way, as a turn under this key has stored them before its process ended.

        Raises:
            Unavailable: it has not, and the contents went with the process.
        """
        if not any(ATTACHMENT in part for part in record.parts):
            return record.parts
        after, mark = record.after, digest_of_key(key)
        while True:
            page = await self._sessions.messages(scope, session_id, Page(limit=_PAGE, after=after, touch=False))
            for message in page.messages:
                if message.metadata.get(ONCE) == mark:
                    return tuple([part for part in message.parts if part["type"] in SHOWING_PARTS])
            if not page.more_after:
                raise Unavailable("attachment of the message", "was not stored: send it again")
            after = page.messages[-1].seq


def _is_shown(message: Message) -> bool:
    return bool(message.text) or any(part["type"] in SHOWING_PARTS for part in message.parts)


def _parse(stored: Json) -> TurnRecord | None:
    """A record; other agents of the task's owner may have written there, too."""
    try:
        return msgspec.convert(stored, TurnRecord)
    except msgspec.ValidationError:
        return None


def _cut(text: str) -> str:
    return text[:_TEXT_BYTES].encode()[:_TEXT_BYTES].decode(errors="ignore")


def _pieces(text: str) -> list[str]:
    """A text in pieces that can be stored."""
    pieces = []
    while text:
        pieces.append(_cut(text))
        text = text[len(pieces[-1]) :]
    return pieces


def _note_key(piece: str) -> str:
    """By its content: two messages for one task at the same time do not mix."""
    return derived_id("text-", piece)
