"""Responses as they are stored: from the messages and the trace of their turns."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tenuto.app import Tenuto
from tenuto.errors import TurnStopped
from tenuto.holder import is_holder_gone
from tenuto.model import Message, Scope
from tenuto.model.message import STOPPED, is_input
from tenuto.model.turn import Trace, turn_id_of
from tenuto.model.values import JsonObject
from tenuto.ports import TraceStore
from tenuto.server.openai.chains import StoredTurn, find_turn
from tenuto.server.openai.errors import ResponseNotFound
from tenuto.server.openai.items import items_of_message
from tenuto.server.openai.response_objects import Echo, Status, failure_of, usage_of
from tenuto.server.openai.response_stream import EventBatch


def echo_from(noted: JsonObject, trace: str, model: str) -> Echo:
    """What a response repeats, from the metadata of its reply."""
    said = {name: value for name, value in noted.items() if name not in ("created_at", "model")}
    return Echo.of(trace, noted.get("created_at", 0), noted.get("model", model), said)


async def stored_response(tenuto: Tenuto, scope: Scope, response_id: str) -> JsonObject:
    """The response of a turn that has ended, here or elsewhere, or still runs in another process."""
    turn = await find_turn(tenuto.sessions, scope, response_id)
    traces = tenuto.store.traces
    if turn.reply is None:
        return await _unanswered(traces, scope, turn)
    reply = turn.reply
    echo = echo_from(turn.echo, turn.trace, str(reply.metadata.get("model", "")))
    known = await traces.trace(scope, turn.session.id, turn.number)
    usage = usage_of(known.input_tokens, known.output_tokens) if known is not None else usage_of(0, reply.tokens)
    echo = echo.with_manifest(known.manifest if known is not None else None)
    output = items_of_message(reply)
    status: Status = "cancelled" if reply.metadata.get(STOPPED) else "completed"
    completed = int(reply.sent_at.timestamp())
    return echo.response(status, output, usage=usage, completed_at=completed)


async def _unanswered(traces: TraceStore, scope: Scope, turn: StoredTurn) -> JsonObject:
    """The response of a turn without a reply: cancelled, failed, cut off with its server, or made elsewhere.

    Raises:
        ResponseNotFound: there was no such turn.
    """
    trace = await traces.trace(scope, turn.session.id, turn.number)
    if trace is not None and trace.id == turn.trace:
        echo = echo_from({"created_at": int(trace.began_at.timestamp())}, turn.trace, trace.assistant)
        if trace.error in (None, TurnStopped.code):
            return echo.response("cancelled")
        return echo.response("failed", error=_failure_in(trace, trace.error))
    gone = is_holder_gone(turn_id_of(turn.trace))
    if not turn.messages or (trace is not None and not gone):
        raise ResponseNotFound
    echo = echo_from({"created_at": int(turn.messages[0].sent_at.timestamp())}, turn.trace, "")
    if gone:
        return echo.response("failed", error=failure_of("server_error", "the server stopped in the meantime"))
    return echo.response("in_progress")


def _failure_in(trace: Trace, code: str) -> JsonObject:
    told = trace.error_message if trace.reason is not None else "the model gave no answer"
    return failure_of(code, told, trace.reason)


def inputs_of(turn: StoredTurn) -> tuple[Message, ...]:
    """The messages that a turn's request brought."""
    return tuple(message for message in turn.messages if is_input(message))


async def replay_response(response: JsonObject, after: int) -> AsyncIterator[EventBatch]:
    """The stream of a response that has ended and whose events are gone: how it began, and all of it."""
    begun = {**response, "status": "in_progress", "output": [], "usage": None, "completed_at": None}
    created = {"type": "response.created", "sequence_number": 0, "response": begun}
    kind = {"cancelled": "response.incomplete"}.get(response["status"], f"response.{response['status']}")
    ended = {"type": kind, "sequence_number": max(after, 0) + 1, "response": response}
    yield EventBatch((created, ended) if after < 0 else (ended,))
