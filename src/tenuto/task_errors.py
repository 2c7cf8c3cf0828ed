"""Errors of tasks: their plans, steps, boards and engine."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import ClassVar, Final

from tenuto.errors import Conflict, FailureReason, Invalid, LimitReached, NotFound, Unavailable

_AGENT_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.:-]{0,63}")


class PlanInvalid(Invalid):
    """A plan that cannot run. `step` is the step at fault, `None` if it is the plan as a whole."""

    code: ClassVar[str] = "plan_invalid"

    def __init__(self, step: str | None, why: str) -> None:
        super().__init__(f"the plan {why}" if step is None else f"step {step} {why}")
        self.step = step


class TaskNotFound(NotFound):
    """Absent, foreign, expired or deleted: the caller cannot tell which."""

    code: ClassVar[str] = "task_not_found"

    def __init__(self, task_id: str) -> None:
        super().__init__("task not found")
        self.task_id = task_id


class AgentNotFound(Invalid):
    """No agent is registered under this name: the plan that names it cannot run."""

    code: ClassVar[str] = "agent_not_found"

    def __init__(self, agent: str, step: str | None = None) -> None:
        # A name is repeated only where it looks like one; anything else may be what a user wrote.
        named = f"the agent {agent}" if _AGENT_NAME.fullmatch(agent) else "an agent"
        subject = named if step is None else f"step {step} names {named}, which"
        super().__init__(f"{subject} does not exist")
        self.agent = agent
        self.step = step


class StepNotFound(NotFound):
    """The task's plan has no such step."""

    code: ClassVar[str] = "step_not_found"

    def __init__(self, step: str) -> None:
        super().__init__("the task's plan has no such step")
        self.step = step


class EntryNotFound(NotFound):
    """The task's board or the agent's notes have no such key."""

    code: ClassVar[str] = "entry_not_found"

    def __init__(self, task_id: str, key: str) -> None:
        super().__init__("there is no entry under this key")
        self.task_id = task_id
        self.key = key


class TaskFinished(Conflict):
    """The task has ended: its data can be read but not changed."""

    code: ClassVar[str] = "task_finished"

    def __init__(self, task_id: str) -> None:
        super().__init__("the task has ended")
        self.task_id = task_id


class TaskRunning(Conflict):
    """The task has not ended, so it cannot be resumed."""

    code: ClassVar[str] = "task_running"

    def __init__(self, task_id: str) -> None:
        super().__init__("the task has not ended")
        self.task_id = task_id


class StepNotWaiting(Conflict):
    """The step does not wait for a person: it has not begun, has ended, or is an agent's."""

    code: ClassVar[str] = "step_not_waiting"

    def __init__(self, step: str) -> None:
        super().__init__(f"step {step} does not wait for an answer")
        self.step = step


class StepLost(Conflict):
    """Another worker has begun this step, since this one seemed dead; nothing was written."""

    code: ClassVar[str] = "step_lost"

    def __init__(self, step: str) -> None:
        super().__init__(f"another worker has begun step {step}")
        self.step = step


class KeyProtected(Conflict):
    """Only another agent may write this key of the board."""

    code: ClassVar[str] = "key_protected"

    def __init__(self, key: str) -> None:
        super().__init__("this key is protected: only another agent may write it")
        self.key = key


class KeyLocked(Conflict):
    """The key of a board is locked; `retry_after` is the lock's rest, unless its holder renews or ends it."""

    code: ClassVar[str] = "key_locked"

    def __init__(self, key: str, retry_after: timedelta) -> None:
        super().__init__("this key is locked: until the lock ends, only its holder may write, using the lock's token")
        self.key = key
        self.retry_after = retry_after


class ValueMismatch(Conflict):
    """The value of the board's key is of another kind than the change needs."""

    code: ClassVar[str] = "value_mismatch"

    def __init__(self, key: str, needed: str) -> None:
        super().__init__(f"the value of this key is not a {needed}")
        self.key = key


class LockLost(Conflict):
    """The lock of this token has ended, or another agent holds it; nothing was written."""

    code: ClassVar[str] = "lock_lost"

    def __init__(self, key: str, token: int) -> None:
        super().__init__("the lock with this token has ended, or another agent holds it")
        self.key = key
        self.token = token


class BoardFull(LimitReached):
    """A board, or an agent's notes, have the maximum of keys; deleted keys of a board count."""

    code: ClassVar[str] = "board_full"

    def __init__(self, limit: int) -> None:
        super().__init__(f"there are already {limit} keys; deleted keys of a board count")
        self.limit = limit


class EngineUnavailable(Unavailable):
    """This installation cannot run plans as it is; `why` says what it lacks."""

    code: ClassVar[str] = "engine_unavailable"
    retry_after: ClassVar[None] = None

    def __init__(self, why: str) -> None:
        super().__init__("task engine", f"cannot be opened: {why}")


class TaskFailed(Unavailable):
    """The task that should answer a turn failed; the same turn, tried again, goes on at the failed step.

    `reason` is that of the model, where a model's failure ended the step.
    """

    code: ClassVar[str] = "task_failed"

    def __init__(
        self, task_id: str, step: str | None = None, why: str = "task_timeout", reason: FailureReason | None = None
    ) -> None:
        super().__init__(f"task {task_id}", f"failed at step {step}: {why}" if step is not None else f"failed: {why}")
        self.task_id = task_id
        self.step = step
        self.reason = reason
