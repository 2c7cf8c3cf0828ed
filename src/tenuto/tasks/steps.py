"""The steps of a task's plan: what became of each, one record per step, so that parallel steps never conflict.

Each worker that begins a step gets a token; a worker that was taken for dead has an older one, and all that it would
store of the step is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from types import EllipsisType

import msgspec
from msgspec.structs import replace

from tenuto.model.plan import ENDED, Plan, Step, StepRun, StepStatus
from tenuto.model.policy import TaskPolicy
from tenuto.model.task import TaskError
from tenuto.model.values import Json
from tenuto.ports import Clock
from tenuto.task_errors import StepLost, StepNotFound, StepNotWaiting, TaskFinished, TaskNotFound
from tenuto.tasks._record_store import VersionedRecord
from tenuto.tasks._records import StepRecord, digest_of_key, micros, wrap_value
from tenuto.tasks._workspace import TaskWorkspace
from tenuto.tasks.board import check_value

_NEW = StepRecord()


class Steps:
    """The steps of one task.

    Every method raises `TaskNotFound` if the scope has no such task, and those that change something raise
    `TaskFinished` if it has ended.
    """

    def __init__(self, *, workspace: TaskWorkspace, policy: TaskPolicy, clock: Clock) -> None:
        self._workspace = workspace
        self._policy = policy
        self._clock = clock
        self._own_rows: dict[str, VersionedRecord[StepRecord]] = {}

    async def list(self, plan: Plan) -> tuple[StepRun, ...]:
        """All steps, in the order of the plan."""
        await self._workspace.task()
        records = {row.key: row.record async for row in self._workspace.steps.every()}
        return tuple(records.get(step.id, _NEW).run(step) for step in plan.steps)

    async def begin(
        self, step: Step, *, waiting: bool = False, take_over: bool = False, check: bool = True
    ) -> tuple[StepRun, int]:
        """Begin a step as the only worker, and return it with the worker's token; one that has ended stays as it is.

        Without `check`, the caller has just read the task, and writes the board, which checks the task, before it
        relies on the step; so it is for `complete`.

        Raises:
            StepLost: another worker has begun it, and it is not to be taken over.
        """
        if check:
            await self._workspace.open()

        def begin_record(record: StepRecord) -> StepRecord | None:
            if record.status in ENDED or (waiting and record.status is StepStatus.WAITING):
                return None
            if record.status is StepStatus.RUNNING and not take_over:
                raise StepLost(step.id)
            return replace(
                record,
                status=StepStatus.WAITING if waiting else StepStatus.RUNNING,
                token=record.token + 1,
                attempts=record.attempts + 1,
                takeovers=record.takeovers + (record.status is StepStatus.RUNNING),
                started_at=micros(self._clock()) if record.started_at is None else record.started_at,
            )

        after = await self._change(step.id, begin_record, check=check, guess=... if waiting else None)
        return after.run(step), after.token

    async def repeat(self, step: Step, token: int, error: TaskError) -> StepRun:
        """Count another attempt of the same worker after an error.

        Raises:
            StepLost: another worker has begun the step.
        """

        def repeat_record(record: StepRecord) -> StepRecord:
            self._check_token(step, record, token)
            return replace(record, attempts=record.attempts + 1, error=error)

        return (await self._change(step.id, repeat_record)).run(step)

    async def complete(self, step: Step, token: int, output: Json, *, check: bool = True) -> StepRun:
        """End a step with its output; `check` as in `begin`.

        Raises:
            StepLost: another worker has begun the step.
            TooLarge: the output is above the limit.
        """
        check_value(output, self._policy)
        wrapped = wrap_value(step.key, output)
        return await self._end(
            step, token, lambda record: replace(record, output=wrapped, error=None), StepStatus.COMPLETED, check
        )

    async def fail(self, step: Step, token: int, error: TaskError) -> StepRun:
        """End a step without an output.

        Raises:
            StepLost: another worker has begun the step.
        """
        return await self._end(step, token, lambda record: replace(record, error=error), StepStatus.FAILED)

    async def withdraw(self, step: Step, token: int, error: TaskError) -> StepRun:
        """Fail a completed step whose output cannot be stored on the board."""

        def withdraw_record(record: StepRecord) -> StepRecord:
            if record.token != token:
                raise StepLost(step.id)
            return replace(record, status=StepStatus.FAILED, output={}, error=error)

        return (await self._change(step.id, withdraw_record)).run(step)

    async def skip(self, step: Step) -> StepRun:
        """End a step that has not begun, since its conditions do not hold."""
        await self._workspace.open()

        def skip_record(record: StepRecord) -> StepRecord | None:
            return (
                replace(record, status=StepStatus.SKIPPED, ended_at=micros(self._clock())) if _is_new(record) else None
            )

        return (await self._change(step.id, skip_record)).run(step)

    async def answer(self, step: Step, value: Json) -> tuple[StepRun, int]:
        """Complete a step that waits, and return it with its token.

        The same answer again changes nothing, also after the task's end.

        Raises:
            StepNotWaiting: it is not waiting, or has another answer.
            TooLarge: the answer is above the limit.
        """
        check_value(value, self._policy)
        mark = digest_of_key(msgspec.json.encode(value, order="deterministic").decode())
        record = await self._read(step)
        if record.status is StepStatus.COMPLETED and record.answer == mark:
            await self._workspace.task()
            return record.run(step), record.token
        await self._workspace.open()

        def answer_record(record: StepRecord) -> StepRecord | None:
            if record.status is StepStatus.COMPLETED and record.answer == mark:
                return None
            if record.status is not StepStatus.WAITING or not step.waits:
                raise StepNotWaiting(step.id)
            output, now = wrap_value(step.key, value), micros(self._clock())
            return replace(record, status=StepStatus.COMPLETED, output=output, answer=mark, error=None, ended_at=now)

        after = await self._change(step.id, answer_record)
        return after.run(step), after.token

    async def fail_waiting(self, step: Step, error: TaskError, attempt: int | None = None) -> StepRun:
        """Count a failure of a step that waits, which ends it if it has no retries left.

        The failure of an `attempt` that was counted changes nothing, also after the task's end.

        Raises:
            StepNotWaiting: it is not waiting, or for an earlier attempt.
        """

        def is_counted(record: StepRecord) -> bool:
            last = record.status is StepStatus.FAILED and record.attempts == attempt and record.error == error
            return last or (attempt is not None and attempt < record.attempts)

        record = await self._read(step)
        if is_counted(record):
            await self._workspace.task()
            return record.run(step)
        await self._workspace.open()

        def fail_record(record: StepRecord) -> StepRecord | None:
            if is_counted(record):
                return None
            if record.status is not StepStatus.WAITING or attempt not in (None, record.attempts):
                raise StepNotWaiting(step.id)
            if record.attempts <= step.retries:
                return replace(record, attempts=record.attempts + 1, error=error)
            return replace(record, status=StepStatus.FAILED, error=error, ended_at=micros(self._clock()))

        return (await self._change(step.id, fail_record)).run(step)

    async def reset(self, steps: Iterable[tuple[Step, StepRun]]) -> None:
        """Let steps begin again that are as they were seen; their tokens grow, so that former workers are refused.

        The task may have ended: it is begun again after this.
        """
        for step, run in steps:
            await self._change(step.id, partial(_reset_record, step, run), check=False)

    async def check_owner(self, step: Step, token: int) -> None:
        """Check that no other worker has begun the step.

        Raises:
            StepLost: one has.
        """
        self._check_token(step, await self._read(step), token)

    async def _read(self, step: Step) -> StepRecord:
        row = await self._workspace.steps.read_record(step.id)
        return _NEW if row is None else row.record

    async def clear_removed(self) -> None:
        """Remove what was written of steps after their task was removed."""
        with suppress(TaskNotFound, TaskFinished):
            await self._workspace.recheck_open()

    async def _end(
        self, step: Step, token: int, change: Callable[[StepRecord], StepRecord], status: StepStatus, check: bool = True
    ) -> StepRun:
        def end_record(record: StepRecord) -> StepRecord | None:
            if record.token == token and record.status is status:
                return None  # A former try was stored, but its answer was lost.
            self._check_token(step, record, token)
            return replace(change(record), status=status, ended_at=micros(self._clock()))

        row = self._own_rows.get(step.id)
        guess = row if row is not None and row.record.token == token else ...
        return (await self._change(step.id, end_record, check=check, guess=guess)).run(step)

    async def _change(
        self,
        step_id: str,
        change: Callable[[StepRecord], StepRecord | None],
        *,
        check: bool = True,
        guess: VersionedRecord[StepRecord] | EllipsisType | None = ...,
    ) -> StepRecord:
        def apply_change(row: VersionedRecord[StepRecord] | None) -> StepRecord | None:
            return change(_NEW if row is None else row.record)

        after = (await self._workspace.steps.update(step_id, apply_change, guess=guess)).after
        if check:
            await self._workspace.recheck_open()
        if after is None:
            return _NEW
        if after.record.status is StepStatus.RUNNING:
            self._own_rows[step_id] = after
        else:
            self._own_rows.pop(step_id, None)
        return after.record

    def _check_token(self, step: Step, record: StepRecord, token: int) -> None:
        if record.token != token or record.status not in (StepStatus.RUNNING, StepStatus.WAITING):
            raise StepLost(step.id)


def find_step(plan: Plan | None, step_id: str) -> Step:
    """The step of an id.

    Raises:
        StepNotFound: the plan has none, or there is no plan.
    """
    step = None if plan is None else plan.step(step_id)
    if step is None:
        raise StepNotFound(step_id)
    return step


def _reset_record(step: Step, run: StepRun, record: StepRecord) -> StepRecord | None:
    return StepRecord(token=record.token + 1) if record.run(step) == run else None


def _is_new(record: StepRecord) -> bool:
    return record.status is StepStatus.PENDING
