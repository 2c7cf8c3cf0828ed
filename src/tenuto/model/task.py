"""Work that several agents share: a task, the board they write on, and what each keeps to itself."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Final

from tenuto.errors import FailureReason
from tenuto.model.prompt import Language
from tenuto.model.values import Json, Value, check_id, check_int, check_text

TASKS: Final = "tasks"
"""The namespace of tasks in the state of their owner."""
TASK_PARTS: Final = "task-"
"""How the namespaces of a task's board, notes, plan, steps and runs begin."""


def is_task_namespace(namespace: str) -> bool:
    """Whether a namespace holds tasks or their parts."""
    return namespace == TASKS or namespace.startswith(TASK_PARTS)


class TaskStatus(StrEnum):
    """The status of a task; `completed` and `failed` are final."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"


class NewTask(Value, frozen=True, kw_only=True):
    """A task to open. `type` decides who may write its protected keys; `session_id` names the talk it came out of;
    `language` is that in which its user is answered, if it is known."""

    type: str
    goal: str = ""
    session_id: str | None = None
    language: Language | None = None

    def __post_init__(self) -> None:
        check_id(self.type, "the task's type")
        check_text(self.goal, "the task's goal")
        if self.session_id is not None:
            check_id(self.session_id, "the session id")


AGENT_FAILED: Final = "agent_failed"
"""The code of a step whose agent raised something of its own."""


class TaskError(Value, frozen=True, kw_only=True):
    """Why a task or a step failed: a stable code, a sentence, the step at fault, and why a model failed if one did.

    The sentence of an agent's own exception has its message, as far as the privacy policy of tasks lets it pass.
    """

    code: str
    message: str = ""
    step: str | None = None
    reason: FailureReason | None = None


class Task(Value, frozen=True, kw_only=True):
    """A task without its board. Its expiry moves with each change of the task itself; the board goes with it.

    It was begun at `started_at`, for the last time if it was run again. An engine that runs the task's plan counts its
    `runs`, and ends a run that is not finished at `deadline_at`.
    """

    id: str
    type: str
    goal: str
    session_id: str | None
    status: TaskStatus
    result: Json
    created_at: datetime
    updated_at: datetime
    completed_at: datetime | None
    expires_at: datetime
    version: int
    error: TaskError | None = None
    runs: int = 0
    started_at: datetime | None = None
    deadline_at: datetime | None = None
    language: Language | None = None

    @property
    def is_finished(self) -> bool:
        """Whether it has ended, well or not."""
        return self.completed_at is not None


class TaskQuery(Value, frozen=True, kw_only=True):
    """Which tasks to list, in the order of their ids, or by the time of their opening if `newest_first`."""

    limit: int = 50
    cursor: str | None = None
    session_id: str | None = None
    status: TaskStatus | None = None
    newest_first: bool = False

    def __post_init__(self) -> None:
        check_int(self.limit, 1, 1000, "limit")
        if self.session_id is not None:
            check_id(self.session_id, "the session id")


class TaskPage(Value, frozen=True, kw_only=True):
    """Part of a listing; `cursor` continues it, `None` ends it."""

    tasks: tuple[Task, ...]
    cursor: str | None = None


class BoardEntry(Value, frozen=True, kw_only=True):
    """The entry of one key of a board.

    `version` counts the key's changes and never goes back, also where it was deleted in between. `previous_writer` is
    the last one before this writer who was another one.
    """

    key: str
    value: Json
    writer: str
    written_at: datetime
    version: int
    previous_writer: str | None = None


class BoardChange(Value, frozen=True, kw_only=True):
    """One write or deletion of a key, without its value; `version` is that of the key after it."""

    key: str
    version: int
    writer: str
    at: datetime
    deleted: bool = False


class BoardLock(Value, frozen=True, kw_only=True):
    """A key that one agent has for itself for a while.

    Each lock of a key has a greater `token` than the one before it: what was begun under an older lock is told by it.
    """

    key: str
    holder: str
    token: int
    expires_at: datetime


class BoardView(Value, frozen=True, kw_only=True):
    """A whole board, in order of its keys, and the locks that hold at present."""

    entries: tuple[BoardEntry, ...]
    locks: tuple[BoardLock, ...]


class TaskEventType(StrEnum):
    """The type of an event; of events at the same instant, those of an earlier type come first."""

    TASK_OPENED = "task.opened"
    TASK_STARTED = "task.started"
    STEP_STARTED = "step.started"
    STEP_WAITING = "step.waiting"
    STEP_FINISHED = "step.finished"
    BOARD_CHANGED = "board.changed"
    TASK_FINISHED = "task.finished"


class TaskEvent(Value, frozen=True, kw_only=True):
    """Something that happened to a task; it holds ids and states, and no value of the board.

    `id` is the same each time the event is read. `agent` is that of the step, or the writer of the board's `key`;
    `status` is that of what has ended, or `written` or `deleted`; `run` counts how often the task was begun.
    """

    id: str
    type: TaskEventType
    at: datetime
    step: str | None = None
    agent: str | None = None
    key: str | None = None
    version: int | None = None
    status: str | None = None
    attempts: int | None = None
    run: int | None = None
    error_code: str | None = None


class Note(Value, frozen=True, kw_only=True):
    """What an agent keeps to itself under a key, until `expires_at`."""

    key: str
    value: Json
    written_at: datetime
    expires_at: datetime
    version: int


class TaskSweep(Value, frozen=True, kw_only=True):
    """What one step of sweeping removed; `more` tells that another step is needed."""

    tasks: int = 0
    more: bool = False
