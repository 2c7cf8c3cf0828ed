"""The work on one step of a plan, whichever engine calls it.

All that an engine needs to record of a step is how it ended: outputs and errors are in the task's own records, behind
the privacy policy and the encryption of the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextvars import ContextVar
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from msgspec.structs import replace

from tenuto.errors import (
    AssistantFailed,
    InvalidJson,
    StateCorrupt,
    StoreUnavailable,
    TenutoError,
    TooLarge,
    Unavailable,
    failure_reason,
)
from tenuto.logs import bind_log_context, describe_exception, explain_exception
from tenuto.model import Scope
from tenuto.model.agent_run import RunMessage
from tenuto.model.plan import Plan, Step, StepRun, StepStatus, TaskProgress, failed_step, outcome
from tenuto.model.policy import RunPolicy
from tenuto.model.task import AGENT_FAILED, Task, TaskError, TaskStatus
from tenuto.model.values import Json, JsonObject
from tenuto.pauses import Backoff
from tenuto.ports import Clock, Telemetry
from tenuto.task_errors import AgentNotFound, KeyLocked, StepLost, TaskFinished, TaskNotFound, TaskRunning
from tenuto.tasks.agent_contexts import AgentContexts
from tenuto.tasks.agent_threads import AgentThreads, run_in
from tenuto.tasks.agents import ASSISTANT, AgentBoard, AgentContext, AgentFunction, AgentMemory, Agents
from tenuto.tasks.runs import RunRecorder, messages_of
from tenuto.tasks.service import Tasks
from tenuto.tasks.steps import Steps

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")
_inside_assistant: ContextVar[bool] = ContextVar("inside_assistant", default=False)
Ownership: TypeAlias = Callable[[], Awaitable[bool]]
Redact: TypeAlias = Callable[[Scope, str], Awaitable[str]]
# The time that a cancelled agent has to clean up; one that does not end then is left behind.
_GRACE: Final = 1.0
_FIRST_PAUSE: Final = 0.1
_LONGEST_MESSAGE: Final = 2_000
_LONGEST_PAUSE: Final = 5.0
_LONGEST_WAIT: Final = timedelta(days=366)
# A repetition cannot mend these.
_FINAL: Final = (AgentNotFound, InvalidJson, TooLarge)


class StepResult(NamedTuple):
    """How a step ended, `None` if its task is no longer this worker's; for a waiting step the seconds to wait."""

    status: StepStatus | None
    seconds: float = 0.0


_NOTHING_TO_DO: Final = StepResult(None)


class StepRunner:
    """Runs single steps of plans in this process.

    A method whose store does not answer tries again until it does: a plan does not fail with its store.
    """

    def __init__(
        self,
        *,
        tasks: Tasks,
        contexts: AgentContexts,
        agents: Agents,
        policy: RunPolicy,
        clock: Clock,
        telemetry: Telemetry | None = None,
        redact: Redact | None = None,
    ) -> None:
        self._tasks = tasks
        self._contexts = contexts
        self._agents = agents
        self._policy = policy
        self._clock = clock
        self._telemetry = telemetry
        self._redact = redact
        self._running = asyncio.Semaphore(policy.agents_at_once)
        # Apart: an assistant may wait for a task of its own, whose agents need slots.
        self._answering = asyncio.Semaphore(policy.agents_at_once)
        self._threads = AgentThreads()

    async def plan(self, scope: Scope, task_id: str) -> Plan | None:
        """The plan of a task; `None` if the task is gone or has none."""
        return await _patiently(lambda: self._tasks.plan(scope, task_id))

    async def start(self, scope: Scope, task_id: str, run: int) -> dict[str, StepStatus] | None:
        """Begin a run, or go on with it; returns the steps that have begun, or `None` if this run is not to be."""
        return await _patiently(lambda: self._start(scope, task_id, run))

    async def run_step(self, scope: Scope, task_id: str, step: Step, owns: Ownership) -> StepResult:
        """Run a step to its end, with all its attempts; a human-input step begins to wait, or waits on.

        If another worker has begun the step, `owns` tells whether the task is this worker's by now.
        """
        with bind_log_context(tenant=scope.tenant, task=task_id, step=step.id, agent=step.agent):
            take_over = False
            while True:
                try:
                    return await _patiently(partial(self._run_step, scope, task_id, step, take_over))
                except StepLost:
                    if not await _patiently(owns):
                        return _NOTHING_TO_DO
                    take_over = True

    async def publish(
        self, scope: Scope, task_id: str, step: Step, run: StepRun, token: int, *, wait: bool = True
    ) -> StepRun:
        """Write the output of a completed step on the board, once. A locked key is waited for until the task's
        deadline, or, without `wait`, left to the worker."""
        board, key = self._tasks.board(scope, task_id), f"{task_id}:{step.id}:{token}"
        while True:
            try:
                await board.write(step.key, run.output, agent=step.writer, idempotency_key=key)
                return run
            except KeyLocked as error:
                if not wait:
                    return run
                task = await self._tasks.get(scope, task_id)
                if self._is_over(task):
                    late = TaskError(code="task_timeout", message="its key on the board was locked", step=step.id)
                    return await self._tasks.steps(scope, task_id).withdraw(step, token, late)
                pause = min(max(error.retry_after.total_seconds(), _FIRST_PAUSE), _LONGEST_PAUSE)
                await asyncio.sleep(min(pause, self._limit(None, task)))
            except (TaskFinished, TaskNotFound, Unavailable):
                raise
            except TenutoError as error:
                return await self._tasks.steps(scope, task_id).withdraw(step, token, _error_of(error, step))

    async def finish(self, scope: Scope, task_id: str) -> TaskStatus | None:
        """End a task as its steps say; `None` if there is nothing to end, `running` if steps were reset meanwhile."""
        with bind_log_context(tenant=scope.tenant, task=task_id):
            return await _patiently(lambda: self._finish(scope, task_id))

    async def give_up(self, scope: Scope, task_id: str, exc: Exception) -> None:
        """End a task as failed for a reason that its plan knows nothing of."""
        code = exc.code if isinstance(exc, TenutoError) else "internal"
        with bind_log_context(tenant=scope.tenant, task=task_id):
            _log.error("the task cannot go on: %s", describe_exception(exc))
            error = TaskError(code=code, message="its worker met an unexpected error")
            with contextlib.suppress(TenutoError):
                await _patiently(partial(self._tasks.finish, scope, task_id, failed=True, error=error))

    async def close(self) -> None:
        """End the threads of agents, whose calls have been cancelled."""
        await self._threads.close()

    async def keep(self, scope: Scope, task_id: str) -> None:
        """Renew the expiry of a running task, which may wait for a person longer than tasks live unchanged."""
        with contextlib.suppress(TaskNotFound, TaskFinished):
            await self._tasks.begin(scope, task_id)

    # One try each

    async def _start(self, scope: Scope, task_id: str, run: int) -> dict[str, StepStatus] | None:
        try:
            progress = await self._tasks.progress(scope, task_id)
            if progress.plan is None:
                return None
            await self._tasks.start_run(scope, task_id, run=run, timeout=self.timeout_of(progress.plan))
        except (TaskNotFound, TaskFinished, TaskRunning):
            return None
        return {each.step: each.status for each in progress.steps if each.status is not StepStatus.PENDING}

    def timeout_of(self, plan: Plan) -> timedelta | None:
        """The time that a run of a plan may take."""
        if plan.timeout is not None or any(step.human_input is not None for step in plan.steps):
            return plan.timeout
        return self._policy.task_timeout

    async def _run_step(self, scope: Scope, task_id: str, step: Step, take_over: bool) -> StepResult:
        steps = self._tasks.steps(scope, task_id)
        try:
            task = await self._tasks.get(scope, task_id)
            if task.is_finished:
                return _NOTHING_TO_DO
            with bind_log_context(session=task.session_id):
                return await self._work_on(scope, task, steps, step, take_over)
        except TaskFinished:
            return _NOTHING_TO_DO
        except TaskNotFound:
            await steps.clear_removed()
            return _NOTHING_TO_DO

    async def _work_on(self, scope: Scope, task: Task, steps: Steps, step: Step, take_over: bool) -> StepResult:
        if step.when and not await self._conditions_hold(scope, task.id, step):
            result = await steps.skip(step)
            if result.status is StepStatus.SKIPPED:
                return StepResult(result.status)
            # They held when the step began.
        # The board is written before the step counts as done, and checks the task; a question is written nowhere.
        asks = step.waits
        run, token = await steps.begin(step, waiting=asks, take_over=take_over, check=asks)
        if run.status is StepStatus.WAITING:
            seconds = self._limit(step.timeout, task, run.started_at)
            if seconds > 0:
                return StepResult(StepStatus.WAITING, seconds)
            run = await self._end_wait(steps, task, step, token)
        if run.status is StepStatus.RUNNING:
            run = await self._attempt(scope, task, steps, step, run, token)
        if run.status is StepStatus.COMPLETED:
            run = await self.publish(scope, task.id, step, run, token)
        if run.status is StepStatus.FAILED:
            _log.warning("step failed: %s", run.error.code if run.error is not None else "unknown")
        return StepResult(run.status)

    async def _conditions_hold(self, scope: Scope, task_id: str, step: Step) -> bool:
        board, values = self._tasks.board(scope, task_id), dict[str, Json]()
        for key in {condition.key for condition in step.when}:
            entry = await board.read_entry(key)
            if entry is not None:
                values[key] = entry.value
        return all(condition.holds(values) for condition in step.when)

    async def _attempt(self, scope: Scope, task: Task, steps: Steps, step: Step, run: StepRun, token: int) -> StepRun:
        """Call the agent until it succeeds or its attempts are used up; those that died with a worker do not count.

        An attempt that fails since the store does not answer is made again, as all that the engine does.
        """
        if run.takeovers > self._policy.takeovers:
            worker_lost = TaskError(code="worker_lost", message="its workers died repeatedly", step=step.id)
            return await steps.fail(step, token, worker_lost)
        while True:
            try:
                output = await _patiently(partial(self._call, scope, task, step, run, token), StoreUnavailable)
                return await _patiently(partial(steps.complete, step, token, output, check=False))
            except (StepLost, TaskFinished, TaskNotFound):
                raise
            except Exception as exc:
                error, final = await self._explain(scope, exc, step), isinstance(exc, _FINAL)
                _log.info("attempt %s of the step failed: %s", run.attempts, describe_exception(exc))
            if final or run.attempts - run.takeovers > step.retries or self._is_over(task):
                return await steps.fail(step, token, error)
            run = await steps.repeat(step, token, error)
            await asyncio.sleep(self._limit(step.pause_before(run.attempts - run.takeovers), task))

    async def _explain(self, scope: Scope, exc: Exception, step: Step) -> TaskError:
        """A failure with what the agent raised, as far as the privacy policy of traces lets it pass."""
        error = _error_of(exc, step)
        if error.code != AGENT_FAILED:
            return error
        message = error.message if self._redact is None else await self._redact(scope, error.message)
        return replace(error, message=message if len(message) <= _LONGEST_MESSAGE else f"{message[:_LONGEST_MESSAGE]}…")

    async def _call(self, scope: Scope, task: Task, step: Step, run: StepRun, token: int) -> Any:
        """One call of the agent, within the time of the step and of the task."""
        assert step.agent is not None
        if self._is_over(task):
            raise _OutOfTime("task_timeout")
        function = partial(_contain_exit, self._agents.get(step.agent))
        if self._agents.runs_apart(step.agent):
            function = partial(self._threads.call, function)
        context = await _patiently(partial(self._context, scope, task, step, run, token))
        try:
            with self._step_span(scope, context):
                output = await self._run_agent(function, context, task, step)
        except Exception:
            await self._record_run(scope, step, context, token)
            raise
        await self._record_run(scope, step, context, token)
        return output

    @contextlib.contextmanager
    def _step_span(self, scope: Scope, context: AgentContext) -> Iterator[None]:
        if self._telemetry is None:
            yield
            return
        with self._telemetry.agent(context.agent, session_id=context.session_id) as span:
            span.set_attributes(
                tenant=scope.tenant,
                session=context.session_id,
                task=context.task_id,
                step=context.step,
                agent=context.agent,
                attempt=context.attempt,
            )
            yield

    async def _run_agent(self, function: AgentFunction, context: AgentContext, task: Task, step: Step) -> Any:
        async with self._answering if context.agent.startswith(ASSISTANT) else self._running:
            limit = self._limit(step.timeout or self._policy.step_timeout, task)
            work = asyncio.ensure_future(function(context))
            try:
                await asyncio.wait({work}, timeout=limit)
                if work.cancelled():
                    raise _AgentCancelled
                if work.done():
                    return work.result()
            finally:
                work.cancel()
        # An agent may ignore its cancellation: what it does then is refused, and the worker does not wait.
        work.add_done_callback(_retrieve_exception)
        await asyncio.wait({work}, timeout=_GRACE)
        raise _OutOfTime("task_timeout" if self._is_over(task) else "step_timeout")

    async def _record_run(self, scope: Scope, step: Step, context: AgentContext, token: int) -> None:
        """Store what the agent reported, also if it failed, unless another worker has begun the step."""
        if context.run.is_empty:
            return
        steps = self._tasks.steps(scope, context.task_id)
        try:
            await _patiently(lambda: steps.check_owner(step, token))
            await _patiently(lambda: self._tasks.record_run(scope, context.task_id, step.id, context.run))
        except (StepLost, TaskFinished, TaskNotFound):
            raise
        except TenutoError as error:
            _log.warning("the run of an agent was not recorded: %s", error.code)

    async def _context(self, scope: Scope, task: Task, step: Step, run: StepRun, token: int) -> AgentContext:
        assert step.agent is not None
        agent = step.agent
        history, profile = await self._contexts.conversation(scope, task)
        steps = self._tasks.steps(scope, task.id)

        fence = partial(steps.check_owner, step, token)

        home = asyncio.get_running_loop()

        async def read_messages() -> tuple[RunMessage, ...]:
            return messages_of(await run_in(home, self._tasks.runs(scope, task.id, agent=agent)), agent)

        return AgentContext(
            scope=scope,
            task_id=task.id,
            step=step.id,
            step_key=f"{task.id}:{step.id}",
            agent=agent,
            attempt=run.attempts,
            goal=task.goal,
            session_id=task.session_id,
            history=history,
            profile=profile,
            language=task.language,
            board=AgentBoard(board=self._tasks.board(scope, task.id, fence=fence), agent=agent),
            memory=AgentMemory(self._tasks.notes(scope, task.id, agent, fence=fence)),
            run=RunRecorder(),
            write_prompt=self._contexts.write_prompt,
            read_messages=read_messages,
        )

    async def _end_wait(self, steps: Steps, task: Task, step: Step, token: int) -> StepRun:
        """Fail a question whose time is over."""
        over = self._is_over(task)
        code, why = (
            ("task_timeout", "the task ran out of time") if over else ("input_timeout", "no answer came in time")
        )
        if step.remote and not over:
            code, why = "step_timeout", "the agent took too long"
        return await steps.fail(step, token, TaskError(code=code, message=why, step=step.id))

    async def _finish(self, scope: Scope, task_id: str) -> TaskStatus | None:
        try:
            progress = await self._tasks.progress(scope, task_id)
            assert progress.plan is not None
            states = {each.step: each.status for each in progress.steps}
            status, failure = outcome(progress.plan, states), failed_step(progress.plan, states)
            if progress.task.is_finished:
                return None
            if status is TaskStatus.RUNNING:
                return status
            error = _run_of(progress, failure).error if failure is not None else _time_error(progress)
            if error is not None:
                await self._tasks.finish(scope, task_id, failed=True, error=error)
                return TaskStatus.FAILED
            try:
                await self._tasks.finish(scope, task_id, result=_result(progress))
            except TooLarge:
                # The outputs are on the board, each within the limit.
                await self._tasks.finish(scope, task_id)
        except (TaskNotFound, TaskFinished):
            return None
        return status

    def _is_over(self, task: Task) -> bool:
        return task.deadline_at is not None and self._clock() >= task.deadline_at

    def _limit(self, timeout: timedelta | None, task: Task, since: datetime | None = None) -> float:
        """The seconds until a timeout or the task's deadline, whichever is first."""
        now = self._clock()
        ends = [(since or now) + (_LONGEST_WAIT if timeout is None else timeout)]
        if task.deadline_at is not None:
            ends.append(task.deadline_at)
        return max((min(ends) - now).total_seconds(), 0.0)


class _OutOfTime(Exception):
    """An agent took too long."""

    def __init__(self, code: str) -> None:
        super().__init__("the agent took too long" if code == "step_timeout" else "the task ran out of time")
        self.why = code


class _AgentCancelled(Exception):
    """An agent cancelled itself, which is a failure as any other."""


class _AgentExited(Exception):
    """An agent would have ended the process, and all other tasks of it."""


def is_inside_assistant() -> bool:
    """Whether the caller is an assistant that works on a step."""
    return _inside_assistant.get()


async def _contain_exit(function: AgentFunction, context: AgentContext) -> Any:
    _inside_assistant.set(context.agent.startswith(ASSISTANT))
    try:
        return await function(context)
    except SystemExit:
        raise _AgentExited from None


def _retrieve_exception(work: asyncio.Future[Any]) -> None:
    if not work.cancelled():
        work.exception()


async def _patiently(call: Callable[[], Awaitable[_Result]], kind: type[Unavailable] = Unavailable) -> _Result:
    """Call again, after growing pauses, while the store does not answer, which an error of this kind says."""
    backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
    while True:
        try:
            return await call()
        except StateCorrupt:
            raise
        except kind as error:
            _log.warning("a step waits for the store: %s", error)
        await backoff.wait()


def _error_of(error: Exception, step: Step) -> TaskError:
    """A failure as the task notes it; what an agent raised may quote user text."""
    if isinstance(error, _OutOfTime):
        return TaskError(code=error.why, message=str(error), step=step.id)
    if isinstance(error, TenutoError) and not isinstance(error, AssistantFailed):
        return TaskError(code=error.code, message=str(error), step=step.id, reason=failure_reason(error))
    cause = error.__cause__ if isinstance(error, AssistantFailed) else error
    return TaskError(code=AGENT_FAILED, message=explain_exception(cause), step=step.id)


def _run_of(progress: TaskProgress, step: Step) -> StepRun:
    return next(run for run in progress.steps if run.step == step.id)


def _time_error(progress: TaskProgress) -> TaskError | None:
    """The error of an optional step that ended with the task's time: the task has failed then, too."""
    errors = [run.error for run in progress.steps if run.status is StepStatus.FAILED and run.error is not None]
    return next((error for error in errors if error.code == "task_timeout"), None)


def _result(progress: TaskProgress) -> JsonObject:
    """The outputs of the steps that no other step comes after, by their keys."""
    assert progress.plan is not None
    with_successors = {before for step in progress.plan.steps for before in step.after}
    last: Mapping[str, Step] = {step.id: step for step in progress.plan.steps if step.id not in with_successors}
    return {
        last[run.step].key: run.output
        for run in progress.steps
        if run.step in last and run.status is StepStatus.COMPLETED
    }
