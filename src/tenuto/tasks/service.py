"""Tasks of a scope: opening, starting, finishing, listing and removing them, and sweeping expired ones."""

from __future__ import annotations

import heapq
import logging
import re
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from tenuto.compare_and_set import update, write_if_unchanged
from tenuto.errors import DecryptionFailed, IdempotencyKeyReused, InvalidCursor, TooLarge, VersionConflict
from tenuto.model import Scope
from tenuto.model.agent_run import AgentRun
from tenuto.model.plan import Plan, StepRun, StepStatus, TaskProgress, parse_plan, plan_fields
from tenuto.model.policy import TaskPolicy
from tenuto.model.scope import SYSTEM, owner_key
from tenuto.model.task import NewTask, Task, TaskError, TaskEvent, TaskPage, TaskQuery, TaskStatus, TaskSweep
from tenuto.model.values import MAX_DEPTH, Json, check_id, check_json
from tenuto.ports import Clock, SessionStore, StateStore
from tenuto.task_errors import PlanInvalid, TaskFinished, TaskNotFound, TaskRunning
from tenuto.tasks._deadlines import Deadlines, TaskDeadline
from tenuto.tasks._record_store import VersionedRecord
from tenuto.tasks._records import (
    PlanRecord,
    TaskHead,
    digest_of_key,
    instant,
    micros,
    name_ref,
    new_incarnation,
    place_for,
)
from tenuto.tasks._task_table import TaskTable
from tenuto.tasks._workspace import Fence, TaskWorkspace
from tenuto.tasks.board import Board
from tenuto.tasks.notes import Notes, drop_expired_notes
from tenuto.tasks.runs import AgentRuns, RunRecorder
from tenuto.tasks.steps import Steps
from tenuto.tasks.timeline import derive_events, events_after, watch_events

_log = logging.getLogger(__name__)
# A UUID, or the id of a task that was opened under a key.
_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|t-[0-9a-f]{24}(-[0-9a-f]{16})?")
# The number of tasks that one listing reads at most.
_LOOKS: Final = 1000
# Records that cannot be decrypted now may be once their key is back.
_PUT_OFF: Final = timedelta(hours=1)
_PLAN: Final = "plan"
_ENGINE: Final = "task-engine"
_USED: Final = "used"


class Tasks:
    """Every task belongs to the owner of the scope it was opened in: a user, a chat, or the tenant itself.

    For any other owner it does not exist. Expired ones do not exist either, swept or not.
    """

    def __init__(
        self, *, state: StateStore, sessions: SessionStore, policy: TaskPolicy, clock: Clock, new_id: Callable[[], str]
    ) -> None:
        self._state = state
        self._sessions = sessions
        self._policy = policy
        self._clock = clock
        self._new_id = new_id
        self._heads = TaskTable(state=state, clock=clock)
        self._deadlines = Deadlines(state)

    async def open(self, scope: Scope, new: NewTask, *, idempotency_key: str | None = None) -> Task:
        """Open a task, `pending` until an agent begins it. A repeated `idempotency_key` returns the same task as long
        as it exists.

        Raises:
            SessionNotFound: the scope has no such session.
            TooLarge: its goal is above the limit.
            IdempotencyKeyReused: the key has opened another one.
        """
        self._check_size(new.goal, "goal")
        if new.session_id is not None:
            await self._sessions.get(scope, new.session_id)
        place = (
            self._new_id()
            if idempotency_key is None
            else place_for(owner_key(scope), check_id(idempotency_key, "the idempotency key"))
        )

        def open_unless_there(before: VersionedRecord[TaskHead] | None) -> TaskHead | None:
            if before is not None and self._heads.lasts(before.record):
                return None
            return self._new_record(new, () if idempotency_key is None else new_incarnation(self._new_id()))

        result = await update(
            lambda: self._heads.at(scope, place),
            open_unless_there,
            lambda before, head: self._add(scope, place, head, before),
            None if idempotency_key is None else ...,
        )
        assert result.after is not None
        if not result.changed and result.after.record.asked != _request_digest(new):
            raise IdempotencyKeyReused
        return result.after.record.task(result.after.key, result.after.version)

    def _new_record(self, new: NewTask, life: tuple[int, ...]) -> TaskHead:
        now = self._clock()
        return TaskHead(
            type=new.type,
            life=life,
            owner=digest_of_key(self._policy.owner_of(new.type)),
            asked=_request_digest(new),
            goal=new.goal,
            session=name_ref(new.session_id) if new.session_id is not None else None,
            language=new.language,
            status=TaskStatus.PENDING,
            created_at=micros(now),
            updated_at=micros(now),
            expires_at=micros(now + self._policy.task_retention),
        )

    async def _add(
        self, scope: Scope, place: str, head: TaskHead, over: VersionedRecord[TaskHead] | None
    ) -> VersionedRecord[TaskHead]:
        task_id, expires = head.task_id(place), instant(head.expires_at)
        await self._deadlines.add(scope, task_id, expires)
        row = await self._heads.add(scope, place, head, over)
        # A concurrent erasure of this owner finds no task and removes its deadline.
        await self._deadlines.restore(scope, task_id, expires)
        if over is not None:
            await self._workspace(scope, over.record.task_id(place)).clear()
        return row

    async def get(self, scope: Scope, task_id: str) -> Task:
        """One task, without its board.

        Raises:
            TaskNotFound: absent, foreign, expired and deleted alike.
        """
        return await self._heads.get(scope, task_id)

    async def list(self, scope: Scope, query: TaskQuery = TaskQuery()) -> TaskPage:  # noqa: B008 (a frozen value)
        """The tasks of the scope's owner in order of their ids, which is by the millisecond of their opening.

        Those opened under a key follow the others. A page may have fewer tasks than its limit, or none, and still a
        cursor, since one listing reads a limited number of tasks. A listing with the newest first reads all of them.

        Raises:
            InvalidCursor: no listing of this order returned it.
        """
        if query.newest_first:
            return await self._newest(scope, query)
        if query.cursor is not None and _ID.fullmatch(query.cursor) is None:
            raise InvalidCursor
        tasks: list[Task] = []
        looks, last = 0, ""
        async for row in self._heads.every(scope, query.cursor or ""):
            if len(tasks) == query.limit or looks == _LOOKS:
                return TaskPage(tasks=tuple(tasks), cursor=last)
            if self._heads.lasts(row.record) and _matches(row.record, query):
                tasks.append(row.record.task(row.key, row.version))
            looks, last = looks + 1, row.record.task_id(row.key)
        return TaskPage(tasks=tuple(tasks))

    async def _newest(self, scope: Scope, query: TaskQuery) -> TaskPage:
        """Only a page is kept in memory; a task lives for a day, so an owner has few of them."""
        before = _place_of(query.cursor) if query.cursor is not None else None
        newest: list[tuple[tuple[int, str], Task]] = []
        async for row in self._heads.every(scope, ""):
            head = row.record
            place = head.created_at, head.task_id(row.key)
            if (before is None or place < before) and self._heads.lasts(head) and _matches(head, query):
                # No two tasks have one id, so tasks are never compared.
                heapq.heappush(newest, (place, head.task(row.key, row.version)))
            if len(newest) > query.limit + 1:
                heapq.heappop(newest)
        page = sorted(newest, reverse=True)[: query.limit]
        cursor = "{}.{}".format(*page[-1][0]) if len(newest) > query.limit else None
        return TaskPage(tasks=tuple(task for _, task in page), cursor=cursor)

    async def active(self, scope: Scope, session_id: str, limit: int = 20) -> tuple[Task, ...]:
        """The unfinished tasks of a session, newest first; it reads every task of the scope's owner."""
        query = TaskQuery(session_id=session_id, limit=limit)
        tasks = [
            row.record.task(row.key, row.version)
            async for row in self._heads.every(scope, "")
            if row.record.completed_at is None and self._heads.lasts(row.record) and _matches(row.record, query)
        ]
        return tuple(sorted(tasks, key=lambda task: (task.created_at, task.id), reverse=True)[:limit])

    async def begin(self, scope: Scope, task_id: str, *, if_version: int | None = None) -> Task:
        """Mark the task as running, and renew its expiry; a repeated call does the same.

        Raises:
            TaskFinished: it has ended.
            VersionConflict: `if_version` is not the stored version.
        """

        def begin_task(head: TaskHead) -> TaskHead:
            since = micros(self._clock()) if head.started_at is None else head.started_at
            return replace(head, status=TaskStatus.RUNNING, started_at=since)

        return await self._change(scope, task_id, if_version, begin_task)

    async def add_plan(self, scope: Scope, task_id: str, plan: Plan) -> Plan:
        """Give a task its plan, once; returns the plan that it has.

        Raises:
            TaskFinished: the task has ended.
            PlanInvalid: the privacy policy would change the plan.
            TooLarge: the plan is above the limit.
        """
        fields = plan_fields(plan)
        self._check_size(fields, "plan")
        workspace = self._workspace(scope, task_id)
        await workspace.open()
        result = await workspace.plan.update(_PLAN, lambda row: PlanRecord(plan=fields) if row is None else None)
        await workspace.recheck_open()
        assert result.after is not None
        stored_plan = parse_plan(result.after.record.plan)
        if result.changed and stored_plan != plan:
            await workspace.plan.remove(_PLAN)
            raise PlanInvalid(None, "holds what the privacy policy replaces; put that into the goal or on the board")
        return stored_plan

    async def plan(self, scope: Scope, task_id: str) -> Plan | None:
        """The plan of a task that exists, `None` if it has none."""
        row = await self._workspace(scope, task_id).plan.read_record(_PLAN)
        return None if row is None else parse_plan(row.record.plan)

    async def progress(self, scope: Scope, task_id: str) -> TaskProgress:
        """A task, its plan and what became of its steps; no engine is asked.

        A step that was running when its task was cancelled has failed with it; one that was running or waiting when
        its task was completed by hand was skipped.

        Raises:
            TaskNotFound: as in `get`.
        """
        task, plan = await self._heads.get(scope, task_id), await self.plan(scope, task_id)
        if plan is None:
            return TaskProgress(task=task)
        steps = await self.steps(scope, task_id).list(plan)
        if task.is_finished:
            steps = tuple(_end_with(task, run) for run in steps)
        return TaskProgress(task=task, plan=plan, steps=steps)

    async def start_run(
        self,
        scope: Scope,
        task_id: str,
        *,
        run: int,
        timeout: timedelta | None,
        reopen: bool = False,
        if_version: int | None = None,
    ) -> Task:
        """Mark the task as running for the first time, or with `reopen` again by a greater `run`: after its end, or
        when no worker has it any more, which the caller knows.

        A repeated call changes nothing. An ended task that is begun again has no result any more.

        Raises:
            TaskRunning: another run goes on.
            TaskFinished: this run has ended, or the task before it could begin.
            VersionConflict: `if_version` is not the stored version.
        """
        now = self._clock()
        deadline = None if timeout is None else micros(now + timeout)

        def begin_run(head: TaskHead) -> TaskHead:
            if head.runs == run and head.completed_at is None:
                return head
            if head.completed_at is None and head.runs > 0 and not (reopen and run == head.runs + 1):
                raise TaskRunning(task_id)
            if head.runs >= run or (head.completed_at is not None and not reopen):
                raise TaskFinished(task_id)
            return replace(
                head,
                status=TaskStatus.RUNNING,
                runs=run,
                started_at=head.started_at if head.started_at is not None and run == 1 else micros(now),
                deadline_at=deadline,
                result=None,
                error=None,
                completed_at=None,
                ended=(),
            )

        return await self._change(scope, task_id, if_version, begin_run, reopen=True)

    async def finish(
        self,
        scope: Scope,
        task_id: str,
        *,
        failed: bool = False,
        result: Json = None,
        error: TaskError | None = None,
        if_version: int | None = None,
    ) -> Task:
        """Finish a task. Its board can be read until it expires; the notes of agents are removed.

        Finishing it again in the same way has no effect, also with the same `if_version`.

        Raises:
            TaskFinished: it has ended in another way before.
            VersionConflict: `if_version` is not the stored version.
            TooLarge: the result is above the limit.
        """
        self._check_size(check_json(result, "the result", MAX_DEPTH - 1), "result")
        status, now = TaskStatus.FAILED if failed else TaskStatus.COMPLETED, self._clock()
        finish_facts = [status, result] if error is None else [status, result, error.code, error.step]
        way = digest_of_key(msgspec.json.encode(finish_facts, order="deterministic").decode())

        end = {"status": status, "result": result, "error": error, "completed_at": micros(now), "ended": way}
        try:
            # Swept soon: this process may die before it removes the notes, or an agent may write one concurrently.
            task = await self._change(scope, task_id, if_version, lambda head: replace(head, **end), look_at=(now,))
        except (TaskFinished, VersionConflict):
            before = await self._heads.find(scope, task_id)
            if before.record.ended != way or if_version not in (None, before.version - 1, before.version):
                raise
            task = before.record.task(before.key, before.version)
        await self._workspace(scope, task_id).notes.clear()
        return task

    async def delete(self, scope: Scope, task_id: str, *, if_version: int | None = None) -> None:
        """Remove a task with its board and all notes.

        Raises:
            TaskNotFound: as in `get`.
            VersionConflict: `if_version` is not the stored version.
        """
        await self._heads.retire(scope, task_id, if_version)
        await self._remove(scope, task_id)

    async def events(self, scope: Scope, task_id: str, *, after: str | None = None) -> tuple[TaskEvent, ...]:
        """What happened to a task, in order of time; with `after`, what followed the event of that id.

        Raises:
            TaskNotFound: as in `get`.
            InvalidCursor: `after` is no id of an event.
        """
        progress = await self.progress(scope, task_id)  # First: of an ended task the rest changes no more.
        return events_after(derive_events(progress, await self.board(scope, task_id).history()), after)

    def watch(self, scope: Scope, task_id: str, *, after: str | None = None) -> AsyncIterator[TaskEvent]:
        """The same as it happens, each event once, until the task ends.

        Raises:
            TaskNotFound: as in `get`, also when the task is removed meanwhile.
            InvalidCursor: `after` is no id of an event.
        """
        return watch_events(lambda: self.events(scope, task_id), after)

    def board(self, scope: Scope, task_id: str, *, fence: Fence | None = None) -> Board:
        """The board of a task; its methods check that the task exists, and its writers pass the fence."""
        return Board(workspace=self._workspace(scope, task_id, fence), policy=self._policy, clock=self._clock)

    def notes(self, scope: Scope, task_id: str, agent: str, *, fence: Fence | None = None) -> Notes:
        """The notes of one agent on a task; its methods check that the task exists, and its writers pass the fence."""
        return Notes(
            workspace=self._workspace(scope, task_id, fence), policy=self._policy, clock=self._clock, agent=agent
        )

    def steps(self, scope: Scope, task_id: str) -> Steps:
        """The steps of a task's plan; its methods check that the task exists."""
        return Steps(workspace=self._workspace(scope, task_id), policy=self._policy, clock=self._clock)

    async def runs(self, scope: Scope, task_id: str, *, agent: str | None = None) -> tuple[AgentRun, ...]:
        """The runs of a task's agents, in the order of its plan; with `agent`, its own with their private parts.

        Raises:
            TaskNotFound: as in `get`.
        """
        return await self._runs(scope, task_id).list(await self.progress(scope, task_id), agent)

    async def record_run(self, scope: Scope, task_id: str, step: str, recorder: RunRecorder) -> None:
        """Store what an agent reported of its work on a step.

        Raises:
            TaskNotFound: as in `get`.
            TaskFinished: the task has ended.
        """
        await self._runs(scope, task_id).add(step, recorder)

    def _runs(self, scope: Scope, task_id: str) -> AgentRuns:
        return AgentRuns(workspace=self._workspace(scope, task_id), policy=self._policy, clock=self._clock)

    async def note_runs(self) -> None:
        """Note in the store that plans are run here."""
        used = {"since_at": micros(self._clock())}
        await write_if_unchanged(self._state.write_state(SYSTEM, _ENGINE, _USED, used, if_version=0))

    async def has_runs(self) -> bool:
        """Whether plans were ever run in this store: some may be unfinished, and an engine knows of some."""
        return await self._state.read_state(SYSTEM, _ENGINE, _USED) is not None

    @property
    def policy(self) -> TaskPolicy:
        """What agents may write, and how long tasks live."""
        return self._policy

    # Upkeep

    async def sweep(self, limit: int = 1000) -> TaskSweep:
        """Remove up to `limit` expired tasks of all tenants, or their expired notes."""
        come, more = await self._deadlines.due(self._clock(), limit)
        count = 0
        for due in come:
            try:
                count += await self._sweep_due(due)
            except DecryptionFailed as error:
                _log.warning("task %s was not swept: %s", due.task_id, error)
                await self._deadlines.add(due.scope, due.task_id, self._clock() + _PUT_OFF)
            await self._deadlines.drop(due)
        return TaskSweep(tasks=count, more=more)

    async def drop_user_deadlines(self, person: Scope) -> int:
        """Remove the deadlines of an erased user's tasks, which were erased with the user's state.

        Deadlines of tasks that were opened since stay.
        """
        return await self._deadlines.drop_removed_tasks(person, lambda task_id: self._heads.stands(person, task_id))

    async def _sweep_due(self, due: TaskDeadline) -> bool:
        """Remove a task or its expired notes; returns whether the task was removed."""
        if await self._heads.retire_expired(due.scope, due.task_id):
            return await self._remove(due.scope, due.task_id)
        workspace = self._workspace(due.scope, due.task_id)
        try:
            is_finished = (await workspace.task()).completed_at is not None
        except TaskNotFound:
            return False  # It expired or was removed meanwhile, and has a deadline of its own.
        await (workspace.notes.clear() if is_finished else drop_expired_notes(workspace.notes, self._clock()))
        return False

    async def _remove(self, scope: Scope, task_id: str) -> bool:
        was_there = await self._heads.remove(scope, task_id)
        await self._workspace(scope, task_id).clear()
        return was_there

    def _workspace(self, scope: Scope, task_id: str, fence: Fence | None = None) -> TaskWorkspace:
        return TaskWorkspace(
            state=self._state, heads=self._heads, deadlines=self._deadlines, scope=scope, task_id=task_id, fence=fence
        )

    async def _change(
        self,
        scope: Scope,
        task_id: str,
        if_version: int | None,
        change: Callable[[TaskHead], TaskHead],
        look_at: tuple[datetime, ...] = (),
        reopen: bool = False,
    ) -> Task:
        await self._heads.get(scope, task_id)
        now = self._clock()
        expires = now + self._policy.task_retention
        for at in (*look_at, expires):
            await self._deadlines.add(scope, task_id, at)

        def apply_change(head: TaskHead) -> TaskHead:
            if head.completed_at is not None and not reopen:
                raise TaskFinished(task_id)
            return replace(change(head), updated_at=micros(now), expires_at=micros(expires))

        try:
            return await self._heads.change(scope, task_id, apply_change, if_version)
        except TaskNotFound:
            await self._workspace(scope, task_id).recheck_open()
            raise

    def _check_size(self, value: Json, what: str) -> None:
        if len(msgspec.json.encode(value)) > self._policy.max_board_value_bytes:
            raise TooLarge(what, self._policy.max_board_value_bytes)


def _end_with(task: Task, run: StepRun) -> StepRun:
    if run.status not in (StepStatus.RUNNING, StepStatus.WAITING):
        return run
    status = StepStatus.FAILED if task.status is TaskStatus.FAILED else StepStatus.SKIPPED
    return replace(run, status=status, error=task.error, ended_at=task.completed_at)


def _place_of(cursor: str) -> tuple[int, str]:
    """Where a listing with the newest first ended."""
    opened_at, _, task_id = cursor.partition(".")
    if re.fullmatch("[0-9]{1,17}", opened_at) is None or _ID.fullmatch(task_id) is None:
        raise InvalidCursor
    return int(opened_at), task_id


def _matches(head: TaskHead, query: TaskQuery) -> bool:
    if query.status is not None and head.status is not query.status:
        return False
    return query.session_id is None or (head.session is not None and head.session.same(name_ref(query.session_id)))


def _request_digest(new: NewTask) -> tuple[int, ...]:
    return digest_of_key(msgspec.json.encode(new).decode())
