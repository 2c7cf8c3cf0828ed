"""The port of the engine that runs the plans of tasks."""

from __future__ import annotations

from typing import Protocol

from tenuto.model import Scope
from tenuto.model.plan import Plan, TaskProgress
from tenuto.model.task import NewTask, Task, TaskPage, TaskQuery
from tenuto.model.values import Json


class TaskEngine(Protocol):
    """Runs the plans of tasks, on any number of workers.

    Outside `scope` a task does not exist (`TaskNotFound`). Each step's end is stored once: a step that has ended is not
    run again, whatever dies. A step that was running when its worker died is run again by another one, so what an
    agent does elsewhere must carry the step's key as idempotency key. What became of a task can be read without the
    engine.
    """

    async def submit(self, scope: Scope, new: NewTask, plan: Plan, *, idempotency_key: str | None = None) -> Task:
        """Open a task and begin its plan; it goes on without the caller. A repeated key returns the same task.

        Raises:
            PlanInvalid: the plan cannot run.
            AgentNotFound: it names an unknown agent.
        """
        ...

    async def cancel(self, scope: Scope, task_id: str) -> Task:
        """End a task as failed, with the code `task_cancelled`; running agents are cancelled within seconds.

        Raises:
            TaskFinished: it has ended in another way before.
        """
        ...

    async def stop(self, scope: Scope, task_id: str) -> None:
        """Cancel the agents that work on a task whose end or removal is stored already."""
        ...

    async def resume(self, scope: Scope, task_id: str, *, from_step: str | None = None) -> Task:
        """Run a failed task again from its failed steps on, or any ended one from a step on with all that follow it.

        Raises:
            TaskRunning: the task has not ended.
            StepNotFound: its plan has no such step.
        """
        ...

    async def answer(self, scope: Scope, task_id: str, step_id: str, value: Json) -> TaskProgress:
        """Answer a human-input step; the task goes on. The same answer again has no effect.

        Raises:
            StepNotWaiting: the step does not wait for a person.
        """
        ...

    async def complete_step(
        self, scope: Scope, task_id: str, step_id: str, *, agent: str, output: Json
    ) -> TaskProgress:
        """End a remote step with its output, in the name of its agent; the task goes on. The same output again has no
        effect.

        Raises:
            StepNotWaiting: the step is no remote one of this agent, has not begun or has ended.
            TooLarge: the output is above the limit.
        """
        ...

    async def fail_step(
        self, scope: Scope, task_id: str, step_id: str, *, agent: str, code: str, attempt: int | None = None
    ) -> TaskProgress:
        """Report a failure of a remote step; it waits on while it has retries. With the number of the `attempt`, the
        same report again has no effect; without it, each report counts.

        Raises:
            StepNotWaiting: as in `complete_step`, or the attempt has not begun.
        """
        ...

    async def status(self, scope: Scope, task_id: str) -> TaskProgress:
        """A task with its plan and what became of its steps."""
        ...

    async def list(self, scope: Scope, query: TaskQuery) -> TaskPage:
        """The tasks of the scope's owner, with and without a plan."""
        ...

    async def erase(self, scope: Scope) -> int:
        """Remove all that the engine knows of an owner's tasks; returns the number of runs."""
        ...

    async def agents(self) -> frozenset[str]:
        """The names of the agents of all workers that run, here or elsewhere."""
        ...

    async def recover(self) -> int:
        """Give the tasks of dead workers to living ones now; returns their number. Workers do so by themselves."""
        ...
