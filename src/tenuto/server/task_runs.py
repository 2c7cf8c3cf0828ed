"""Routes of running tasks: cancelling, resuming, answers of people, and what happened.

Reading needs no engine; the first request that needs one opens it.
"""

from __future__ import annotations

import logging

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tenuto.errors import Invalid, Unavailable
from tenuto.model import Scope
from tenuto.model.task import TaskEvent
from tenuto.ports import TaskEngine
from tenuto.server.auth import AuthContext, asking, authenticate_request, service
from tenuto.server.json_io import agent_header, answer, body_of, path_parameter, versioned_response
from tenuto.server.openapi import EventStream, Router, describe
from tenuto.server.problems import Forbidden
from tenuto.server.requests import AnswerStep, CompleteStep, FailStep, ResumeTask
from tenuto.server.streams import ServerSentEvent, event_stream
from tenuto.task_errors import EngineUnavailable
from tenuto.tasks import Tasks
from tenuto.tasks.views import TaskDetail, TaskEventView, Timeline

routes = Router("tasks", prefix="/v1")
_log = logging.getLogger(__name__)

_AGENT = ("Tenuto-Agent",)
_EVENTS = describe(
    None,
    headers=("Last-Event-ID",),
    stream=EventStream(
        "Server-sent events with an `id`, named by their type; the data of each is a `TaskEventView`.",
        example='id: 1768467600000000.0.0\nevent: task.opened\ndata: {"id":"…"}\n\n',
        events=(TaskEventView,),
    ),
)
_EVENTS.content["responses"]["204"] = {"description": "The task has ended, and its last event was seen."}


@routes.post("/tasks/{task_id}/cancel", describe(TaskDetail, problems=(409,)))
async def cancel_task(request: Request) -> Response:
    """Cancel a task. It ends as failed with the code `task_cancelled`, and its agents are cancelled. Idempotent."""
    admission, task_id = await authenticate_request(request), path_parameter(request, "task_id")
    scope = admission.scope()
    await _tasks(request).get(scope, task_id)
    await (await open_engine(request)).cancel(scope, task_id)
    return await _task_response(request, admission, task_id)


@routes.post("/tasks/{task_id}/resume", describe(TaskDetail, 202, body=ResumeTask, problems=(409,)))
async def resume_task(request: Request) -> Response:
    """Run an ended task again.

    A failed task continues at its failed steps. With `from_step`, any ended task runs again from that step on. The
    results of other steps are kept.
    """
    admission, task_id = await authenticate_request(request), path_parameter(request, "task_id")
    scope = admission.scope()
    body = await body_of(request, ResumeTask)
    await _tasks(request).get(scope, task_id)
    await (await open_engine(request)).resume(scope, task_id, from_step=body.from_step)
    return await _task_response(request, admission, task_id, 202)


@routes.post("/tasks/{task_id}/input/{step}", describe(TaskDetail, body=AnswerStep, problems=(409,)))
async def answer_step(request: Request) -> Response:
    """Answer a step that waits for a person. The task continues. Idempotent with the same answer."""
    admission, task_id = await authenticate_request(request), path_parameter(request, "task_id")
    scope = admission.scope()
    body = await body_of(request, AnswerStep)
    await _tasks(request).get(scope, task_id)
    engine = await open_engine(request)
    progress = await engine.answer(scope, task_id, path_parameter(request, "step"), body.value)
    return versioned_response(admission.visible(TaskDetail.of(progress)))


@routes.post(
    "/tasks/{task_id}/steps/{step}/complete", describe(TaskDetail, body=CompleteStep, headers=_AGENT, problems=(409,))
)
async def complete_step(request: Request) -> Response:
    """Complete a remote step with its output.

    The task continues. For the credential of the step's agent. Idempotent.
    """
    admission, task_id, agent = await _ending_agent(request)
    scope = admission.scope()
    body = await body_of(request, CompleteStep)
    await _tasks(request).get(scope, task_id)
    engine, step = await open_engine(request), path_parameter(request, "step")
    progress = await engine.complete_step(scope, task_id, step, agent=agent, output=body.output)
    return versioned_response(admission.visible(TaskDetail.of(progress)))


@routes.post("/tasks/{task_id}/steps/{step}/fail", describe(TaskDetail, body=FailStep, headers=_AGENT, problems=(409,)))
async def fail_step(request: Request) -> Response:
    """Report that a remote step failed.

    It waits again while it has retries. For the credential of the step's agent. Idempotent with `attempt`.
    """
    admission, task_id, agent = await _ending_agent(request)
    scope = admission.scope()
    body = await body_of(request, FailStep)
    await _tasks(request).get(scope, task_id)
    engine, step = await open_engine(request), path_parameter(request, "step")
    progress = await engine.fail_step(scope, task_id, step, agent=agent, code=body.code, attempt=body.attempt)
    return versioned_response(admission.visible(TaskDetail.of(progress)))


async def _ending_agent(request: Request) -> tuple[AuthContext, str, str]:
    """The caller, the task and the agent that ends a step of it: by its credential, on an open server by the header."""
    admission = await authenticate_request(request)
    if admission.caller is not None and admission.caller.agent is None:
        raise Forbidden("a step is ended with the credential of its agent: tenuto keys create --agent NAME")
    agent = agent_header(request)
    if agent is None:
        raise Invalid("name the agent that ends the step: the header Tenuto-Agent")
    return admission, path_parameter(request, "task_id"), agent


@routes.get("/tasks/{task_id}/timeline", describe(Timeline))
async def get_timeline(request: Request) -> Response:
    """List the events of a task: its steps, changes of its board, its end."""
    events = await _tasks(request).events(await asking(request), path_parameter(request, "task_id"))
    return answer(Timeline(events=list(map(TaskEventView.of, events))))


@routes.get("/tasks/{task_id}/events", _EVENTS)
async def follow_task(request: Request) -> Response:
    """Follow the events of a task until it ends.

    Server-sent events; a client that reconnects sends the id of the last one as Last-Event-ID. 204 if the task has
    ended with that event.
    """
    scope, task_id = await asking(request), path_parameter(request, "task_id")
    after = request.headers.get("last-event-id")
    seen_to_end = not await _tasks(request).events(scope, task_id, after=after)
    if seen_to_end and (await _tasks(request).get(scope, task_id)).is_finished:
        return Response(status_code=204)
    return await event_stream(request, _tasks(request).watch(scope, task_id, after=after), _encode_event, endless=True)


def _encode_event(event: TaskEvent) -> ServerSentEvent:
    return ServerSentEvent(event.type, msgspec.json.encode(TaskEventView.of(event)), event.id)


async def open_engine(request: Request) -> TaskEngine:
    """The engine that runs plans, opened by the first request that needs it.

    Raises:
        EngineUnavailable: the installation lacks something for it.
    """
    try:
        return await service(request).tenuto.engine()
    except Invalid as unfit:
        raise EngineUnavailable(str(unfit)) from unfit


async def stop_run(request: Request, scope: Scope, task_id: str) -> None:
    """Cancel the agents that work on a task whose end or removal is stored. Without the engine they find out
    themselves: what they write is refused."""
    try:
        await (await open_engine(request)).stop(scope, task_id)
    except Unavailable as away:
        _log.warning("the agents of task %s were not cancelled: %s", task_id, away)


async def _task_response(request: Request, admission: AuthContext, task_id: str, status: int = 200) -> Response:
    progress = await _tasks(request).progress(admission.scope(), task_id)
    return versioned_response(admission.visible(TaskDetail.of(progress)), status)


def _tasks(request: Request) -> Tasks:
    return service(request).tenuto.tasks
