"""The work on a whole plan, whichever engine calls it: steps begin as soon as those before them have ended.

An engine need not record single steps. Each step's end is in the task's own records, behind the token of its worker:
called again, by the same worker or another one, the plan goes on with the steps that have not ended.
"""

from __future__ import annotations

import asyncio
from typing import Final

from tenuto.model import Scope
from tenuto.model.plan import Plan, Step, StepStatus, ready_steps
from tenuto.model.task import TaskStatus
from tenuto.tasks.step_runner import Ownership, StepResult, StepRunner

# How often a question is looked at while agents work beside it, in seconds; otherwise its answer wakes the engine.
_LOOK: Final = 0.5
_NOTHING_TO_DO: Final = StepResult(None)


class PlanRunner:
    """Runs plans in this process."""

    def __init__(self, steps: StepRunner) -> None:
        self._steps = steps

    async def advance(self, scope: Scope, task_id: str, run: int, owns: Ownership) -> StepResult:
        """Run all steps that can run, and end the task; or until what is left waits for people.

        Returns `completed` once the task has ended, well or not; `waiting` with the seconds until a question's time is
        over; or no status if the task is no longer this worker's.
        """
        try:
            while True:
                plan, states = await self._steps.plan(scope, task_id), await self._steps.start(scope, task_id, run)
                if plan is None or states is None:
                    return _NOTHING_TO_DO
                result = await _Walk(self._steps, scope, task_id, plan, states, owns).run()
                if result.status is not StepStatus.COMPLETED:
                    return result
                if await self._steps.finish(scope, task_id) is not TaskStatus.RUNNING:
                    return result
        except Exception as error:
            # A record that is damaged, or a mistake here: without an end the task would seem to run for ever.
            await self._steps.give_up(scope, task_id, error)
            return StepResult(StepStatus.COMPLETED)


class _Walk:
    """One walk through a plan."""

    def __init__(
        self, steps: StepRunner, scope: Scope, task_id: str, plan: Plan, states: dict[str, StepStatus], owns: Ownership
    ) -> None:
        self._steps = steps
        self._scope = scope
        self._task_id = task_id
        self._plan = plan
        self._states = states
        self._owns = owns
        self._running: dict[asyncio.Task[StepResult], Step] = {}
        self._waiting: dict[str, float] = {}

    async def run(self) -> StepResult:
        for step in self._unfinished():
            self._begin(step)
        try:
            while True:
                for step in ready_steps(self._plan, self._states):
                    self._begin(step)
                if not self._running:
                    waits = min(self._waiting.values(), default=None)
                    return StepResult(StepStatus.COMPLETED) if waits is None else StepResult(StepStatus.WAITING, waits)
                if not await self._first_ended():
                    return _NOTHING_TO_DO
        finally:
            for work in self._running:
                work.cancel()

    def _unfinished(self) -> list[Step]:
        """Steps that were begun before, here or by a worker that is gone, also those beside a failed one.

        A completed one may lack its output on the board, unless a step after it has begun.
        """
        with_successors = {before for step in self._plan.steps if step.id in self._states for before in step.after}
        active_states = (StepStatus.RUNNING, StepStatus.WAITING)
        return [
            step
            for step in self._plan.steps
            if (status := self._states.get(step.id)) in active_states
            or (status is StepStatus.COMPLETED and step.id not in with_successors)
        ]

    def _begin(self, step: Step) -> None:
        self._states[step.id] = StepStatus.RUNNING
        work = self._steps.run_step(self._scope, self._task_id, step, self._owns)
        self._running[asyncio.create_task(work)] = step

    async def _first_ended(self) -> bool:
        """Wait for a step to end, or for the time to look at questions; returns whether the task is still ours."""
        limit = _LOOK if self._waiting else None
        finished, _ = await asyncio.wait(self._running, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        results = {self._running.pop(work): work.result() for work in finished}
        for step, result in results.items():
            if result.status is None:
                return False
            self._states[step.id] = result.status
            if result.status is StepStatus.WAITING:
                self._waiting[step.id] = result.seconds
        if not finished:
            for step in [step for step in self._plan.steps if self._waiting.pop(step.id, None) is not None]:
                self._begin(step)
        return True
