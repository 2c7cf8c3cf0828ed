"""Routes of responses: a turn in a conversation, after another response, or by itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from tenuto.chat import ChatEvent, ChatRequest, LiveTurn, Reply, ReplyFinished
from tenuto.errors import SessionNotFound, Unavailable
from tenuto.model import Rewrite, Scope
from tenuto.model.policy import OnMissing
from tenuto.model.values import JsonObject
from tenuto.server.auth import asking, service, sessions
from tenuto.server.json_io import parse_query, path_parameter
from tenuto.server.openai.chains import DELETED, find_turn, follow_response
from tenuto.server.openai.conversations import ItemsQuery, json_response, list_view, new_conversation_id
from tenuto.server.openai.errors import ItemNotFound, OpenAIRouter, ResponseNotFound, describe_openai
from tenuto.server.openai.items import ECHO, items_of
from tenuto.server.openai.log import ItemPage
from tenuto.server.openai.response_objects import Echo, place_of_response
from tenuto.server.openai.response_requests import Asked, history_of, now_in_seconds, read_request
from tenuto.server.openai.response_stream import ResponseStream, stream_response
from tenuto.server.openai.stored_responses import echo_from, inputs_of, replay_response, stored_response
from tenuto.server.openai.tokens import check_untruncated
from tenuto.server.streams import begun_events, cancel_on_disconnect, event_stream, until_lapsed
from tenuto.sessions.ids import derived_id

routes = OpenAIRouter(prefix="/v1")

_Result = TypeVar("_Result")
_ID: Final = "response_id"


class ResponseQuery(msgspec.Struct, frozen=True, kw_only=True):
    """How to get a response."""

    stream: bool = False
    starting_after: int = -1


@routes.post("/responses", describe_openai(body={"model": "general", "input": "Where do I start?"}, streams=True))
async def create_response(request: Request) -> Response:
    """Create a response, whole, as a stream or in the background."""
    asked = await read_request(request)
    await check_untruncated(request, asked)
    if asked.body.store is False:
        return await _answer_unstored(request, asked)
    if asked.body.background or asked.body.stream:
        turn = await _place_turn(request, asked, lambda chat: _begin_live(request, asked.scope, chat))
        reply_id = turn.started.trace_id if turn.started is not None else (await turn.reply()).trace_id
        # A turn that a retry joined has what the first request said.
        echo = _echo_of(turn, reply_id)
        if asked.body.stream:
            return await _stream(request, echo, _events_of(turn))
        if not reply_id:
            # Without a store there is nothing to come back to.
            return json_response(echo.finished(await turn.reply(), now_in_seconds(request)))
        ended = await stored_response(request, asked.scope, echo.response_id) if turn.ended else None
        return json_response(ended or echo.response("in_progress"))
    live = service(request).live
    reply = await _place_turn(
        request, asked, lambda chat: cancel_on_disconnect(request, live.take_turn(asked.scope, chat))
    )
    return json_response(asked.echo(reply.trace_id).finished(reply, now_in_seconds(request)))


@routes.get("/responses/{response_id}", describe_openai(query=ResponseQuery, streams=True))
async def get_response(request: Request) -> Response:
    """Get a response. With `stream`, its events after `starting_after`."""
    scope = await asking(request)
    query = parse_query(request, ResponseQuery)
    response_id = path_parameter(request, _ID)
    turn = await _find_live(request, scope, response_id)
    response: JsonObject | None = None
    if turn is None or turn.ended:
        response = await stored_response(request, scope, response_id)
        if not query.stream:
            return json_response(response)
    if turn is None:
        assert response is not None
        if response["status"] == "in_progress":
            raise Unavailable("another process is making the response; its stream can be read once it has ended")
        return await event_stream(request, replay_response(response, query.starting_after), lambda batch: batch)
    echo = _echo_of(turn, place_of_response(response_id)[0])
    if query.stream:
        return await _stream(request, echo, _events_of(turn), query.starting_after)
    return json_response(echo.response("in_progress"))


@routes.delete("/responses/{response_id}", describe_openai())
async def delete_response(request: Request) -> Response:
    """Delete a response. It can be neither read nor followed any more. Its items stay in their conversation."""
    scope = await asking(request)
    response_id = path_parameter(request, _ID)
    turn = await find_turn(sessions(request), scope, response_id)
    if turn.reply is None:
        raise ResponseNotFound
    noted = {name: turn.echo[name] for name in ("text",) if name in turn.echo} | {DELETED: True}
    forgotten = replace(turn.reply, metadata={**turn.reply.metadata, ECHO: noted})
    await sessions(request).rewrite(scope, turn.session.id, Rewrite(messages=(forgotten,)))
    return json_response({"id": response_id, "object": "response", "deleted": True})


@routes.post("/responses/{response_id}/cancel", describe_openai())
async def cancel_response(request: Request) -> Response:
    """Cancel a running response. The text so far is its answer."""
    scope = await asking(request)
    response_id = path_parameter(request, _ID)
    turn = await _find_live(request, scope, response_id)
    if turn is not None:
        await turn.stop()
    return json_response(await stored_response(request, scope, response_id))


@routes.get("/responses/{response_id}/input_items", describe_openai(query=ItemsQuery))
async def list_input_items(request: Request) -> Response:
    """List the input items of a response."""
    scope = await asking(request)
    query = parse_query(request, ItemsQuery)
    items = items_of(inputs_of(await find_turn(sessions(request), scope, path_parameter(request, _ID))))
    if query.order == "desc":
        items.reverse()
    if query.after is not None:
        place = next((place for place, item in enumerate(items) if item["id"] == query.after), None)
        if place is None:
            raise ItemNotFound
        items = items[place + 1 :]
    return json_response(list_view(ItemPage(items[: query.limit], len(items) > query.limit)))


async def _place_turn(request: Request, asked: Asked, attempt: Callable[[ChatRequest], Awaitable[_Result]]) -> _Result:
    """Take the turn where the request says: in a conversation, after a response, or in a new session."""
    body, turn = asked.body, asked.turn
    if body.conversation_id is not None:
        return await attempt(replace(turn, session_id=body.conversation_id))
    if body.previous_response_id is not None:
        return await follow_response(sessions(request), asked.scope, body.previous_response_id, turn, attempt)
    key, scope = turn.idempotency_key, asked.scope
    made = new_conversation_id() if key is None else derived_id("conv_", scope.tenant, scope.site, *scope.owner, key)
    policy = replace(turn.policy or sessions(request).policy, on_missing=OnMissing.ADOPT)
    return await attempt(replace(turn, session_id=made, policy=policy))


async def _begin_live(request: Request, scope: Scope, chat: ChatRequest) -> LiveTurn:
    """Start a turn, and wait until it is stored that it began; errors before that are the request's."""
    turn = service(request).live.start(scope, chat)
    await cancel_on_disconnect(request, first_event(turn))
    return turn


async def first_event(turn: LiveTurn) -> None:
    """Wait for the first event of a turn; an error before it is raised.

    Raises:
        TenutoError: as in `Chat.take_turn`.
    """
    await anext(turn.events())


async def _events_of(turn: LiveTurn) -> AsyncIterator[ChatEvent]:
    async for _, event in turn.events():
        yield event


async def _find_live(request: Request, scope: Scope, response_id: str) -> LiveTurn | None:
    """The turn of a response that runs in this process or ended in it lately."""
    trace, session_id, _ = place_of_response(response_id)
    try:
        turn = await service(request).live.find(scope, session_id)
    except SessionNotFound:
        raise ResponseNotFound from None
    return turn if turn is not None and turn.started is not None and turn.started.trace_id == trace else None


def _echo_of(turn: LiveTurn, trace: str) -> Echo:
    return echo_from(turn.reply_metadata.get(ECHO, {}), trace, str(turn.assistant))


async def _stream(request: Request, echo: Echo, events: AsyncIterator[ChatEvent], after: int = -1) -> Response:
    stream = ResponseStream(echo, lambda: now_in_seconds(request))
    return await event_stream(
        request, stream_response(stream, until_lapsed(request, events), after), lambda batch: batch
    )


async def _answer_unstored(request: Request, asked: Asked) -> Response:
    """Answer without a trace in the store; a conversation or an earlier response is read, and nothing is added."""
    chat = service(request).chat
    loaded = chat.assistants.find(asked.turn.assistant).policies.context.loaded_messages
    history = await history_of(request, asked.scope, asked.body, max(loaded, 1))
    echo = asked.echo("")
    events = chat.stream(asked.scope, asked.turn, history)
    if asked.body.stream:
        return await _stream(request, echo, await begun_events(request, events))
    reply = await cancel_on_disconnect(request, last_reply(events))
    return json_response(echo.finished(reply, now_in_seconds(request)))


async def last_reply(events: AsyncIterator[ChatEvent]) -> Reply:
    """The reply at the end of a turn's events."""
    reply: Reply | None = None
    async for event in events:
        if isinstance(event, ReplyFinished):
            reply = event.reply
    assert reply is not None
    return reply
