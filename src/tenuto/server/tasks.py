"""Routes for tasks, their boards, and what agents note for themselves."""

from __future__ import annotations

from datetime import timedelta

from starlette.requests import Request
from starlette.responses import Response

from tenuto.errors import Invalid
from tenuto.model import Scope
from tenuto.model.plan import check_plan, parse_plan
from tenuto.model.task import NewTask, TaskQuery
from tenuto.model.turn import IdempotencyKey
from tenuto.model.values import Json
from tenuto.server.agents import may_read_private
from tenuto.server.auth import asking, authenticate_request, bound_agent, service
from tenuto.server.json_io import (
    agent_header,
    answer,
    body_of,
    fingerprint,
    idempotency_key,
    if_match,
    parse_query,
    path_parameter,
    versioned_response,
)
from tenuto.server.openapi import Router, describe
from tenuto.server.problems import Forbidden, ScopeMismatch
from tenuto.server.requests import (
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
    resolve_version,
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
_AGENT = ("Tenuto-Agent",)
_GUARDED = ("Tenuto-Agent", "If-Match")
_WRITTEN = (*_GUARDED, "If-None-Match")
_ADDED = ("Tenuto-Agent", "Idempotency-Key")


@routes.post("/tasks", describe(TaskView, 201, 202, body=OpenTask, headers=("Idempotency-Key",)))
async def open_task(request: Request) -> Response:
    """Open a task for several agents.

    It belongs to the caller and expires a day after its last change. With a `plan` it is run at once (202). With an
    Idempotency-Key, a repeated request returns the same task.
    """
    admission = await authenticate_request(request)
    body = await body_of(request, OpenTask)
    scope = admission.scope(body.tenant_id, body.site_id)
    new = NewTask(type=body.type, goal=body.goal, session_id=body.session_id)
    key = idempotency_key(request)
    if body.plan is None:
        task = await _tasks(request).open(scope, new, idempotency_key=key)
    else:
        plan = parse_plan(body.plan)
        # Before the engine is opened, which checks the agents, too.
        check_plan(plan, policy=_tasks(request).policy, task_type=body.type)
        task = await (await open_engine(request)).submit(scope, new, plan, idempotency_key=key)
    opened = versioned_response(admission.visible(TaskView.of(task)), 201 if body.plan is None else 202)
    opened.headers["Location"] = f"/v1/tasks/{task.id}"
    return opened


@routes.get("/tasks", describe(TaskList, query=TaskListQuery))
async def list_tasks(request: Request) -> Response:
    """List the caller's tasks.

    The oldest comes first unless `newest_first` is set. While there is a `cursor` there may be more, also after an
    empty page.
    """
    admission = await authenticate_request(request)
    asked = parse_query(request, TaskListQuery)
    query = TaskQuery(**{name: getattr(asked, name) for name in TaskQuery.__struct_fields__})
    page = TaskList.of(await _tasks(request).list(admission.scope(), query))
    return answer(TaskList(tasks=[admission.visible(task) for task in page.tasks], cursor=page.cursor))


@routes.get("/tasks/{task_id}", describe(TaskDetail))
async def get_task(request: Request) -> Response:
    """Get a task and the state of its steps. The board is not included."""
    admission = await authenticate_request(request)
    progress = await _tasks(request).progress(admission.scope(), _task_id(request))
    return versioned_response(admission.visible(TaskDetail.of(progress)))


@routes.patch("/tasks/{task_id}", describe(TaskView, body=ChangeTask, headers=("If-Match",)))
async def change_task(request: Request) -> Response:
    """Start or end a task.

    Its end deletes the notes of its agents and cancels agents that run. With If-Match or `if_version`, only if the
    task has that version.
    """
    admission, task_id = await authenticate_request(request), _task_id(request)
    scope = admission.scope()
    body = await body_of(request, ChangeTask)
    version = resolve_version(if_match(request), body.if_version)
    if body.status == "running":
        if body.result is not None:
            raise Invalid("a result comes with the task's end: completed or failed")
        task = await _tasks(request).begin(scope, task_id, if_version=version)
    else:
        failed = body.status == "failed"
        task = await _tasks(request).finish(scope, task_id, failed=failed, result=body.result, if_version=version)
        if task.runs:
            await stop_run(request, scope, task_id)
    return versioned_response(admission.visible(TaskView.of(task)))


@routes.delete("/tasks/{task_id}", describe(None, 204, headers=("If-Match",)))
async def delete_task(request: Request) -> Response:
    """Delete a task with its board and notes.

    Agents that run are cancelled. With If-Match, only if the task has that version.
    """
    scope, task_id = await asking(request), _task_id(request)
    task = await _tasks(request).get(scope, task_id)
    await _tasks(request).delete(scope, task_id, if_version=if_match(request))
    if task.runs and not task.is_finished:
        await stop_run(request, scope, task_id)
    return Response(status_code=204)


@routes.get("/tasks/{task_id}/board", describe(BoardAnswer))
async def get_board(request: Request) -> Response:
    """Get the entries and locks of a task's board."""
    return answer(BoardAnswer.of(await _board(request, await asking(request)).view()))


@routes.get(_ENTRY, describe(BoardEntryView))
async def get_entry(request: Request) -> Response:
    """Get one entry of a board."""
    key = path_parameter(request, "key")
    entry = await _board(request, await asking(request)).read_entry(key)
    if entry is None:
        raise EntryNotFound(_task_id(request), key)
    return versioned_response(BoardEntryView.of(entry))


@routes.put(_ENTRY, describe(BoardEntryView, body=WriteEntry, headers=_WRITTEN))
async def write_entry(request: Request) -> Response:
    """Write one entry of a board.

    Other keys may be written at the same time. An entry that replaces another agent's value names that agent; a
    protected key has a single writer. With If-Match or `if_version`, only over that version; with `If-None-Match:
    *`, only if the key has no entry.
    """
    board, key = await _writable_board(request), path_parameter(request, "key")
    body = await body_of(request, WriteEntry)
    entry = await board.write(
        key,
        body.value,
        agent=_writing_agent(request, body.agent),
        if_version=await _expected_version(request, board, body.if_version),
        token=body.token,
    )
    return versioned_response(BoardEntryView.of(entry))


@routes.delete(_ENTRY, describe(None, 204, query=Holding, headers=_GUARDED))
async def delete_entry(request: Request) -> Response:
    """Delete one entry of a board. The rules are those of a write. Idempotent."""
    board, key = await _writable_board(request), path_parameter(request, "key")
    token = parse_query(request, Holding).token
    await board.delete(
        key, agent=_writing_agent(request), if_version=await _expected_version(request, board), token=token
    )
    return Response(status_code=204)


@routes.get(f"{_ENTRY}/history", describe(BoardHistory))
async def get_history(request: Request) -> Response:
    """List the last writes and deletions of a key. The values are not included."""
    changes = await _board(request, await asking(request)).history(path_parameter(request, "key"))
    return answer(BoardHistory(changes=list(map(BoardChangeView.of, changes))))


@routes.post(f"{_ENTRY}/append", describe(BoardEntryView, body=AppendItem, headers=_ADDED))
async def append_item(request: Request) -> Response:
    """Append an item to a list on a board.

    A key without an entry begins a list. The rules are those of a write. With an Idempotency-Key, a repeated
    request appends nothing; another request under the same key is refused.
    """
    board, key = await _writable_board(request), path_parameter(request, "key")
    body = await body_of(request, AppendItem)
    agent = _writing_agent(request, body.agent)
    once = _request_key(request, [agent, "append", body.item])
    entry = await board.append(key, body.item, agent=agent, token=body.token, idempotency_key=once)
    return versioned_response(BoardEntryView.of(entry))


@routes.post(f"{_ENTRY}/increment", describe(BoardEntryView, body=Increment, headers=_ADDED))
async def increment(request: Request) -> Response:
    """Add to a number on a board.

    A key without an entry counts as 0. The rules are those of a write; with an Idempotency-Key, a repeated request
    adds nothing.
    """
    board, key = await _writable_board(request), path_parameter(request, "key")
    body = await body_of(request, Increment)
    agent = _writing_agent(request, body.agent)
    once = _request_key(request, [agent, "increment", body.by])
    entry = await board.increment(key, body.by, agent=agent, token=body.token, idempotency_key=once)
    return versioned_response(BoardEntryView.of(entry))


@routes.post(_LOCK, describe(LockView, body=LockKey, headers=_AGENT, problems=(409,)))
async def lock_key(request: Request) -> Response:
    """Lock a key of a board for one agent, or extend the lock. To extend it, name its token."""
    board, key = await _writable_board(request), path_parameter(request, "key")
    body = await body_of(request, LockKey)
    lease = timedelta(seconds=body.seconds) if body.seconds is not None else None
    lock = await board.lock(key, agent=_writing_agent(request, body.agent), lease=lease, token=body.token)
    return answer(LockView.of(lock))


@routes.delete(_LOCK, describe(None, 204, query=UnlockQuery, headers=_AGENT, problems=(409,)))
async def unlock_key(request: Request) -> Response:
    """Release a lock by its token."""
    board, key = await _writable_board(request), path_parameter(request, "key")
    await board.unlock(key, agent=_writing_agent(request), token=parse_query(request, UnlockQuery).token)
    return Response(status_code=204)


@routes.get("/tasks/{task_id}/agents/{agent}/notes", describe(AgentNoteList, headers=_AGENT))
async def list_notes(request: Request) -> Response:
    """List an agent's private notes on a task.

    For the credential of that agent. An admin may read them, which is audited; others get an empty list.
    """
    notes = await _readable_notes(request)
    listed = [] if notes is None else await notes.list()
    return answer(AgentNoteList(notes=list(map(AgentNoteView.of, listed))))


@routes.get(_NOTE, describe(AgentNoteView, headers=_AGENT))
async def get_note(request: Request) -> Response:
    """Get one private note of an agent. For the same callers as the list."""
    key = path_parameter(request, "key")
    notes = await _readable_notes(request)
    note = None if notes is None else await notes.read_entry(key)
    if note is None:
        raise EntryNotFound(_task_id(request), key)
    return versioned_response(AgentNoteView.of(note))


@routes.put(_NOTE, describe(AgentNoteView, body=WriteNote, headers=_WRITTEN))
async def write_note(request: Request) -> Response:
    """Write a private note of an agent.

    It expires an hour after the write, or when the task ends. For the agent's own credential.
    """
    notes, key = await _own_notes(request), path_parameter(request, "key")
    body = await body_of(request, WriteNote)
    note = await notes.write(key, body.value, if_version=await _expected_version(request, notes, body.if_version))
    return versioned_response(AgentNoteView.of(note))


@routes.delete(_NOTE, describe(None, 204, headers=_GUARDED))
async def delete_note(request: Request) -> Response:
    """Delete a private note of an agent. Idempotent. For the agent's own credential."""
    notes, key = await _own_notes(request), path_parameter(request, "key")
    await notes.delete(key, if_version=await _expected_version(request, notes))
    return Response(status_code=204)


def _tasks(request: Request) -> Tasks:
    return service(request).tenuto.tasks


def _task_id(request: Request) -> str:
    return path_parameter(request, "task_id")


def _board(request: Request, scope: Scope) -> Board:
    return _tasks(request).board(scope, _task_id(request))


async def _writable_board(request: Request) -> Board:
    """The board, for a caller that may write the key in the path in an agent's name."""
    admission, tasks = await authenticate_request(request), _tasks(request)
    admission.check_board_writer(tasks.policy, path_parameter(request, "key"))
    return _board(request, admission.scope())


async def _readable_notes(request: Request) -> Notes | None:
    """The notes of the agent in the path, `None` for a caller that may not read them; the task exists for it."""
    admission, task_id = await authenticate_request(request), _task_id(request)
    scope, agent = admission.scope(), _agent_in_path(request)
    await _tasks(request).get(scope, task_id)
    if not await may_read_private(request, admission, scope, task_id, agent):
        return None
    return _tasks(request).notes(scope, task_id, agent)


async def _own_notes(request: Request) -> Notes:
    """The notes of the agent in the path, for that agent."""
    admission, agent = await authenticate_request(request), _agent_in_path(request)
    if admission.caller is not None and admission.caller.agent is None:
        raise Forbidden("an agent's notes are written with that agent's credential: tenuto keys create --agent NAME")
    return _tasks(request).notes(admission.scope(), _task_id(request), agent)


def _agent_in_path(request: Request) -> str:
    agent, asks = path_parameter(request, "agent"), agent_header(request)
    if asks is not None and asks != agent:
        raise Forbidden("an agent's notes are for that agent alone, and the request names another")
    return agent


def _writing_agent(request: Request, in_body: str | None = None) -> str:
    """Who writes: the body and the header may both name the agent, if they agree."""
    in_header = agent_header(request)
    if None not in (in_body, in_header) and in_body != in_header:
        if bound_agent(request) is not None:
            raise ScopeMismatch("agent")
        raise Invalid("the body and the Tenuto-Agent header name different agents")
    agent = in_header if in_body is None else in_body
    if agent is None:
        instead = "" if request.method == "DELETE" else ", or agent in the body"
        raise Invalid(f"name the agent that writes: the header Tenuto-Agent{instead}")
    return agent


def _request_key(request: Request, asked: Json) -> IdempotencyKey | None:
    """The request's key, for what it asks alone."""
    key = idempotency_key(request)
    return None if key is None else IdempotencyKey(key=key, fingerprint=fingerprint(asked))


async def _expected_version(request: Request, kept: Board | Notes, in_body: int | None = None) -> int | None:
    """The version of an entry or a note that a write is meant for: 0 where there may be none yet."""
    absent, present = request.headers.get("if-none-match"), request.headers.get("if-match")
    if absent is not None:
        if absent.strip() != "*" or present is not None:
            raise Invalid("If-None-Match may be * where a key is written, and without If-Match")
        return resolve_version(0, in_body)
    if present is None or present.strip() != "*":
        return resolve_version(if_match(request), in_body)
    key = path_parameter(request, "key")
    found = await kept.read_entry(key)
    if found is None:
        raise EntryNotFound(_task_id(request), key)
    return resolve_version(found.version, in_body)
