"""Tasks, boards and notes as JSON: the same over HTTP and in the CLI."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Self, TypeVar

from msgspec.structs import replace

from tenuto.model.plan import Operator, Step, StepRun, StepStatus, TaskProgress
from tenuto.model.task import AGENT_FAILED, TaskEventType, TaskStatus
from tenuto.model.values import View

_Error = TypeVar("_Error", bound="RunErrorView")


class RunErrorView(View, frozen=True, kw_only=True):
    """Why the last attempt failed; `code` is stable. The message of `agent_failed` is as in a task."""

    code: str
    message: str


class TaskErrorView(RunErrorView, frozen=True, kw_only=True):
    """Why a task or a step failed: a stable code, a sentence, and the step at fault. The sentence of `agent_failed` is
    what the agent raised, and empty for a credential that is bound to a user, unless its role is admin."""

    step: str | None


def without_exception(error: _Error | None) -> _Error | None:
    """The error without what code of agents raised."""
    return replace(error, message="") if error is not None and error.code == AGENT_FAILED else error


class TaskBrief(View, frozen=True, kw_only=True):
    """What a model can use of a task."""

    id: str
    session_id: str | None
    type: str
    goal: str
    status: TaskStatus
    version: int


class TaskView(TaskBrief, frozen=True, kw_only=True):
    """A task without its board. `runs` counts the runs of its plan, the last of which ends at `deadline_at`."""

    result: Any
    error: TaskErrorView | None
    runs: int
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    deadline_at: datetime | None
    completed_at: datetime | None
    expires_at: datetime

    def without_exceptions(self) -> Self:
        """The view without what code of agents raised: it speaks of the operator's machines."""
        return replace(self, error=without_exception(self.error))


class ConditionView(View, frozen=True, kw_only=True):
    """A condition on one value of the board."""

    key: str
    operator: Operator
    value: Any


class StepView(View, frozen=True, kw_only=True):
    """A step of a task's plan, and its state so far. `timeout` and `backoff` are seconds; a step without a
    `timeout` has that of the installation."""

    id: str
    agent: str | None
    human_input: str | None
    output_key: str
    after: list[str]
    required: bool
    remote: bool
    when: list[ConditionView]
    timeout: float | None
    retries: int
    backoff: float
    status: StepStatus
    attempts: int
    error: TaskErrorView | None
    started_at: datetime | None
    ended_at: datetime | None

    @classmethod
    def of_run(cls, step: Step, run: StepRun) -> Self:
        """A step and what became of it."""
        error = None if run.error is None else TaskErrorView.of(run.error)
        plan_fields = {name: getattr(step, name) for name in ("id", "human_input", "required", "remote", "retries")}
        return cls.derive(
            run,
            **plan_fields,
            output_key=step.key,
            after=list(step.after),
            when=list(map(ConditionView.of, step.when)),
            timeout=_seconds(step.timeout),
            backoff=step.backoff.total_seconds(),
            error=error,
        )


class TaskDetail(TaskView, frozen=True, kw_only=True):
    """A task and the steps of its plan, in the order of the plan; without a plan there are none. `timeout` is that of
    the plan, in seconds."""

    timeout: float | None
    steps: list[StepView]

    @classmethod
    def of(cls, value: TaskProgress) -> Self:
        """A task and what became of its steps."""
        error = None if value.task.error is None else TaskErrorView.of(value.task.error)
        plan_steps = () if value.plan is None else value.plan.steps
        steps = [StepView.of_run(step, run) for step, run in zip(plan_steps, value.steps, strict=True)]
        timeout = None if value.plan is None else _seconds(value.plan.timeout)
        return cls.derive(value.task, error=error, timeout=timeout, steps=steps)

    def without_exceptions(self) -> Self:
        steps = [replace(step, error=without_exception(step.error)) for step in self.steps]
        return replace(super().without_exceptions(), steps=steps)


def _seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()


class TaskEventView(View, frozen=True, kw_only=True):
    """Something that happened to a task. `agent` is that of the step, or the writer of the board's `key`; `status` is
    that of what has ended, or `written` or `deleted`."""

    id: str
    type: TaskEventType
    at: datetime
    step: str | None
    agent: str | None
    key: str | None
    version: int | None
    status: str | None
    attempts: int | None
    run: int | None
    error_code: str | None


class Timeline(View, frozen=True, kw_only=True):
    """What happened to a task, in order of time."""

    events: list[TaskEventView]


class TaskList(View, frozen=True, kw_only=True):
    """Part of a listing; `cursor` continues it, null ends it."""

    tasks: list[TaskView]
    cursor: str | None


class BoardEntryView(View, frozen=True, kw_only=True):
    """The value of one key of a board; `previous_writer` is the last other agent that wrote it before."""

    key: str
    value: Any
    writer: str
    written_at: datetime
    version: int
    previous_writer: str | None


class BoardChangeView(View, frozen=True, kw_only=True):
    """A write or deletion of a key, without its value."""

    key: str
    version: int
    writer: str
    at: datetime
    deleted: bool


class BoardHistory(View, frozen=True, kw_only=True):
    """The last twenty writes and deletions of a key, oldest first."""

    changes: list[BoardChangeView]


class HeldView(View, frozen=True, kw_only=True):
    """A locked key. The lock's token is for its holder alone."""

    key: str
    holder: str
    expires_at: datetime


class BoardAnswer(View, frozen=True, kw_only=True):
    """A whole board, in order of its keys, and its locks."""

    entries: list[BoardEntryView]
    locks: list[HeldView]


class LockView(HeldView, frozen=True, kw_only=True):
    """A lock that was taken; writes name its `token`, which is greater than that of any lock of the key before it."""

    token: int


class AgentNoteView(View, frozen=True, kw_only=True):
    """A note of an agent."""

    key: str
    value: Any
    written_at: datetime
    expires_at: datetime
    version: int


class AgentNoteList(View, frozen=True, kw_only=True):
    """All notes of one agent on one task, in order of their keys."""

    notes: list[AgentNoteView]
