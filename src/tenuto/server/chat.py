"""Routes of chat: a turn with an assistant, whole or streamed, joined or stopped; the list of assistants; traces."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tenuto.chat import ChatEvent, ChatRequest, LiveTurn
from tenuto.chat.views import (
    AssistantView,
    CallView,
    ReplyView,
    StepEventView,
    TextDeltaView,
    ToolEventView,
    TraceView,
    TurnStartedView,
    assistant_view,
    event_view,
)
from tenuto.errors import Invalid
from tenuto.model import Scope
from tenuto.model.turn import Trace
from tenuto.model.values import View
from tenuto.server.auth import AuthContext, asking, authenticate_request, service, sessions
from tenuto.server.json_io import answer, body_of, fingerprint, idempotency_key, parse_query, path_parameter
from tenuto.server.openapi import EventStream, Router, describe
from tenuto.server.problems import Problem
from tenuto.server.requests import ChatBody, StreamQuery, TraceListQuery, TraceQuery
from tenuto.server.streams import ServerSentEvent, cancel_on_disconnect, event_stream, until_lapsed
from tenuto.sessions.traces import TraceFilter, find_trace, latest_traces, session_traces

routes = Router("chat", prefix="/v1")

_STREAM: Final = EventStream(
    "Events with an `id`: `start` (`TurnStartedView`), `delta` (`TextDeltaView`), `tool` (`ToolEventView`), `step` "
    "(`StepEventView`) and `call` (`CallView`), then `done` (`ReplyView`) or `error` (`Problem`).",
    example='id: 1.2\nevent: delta\ndata: {"text":"The "}\n\n',
    events=(TurnStartedView, TextDeltaView, ToolEventView, StepEventView, CallView, ReplyView, Problem),
)
_CHAT = describe(ReplyView, body=ChatBody, headers=("Idempotency-Key",), problems=(502,), stream=_STREAM)
# Each of its fields may be left out, but not all of them.
_CHAT.content["requestBody"]["required"] = True


_JOIN = describe(None, query=StreamQuery, headers=("Last-Event-ID",), stream=_STREAM)
_JOIN.content["responses"]["204"] = {"description": "No turn is running, or its last event was seen."}


class StopView(View, frozen=True, kw_only=True):
    """Whether a turn was stopped, and the answer it has now; null if it has none or no turn ran."""

    stopped: bool
    reply: ReplyView | None


class AssistantList(View, frozen=True, kw_only=True):
    """The assistants that the caller can talk to."""

    assistants: list[AssistantView]


class TraceList(View, frozen=True, kw_only=True):
    """Traces, newest first; `truncated` says that there may be older ones: more than the `limit`, or beyond the 200
    sessions and about 1,000 turns that are looked through without a `session_id`."""

    traces: list[TraceView]
    truncated: bool


@routes.post("/chat", _CHAT)
async def chat(request: Request) -> Response:
    """Send a message to an assistant.

    With `stream`, the answer comes as server-sent events. With an Idempotency-Key, a repeated request gets the same
    answer.
    """
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
    turn = service(request).live.start(scope, asked)
    if body.stream:
        return await _turn_stream(request, turn)
    return answer(ReplyView.of(await cancel_on_disconnect(request, turn.reply())))


@routes.get("/sessions/{session_id}/stream", _JOIN)
async def join_turn(request: Request) -> Response:
    """Follow the running turn of a session.

    The events begin at the start of the turn, or after the one that `Last-Event-ID` or `after` names. 204 if no
    turn runs in this server process, or if its last event was seen.
    """
    scope, query = await asking(request), parse_query(request, StreamQuery)
    turn = await service(request).live.find(scope, await sessions(request).find_named(scope, path_parameter(request)))
    if turn is None:
        return Response(status_code=204)
    last_seen = query.after if query.after is not None else request.headers.get("last-event-id")
    after = _events_seen(turn, last_seen)
    if turn.ended and (last_seen is None or after >= turn.event_count):
        return Response(status_code=204)
    return await _turn_stream(request, turn, after)


@routes.post("/sessions/{session_id}/stop", describe(StopView))
async def stop_turn(request: Request) -> Response:
    """Stop the running turn of a session.

    The text so far becomes its answer, marked as `stopped`. A turn without any text leaves the message unanswered;
    one that was to replace an answer leaves the old one.
    """
    return answer(await stop_running_turn(request, await asking(request), path_parameter(request)))


async def stop_running_turn(request: Request, scope: Scope, name: str) -> StopView:
    """Stop the turn that runs in the caller's session of this name."""
    turn = await service(request).live.find(scope, await sessions(request).find_named(scope, name))
    if turn is None or turn.ended:
        return StopView(stopped=False, reply=None)
    reply = await turn.stop()
    return StopView(stopped=reply is None or reply.stopped, reply=ReplyView.of(reply) if reply is not None else None)


async def _turn_stream(request: Request, turn: LiveTurn, after: int = 0) -> Response:
    def encode(numbered: tuple[int, ChatEvent]) -> ServerSentEvent:
        number, event = numbered
        if turn.started is None:  # A stored reply: there is nothing to join.
            return encode_event(event)
        return encode_event(event, f"{turn.started.turn}.{number}")

    return await event_stream(request, until_lapsed(request, turn.events(after)), encode)


def _events_seen(turn: LiveTurn, event_id: str | None) -> int:
    """How many events of this turn a client has seen; an id of another turn, or an odd one, means none."""
    number, _, event = (event_id or "").rpartition(".")
    same = not number or (turn.started is not None and number == str(turn.started.turn))
    return int(event) if same and event.isdecimal() and len(event) < 10 else 0


def encode_event(event: ChatEvent, event_id: str | None = None) -> ServerSentEvent:
    """An event of a turn for its stream."""
    name, view = event_view(event)
    return ServerSentEvent(name, msgspec.json.encode(view), event_id)


@routes.get("/assistants", describe(AssistantList))
async def list_assistants(request: Request) -> Response:
    """List the assistants that the caller can talk to.

    Why a file cannot be loaded is shown to admins and to credentials without a user only.
    """
    admission = await authenticate_request(request)
    chat, show_cause = service(request).chat, admission.sees_internals
    views = [
        assistant_view(each, chat.model_of(each).name, each.name == chat.assistants.default, show_cause=show_cause)
        for each in chat.assistants
    ]
    return answer(AssistantList(assistants=views))


@routes.get("/traces", describe(TraceList, query=TraceListQuery))
async def list_traces(request: Request) -> Response:
    """List traces of turns, newest first. Without `session_id`, they are those of the sessions that changed last."""
    admission = await authenticate_request(request)
    scope = admission.scope()
    asked = parse_query(request, TraceListQuery)
    store = service(request).tenuto.store.traces
    wanted = TraceFilter(**{name: getattr(asked, name) for name in TraceFilter.__struct_fields__})
    if asked.session_id is not None:
        found = await session_traces(store, scope, asked.session_id, asked.limit, asked.before, wanted)
    elif asked.before is not None:
        raise Invalid("before: needs session_id, since it counts the turns of one session")
    else:
        found = await latest_traces(store, sessions(request), scope, asked.limit, wanted)
    view = TraceView.brief if asked.brief else TraceView.of
    traces = [view(admission.visible(trace)) for trace in found.traces]
    return answer(TraceList(traces=traces, truncated=found.truncated))


@routes.get("/traces/{trace_id}", describe(TraceView, query=TraceQuery))
async def get_trace(request: Request) -> Response:
    """Get the trace of one turn.

    With `text`, it has the text of each part of the prompt, as far as it is still stored. The assistant's own
    prompt and tools, and the messages of exceptions, are shown to admins and to credentials without a user only.
    """
    admission, query = await authenticate_request(request), parse_query(request, TraceQuery)
    scope = admission.scope()
    trace = await trace_of(request, admission)
    if not query.text:
        return answer(TraceView.of(trace))
    shown = admission.sees_internals
    return answer(TraceView.of(trace, await service(request).chat.prompt_texts(scope, trace, show_assistant=shown)))


async def trace_of(request: Request, admission: AuthContext) -> Trace:
    """The trace that the path names, as far as the caller may see it.

    Raises:
        TraceNotFound: there is none for this caller.
    """
    store, trace_id = service(request).tenuto.store.traces, path_parameter(request, "trace_id")
    return admission.visible(await find_trace(store, admission.scope(), trace_id))
