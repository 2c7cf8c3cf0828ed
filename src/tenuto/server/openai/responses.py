"""Routes of responses: a turn in a conversation, after another response, or by itself; and the size of a request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeVar
from uuid import uuid4

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from tenuto.chat import ChatEvent, ChatRequest, LiveTurn, LiveTurns, Reply, ReplyFinished, SentTurn
from tenuto.context import TokenCounter, language_of
from tenuto.context.compression import LogTail
from tenuto.context.extract import summarise
from tenuto.errors import Invalid, SessionNotFound, TurnUnreachable
from tenuto.model import Draft, Message, Rewrite, Role, Scope
from tenuto.model.policy import OnMissing
from tenuto.model.turn import turn_id_of
from tenuto.model.values import JsonObject
from tenuto.server.apps.naming import SESSION, UNMARKED, AppNaming
from tenuto.server.auth import ServerContext, service
from tenuto.server.handlers import Answer
from tenuto.server.json_io import QueryParameters, unknown_fields
from tenuto.server.openai.conversations import ItemsQuery, drafts_of_items, list_view, new_conversation_id
from tenuto.server.openai.errors import InputTooLong, ItemNotFound, OpenAIRouter, ResponseNotFound
from tenuto.server.openai.item_log import ItemPage
from tenuto.server.openai.items import ECHO, as_text, compaction_item, items_of, messages_of
from tenuto.server.openai.response_objects import (
    DELETED,
    Echo,
    echo_from,
    find_turn,
    inputs_of,
    place_of_response,
    stored_response,
    usage_of,
)
from tenuto.server.openai.response_requests import (
    Asked,
    ResponseBody,
    StoredHistory,
    follow_response,
    history_of,
    now_in_seconds,
    read_request,
)
from tenuto.server.openai.response_stream import ResponseStream, replay_response, stream_response, unless_refused
from tenuto.server.sent_history import begin_sent_turn, events_while_here, headers_of, reply_while_here
from tenuto.server.streams import cancel_on_disconnect, event_stream, until_lapsed
from tenuto.sessions import Sessions
from tenuto.sessions.attachments import prepare_contents
from tenuto.sessions.ids import derived_id

routes = OpenAIRouter()

_Result = TypeVar("_Result")
_counter: Final = TokenCounter()
# The most that a compaction says of a conversation, and the most messages that it reads.
_SUMMARY_TOKENS: Final = 1024
_READ: Final = 1000


class ResponseQuery(QueryParameters, frozen=True, kw_only=True):
    """How to get a response."""

    stream: bool = False
    starting_after: int = -1


@routes.post("/responses", body={"model": "general", "input": "Where do I start?"}, streams=True)
async def create_response(
    request: Request, naming: AppNaming, context: ServerContext, idempotency_key: str | None, body: ResponseBody
) -> Answer[JsonObject] | Response:
    """Create a response, whole, as a stream or in the background.

    With the header `Tenuto-Session`, or an id of an app that the settings name, as a turn of that session, unless the
    body names another place.
    """
    app = naming.read(body)
    scope = app.scope
    asked = await read_request(context, app, body, unknown_fields(request), idempotency_key)
    app = asked.app
    await check_untruncated(context, asked)
    if app.task or not app.store:
        return await _answer_unstored(request, context, asked, app.headers)
    if asked.items is not None:
        sent = await _begin_in_session(request, context, asked)
        headers = await headers_of(sent, app)
        if sent.live is None:
            return await _answer_unstored(request, context, await _without_session(context, asked), headers)
        turn = sent.live
    else:
        turn = await _place_turn(context.sessions, asked, lambda chat: _begin_live(request, context.live, scope, chat))
        session_id = turn.started.session_id if turn.started is not None else (await turn.reply()).session_id
        headers = {SESSION: session_id, **app.headers}
    # An app comes back to no response: it shows the talk that it has.
    stays = bool(app.app) and not body.background
    if not body.background and not body.stream:
        reply = await (reply_while_here(request, turn) if stays else cancel_on_disconnect(request, turn.reply()))
        return Answer(asked.echo(reply.trace_id).finished(reply, now_in_seconds(context)), headers=headers)
    reply_id = turn.started.trace_id if turn.started is not None else (await turn.reply()).trace_id
    # A turn that a retry joined has what the first request said.
    echo = _echo_of(turn, reply_id)
    if body.stream:
        events = events_while_here(request, turn) if stays else _events_of(turn)
        return await _stream(request, echo, await _unless_refused(request, events), headers=headers)
    if not reply_id:
        # Without a store there is nothing to come back to.
        return Answer(echo.finished(await turn.reply(), now_in_seconds(context)), headers=headers)
    ended = await stored_response(context.tenuto, scope, echo.response_id) if turn.ended else None
    return Answer(ended or echo.response("in_progress"), headers=headers)


@routes.get("/responses/{response_id}", streams=True)
async def get_response(
    request: Request, scope: Scope, context: ServerContext, response_id: str, query: ResponseQuery
) -> JsonObject | Response:
    """Get a response. With `stream`, its events after `starting_after`."""
    turn = await _find_live(context.live, scope, response_id)
    response: JsonObject | None = None
    if turn is None or turn.ended:
        response = await stored_response(context.tenuto, scope, response_id)
        if not query.stream:
            return response
    if turn is None:
        assert response is not None
        if response["status"] == "in_progress":
            raise TurnUnreachable
        return await event_stream(request, replay_response(response, query.starting_after), lambda batch: batch)
    echo = _echo_of(turn, place_of_response(response_id)[0])
    if query.stream:
        return await _stream(request, echo, _events_of(turn), query.starting_after)
    return echo.response("in_progress")


@routes.delete("/responses/{response_id}")
async def delete_response(scope: Scope, sessions: Sessions, response_id: str) -> JsonObject:
    """Delete a response. It can be neither read nor followed any more. Its items stay in their conversation."""
    turn = await find_turn(sessions, scope, response_id)
    if turn.reply is None:
        raise ResponseNotFound
    noted = {name: turn.echo[name] for name in ("text",) if name in turn.echo} | {DELETED: True}
    forgotten = replace(turn.reply, metadata={**turn.reply.metadata, ECHO: noted})
    await sessions.rewrite(scope, turn.session.id, Rewrite(messages=(forgotten,)))
    return {"id": response_id, "object": "response", "deleted": True}


@routes.post("/responses/{response_id}/cancel")
async def cancel_response(scope: Scope, context: ServerContext, response_id: str) -> JsonObject:
    """Cancel a running response. The text so far is its answer."""
    turn = await _find_live(context.live, scope, response_id)
    if turn is not None:
        await turn.stop()
    response = await stored_response(context.tenuto, scope, response_id)
    if response["status"] == "in_progress":
        raise TurnUnreachable
    return response


@routes.get("/responses/{response_id}/input_items")
async def list_input_items(scope: Scope, sessions: Sessions, response_id: str, query: ItemsQuery) -> JsonObject:
    """List the input items of a response."""
    turn = await find_turn(sessions, scope, response_id)
    items = items_of(inputs_of(turn), turn.session.id)
    if query.order == "desc":
        items.reverse()
    if query.after is not None:
        place = next((place for place, item in enumerate(items) if item["id"] == query.after), None)
        if place is None:
            raise ItemNotFound
        items = items[place + 1 :]
    return list_view(ItemPage(items[: query.limit], len(items) > query.limit))


async def _place_turn(
    sessions: Sessions, asked: Asked, attempt: Callable[[ChatRequest], Awaitable[_Result]]
) -> _Result:
    """Take the turn where the request says: in a conversation, after a response, or in a new session."""
    body, turn = asked.body, asked.turn
    if body.conversation_id is not None:
        return await attempt(replace(turn, session_id=body.conversation_id))
    if body.previous_response_id is not None:
        return await follow_response(sessions, asked.scope, body.previous_response_id, turn, attempt)
    key, scope = turn.idempotency_key, asked.scope
    made = new_conversation_id() if key is None else derived_id("conv_", scope.tenant, scope.site, *scope.owner, key)
    policy = replace(turn.policy or sessions.policy, on_missing=OnMissing.ADOPT)
    return await attempt(replace(turn, session_id=made, policy=policy))


async def _begin_in_session(request: Request, context: ServerContext, asked: Asked) -> SentTurn:
    """Begin the turn in the session that the request names, by what is new among the items."""

    async def read(items: list[JsonObject], places: list[int]) -> tuple[Draft, ...]:
        return await drafts_of_items(context, asked.scope, items, "input", places=places)

    streams, items = bool(asked.body.stream), asked.items or []
    return await begin_sent_turn(request, context, asked.app, asked.turn, items, read, streams=streams)


async def _without_session(context: ServerContext, asked: Asked) -> Asked:
    """The same request, with all of its conversation as the input of a turn by itself."""
    drafts = await drafts_of_items(context, asked.scope, asked.items or [], "input")
    turn = replace(asked.turn, session_id=None, regenerate=False, messages=drafts, app_task=UNMARKED)
    return asked._replace(turn=turn)


async def _begin_live(request: Request, live: LiveTurns, scope: Scope, chat: ChatRequest) -> LiveTurn:
    """Start a turn, and wait until it is stored that it began; errors before that are the request's."""
    turn = live.start(scope, chat)
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


async def _find_live(live: LiveTurns, scope: Scope, response_id: str) -> LiveTurn | None:
    """The turn of a response that runs, or ended in this process lately."""
    trace, session_id, _ = place_of_response(response_id)
    try:
        turn = await live.find(scope, session_id, turn_id_of(trace))
    except SessionNotFound:
        raise ResponseNotFound from None
    return turn if turn is not None and turn.started is not None and turn.started.trace_id == trace else None


def _echo_of(turn: LiveTurn, trace: str) -> Echo:
    return echo_from(turn.reply_metadata.get(ECHO, {}), trace, str(turn.assistant))


async def _unless_refused(request: Request, events: AsyncIterator[ChatEvent]) -> AsyncIterator[ChatEvent]:
    return await cancel_on_disconnect(request, unless_refused(events))


async def _stream(
    request: Request,
    echo: Echo,
    events: AsyncIterator[ChatEvent],
    after: int = -1,
    headers: Mapping[str, str] = MappingProxyType({}),
) -> Response:
    stream = ResponseStream(echo, lambda: now_in_seconds(service(request)))
    response = await event_stream(
        request, stream_response(stream, until_lapsed(request, events), after), lambda batch: batch
    )
    response.headers.update(headers)
    return response


async def _answer_unstored(
    request: Request, context: ServerContext, asked: Asked, headers: Mapping[str, str]
) -> Answer[JsonObject] | Response:
    """Answer without a trace in the store; a conversation or an earlier response is read, and nothing is added."""
    chat = context.chat
    loaded = chat.assistants.find(asked.turn.assistant).policies.context.loaded_messages
    most = context.settings.max_body_bytes
    history = await history_of(context.sessions, asked.scope, asked.body, max(loaded, 1), most)
    echo = asked.echo("")
    events = chat.stream(asked.scope, asked.turn, history.messages)
    if asked.body.stream:
        return await _stream(request, echo, await _unless_refused(request, events), headers=headers)
    reply = await cancel_on_disconnect(request, last_reply(events))
    return Answer(echo.finished(reply, now_in_seconds(context)), headers=headers)


async def last_reply(events: AsyncIterator[ChatEvent]) -> Reply:
    """The reply at the end of a turn's events."""
    reply: Reply | None = None
    async for event in events:
        if isinstance(event, ReplyFinished):
            reply = event.reply
    assert reply is not None
    return reply


@routes.post("/responses/input_tokens", body={"input": "Where do I start?"})
async def count_input_tokens(scope: Scope, context: ServerContext, body: ResponseBody) -> JsonObject:
    """Count the input tokens of a request, with the conversation before it."""
    history, new = await _read(context, scope, body)
    messages = (*history.messages, *new)
    beside = [body.instructions or "", as_text(body.tools) if body.tools else ""]
    count = await asyncio.to_thread(_count, messages, beside)
    return {"object": "response.input_tokens", "input_tokens": count}


@routes.post("/responses/compact", body={"input": "Where do I start?"})
async def compact_response(scope: Scope, context: ServerContext, body: ResponseBody) -> JsonObject:
    """Compact a conversation. The result has the user messages, and one item that stands for the rest."""
    history, new = await _read(context, scope, body)
    messages = (*history.messages, *new)
    if not messages:
        raise Invalid("input: expected a conversation to compact")
    said = tuple(message for message in messages if message.role is Role.USER)
    # In a thread: hundreds of long messages take a while.
    summary = await asyncio.to_thread(
        summarise,
        messages,
        tokens=_SUMMARY_TOKENS,
        language=language_of(said[-1].text if said else messages[-1].text),
        counter=_counter,
    )
    tokens = await asyncio.to_thread(_count, messages)
    return {
        "id": derived_id("resp_", uuid4().hex),
        "object": "response.compaction",
        "created_at": int(context.clock().timestamp()),
        "output": [*items_of(said, history.session_id), compaction_item(summary)],
        "usage": usage_of(tokens, _counter.count(summary)),
    }


async def check_untruncated(context: ServerContext, asked: Asked) -> None:
    """Refuse what would have to be cut, where the request disables truncation; a summary stands for what it covers.

    Raises:
        InputTooLong: input, conversation, instructions and tools have more tokens than the assistant's prompt.
    """
    body, turn = asked.body, asked.turn
    if body.truncation != "disabled":
        return
    assistant = context.chat.assistants.find(turn.assistant)
    policy = await context.chat.prompt_of(assistant, asked.scope.tenant, turn.model)
    loaded = assistant.policies.context.loaded_messages
    tail = LogTail((await history_of(context.sessions, asked.scope, body, max(loaded, 1))).messages)
    summary = tail.summary()
    talk = tail.talk if summary is None else [one for one in tail.talk if one.seq > summary.through]
    beside = [turn.text, body.instructions or "", as_text(body.tools) if body.tools else ""]
    messages = turn.messages if asked.items is None else (await _without_session(context, asked)).turn.messages
    # Pictures count by their size, which is known once they are read.
    new = await prepare_contents(asked.scope, messages_of(messages), context.sessions.policy)
    tokens = await asyncio.to_thread(_count, (*talk, *new), beside)
    tokens += summary.tokens if summary is not None else 0
    limit = policy.budget_tokens - min(turn.reply_tokens or policy.reply_tokens, policy.reply_tokens)
    if tokens > limit:
        raise InputTooLong(tokens, limit)


def _count(messages: Sequence[Message], beside: Sequence[str] = ()) -> int:
    """The tokens of messages and of texts beside them; megabytes take long enough to keep other requests waiting."""
    return sum(map(_counter.count_message, messages)) + sum(map(_counter.count, beside))


async def _read(context: ServerContext, scope: Scope, body: ResponseBody) -> tuple[StoredHistory, tuple[Message, ...]]:
    """All messages that a request speaks of: those before it, and its own."""
    given = [{"role": "user", "content": body.input}] if isinstance(body.input, str) else body.input or []
    new = messages_of(await drafts_of_items(context, scope, given, "input"))
    new = await prepare_contents(scope, new, context.sessions.policy)
    return await history_of(context.sessions, scope, body, _READ), new
