"""Routes for agents in other processes: what they see of a task, and the runs of its agents.

What an agent keeps to itself is for that agent's own credential; an admin may look, and the audit says so. To any other
caller it is absent.
"""

from __future__ import annotations

from tenuto.access import KeyRole
from tenuto.app import Tenuto
from tenuto.errors import Invalid
from tenuto.model.values import JsonObject, View
from tenuto.privacy.compliance.audit import Act
from tenuto.server.auth import AuthContext
from tenuto.server.openapi import Router
from tenuto.server.privacy import actor_name
from tenuto.server.task_requests import ContextQuery
from tenuto.sessions.views import MessageView
from tenuto.tasks.run_views import AgentRunList, AgentRunView, RunMessageView
from tenuto.tasks.views import AgentNoteView, BoardAnswer

routes = Router("tasks", prefix="/v1")


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


@routes.get("/tasks/{task_id}/context")
async def get_agent_context(
    admission: AuthContext, tenuto: Tenuto, task_id: str, query: ContextQuery, tenuto_agent: str | None
) -> AgentContextView:
    """Get everything that an agent sees of a task, in one call.

    A credential that is bound to no agent names one in the header; its notes and messages are then left out, except
    for an admin, whose request is audited.
    """
    if tenuto_agent is None:
        raise Invalid("name the agent that asks: the header Tenuto-Agent")
    seen = await tenuto.agent_contexts.snapshot(admission.scope(), task_id, tenuto_agent, role=query.role)
    private = await may_read_private(tenuto, admission, task_id, tenuto_agent, tenuto_agent)
    return AgentContextView.derive(
        seen,
        history=list(map(MessageView.of, seen.history)),
        board=BoardAnswer.of(seen.board),
        notes=list(map(AgentNoteView.of, seen.notes)) if private else [],
        messages=list(map(RunMessageView.of, seen.messages)) if private else [],
    )


@routes.get("/tasks/{task_id}/runs")
async def list_agent_runs(
    admission: AuthContext, tenuto: Tenuto, task_id: str, tenuto_agent: str | None
) -> AgentRunList:
    """List the runs of a task's agents: status, usage and tool calls.

    An agent sees the private parts of its own runs; an admin sees those of the agent in the header, which is
    audited.
    """
    scope, agent = admission.scope(), tenuto_agent
    if agent is not None:
        await tenuto.tasks.get(scope, task_id)
        if not await may_read_private(tenuto, admission, task_id, agent, agent):
            agent = None
    runs = await tenuto.tasks.runs(scope, task_id, agent=agent)
    return AgentRunList(runs=[admission.visible(AgentRunView.of(run)) for run in runs])


async def may_read_private(
    tenuto: Tenuto, admission: AuthContext, task_id: str, agent: str, asking_agent: str | None
) -> bool:
    """Whether the caller may read what an agent keeps to itself on a task that exists; the look of an admin is audited.

    On an open server the header names the agent, as other headers name the user.
    """
    caller = admission.caller
    if caller is None or caller.agent is not None:
        return asking_agent == agent
    if caller.role is not KeyRole.ADMIN:
        return False
    about = {"task": task_id, "agent": agent}
    await tenuto.privacy.audit.note(admission.scope(), Act.VIEWED, by=actor_name(admission), about=about)
    return True
