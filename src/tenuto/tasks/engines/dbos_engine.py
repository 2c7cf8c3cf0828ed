"""Plans run by DBOS Transact: on a SQLite file in this process, or on Postgres by workers of many machines.

DBOS is the durable queue: it gives each task to one worker, those of a dead worker to another one, and wakes a task
that waited for a person. Its database holds ids and states only: goals, plans, outputs and answers, and which steps
have ended, are in the task's own records.

DBOS exists once per process, and works in a thread with a loop of its own; agents and stores stay in the loop of the
program. What it leaves to its user is done here: a heartbeat and a reaper (it recovers only tasks of its own executor
id by itself), JSON instead of pickle, a fixed application version (else each edit of the workflow would hide older
tasks), and the removal of ended runs.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
import sqlalchemy as sa
from dbos import DBOS, DBOSClient, DBOSConfig, DBOSPortableJSONSerializer
from dbos._context import get_local_dbos_context

from tenuto.errors import IdempotencyKeyReused, Invalid, TooLarge, Unavailable, VersionConflict
from tenuto.logs import describe_exception
from tenuto.model import Scope
from tenuto.model.plan import Plan, Step, StepStatus, TaskProgress, check_plan, steps_from
from tenuto.model.policy import RunPolicy
from tenuto.model.scope import owner_key, owner_scope
from tenuto.model.task import NewTask, Task, TaskError, TaskPage, TaskQuery
from tenuto.model.values import Json
from tenuto.process_identity import with_holder
from tenuto.task_errors import StepNotWaiting, TaskFinished, TaskNotFound, TaskRunning
from tenuto.tasks.agents import Agents
from tenuto.tasks.engines._database import make_database
from tenuto.tasks.engines._queues import SLOTS, QueueReader, RunningTasks, replace_polling
from tenuto.tasks.engines._reaper import Reaper
from tenuto.tasks.engines._workers import Workers
from tenuto.tasks.plan_runner import PlanRunner
from tenuto.tasks.service import Tasks
from tenuto.tasks.step_runner import StepRunner, is_inside_assistant
from tenuto.tasks.steps import find_step

if TYPE_CHECKING:
    from tenuto.tasks.webhooks import EventDelivery

_log = logging.getLogger(__name__)
# A logger without a handler gets one of DBOS that writes to standard error, past the redaction of log lines.
logging.getLogger("dbos").addHandler(logging.NullHandler())
# A run that is given to another worker, or stopped with this one, is cancelled on purpose.
logging.getLogger("dbos").addFilter(lambda record: not str(record.msg).startswith("Asyncio task cancelled"))
_T = TypeVar("_T")
_APP: Final = "tenuto-tasks"
_QUEUE: Final = "tenuto-tasks"
# Plans whose agents every worker has; the other queue is for workers with agents of their own.
_SHARED_QUEUE: Final = "tenuto-tasks-shared"
# Tasks of assistants that are agents of another task, which has a slot already and waits for them.
_INNER_QUEUE: Final = "tenuto-tasks-inner"
_WORKFLOW: Final = "tenuto.run_task"
_DELIVERY_QUEUE: Final = "tenuto-task-events"
_DELIVERY: Final = "tenuto.deliver_events"
_SCHEMA: Final = "tenuto_tasks"
_INPUT: Final = "input"
# The form of the records that a run leaves: a change of `_walk` that cannot go on with them needs another one.
_VERSION: Final = "tasks-1"
# How often a run may change hands; a step that kills its workers is given up long before.
_RECOVERIES: Final = 1000
_POLL: Final = 0.2
# For answers that other processes give; a run is woken at once by one that is given here.
_LISTEN: Final = 0.5
_THREADS: Final = 8
_LONGEST_SLEEP: Final = 300.0
_LIVING: Final = ("ENQUEUED", "PENDING", "DELAYED")
_TRIES: Final = 10
_CANCELLED: Final = TaskError(code="task_cancelled", message="the task was cancelled")

# DBOS calls a function that it knows by name; it finds the open engine here.
_open_engine: DbosEngine | None = None


@asynccontextmanager
async def open_dbos_engine(
    url: str,
    *,
    tasks: Tasks,
    runner: StepRunner,
    agents: Agents,
    policy: RunPolicy,
    new_id: str,
    worker: bool = True,
    delivery: EventDelivery | None = None,
) -> AsyncIterator[DbosEngine]:
    """Open an engine on its database; without `worker` it submits and controls tasks that workers elsewhere run.

    Raises:
        Invalid: this process has a worker already.
        Unavailable: the database cannot be opened.
    """
    engine = DbosEngine(
        url, tasks=tasks, runner=runner, agents=agents, policy=policy, name=new_id, worker=worker, delivery=delivery
    )
    try:
        await engine.open()
        yield engine
    finally:
        await engine.close()


class DbosEngine:
    """The `TaskEngine` port on DBOS. Each run of a task is a workflow, whose id begins with a digest of the owner."""

    def __init__(
        self,
        url: str,
        *,
        tasks: Tasks,
        runner: StepRunner,
        agents: Agents,
        policy: RunPolicy,
        name: str,
        worker: bool,
        delivery: EventDelivery | None = None,
    ) -> None:
        self._database = make_database(url)
        self._schema = None if self._database.dialect.name == "sqlite" else _SCHEMA
        self._tasks = tasks
        self._runner = runner
        self._plans = PlanRunner(runner)
        self._agents = agents
        self._policy = policy
        self._worker = worker
        self._delivery = delivery
        self._id = with_holder(name)
        self._loop = asyncio.get_running_loop()
        # Of its own: a database that does not answer must not take the threads of the program.
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="tenuto tasks")
        self._active: dict[str, Scope] = {}
        self._runs = RunningTasks(policy.busy_tasks, (_SHARED_QUEUE, _QUEUE))
        self._queues = QueueReader(self._runs)
        self._working: set[asyncio.Task[Any]] = set()
        lease = policy.lease.total_seconds()
        self._workers = Workers(engine=self._database, schema=self._schema, lease=lease)
        self._client: DBOSClient | None = None
        self._reaper: Reaper  # Made with the client.
        self._noted = self._launched = False
        self._connecting: asyncio.Task[None] | None = None
        self._stop = threading.Event()
        self._heart: threading.Thread | None = None
        self._renewing: asyncio.Task[None] | None = None

    # The port

    async def submit(self, scope: Scope, new: NewTask, plan: Plan, *, idempotency_key: str | None = None) -> Task:
        available = await self._known_agents(plan)
        check_plan(plan, policy=self._tasks.policy, task_type=new.type, agents=available)
        if not self._noted:
            await self._tasks.note_runs()
            self._noted = True
        task = await self._tasks.open(scope, new, idempotency_key=idempotency_key)
        if task.is_finished:
            # The key counts for as long as the task is there, however soon it ended.
            if await self._tasks.plan(scope, task.id) not in (None, plan):
                raise IdempotencyKeyReused
            return task
        try:
            stored_plan = await self._tasks.add_plan(scope, task.id, plan)
        except (Invalid, TooLarge):
            await self._tasks.delete(scope, task.id)
            raise
        if stored_plan != plan:
            raise IdempotencyKeyReused
        await self._enqueue(scope, task.id, plan, 1)
        return task

    async def cancel(self, scope: Scope, task_id: str) -> Task:
        task = await self._tasks.finish(scope, task_id, failed=True, error=_CANCELLED)
        # Not those of a later run, which may have been begun since.
        await self._ask(partial(self._control.cancel_workflow, _workflow_id(scope, task_id, max(task.runs, 1))))
        return task

    async def stop(self, scope: Scope, task_id: str) -> None:
        # Agents that run are cancelled by their worker; what they write is refused since the task's end.
        await self._ask(partial(self._reaper.cancel, f"{_owner_prefix(scope)}{task_id}."))

    async def resume(self, scope: Scope, task_id: str, *, from_step: str | None = None) -> Task:
        progress = await self._tasks.progress(scope, task_id)
        task, plan = progress.task, progress.plan
        if plan is None:
            raise Invalid("the task has no plan")
        first = {step.id for step in steps_from(plan, find_step(plan, from_step).id)} if from_step is not None else ()
        done_states = (StepStatus.COMPLETED, StepStatus.SKIPPED)
        runs = zip(plan.steps, await self._tasks.steps(scope, task_id).list(plan), strict=True)
        again = [(step, run) for step, run in runs if step.id in first or run.status not in done_states]
        if task.is_finished and not again:
            raise TaskFinished(task_id)
        # An unfinished task may have been left: before its run was queued, or by a run that ended without its end.
        run_status = await self._run_status(_workflow_id(scope, task_id, max(task.runs, 1)))
        if not task.is_finished and run_status in _LIVING:
            raise TaskRunning(task_id)
        run = max(task.runs, 1) if run_status is None and not task.is_finished else max(task.runs, 1) + 1
        await self._tasks.steps(scope, task_id).reset(again)
        timeout = self._runner.timeout_of(plan)
        try:
            task = await self._tasks.start_run(
                scope, task_id, run=run, timeout=timeout, reopen=True, if_version=task.version
            )
        except VersionConflict:
            raise TaskRunning(task_id) from None  # Another call was faster.
        await self._enqueue(scope, task_id, plan, run)
        return task

    async def answer(self, scope: Scope, task_id: str, step_id: str, value: Json) -> TaskProgress:
        progress = await self._tasks.progress(scope, task_id)
        step = find_step(progress.plan, step_id)
        if step.remote:
            raise StepNotWaiting(step_id)
        return await self._complete(scope, progress, step, value)

    async def complete_step(
        self, scope: Scope, task_id: str, step_id: str, *, agent: str, output: Json
    ) -> TaskProgress:
        progress = await self._tasks.progress(scope, task_id)
        return await self._complete(scope, progress, _remote_step(progress, step_id, agent), output)

    async def fail_step(
        self, scope: Scope, task_id: str, step_id: str, *, agent: str, code: str, attempt: int | None = None
    ) -> TaskProgress:
        progress = await self._tasks.progress(scope, task_id)
        step = _remote_step(progress, step_id, agent)
        error = TaskError(code=code, message="its agent reported a failure", step=step_id)
        run = await self._tasks.steps(scope, task_id).fail_waiting(step, error, attempt)
        if not progress.task.is_finished:
            await self._wake(scope, progress.task, f"{step_id}:{run.status}:{run.attempts}")
        return await self._tasks.progress(scope, task_id)

    async def _complete(self, scope: Scope, progress: TaskProgress, step: Step, value: Json) -> TaskProgress:
        task_id = progress.task.id
        run, token = await self._tasks.steps(scope, task_id).answer(step, value)
        try:
            await self._runner.publish(scope, task_id, step, run, token, wait=False)
        except TaskFinished:  # The answer was given before, or is not needed any more.
            return await self._tasks.progress(scope, task_id)
        await self._wake(scope, progress.task, f"{step.id}:{token}")
        return await self._tasks.progress(scope, task_id)

    async def _wake(self, scope: Scope, task: Task, what: str) -> None:
        """Let a run go on that waits; repeated for the same reason, nothing happens."""
        workflow_id, key = _workflow_id(scope, task.id, task.runs), f"{task.id}:{what}"
        await self._ask(partial(self._control.send, workflow_id, True, topic=_INPUT, idempotency_key=key))
        self._queues.wake_run(f"{workflow_id}::{_INPUT}")

    async def status(self, scope: Scope, task_id: str) -> TaskProgress:
        return await self._tasks.progress(scope, task_id)

    async def list(self, scope: Scope, query: TaskQuery = TaskQuery()) -> TaskPage:  # noqa: B008 (a frozen value)
        return await self._tasks.list(scope, query)

    async def agents(self) -> frozenset[str]:
        return await self._ask(self._workers.agents)

    async def _known_agents(self, plan: Plan) -> frozenset[str]:
        """The agents of a plan that this process or a worker elsewhere has."""
        names = plan.called_agents
        here = await self._agents.known(names)
        return here if here == names else here | (names & await self.agents())

    async def recover(self) -> int:
        count = await self._ask(self._reaper.recover_dead)
        if not self._worker:
            # A worker watches the others all the time; this process begins to, and needs a whole lease for it.
            ends = time.monotonic() + self._policy.lease.total_seconds() + _POLL
            while await self._ask(self._reaper.others_work) and time.monotonic() < ends:
                await asyncio.sleep(_POLL)
                count += await self._ask(self._reaper.recover_dead)
        return count

    async def erase(self, scope: Scope) -> int:
        return await self._ask(partial(self._reaper.erase, _owner_prefix(scope)))

    # Opening and closing

    async def open(self) -> None:
        """Connect, and begin to work if this is a worker."""
        global _open_engine
        if self._worker and _open_engine is not None:
            raise Invalid("this process has a worker already")
        if self._worker:
            _open_engine = self
        # Shielded: a thread cannot be cancelled, so `close` waits for it.
        self._connecting = asyncio.create_task(self._ask(self._connect))
        await asyncio.shield(self._connecting)
        if self._worker:
            beat = partial(self._reaper.beat, self._stop, lambda: self._agents.names)
            self._heart = threading.Thread(target=beat, name="tenuto-task-heartbeat", daemon=True)
            self._heart.start()
            self._renewing = asyncio.create_task(self._renew())

    async def close(self) -> None:
        """Stop working; other workers go on with the tasks of this one at once."""
        global _open_engine
        self._stop.set()
        self._queues.close()
        if self._renewing is not None:
            self._renewing.cancel()
        tasks = [task for task in (self._connecting, self._renewing) if task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(self._disconnect)
        # Not before: the loop of DBOS must not take this for the end of a run.
        for task in self._working:
            task.cancel()
        await asyncio.gather(*self._working, return_exceptions=True)
        await self._runner.close()
        if _open_engine is self:
            _open_engine = None

    def _connect(self) -> None:
        for tries in range(1, _TRIES + 1):
            try:
                self._workers.create()
                self._client = DBOSClient(
                    system_database_engine=self._database,
                    dbos_system_schema=_SCHEMA,
                    serializer=DBOSPortableJSONSerializer(),
                    application_name=_APP,
                    # A request is told that the database is away, instead of waiting until it is back.
                    retry_connection_errors=False,
                )
                # Two processes may begin with a new database at once: the second one finds it done.
                self._client._sys_db.run_migrations()
                break
            except sa.exc.DBAPIError:
                if tries == _TRIES or self._stop.wait(0.1 * tries):
                    raise
        names = (_WORKFLOW, _DELIVERY)
        self._reaper = Reaper(self._control, workers=self._workers, worker=self._id, names=names, policy=self._policy)
        if self._worker and not self._stop.is_set():
            self._workers.beat(self._id, self._agents.names)
            self._launch()

    def _launch(self) -> None:
        config: DBOSConfig = {
            "name": _APP,
            "system_database_engine": self._database,
            "dbos_system_schema": _SCHEMA,
            "serializer": DBOSPortableJSONSerializer(),
            "executor_id": self._id,
            "application_version": _VERSION,
            "log_level": "WARNING",
            # The client, which makes the tables, makes none of the triggers that a listener would need.
            "use_listen_notify": False,
            "notification_listener_polling_interval_sec": _LISTEN,
        }
        DBOS(config=config)._active_workflows_set = self._runs
        queues = [_SHARED_QUEUE, _QUEUE] if self._agents.own else [_SHARED_QUEUE]
        self._queues.names = [*queues, _INNER_QUEUE, _DELIVERY_QUEUE]
        self._launched = True
        with replace_polling(self._queues):
            DBOS.launch()
        for queue, slots in ((_SHARED_QUEUE, SLOTS), (_QUEUE, SLOTS), (_INNER_QUEUE, None), (_DELIVERY_QUEUE, None)):
            DBOS.register_queue(
                queue, worker_concurrency=slots, polling_interval_sec=_POLL, on_conflict="always_update"
            )
        self._queues.wake()

    def _disconnect(self) -> None:
        if self._heart is not None:
            self._heart.join()
        if self._launched:
            DBOS.destroy()
            try:
                self._workers.remove([self._id])
            except sa.exc.SQLAlchemyError as error:
                _log.warning("a worker could not sign off: %s", describe_exception(error))
        if self._client is not None:
            self._client.destroy()
        self._database.dispose()

    @property
    def _control(self) -> DBOSClient:
        assert self._client is not None
        return self._client

    async def _ask(self, call: Callable[[], _T]) -> _T:
        """Call the blocking client in a thread."""
        try:
            return await self._loop.run_in_executor(self._threads, call)
        except sa.exc.DBAPIError as error:
            raise Unavailable("database of the task engine") from error

    async def _enqueue(self, scope: Scope, task_id: str, plan: Plan, run: int) -> None:
        owner = msgspec.to_builtins(owner_scope(scope))
        queue = _SHARED_QUEUE if self._agents.are_everywhere(plan.called_agents) else _QUEUE
        options: Any = {
            "workflow_name": _WORKFLOW,
            "queue_name": _INNER_QUEUE if is_inside_assistant() else queue,
            "workflow_id": _workflow_id(scope, task_id, run),
            "app_version": _VERSION,
        }
        await self._ask(partial(self._control.enqueue, options, owner, task_id, run))
        if self._delivery is not None:
            # Under another prefix: the end of a task that is stopped is delivered, too.
            delivery = f"{_owner_prefix(scope)}events.{task_id}.{run:06d}"
            options |= {"workflow_name": _DELIVERY, "queue_name": _DELIVERY_QUEUE, "workflow_id": delivery}
            await self._ask(partial(self._control.enqueue, options, owner, task_id, run))
        self._queues.wake()

    async def _run_status(self, workflow_id: str) -> str | None:
        """The status of a run in the engine's database, if it has one."""
        workflows = await self._ask(
            partial(self._control.list_workflows, workflow_ids=[workflow_id], load_input=False, load_output=False)
        )
        return workflows[0].status if workflows else None

    async def _renew(self) -> None:
        """Renew the expiry of the tasks that run here: one may wait for a person longer than tasks live unchanged."""
        while True:
            await asyncio.sleep(self._tasks.policy.task_retention.total_seconds() / 4)
            for workflow_id, scope in self._active.copy().items():
                try:
                    await self._runner.keep(scope, _task_of(workflow_id))
                except Unavailable as error:
                    _log.warning("the expiry of a running task was not renewed: %s", error)

    # The workflow, in the loop of DBOS

    async def walk(self, scope: Scope, task_id: str, run: int) -> str | None:
        """Run a plan; what is recorded here is only where it waited for people."""
        workflow_id = _workflow_id(scope, task_id, run)
        self._active[workflow_id] = scope
        try:
            if await self._belongs_elsewhere(scope, task_id):
                await self._give_back(workflow_id)
            while True:
                result = await _record("advance", partial(self._advance, scope, task_id, run))
                status: str | None = result["status"]
                if status != StepStatus.WAITING:
                    return status
                self._runs.waiting.add(workflow_id)
                # An answer that was stored may have failed to wake the run.
                await DBOS.recv_async(topic=_INPUT, timeout_seconds=min(result["seconds"], _LONGEST_SLEEP))
                self._runs.waiting.discard(workflow_id)
        finally:
            self._active.pop(workflow_id, None)
            self._runs.waiting.discard(workflow_id)

    async def _belongs_elsewhere(self, scope: Scope, task_id: str) -> bool:
        """Whether an agent of the plan is not here, but a living worker has all of them."""
        plan = await self._in_program(self._runner.plan(scope, task_id))
        if plan is None or all(name in self._agents for name in plan.called_agents):
            return False
        return await self._in_program(self._known_agents(plan)) == plan.called_agents

    async def _give_back(self, workflow_id: str) -> None:
        """Return a run to its queue, for another worker."""
        give = partial(self._control._sys_db.reenqueue_for_recovery, workflow_id, [self._id], _QUEUE)
        await self._in_program(self._ask(give))
        raise asyncio.CancelledError  # Nothing is recorded of it here.

    async def _advance(self, scope: Scope, task_id: str, run: int) -> dict[str, Any]:
        context = get_local_dbos_context()
        assert context is not None
        owner, workflow_id = context.owner_xid, context.workflow_id

        async def owns() -> bool:
            """A cancelled run keeps its owner, but another one may have begun since."""
            if owner != await self._ask(partial(self._control._sys_db.get_workflow_owner, workflow_id)):
                return False
            with suppress(TaskNotFound):
                return (await self._tasks.get(scope, task_id)).runs == run
            return False

        result = await self._in_program(self._plans.advance(scope, task_id, run, owns))
        return {"status": None if result.status is None else str(result.status), "seconds": result.seconds}

    async def deliver(self, scope: Scope, task_id: str, run: int) -> None:
        """Send the events of a run; what was sent is recorded."""
        event_ids: set[str] = set()
        while self._delivery is not None:
            new = await _record("events", partial(self._send_events, scope, task_id, run, frozenset(event_ids)))
            if not new:
                return
            event_ids.update(new)

    async def _send_events(self, scope: Scope, task_id: str, run: int, event_ids: frozenset[str]) -> Sequence[str]:
        assert self._delivery is not None
        return await self._in_program(self._delivery.send_new(scope, task_id, run, event_ids))

    async def _in_program(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run in the loop of the program, to which its stores and agents belong, until the engine is closed."""

        async def run() -> _T:
            task = asyncio.current_task()
            assert task is not None
            self._working.add(task)
            try:
                return await work
            finally:
                self._working.discard(task)

        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(run(), self._loop))


@DBOS.workflow(name=_WORKFLOW, max_recovery_attempts=_RECOVERIES)
async def _run_task(owner: dict[str, Any], task_id: str, run: int) -> str | None:
    """One run of a task."""
    engine = _open_engine
    if engine is None:
        raise asyncio.CancelledError  # The process ends; another one goes on.
    return await engine.walk(msgspec.convert(owner, Scope), task_id, run)


@DBOS.workflow(name=_DELIVERY, max_recovery_attempts=_RECOVERIES)
async def _deliver_events(owner: dict[str, Any], task_id: str, run: int) -> None:
    """Send the events of a run to the webhook."""
    engine = _open_engine
    if engine is None:
        raise asyncio.CancelledError
    await engine.deliver(msgspec.convert(owner, Scope), task_id, run)


def _record(name: str, work: Callable[[], Awaitable[_T]]) -> Coroutine[Any, Any, _T]:
    """Run something once and record its result; a cancelled workflow cancels it."""

    async def call() -> _T:
        return await work()

    return DBOS.run_step_async({"name": name, "preemptible": True}, call)


def _remote_step(progress: TaskProgress, step_id: str, agent: str) -> Step:
    """The step of an agent elsewhere. To others it does not wait."""
    step = find_step(progress.plan, step_id)
    if not step.remote or step.agent != agent:
        raise StepNotWaiting(step_id)
    return step


def _owner_prefix(scope: Scope) -> str:
    return f"{owner_key(scope).hex()}."


def _workflow_id(scope: Scope, task_id: str, run: int) -> str:
    """The id of a run. Ids of tasks are ordered by time, so those of an owner's runs are, too."""
    return f"{_owner_prefix(scope)}{task_id}.{run:06d}"


def _task_of(workflow_id: str) -> str:
    return workflow_id.split(".")[1]
