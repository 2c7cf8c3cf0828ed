"""Routes of chat: a turn with an assistant, whole or streamed; the list of assistants; traces."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tenuto.chat import ChatEvent, ChatRequest
from tenuto.chat.views import AssistantView, ReplyView, TraceView, assistant_view, event_view
from tenuto.errors import Invalid
from tenuto.model import Scope
from tenuto.model.turn import Trace
from tenuto.model.values import View
from tenuto.server.auth import asking, authenticate_request, service, sessions
from tenuto.server.json_io import answer, body_of, fingerprint, idempotency_key, parse_query, path_parameter
from tenuto.server.openapi import Router, describe
from tenuto.server.requests import ChatBody, TraceListQuery
from tenuto.server.streams import ServerSentEvent, cancel_on_disconnect, event_stream
from tenuto.sessions.traces import find_trace, latest_traces

routes = Router("chat", prefix="/v1")

_CHAT = describe(
    ReplyView,
    body=ChatBody,
    headers=("Idempotency-Key",),
    problems=(502,),
    content={"text/event-stream": {"example": 'event: delta\ndata: {"text":"The "}\n\n'}},
)
# Each of its fields may be left out, but not all of them.
_CHAT.content["requestBody"]["required"] = True


class AssistantList(View, frozen=True, kw_only=True):
    """Who can be talked to."""

    assistants: list[AssistantView]


class TraceList(View, frozen=True, kw_only=True):
    """Traces, newest first."""

    traces: list[TraceView]


@routes.post("/chat", _CHAT)
async def chat(request: Request) -> Response:
    """Say something and get the answer; with `stream`, as server-sent events: start, delta, tool, done or error."""
    scope = (await authenticate_request(request)).scope()
    body = await body_of(request, ChatBody)
    asked = ChatRequest(
        text=body.message,
        session_id=body.session_id,
        assistant=body.assistant,
        persona=body.persona,
        idempotency_key=idempotency_key(request),
        # Of everything but the way the answer travels.
        fingerprint=fingerprint([getattr(body, name) for name in body.__struct_fields__ if name != "stream"]),
        language=body.language,
        regenerate=body.regenerate,
        edit=body.edit,
        profile=body.profile,
    )
    talk = service(request).chat
    if body.stream:
        return await event_stream(request, talk.stream(scope, asked), encode_event)
    return answer(ReplyView.of(await cancel_on_disconnect(request, talk.take_turn(scope, asked))))


def encode_event(event: ChatEvent) -> ServerSentEvent:
    """An event of a turn for its stream."""
    name, view = event_view(event)
    return ServerSentEvent(name, msgspec.json.encode(view))


@routes.get("/assistants", describe(AssistantList))
async def list_assistants(request: Request) -> Response:
    """Who can be talked to."""
    await asking(request)
    talk = service(request).chat
    known = talk.assistants
    views = [assistant_view(each, talk.model_of(each).name, each.name == known.default) for each in known]
    return answer(AssistantList(assistants=views))


@routes.get("/traces", describe(TraceList, query=TraceListQuery))
async def list_traces(request: Request) -> Response:
    """Traces of a session's turns, newest first; without a session, of the sessions changed last."""
    scope = await asking(request)
    asked = parse_query(request, TraceListQuery)
    if asked.session_id is not None:
        found = await service(request).tenuto.store.traces.traces(scope, asked.session_id, asked.limit, asked.before)
    elif asked.before is not None:
        raise Invalid("before: counts the turns of one session; name it")
    else:
        found = await latest_traces(service(request).tenuto.store.traces, sessions(request), scope, asked.limit)
    return answer(TraceList(traces=list(map(TraceView.of, found))))


@routes.get("/traces/{trace_id}", describe(TraceView))
async def get_trace(request: Request) -> Response:
    """Everything about one turn."""
    return answer(TraceView.of(await trace_of(request, await asking(request))))


async def trace_of(request: Request, scope: Scope) -> Trace:
    """The trace that the path names.

    Raises:
        TraceNotFound: there is none for this caller.
    """
    return await find_trace(service(request).tenuto.store.traces, scope, path_parameter(request, "trace_id"))
