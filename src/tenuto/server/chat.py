"""Routes of chat: a turn with an assistant, whole or streamed, joined or stopped; the list of assistants; traces."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tenuto.app import Tenuto
from tenuto.chat import ChatEvent, ChatRequest, LiveTurn
from tenuto.chat.views import (
    AssistantView,
    CallView,
    ReasoningDeltaView,
    ReplyView,
    StepEventView,
    TextDeltaView,
    ToolEventView,
    TraceView,
    TurnStartedView,
    assistant_view,
    event_view,
)
from tenuto.errors import Invalid, TurnStopped
from tenuto.model import Scope
from tenuto.model.generation import ReasoningDelta
from tenuto.model.turn import Trace, TraceOutcome
from tenuto.model.values import View
from tenuto.server.attachments import read_attachments
from tenuto.server.auth import AuthContext, ServerContext
from tenuto.server.json_io import key_fingerprint
from tenuto.server.openapi import EventStream, Router
from tenuto.server.problems import Problem
from tenuto.server.requests import ChatBody, StreamQuery, TraceListQuery, TraceQuery
from tenuto.server.streams import ServerSentEvent, cancel_on_disconnect, event_stream, until_lapsed
from tenuto.sessions import Sessions
from tenuto.sessions.traces import TraceFilter, find_trace, latest_traces, session_traces

routes = Router("chat", prefix="/v1")

_STREAM: Final = EventStream(
    "Events with an `id`: `start` (`TurnStartedView`), `reasoning` (`ReasoningDeltaView`), `delta` (`TextDeltaView`), "
    "`tool` (`ToolEventView`), `step` (`StepEventView`) and `call` (`CallView`), then `done` (`ReplyView`) or `error` "
    "(`Problem`).",
    example='id: 1.2\nevent: delta\ndata: {"text":"The "}\n\n',
    events=(
        TurnStartedView,
        ReasoningDeltaView,
        TextDeltaView,
        ToolEventView,
        StepEventView,
        CallView,
        ReplyView,
        Problem,
    ),
)


class StopView(View, frozen=True, kw_only=True):
    """Whether the session's last turn was stopped, how it ended otherwise, and the answer that this request ended."""

    stopped: bool
    outcome: TraceOutcome | None
    reply: ReplyView | None


class AssistantList(View, frozen=True, kw_only=True):
    """The assistants that the caller can talk to, and the models that may answer in place of theirs."""

    assistants: list[AssistantView]
    models: list[str]


class TraceList(View, frozen=True, kw_only=True):
    """Traces, newest first; `truncated` says that there may be older ones: more than the `limit`, or beyond the 200
    sessions and about 1,000 turns that are looked through without a `session_id`."""

    traces: list[TraceView]
    truncated: bool


# Each field of the body may be left out, but not all of them.
@routes.post("/chat", problems=(502,), stream=_STREAM, body_required=True)
async def chat(
    request: Request, scope: Scope, context: ServerContext, idempotency_key: str | None, body: ChatBody
) -> ReplyView | Response:
    """Send a message to an assistant.

    With `stream`, the answer comes as server-sent events. With an Idempotency-Key, a repeated request gets the same
    answer.
    """
    parts, contents = await read_attachments(context, scope, body.attachments)
    chat_request = ChatRequest(
        text=body.message,
        parts=parts,
        contents=contents,
        require_attachments=body.require_attachments,
        session_id=body.session_id,
        assistant=body.assistant,
        persona=body.persona,
        model=body.model,
        idempotency_key=idempotency_key,
        # Of everything but the way the answer travels.
        fingerprint=await key_fingerprint(
            idempotency_key, [getattr(body, name) for name in body.__struct_fields__ if name != "stream"]
        ),
        language=body.language,
        regenerate=body.regenerate,
        edit=body.edit,
        after_seq=body.after_seq,
        profile=body.profile,
        parameters=body.parameters,
        schema=body.schema,
        reply_tokens=body.reply_tokens,
    )
    turn = context.live.start(scope, chat_request)
    if body.stream:
        return await _turn_stream(request, turn)
    return ReplyView.of(await cancel_on_disconnect(request, turn.reply()))


@routes.get(
    "/sessions/{session_id}/stream", stream=_STREAM, no_content="No turn is running, or its last event was seen."
)
async def join_turn(
    request: Request,
    scope: Scope,
    context: ServerContext,
    session_id: str,
    query: StreamQuery,
    last_event_id: str | None,
) -> Response | None:
    """Follow the running turn of a session.

    The events begin at the start of the turn, or after the one that `Last-Event-ID` or `after` names. 204 if no
    turn runs, or if its last event was seen. The turn may run in any process of the installation.
    """
    turn = await context.live.find(scope, await context.sessions.find_named(scope, session_id))
    if turn is None:
        return None
    last_seen = query.after if query.after is not None else last_event_id
    after = _events_seen(turn, last_seen)
    if after is None or (not turn.has_news and (last_seen is None or after >= turn.event_count)):
        return None
    return await _turn_stream(request, turn, after)


@routes.post("/sessions/{session_id}/stop")
async def stop_turn(scope: Scope, context: ServerContext, session_id: str) -> StopView:
    """Stop the running turn of a session.

    The text so far becomes its answer, marked as `stopped`. A turn without any text leaves the message unanswered;
    one that was to replace an answer leaves the old one. Idempotent: where no turn runs, `stopped` and `outcome` say
    how the last one ended.
    """
    return await stop_running_turn(context, scope, session_id)


async def stop_running_turn(context: ServerContext, scope: Scope, name: str) -> StopView:
    """Stop the turn that runs in the caller's session of this name."""
    session_id = await context.sessions.find_named(scope, name)
    turn = await context.live.find(scope, session_id)
    if turn is None or turn.ended:
        # It may have ended, or been stopped by another request, a moment ago and in any process.
        last = await context.tenuto.store.traces.traces(scope, session_id, 1)
        outcome = last[0].outcome if last else None
        return StopView(stopped=outcome is TraceOutcome.STOPPED, outcome=outcome, reply=None)
    reply = await turn.stop()
    if reply is None:
        stopped = isinstance(turn.error, TurnStopped)
        return StopView(stopped=stopped, outcome=TraceOutcome.STOPPED if stopped else TraceOutcome.FAILED, reply=None)
    outcome = TraceOutcome.DEGRADED if reply.degraded else TraceOutcome.ANSWERED
    outcome = TraceOutcome.STOPPED if reply.stopped else outcome
    return StopView(stopped=reply.stopped, outcome=outcome, reply=ReplyView.of(reply))


async def _turn_stream(request: Request, turn: LiveTurn, after: int = 0) -> Response:
    def encode(numbered: tuple[int, ChatEvent]) -> ServerSentEvent:
        number, event = numbered
        if turn.started is None:  # A stored reply: there is nothing to join.
            return encode_event(event)
        return encode_event(event, f"{turn.started.turn}.{number}")

    return await event_stream(request, until_lapsed(request, _shown_events(turn, after)), encode)


async def _shown_events(turn: LiveTurn, after: int) -> AsyncIterator[tuple[int, ChatEvent]]:
    """The events without the ends of thoughts, which only their providers read."""
    async for number, event in turn.events(after):
        if not (isinstance(event, ReasoningDelta) and event.part is not None):
            yield number, event


def _events_seen(turn: LiveTurn, event_id: str | None) -> int | None:
    """How many events of this turn a client has seen; an id of an earlier turn, or an odd one, means none.

    `None` for an id of a later turn, which has ended in another process: what this one made before is not behind it.
    """
    named, _, event = (event_id or "").rpartition(".")
    number = turn.started.turn if turn.started is not None else 0
    if named.isdecimal() and len(named) < 10 and int(named) > number:
        return None if turn.ended else 0
    same = not named or named == str(number)
    return int(event) if same and event.isdecimal() and len(event) < 10 else 0


def encode_event(event: ChatEvent, event_id: str | None = None) -> ServerSentEvent:
    """An event of a turn for its stream."""
    name, view = event_view(event)
    return ServerSentEvent(name, msgspec.json.encode(view), event_id)


@routes.get("/assistants")
async def list_assistants(admission: AuthContext, context: ServerContext) -> AssistantList:
    """List the assistants that the caller can talk to.

    Why a file cannot be loaded is shown to admins and to credentials without a user only.
    """
    chat, show_cause = context.chat, admission.sees_internals
    views = [
        assistant_view(each, chat.model_of(each).name, each.name == chat.assistants.default, show_cause=show_cause)
        for each in chat.assistants
    ]
    models = [name for name in chat.model_names(admission.scope().tenant) if name not in chat.assistants.names]
    return AssistantList(assistants=views, models=models)


@routes.get("/traces")
async def list_traces(admission: AuthContext, tenuto: Tenuto, sessions: Sessions, query: TraceListQuery) -> TraceList:
    """List traces of turns, newest first. Without `session_id`, they are those of the sessions that changed last."""
    scope = admission.scope()
    store = tenuto.store.traces
    wanted = TraceFilter(**{name: getattr(query, name) for name in TraceFilter.__struct_fields__})
    if query.session_id is not None:
        found = await session_traces(store, scope, query.session_id, query.limit, query.before, wanted)
    elif query.before is not None:
        raise Invalid("before: needs session_id, since it counts the turns of one session")
    else:
        found = await latest_traces(store, sessions, scope, query.limit, wanted)
    view = TraceView.brief if query.brief else TraceView.of
    traces = [view(admission.visible(trace)) for trace in found.traces]
    return TraceList(traces=traces, truncated=found.truncated)


@routes.get("/traces/{trace_id}")
async def get_trace(admission: AuthContext, context: ServerContext, trace_id: str, query: TraceQuery) -> TraceView:
    """Get the trace of one turn.

    With `text`, it has the text of each part of the prompt, as far as it is still stored. The assistant's own
    prompt and tools, and the messages of exceptions, are shown to admins and to credentials without a user only.
    """
    scope = admission.scope()
    trace = await trace_of(context.tenuto, admission, trace_id)
    if not query.text:
        return TraceView.of(trace)
    shown = admission.sees_internals
    return TraceView.of(trace, await context.chat.prompt_texts(scope, trace, show_assistant=shown))


async def trace_of(tenuto: Tenuto, admission: AuthContext, trace_id: str) -> Trace:
    """A trace, as far as the caller may see it.

    Raises:
        TraceNotFound: there is none for this caller.
    """
    return admission.visible(await find_trace(tenuto.store.traces, admission.scope(), trace_id))
