"""Routes for talks with characters, in the shape their clients know (C7, C8)."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from msgspec import UNSET, UnsetType
from starlette.requests import Request

from tenuto.assistants.npc import cited
from tenuto.chat import ChatRequest
from tenuto.chat.views import ToolRunView
from tenuto.errors import SessionNotFound
from tenuto.model import Message, Page, Role, Scope
from tenuto.model.values import Json, JsonObject, View
from tenuto.server.auth import AuthContext, ServerContext
from tenuto.server.chat import trace_of
from tenuto.server.json_io import fingerprint
from tenuto.server.openapi import Router
from tenuto.server.requests import NpcQuestion, NpcTraceQuery
from tenuto.server.streams import cancel_on_disconnect
from tenuto.sessions import Sessions

routes = Router("npc", prefix="/v1/npc")

_UNKNOWN: Final = "normal"
_LOADED: Final = 1000


class NpcAnswer(View, frozen=True, kw_only=True):
    """A character's answer. `degraded` names what was missing; `trace_id` is null if nothing is stored."""

    trace_id: str | None
    session_id: str
    policy_mode: str
    answer_text: str
    evidence: list[Json]
    offline: bool
    degraded: tuple[str, ...]


class NpcMessage(View, frozen=True, kw_only=True):
    """A message of a session with a character."""

    role: Role
    content: str
    timestamp: datetime


class NpcSummary(View, frozen=True, kw_only=True):
    """The session that a trace belongs to."""

    session_id: str
    message_count: int
    recent_messages: list[NpcMessage]


class NpcSession(NpcSummary, frozen=True, kw_only=True):
    """A session with a character: counts, times and recent messages."""

    first_message_at: datetime | None
    last_message_at: datetime | None


class NpcTraceView(View, frozen=True, kw_only=True):
    """What a character was asked and what it looked up; on request, the session around it."""

    trace_id: str
    session_id: str
    request_input: JsonObject
    tool_calls: list[ToolRunView]
    policy_mode: str
    answer_text: str
    session_summary: NpcSummary | UnsetType | None = UNSET


class NpcDeleted(View, frozen=True, kw_only=True):
    """A deleted session with a character."""

    success: bool
    session_id: str


@routes.post("/chat", problems=(502,))
async def npc_chat(
    request: Request, admission: AuthContext, context: ServerContext, idempotency_key: str | None, body: NpcQuestion
) -> NpcAnswer:
    """Ask a character. Facts come from the evidence store, and the answer cites them."""
    scope = admission.scope(body.tenant_id, body.site_id)
    asked = ChatRequest(
        text=body.query,
        session_id=body.session_id,
        assistant="npc",
        persona=body.npc_id,
        idempotency_key=idempotency_key,
        fingerprint=fingerprint([body.query, body.npc_id, body.session_id]),
    )
    reply = await cancel_on_disconnect(request, context.live.take_turn(scope, asked))
    return NpcAnswer(
        trace_id=reply.trace_id or None,
        session_id=reply.session_id,
        policy_mode=reply.data.get("policy_mode", _UNKNOWN),
        answer_text=reply.text,
        evidence=cited(reply.text, reply.data.get("evidence", [])),
        offline=reply.offline,
        degraded=reply.degraded,
    )


@routes.get("/traces/{trace_id}")
async def get_npc_trace(
    admission: AuthContext, context: ServerContext, trace_id: str, query: NpcTraceQuery
) -> NpcTraceView:
    """Get the trace of a character's answer.

    It has the request and the tool calls; with `include_session`, also recent messages of the session.
    """
    scope, trace = admission.scope(), await trace_of(context.tenuto, admission, trace_id)
    return NpcTraceView(
        trace_id=trace.id,
        session_id=trace.session_id,
        request_input={
            "tenant_id": scope.tenant,
            "site_id": scope.site,
            "npc_id": trace.persona,
            "query": trace.request,
            "session_id": trace.session_id,
        },
        tool_calls=list(map(ToolRunView.of, trace.tools)),
        policy_mode=trace.data.get("policy_mode", _UNKNOWN),
        answer_text=trace.answer,
        session_summary=await _load_npc_summary(context, scope, trace.session_id) if query.include_session else UNSET,
    )


async def _load_npc_summary(context: ServerContext, scope: Scope, session_id: str) -> NpcSummary | None:
    try:
        return NpcSummary.of(await _load_npc_session(context, scope, session_id))
    except SessionNotFound:
        return None


@routes.get("/sessions/{session_id}")
async def get_npc_session(scope: Scope, context: ServerContext, session_id: str) -> NpcSession:
    """Get a session with a character: counts, times and recent messages."""
    return await _load_npc_session(context, scope, session_id)


async def _load_npc_session(context: ServerContext, scope: Scope, session_id: str) -> NpcSession:
    policy = context.settings.npc_policies().context
    page = await context.sessions.messages(scope, session_id, Page(limit=_LOADED))
    # Tool calls, their results and summaries are no messages of the talk.
    talk = tuple(message for message in page.messages if message.text and message.role is not Role.ITEM)
    talk = talk[-(policy.window_messages or 10) :]
    return NpcSession(
        session_id=session_id,
        message_count=len(talk),
        recent_messages=[
            NpcMessage(role=message.role, content=message.text, timestamp=message.sent_at)
            for message in _newest_within(talk, policy.window_characters)
        ],
        first_message_at=talk[0].sent_at if talk else None,
        last_message_at=talk[-1].sent_at if talk else None,
    )


@routes.delete("/sessions/{session_id}")
async def clear_npc_session(scope: Scope, sessions: Sessions, session_id: str) -> NpcDeleted:
    """Delete a session with a character."""
    await sessions.delete(scope, session_id)
    return NpcDeleted(success=True, session_id=session_id)


def _newest_within(messages: tuple[Message, ...], characters: int | None) -> tuple[Message, ...]:
    """The newest messages whose words fit, oldest first; the very newest always."""
    left = characters
    for place in range(len(messages) - 1, -1, -1):
        if left is None:
            break
        left -= len(messages[place].text)
        if left < 0:
            return messages[min(place + 1, len(messages) - 1) :]
    return messages
