"""Routes for agents in other processes: what they see of a task, and the runs of its agents.

What an agent keeps to itself is for that agent's own credential; an admin may look, and the audit says so. To any other
caller it is absent.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from tenuto.access import KeyRole
from tenuto.errors import Invalid
from tenuto.model import Scope
from tenuto.model.values import JsonObject, View
from tenuto.privacy.compliance.audit import Act
from tenuto.server.auth import AuthContext, authenticate_request, service
from tenuto.server.json_io import agent_header, answer, parse_query, path_parameter
from tenuto.server.openapi import Router, describe
from tenuto.server.privacy import actor_name
from tenuto.server.requests import ContextQuery
from tenuto.sessions.views import MessageView
from tenuto.tasks.run_views import AgentRunList, AgentRunView, RunMessageView
from tenuto.tasks.views import AgentNoteView, BoardAnswer

routes = Router("tasks", prefix="/v1")

_AGENT = ("Tenuto-Agent",)


class AgentContextView(View, frozen=True, kw_only=True):
    """Everything that an agent sees of a task: `history` are the newest messages of its session, `notes` and
    `messages` the agent's own (empty for a caller that is neither the agent nor an admin), and `prompt` a system
    prompt for its role."""

    task_id: str
    agent: str
    goal: str
    session_id: str | None
    history: list[MessageView]
    profile: JsonObject
    board: BoardAnswer
    notes: list[AgentNoteView]
    messages: list[RunMessageView]
    prompt: str


@routes.get("/tasks/{task_id}/context", describe(AgentContextView, query=ContextQuery, headers=_AGENT))
async def get_agent_context(request: Request) -> Response:
    """Get everything that an agent sees of a task, in one call.

    A credential that is bound to no agent names one in the header; its notes and messages are then left out, except
    for an admin, whose request is audited.
    """
    admission, task_id = await authenticate_request(request), path_parameter(request, "task_id")
    scope, agent, query = admission.scope(), agent_header(request), parse_query(request, ContextQuery)
    if agent is None:
        raise Invalid("name the agent that asks: the header Tenuto-Agent")
    seen = await service(request).tenuto.agent_contexts.snapshot(scope, task_id, agent, role=query.role)
    private = await may_read_private(request, admission, scope, task_id, agent)
    return answer(
        AgentContextView.derive(
            seen,
            history=list(map(MessageView.of, seen.history)),
            board=BoardAnswer.of(seen.board),
            notes=list(map(AgentNoteView.of, seen.notes)) if private else [],
            messages=list(map(RunMessageView.of, seen.messages)) if private else [],
        )
    )


@routes.get("/tasks/{task_id}/runs", describe(AgentRunList, headers=_AGENT))
async def list_agent_runs(request: Request) -> Response:
    """List the runs of a task's agents: status, usage and tool calls.

    An agent sees the private parts of its own runs; an admin sees those of the agent in the header, which is
    audited.
    """
    admission, task_id = await authenticate_request(request), path_parameter(request, "task_id")
    scope, agent = admission.scope(), agent_header(request)
    tasks = service(request).tenuto.tasks
    if agent is not None:
        await tasks.get(scope, task_id)
        if not await may_read_private(request, admission, scope, task_id, agent):
            agent = None
    runs = await tasks.runs(scope, task_id, agent=agent)
    return answer(AgentRunList(runs=[admission.visible(AgentRunView.of(run)) for run in runs]))


async def may_read_private(request: Request, admission: AuthContext, scope: Scope, task_id: str, agent: str) -> bool:
    """Whether the caller may read what an agent keeps to itself on a task that exists; the look of an admin is audited.

    On an open server the header names the agent, as other headers name the user.
    """
    caller = admission.caller
    if caller is None or caller.agent is not None:
        return agent_header(request) == agent
    if caller.role is not KeyRole.ADMIN:
        return False
    audit, about = service(request).tenuto.privacy.audit, {"task": task_id, "agent": agent}
    await audit.note(scope, Act.VIEWED, by=actor_name(admission), about=about)
    return True
