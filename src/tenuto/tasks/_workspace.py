"""One task with its board, notes, plan and steps, for their writers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final, TypeAlias

from tenuto.model import Scope
from tenuto.model.task import TASK_PARTS
from tenuto.ports import StateStore
from tenuto.task_errors import TaskFinished, TaskNotFound
from tenuto.tasks._deadlines import Deadlines
from tenuto.tasks._record_store import Drawer
from tenuto.tasks._records import BoardRecord, NoteRecord, PlanRecord, RunRecord, StepRecord, TaskHead
from tenuto.tasks._task_table import TaskTable

BOARD: Final = f"{TASK_PARTS}board:"
_NOTES: Final = f"{TASK_PARTS}notes:"
_PLAN: Final = f"{TASK_PARTS}plan:"
_STEPS: Final = f"{TASK_PARTS}steps:"
_RUNS: Final = f"{TASK_PARTS}runs:"
Fence: TypeAlias = Callable[[], Awaitable[None]]
"""Raises `StepLost` if the writer's step is another worker's by now."""


class TaskWorkspace:
    """A task with its board, its plan, and the notes of all its agents.

    A task is removed before the rest of it. So a writer checks again after each write that the task exists: if it does
    not, the writer removes the rest itself. `fence` refuses a writer that lost its step, before and after each write:
    no store compares two records in one step, so another agent may see a late write for a moment, until it is undone.
    """

    def __init__(
        self,
        *,
        state: StateStore,
        heads: TaskTable,
        deadlines: Deadlines,
        scope: Scope,
        task_id: str,
        fence: Fence | None = None,
    ) -> None:
        self._heads = heads
        self._deadlines = deadlines
        self._scope = scope
        self._fence = fence
        self.task_id = task_id
        self.board = Drawer(state, scope, f"{BOARD}{task_id}", BoardRecord)
        self.notes = Drawer(state, scope, f"{_NOTES}{task_id}", NoteRecord)
        self.plan = Drawer(state, scope, f"{_PLAN}{task_id}", PlanRecord)
        self.steps = Drawer(state, scope, f"{_STEPS}{task_id}", StepRecord)
        self.runs = Drawer(state, scope, f"{_RUNS}{task_id}", RunRecord)

    async def task(self) -> TaskHead:
        """The task, ended or not.

        Raises:
            TaskNotFound: absent, foreign, expired, deleted and damaged alike.
        """
        return (await self._heads.find(self._scope, self.task_id)).record

    async def open(self) -> TaskHead:
        """The task, if it may be changed.

        Raises:
            TaskNotFound: as in `task`.
            TaskFinished: it has ended.
            StepLost: the fence says so.
        """
        task = await self.task()
        if task.completed_at is not None:
            raise TaskFinished(self.task_id)
        if self._fence is not None:
            await self._fence()
        return task

    async def schedule_sweep(self, at: datetime) -> None:
        """Schedule upkeep of the task at an instant."""
        await self._deadlines.add(self._scope, self.task_id, at)

    async def recheck_open(self) -> None:
        """Check after a write that the task is still open.

        Raises:
            TaskNotFound: it was removed meanwhile, and so is all that was written.
            TaskFinished: it ended meanwhile.
            StepLost: the step was lost meanwhile.
        """
        try:
            await self.open()
        except TaskNotFound:
            if not await self._heads.stands(self._scope, self.task_id):
                await self.clear()
                await self._deadlines.drop_removed_tasks(
                    self._scope, lambda task_id: self._heads.stands(self._scope, task_id)
                )
            raise

    async def clear(self) -> None:
        """Remove all that a removed task leaves."""
        for drawer in (self.board, self.notes, self.plan, self.steps, self.runs):
            await drawer.clear()
