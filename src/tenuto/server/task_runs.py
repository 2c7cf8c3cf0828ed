"""Routes of running tasks: cancelling, resuming, answers of people, and what happened.

Reading needs no engine; the first request that needs one opens it.
"""

from __future__ import annotations

import logging

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tenuto.app import Tenuto
from tenuto.errors import Invalid, Unavailable
from tenuto.model import Scope
from tenuto.model.task import TaskEvent
from tenuto.ports import TaskEngine
from tenuto.server.auth import AuthContext
from tenuto.server.openapi import EventStream, Router
from tenuto.server.problems import Forbidden
from tenuto.server.streams import ServerSentEvent, event_stream
from tenuto.server.task_requests import AnswerStep, CompleteStep, FailStep, ResumeTask
from tenuto.task_errors import EngineUnavailable
from tenuto.tasks import Tasks
from tenuto.tasks.views import TaskDetail, TaskEventView, Timeline

routes = Router("tasks", prefix="/v1")
_log = logging.getLogger(__name__)

_EVENTS = EventStream(
    "Server-sent events with an `id`, named by their type; the data of each is a `TaskEventView`.",
    example='id: 1768467600000000.0.0\nevent: task.opened\ndata: {"id":"…"}\n\n',
    events=(TaskEventView,),
)


@routes.post("/tasks/{task_id}/cancel", problems=(409,))
async def cancel_task(admission: AuthContext, tenuto: Tenuto, task_id: str) -> TaskDetail:
    """Cancel a task. It ends as failed with the code `task_cancelled`, and its agents are cancelled. Idempotent."""
    await (await _engine_of(tenuto, admission, task_id)).cancel(admission.scope(), task_id)
    return await _detail(tenuto, admission, task_id)


@routes.post("/tasks/{task_id}/resume", 202, problems=(409,))
async def resume_task(admission: AuthContext, tenuto: Tenuto, task_id: str, body: ResumeTask) -> TaskDetail:
    """Run an ended task again.

    A failed task continues at its failed steps. With `from_step`, any ended task runs again from that step on. The
    results of other steps are kept.
    """
    engine = await _engine_of(tenuto, admission, task_id)
    await engine.resume(admission.scope(), task_id, from_step=body.from_step)
    return await _detail(tenuto, admission, task_id)


@routes.post("/tasks/{task_id}/input/{step}", problems=(409,))
async def answer_step(admission: AuthContext, tenuto: Tenuto, task_id: str, step: str, body: AnswerStep) -> TaskDetail:
    """Answer a step that waits for a person. The task continues. Idempotent with the same answer."""
    engine = await _engine_of(tenuto, admission, task_id)
    progress = await engine.answer(admission.scope(), task_id, step, body.value)
    return admission.visible(TaskDetail.of(progress))


@routes.post("/tasks/{task_id}/steps/{step}/complete", problems=(409,))
async def complete_step(
    admission: AuthContext, tenuto: Tenuto, task_id: str, step: str, tenuto_agent: str | None, body: CompleteStep
) -> TaskDetail:
    """Complete a remote step with its output.

    The task continues. For the credential of the step's agent. Idempotent.
    """
    agent = _ending_agent(admission, tenuto_agent)
    engine = await _engine_of(tenuto, admission, task_id)
    progress = await engine.complete_step(admission.scope(), task_id, step, agent=agent, output=body.output)
    return admission.visible(TaskDetail.of(progress))


@routes.post("/tasks/{task_id}/steps/{step}/fail", problems=(409,))
async def fail_step(
    admission: AuthContext, tenuto: Tenuto, task_id: str, step: str, tenuto_agent: str | None, body: FailStep
) -> TaskDetail:
    """Report that a remote step failed.

    It waits again while it has retries. For the credential of the step's agent. Idempotent with `attempt`.
    """
    agent, scope = _ending_agent(admission, tenuto_agent), admission.scope()
    engine = await _engine_of(tenuto, admission, task_id)
    progress = await engine.fail_step(scope, task_id, step, agent=agent, code=body.code, attempt=body.attempt)
    return admission.visible(TaskDetail.of(progress))


def _ending_agent(admission: AuthContext, agent: str | None) -> str:
    """The agent that ends a step: by its credential, on an open server by the header."""
    if admission.caller is not None and admission.caller.agent is None:
        raise Forbidden("a step is ended with the credential of its agent: tenuto keys create --agent NAME")
    if agent is None:
        raise Invalid("name the agent that ends the step: the header Tenuto-Agent")
    return agent


@routes.get("/tasks/{task_id}/timeline")
async def get_timeline(scope: Scope, tasks: Tasks, task_id: str) -> Timeline:
    """List the events of a task: its steps, changes of its board, its end."""
    events = await tasks.events(scope, task_id)
    return Timeline(events=list(map(TaskEventView.of, events)))


@routes.get("/tasks/{task_id}/events", stream=_EVENTS, no_content="The task has ended, and its last event was seen.")
async def follow_task(
    request: Request, scope: Scope, tasks: Tasks, task_id: str, last_event_id: str | None
) -> Response | None:
    """Follow the events of a task until it ends.

    Server-sent events; a client that reconnects sends the id of the last one as Last-Event-ID. 204 if the task has
    ended with that event.
    """
    seen_to_end = not await tasks.events(scope, task_id, after=last_event_id)
    if seen_to_end and (await tasks.get(scope, task_id)).is_finished:
        return None
    events = tasks.watch(scope, task_id, after=last_event_id)
    return await event_stream(request, events, _encode_event, endless=True)


def _encode_event(event: TaskEvent) -> ServerSentEvent:
    return ServerSentEvent(event.type, msgspec.json.encode(TaskEventView.of(event)), event.id)


async def open_engine(tenuto: Tenuto) -> TaskEngine:
    """The engine that runs plans, opened by the first request that needs it.

    Raises:
        EngineUnavailable: the installation lacks something for it.
    """
    try:
        return await tenuto.engine()
    except Invalid as error:
        raise EngineUnavailable(str(error)) from error


async def _engine_of(tenuto: Tenuto, admission: AuthContext, task_id: str) -> TaskEngine:
    """The engine, for a task that exists for the caller."""
    await tenuto.tasks.get(admission.scope(), task_id)
    return await open_engine(tenuto)


async def stop_run(tenuto: Tenuto, scope: Scope, task_id: str) -> None:
    """Cancel the agents that work on a task whose end or removal is stored. Without the engine they find out
    themselves: what they write is refused."""
    try:
        await (await open_engine(tenuto)).stop(scope, task_id)
    except Unavailable as error:
        _log.warning("the agents of task %s were not cancelled: %s", task_id, error)


async def _detail(tenuto: Tenuto, admission: AuthContext, task_id: str) -> TaskDetail:
    return admission.visible(TaskDetail.of(await tenuto.tasks.progress(admission.scope(), task_id)))
