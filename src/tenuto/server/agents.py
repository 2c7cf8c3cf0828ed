"""Routes for agents in other processes: what they see of a task, and the runs of its agents."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from tenuto.errors import Invalid
from tenuto.model.values import JsonObject, View
from tenuto.server.auth import asking, service
from tenuto.server.json_io import agent_header, answer, parse_query, path_parameter
from tenuto.server.openapi import Router, describe
from tenuto.server.requests import ContextQuery
from tenuto.sessions.views import MessageView
from tenuto.tasks.run_views import AgentRunList, AgentRunView, RunMessageView
from tenuto.tasks.views import AgentNoteView, BoardAnswer

routes = Router("tasks", prefix="/v1")

_AGENT = ("Tenuto-Agent",)


class AgentContextView(View, frozen=True, kw_only=True):
    """All that an agent sees of a task: `history` are the newest messages of its session, `notes` and `messages` the
    agent's own, and `prompt` a system prompt for its role."""

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
    """All that the agent of the header or the credential sees of a task, in one call."""
    scope, task_id = await asking(request), path_parameter(request, "task_id")
    agent, query = agent_header(request), parse_query(request, ContextQuery)
    if agent is None:
        raise Invalid("name the agent that asks: the header Tenuto-Agent")
    seen = await service(request).tenuto.agent_contexts.snapshot(scope, task_id, agent, role=query.role)
    return answer(
        AgentContextView.derive(
            seen,
            history=list(map(MessageView.of, seen.history)),
            board=BoardAnswer.of(seen.board),
            notes=list(map(AgentNoteView.of, seen.notes)),
            messages=list(map(RunMessageView.of, seen.messages)),
        )
    )


@routes.get("/tasks/{task_id}/runs", describe(AgentRunList, headers=_AGENT))
async def list_agent_runs(request: Request) -> Response:
    """The runs of a task's agents: status, usage and tool calls. An agent sees the private parts of its own."""
    scope, task_id = await asking(request), path_parameter(request, "task_id")
    runs = await service(request).tenuto.tasks.runs(scope, task_id, agent=agent_header(request))
    return answer(AgentRunList(runs=list(map(AgentRunView.of, runs))))
