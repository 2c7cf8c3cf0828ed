"""Routes for talks with characters, in the shape their clients know (C7, C8)."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from tenuto.assistants.npc import cited
from tenuto.chat import ChatRequest
from tenuto.chat.views import ToolRunView
from tenuto.errors import SessionNotFound
from tenuto.model import Message, Page, Role, Scope
from tenuto.model.values import Json, JsonObject, View
from tenuto.server.auth import asking, authenticate_request, service, sessions
from tenuto.server.chat import trace_of
from tenuto.server.json_io import answer, body_of, fingerprint, idempotency_key, parse_query, path_parameter
from tenuto.server.openapi import Router, describe
from tenuto.server.requests import NpcQuestion, NpcTraceQuery
from tenuto.server.streams import cancel_on_disconnect

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


@routes.post("/chat", describe(NpcAnswer, body=NpcQuestion, headers=("Idempotency-Key",), problems=(502,)))
async def npc_chat(request: Request) -> Response:
    """Ask a character. Facts come from the evidence store, and the answer cites them."""
    admission = await authenticate_request(request)
    body = await body_of(request, NpcQuestion)
    scope = admission.scope(body.tenant_id, body.site_id)
    asked = ChatRequest(
        text=body.query,
        session_id=body.session_id,
        assistant="npc",
        persona=body.npc_id,
        idempotency_key=idempotency_key(request),
        fingerprint=fingerprint([body.query, body.npc_id, body.session_id]),
    )
    reply = await cancel_on_disconnect(request, service(request).live.take_turn(scope, asked))
    return answer(
        NpcAnswer(
            trace_id=reply.trace_id or None,
            session_id=reply.session_id,
            policy_mode=reply.data.get("policy_mode", _UNKNOWN),
            answer_text=reply.text,
            evidence=cited(reply.text, reply.data.get("evidence", [])),
            offline=reply.offline,
            degraded=reply.degraded,
        )
    )


@routes.get("/traces/{trace_id}", describe(NpcTraceView, query=NpcTraceQuery))
async def get_npc_trace(request: Request) -> Response:
    """Get the trace of a character's answer.

    It has the request and the tool calls; with `include_session`, also recent messages of the session.
    """
    admission = await authenticate_request(request)
    scope, trace = admission.scope(), await trace_of(request, admission)
    asked = parse_query(request, NpcTraceQuery)
    return answer(
        NpcTraceView(
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
            session_summary=await _load_npc_summary(request, scope, trace.session_id)
            if asked.include_session
            else UNSET,
        )
    )


async def _load_npc_summary(request: Request, scope: Scope, session_id: str) -> NpcSummary | None:
    try:
        return NpcSummary.of(await _load_npc_session(request, scope, session_id))
    except SessionNotFound:
        return None


@routes.get("/sessions/{session_id}", describe(NpcSession))
async def get_npc_session(request: Request) -> Response:
    """Get a session with a character: counts, times and recent messages."""
    return answer(await _load_npc_session(request, await asking(request), path_parameter(request)))


async def _load_npc_session(request: Request, scope: Scope, session_id: str) -> NpcSession:
    context = service(request).settings.npc_policies().context
    page = await sessions(request).messages(scope, session_id, Page(limit=_LOADED))
    # Tool calls, their results and summaries are no messages of the talk.
    talk = tuple(message for message in page.messages if message.text and message.role is not Role.ITEM)
    talk = talk[-(context.window_messages or 10) :]
    return NpcSession(
        session_id=session_id,
        message_count=len(talk),
        recent_messages=[
            NpcMessage(role=message.role, content=message.text, timestamp=message.sent_at)
            for message in _newest_within(talk, context.window_characters)
        ],
        first_message_at=talk[0].sent_at if talk else None,
        last_message_at=talk[-1].sent_at if talk else None,
    )


@routes.delete("/sessions/{session_id}", describe(NpcDeleted))
async def clear_npc_session(request: Request) -> Response:
    """Delete a session with a character."""
    scope = await asking(request)
    session_id = path_parameter(request)
    await sessions(request).delete(scope, session_id)
    return answer(NpcDeleted(success=True, session_id=session_id))


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
