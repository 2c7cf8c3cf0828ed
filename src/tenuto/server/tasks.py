"""Routes for tasks, their boards, and what agents note for themselves."""

from __future__ import annotations

from datetime import timedelta

from tenuto.app import Tenuto
from tenuto.errors import Invalid
from tenuto.model import Scope
from tenuto.model.plan import check_plan, parse_plan
from tenuto.model.task import NewTask, TaskQuery
from tenuto.model.turn import IdempotencyKey
from tenuto.model.values import Json
from tenuto.server.agents import may_read_private
from tenuto.server.auth import AuthContext
from tenuto.server.handlers import Answer
from tenuto.server.json_io import Precondition, fingerprint
from tenuto.server.openapi import Router
from tenuto.server.problems import Forbidden, ScopeMismatch
from tenuto.server.requests import resolve_version
from tenuto.server.task_requests import (
    AppendItem,
    ChangeTask,
    Holding,
    Increment,
    LockKey,
    OpenTask,
    TaskListQuery,
    UnlockQuery,
    WriteEntry,
    WriteNote,
)
from tenuto.server.task_runs import open_engine, stop_run
from tenuto.task_errors import EntryNotFound
from tenuto.tasks import Board, Notes, Tasks
from tenuto.tasks.views import (
    AgentNoteList,
    AgentNoteView,
    BoardAnswer,
    BoardChangeView,
    BoardEntryView,
    BoardHistory,
    LockView,
    TaskDetail,
    TaskList,
    TaskView,
)

routes = Router("tasks", prefix="/v1")

_ENTRY = "/tasks/{task_id}/board/{key}"
_LOCK = "/tasks/{task_id}/locks/{key}"
_NOTE = "/tasks/{task_id}/agents/{agent}/notes/{key}"


@routes.post("/tasks", 201, 202)
async def open_task(
    admission: AuthContext, tenuto: Tenuto, idempotency_key: str | None, body: OpenTask
) -> Answer[TaskView]:
    """Open a task for several agents.

    It belongs to the caller and expires a day after its last change. With a `plan` it is run at once (202). With an
    Idempotency-Key, a repeated request returns the same task.
    """
    scope = admission.scope(body.tenant_id, body.site_id)
    new = NewTask(type=body.type, goal=body.goal, session_id=body.session_id)
    if body.plan is None:
        task = await tenuto.tasks.open(scope, new, idempotency_key=idempotency_key)
    else:
        plan = parse_plan(body.plan)
        # Before the engine is opened, which checks the agents, too.
        check_plan(plan, policy=tenuto.tasks.policy, task_type=body.type)
        task = await (await open_engine(tenuto)).submit(scope, new, plan, idempotency_key=idempotency_key)
    view, status = admission.visible(TaskView.of(task)), 201 if body.plan is None else 202
    return Answer(view, status, {"Location": f"/v1/tasks/{task.id}"})


@routes.get("/tasks")
async def list_tasks(admission: AuthContext, tasks: Tasks, asked: TaskListQuery) -> TaskList:
    """List the caller's tasks.

    The oldest comes first unless `newest_first` is set. While there is a `cursor` there may be more, also after an
    empty page.
    """
    query = TaskQuery(**{name: getattr(asked, name) for name in TaskQuery.__struct_fields__})
    page = TaskList.of(await tasks.list(admission.scope(), query))
    return TaskList(tasks=[admission.visible(task) for task in page.tasks], cursor=page.cursor)


@routes.get("/tasks/{task_id}")
async def get_task(admission: AuthContext, tasks: Tasks, task_id: str) -> TaskDetail:
    """Get a task and the state of its steps. The board is not included."""
    progress = await tasks.progress(admission.scope(), task_id)
    return admission.visible(TaskDetail.of(progress))


@routes.patch("/tasks/{task_id}")
async def change_task(
    admission: AuthContext, tenuto: Tenuto, task_id: str, if_match: int | None, body: ChangeTask
) -> TaskView:
    """Start or end a task.

    Its end deletes the notes of its agents and cancels agents that run. With If-Match or `if_version`, only if the
    task has that version.
    """
    scope, tasks = admission.scope(), tenuto.tasks
    version = resolve_version(if_match, body.if_version)
    if body.status == "running":
        if body.result is not None:
            raise Invalid("a result comes with the task's end: completed or failed")
        task = await tasks.begin(scope, task_id, if_version=version)
    else:
        failed = body.status == "failed"
        task = await tasks.finish(scope, task_id, failed=failed, result=body.result, if_version=version)
        if task.runs:
            await stop_run(tenuto, scope, task_id)
    return admission.visible(TaskView.of(task))


@routes.delete("/tasks/{task_id}")
async def delete_task(scope: Scope, tenuto: Tenuto, task_id: str, if_match: int | None) -> None:
    """Delete a task with its board and notes.

    Agents that run are cancelled. With If-Match, only if the task has that version.
    """
    task = await tenuto.tasks.get(scope, task_id)
    await tenuto.tasks.delete(scope, task_id, if_version=if_match)
    if task.runs and not task.is_finished:
        await stop_run(tenuto, scope, task_id)


@routes.get("/tasks/{task_id}/board")
async def get_board(scope: Scope, tasks: Tasks, task_id: str) -> BoardAnswer:
    """Get the entries and locks of a task's board."""
    return BoardAnswer.of(await tasks.board(scope, task_id).view())


@routes.get(_ENTRY)
async def get_entry(scope: Scope, tasks: Tasks, task_id: str, key: str) -> BoardEntryView:
    """Get one entry of a board."""
    entry = await tasks.board(scope, task_id).read_entry(key)
    if entry is None:
        raise EntryNotFound(task_id, key)
    return BoardEntryView.of(entry)


@routes.put(_ENTRY)
async def write_entry(
    admission: AuthContext,
    tasks: Tasks,
    task_id: str,
    key: str,
    tenuto_agent: str | None,
    precondition: Precondition,
    body: WriteEntry,
) -> BoardEntryView:
    """Write one entry of a board.

    Other keys may be written at the same time. An entry that replaces another agent's value names that agent; a
    protected key has a single writer. With If-Match or `if_version`, only over that version; with `If-None-Match:
    *`, only if the key has no entry.
    """
    board = _writable_board(admission, tasks, task_id, key)
    agent = _writing_agent(admission, tenuto_agent, body.agent)
    version = await _expected_version(precondition, board, task_id, key, body.if_version)
    entry = await board.write(key, body.value, agent=agent, if_version=version, token=body.token)
    return BoardEntryView.of(entry)


@routes.delete(_ENTRY)
async def delete_entry(
    admission: AuthContext,
    tasks: Tasks,
    task_id: str,
    key: str,
    query: Holding,
    tenuto_agent: str | None,
    precondition: Precondition,
) -> None:
    """Delete one entry of a board. The rules are those of a write. Idempotent."""
    board = _writable_board(admission, tasks, task_id, key)
    version = await _expected_version(precondition, board, task_id, key)
    await board.delete(key, agent=_deleting_agent(tenuto_agent), if_version=version, token=query.token)


@routes.get(f"{_ENTRY}/history")
async def get_history(scope: Scope, tasks: Tasks, task_id: str, key: str) -> BoardHistory:
    """List the last writes and deletions of a key. The values are not included."""
    changes = await tasks.board(scope, task_id).history(key)
    return BoardHistory(changes=list(map(BoardChangeView.of, changes)))


@routes.post(f"{_ENTRY}/append")
async def append_item(
    admission: AuthContext,
    tasks: Tasks,
    task_id: str,
    key: str,
    tenuto_agent: str | None,
    idempotency_key: str | None,
    body: AppendItem,
) -> BoardEntryView:
    """Append an item to a list on a board.

    A key without an entry begins a list. The rules are those of a write. With an Idempotency-Key, a repeated
    request appends nothing; another request under the same key is refused.
    """
    board = _writable_board(admission, tasks, task_id, key)
    agent = _writing_agent(admission, tenuto_agent, body.agent)
    request_key = _request_key(idempotency_key, [agent, "append", body.item])
    entry = await board.append(key, body.item, agent=agent, token=body.token, idempotency_key=request_key)
    return BoardEntryView.of(entry)


@routes.post(f"{_ENTRY}/increment")
async def increment(
    admission: AuthContext,
    tasks: Tasks,
    task_id: str,
    key: str,
    tenuto_agent: str | None,
    idempotency_key: str | None,
    body: Increment,
) -> BoardEntryView:
    """Add to a number on a board.

    A key without an entry counts as 0. The rules are those of a write; with an Idempotency-Key, a repeated request
    adds nothing.
    """
    board = _writable_board(admission, tasks, task_id, key)
    agent = _writing_agent(admission, tenuto_agent, body.agent)
    request_key = _request_key(idempotency_key, [agent, "increment", body.by])
    entry = await board.increment(key, body.by, agent=agent, token=body.token, idempotency_key=request_key)
    return BoardEntryView.of(entry)


@routes.post(_LOCK, problems=(409,))
async def lock_key(
    admission: AuthContext, tasks: Tasks, task_id: str, key: str, tenuto_agent: str | None, body: LockKey
) -> LockView:
    """Lock a key of a board for one agent, or extend the lock. To extend it, name its token."""
    board = _writable_board(admission, tasks, task_id, key)
    lease = timedelta(seconds=body.seconds) if body.seconds is not None else None
    agent = _writing_agent(admission, tenuto_agent, body.agent)
    lock = await board.lock(key, agent=agent, lease=lease, token=body.token)
    return LockView.of(lock)


@routes.delete(_LOCK, problems=(409,))
async def unlock_key(
    admission: AuthContext, tasks: Tasks, task_id: str, key: str, query: UnlockQuery, tenuto_agent: str | None
) -> None:
    """Release a lock by its token."""
    board = _writable_board(admission, tasks, task_id, key)
    await board.unlock(key, agent=_deleting_agent(tenuto_agent), token=query.token)


@routes.get("/tasks/{task_id}/agents/{agent}/notes")
async def list_notes(
    admission: AuthContext, tenuto: Tenuto, task_id: str, agent: str, tenuto_agent: str | None
) -> AgentNoteList:
    """List an agent's private notes on a task.

    For the credential of that agent. An admin may read them, which is audited; others get an empty list.
    """
    notes = await _readable_notes(admission, tenuto, task_id, agent, tenuto_agent)
    listed = [] if notes is None else await notes.list()
    return AgentNoteList(notes=list(map(AgentNoteView.of, listed)))


@routes.get(_NOTE)
async def get_note(
    admission: AuthContext, tenuto: Tenuto, task_id: str, agent: str, key: str, tenuto_agent: str | None
) -> AgentNoteView:
    """Get one private note of an agent. For the same callers as the list."""
    notes = await _readable_notes(admission, tenuto, task_id, agent, tenuto_agent)
    note = None if notes is None else await notes.read_entry(key)
    if note is None:
        raise EntryNotFound(task_id, key)
    return AgentNoteView.of(note)


@routes.put(_NOTE)
async def write_note(
    admission: AuthContext,
    tasks: Tasks,
    task_id: str,
    agent: str,
    key: str,
    tenuto_agent: str | None,
    precondition: Precondition,
    body: WriteNote,
) -> AgentNoteView:
    """Write a private note of an agent.

    It expires an hour after the write, or when the task ends. For the agent's own credential.
    """
    notes = _own_notes(admission, tasks, task_id, agent, tenuto_agent)
    version = await _expected_version(precondition, notes, task_id, key, body.if_version)
    note = await notes.write(key, body.value, if_version=version)
    return AgentNoteView.of(note)


@routes.delete(_NOTE)
async def delete_note(
    admission: AuthContext,
    tasks: Tasks,
    task_id: str,
    agent: str,
    key: str,
    tenuto_agent: str | None,
    precondition: Precondition,
) -> None:
    """Delete a private note of an agent. Idempotent. For the agent's own credential."""
    notes = _own_notes(admission, tasks, task_id, agent, tenuto_agent)
    await notes.delete(key, if_version=await _expected_version(precondition, notes, task_id, key))


def _writable_board(admission: AuthContext, tasks: Tasks, task_id: str, key: str) -> Board:
    """The board, for a caller that may write the key in an agent's name."""
    admission.check_board_writer(tasks.policy, key)
    return tasks.board(admission.scope(), task_id)


async def _readable_notes(
    admission: AuthContext, tenuto: Tenuto, task_id: str, agent: str, asking_agent: str | None
) -> Notes | None:
    """The notes of an agent, `None` for a caller that may not read them; the task exists for it."""
    scope = admission.scope()
    _check_agent(agent, asking_agent)
    await tenuto.tasks.get(scope, task_id)
    if not await may_read_private(tenuto, admission, task_id, agent, asking_agent):
        return None
    return tenuto.tasks.notes(scope, task_id, agent)


def _own_notes(admission: AuthContext, tasks: Tasks, task_id: str, agent: str, asking_agent: str | None) -> Notes:
    """The notes of an agent, for that agent."""
    _check_agent(agent, asking_agent)
    if admission.caller is not None and admission.caller.agent is None:
        raise Forbidden("an agent's notes are written with that agent's credential: tenuto keys create --agent NAME")
    return tasks.notes(admission.scope(), task_id, agent)


def _check_agent(agent: str, asking_agent: str | None) -> None:
    if asking_agent is not None and asking_agent != agent:
        raise Forbidden("an agent's notes are for that agent alone, and the request names another")


def _writing_agent(admission: AuthContext, in_header: str | None, in_body: str | None) -> str:
    """Who writes: the body and the header may both name the agent, if they agree."""
    if None not in (in_body, in_header) and in_body != in_header:
        if admission.caller is not None and admission.caller.agent is not None:
            raise ScopeMismatch("agent")
        raise Invalid("the body and the Tenuto-Agent header name different agents")
    agent = in_header if in_body is None else in_body
    if agent is None:
        raise Invalid("name the agent that writes: the header Tenuto-Agent, or agent in the body")
    return agent


def _deleting_agent(in_header: str | None) -> str:
    if in_header is None:
        raise Invalid("name the agent that writes: the header Tenuto-Agent")
    return in_header


def _request_key(key: str | None, asked: Json) -> IdempotencyKey | None:
    """The request's key, for what it asks alone."""
    return None if key is None else IdempotencyKey(key=key, fingerprint=fingerprint(asked))


async def _expected_version(
    precondition: Precondition, stored: Board | Notes, task_id: str, key: str, in_body: int | None = None
) -> int | None:
    """The version of an entry or a note that a write is meant for: 0 where there may be none yet."""
    if precondition.absent:
        return resolve_version(0, in_body)
    if not precondition.present:
        return resolve_version(precondition.version, in_body)
    entry = await stored.read_entry(key)
    if entry is None:
        raise EntryNotFound(task_id, key)
    return resolve_version(entry.version, in_body)
