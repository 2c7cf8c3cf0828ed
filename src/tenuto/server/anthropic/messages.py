"""The routes of messages: stateless as clients expect it, or a turn in the session that a header names; and their size.

Clients send the whole conversation each time. With a session, only what follows its last answer is new; without one,
nothing is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from tenuto.chat import ChatEvent, LiveTurn
from tenuto.context import TokenCounter
from tenuto.model import Draft, Scope
from tenuto.model.values import JsonObject
from tenuto.server.anthropic.errors import AnthropicRouter
from tenuto.server.anthropic.message_objects import MessageHead
from tenuto.server.anthropic.message_requests import (
    CountBody,
    MessageBody,
    drafts_of_body,
    system_text,
    tools_of_body,
    turn_of_body,
)
from tenuto.server.anthropic.message_stream import PING, MessageStream, stream_message
from tenuto.server.auth import ServerContext
from tenuto.server.handlers import Answer
from tenuto.server.json_io import unknown_fields
from tenuto.server.openai.items import as_text
from tenuto.server.openai.responses import first_event, last_reply
from tenuto.server.sent_turns import SESSION, in_named_session
from tenuto.server.streams import cancel_on_disconnect, event_stream, until_lapsed

routes = AnthropicRouter()

_EXAMPLE: Final[JsonObject] = {
    "model": "general",
    "max_tokens": 1024,
    "messages": [{"role": "user", "content": "Hello!"}],
}
_counter: Final = TokenCounter()


@routes.post("/messages", body=_EXAMPLE, streams=True)
async def create_message(
    request: Request,
    scope: Scope,
    context: ServerContext,
    tenuto_session: str | None,
    idempotency_key: str | None,
    body: MessageBody,
) -> JsonObject | Answer[JsonObject] | Response:
    """Answer messages. With the header `Tenuto-Session`, as a turn of that session; else nothing is stored."""
    in_session = tenuto_session is not None
    sent = await turn_of_body(context, scope, body, unknown_fields(request), calls_elsewhere=in_session)
    turn, head = sent.turn, MessageHead(body.model, sent.degraded)
    if tenuto_session is not None:
        turn = replace(await in_named_session(turn, context, scope, tenuto_session), idempotency_key=idempotency_key)
        return await _in_session(request, context.live.start(scope, turn), head, stream=bool(body.stream))
    events = context.chat.stream(scope, turn, sent.history)
    if body.stream:
        return await _stream(request, head, events)
    return head.whole(await cancel_on_disconnect(request, last_reply(events)))


@routes.post("/messages/count_tokens", body=_EXAMPLE)
async def count_message_tokens(scope: Scope, context: ServerContext, body: CountBody) -> JsonObject:
    """Count the input tokens of messages, with their system prompt and tools."""
    drafts = await drafts_of_body(context, scope, body, calls_elsewhere=True)
    tools_of_body(body)
    beside = [system_text(body.system), as_text(body.tools) if body.tools else ""]
    return {"input_tokens": await asyncio.to_thread(_count, drafts, beside)}


async def _in_session(
    request: Request, live: LiveTurn, head: MessageHead, *, stream: bool
) -> Answer[JsonObject] | Response:
    await cancel_on_disconnect(request, first_event(live))
    session_id = live.started.session_id if live.started is not None else (await live.reply()).session_id
    if not stream:
        reply = await cancel_on_disconnect(request, live.reply())
        return Answer(head.whole(reply), headers={SESSION: session_id})
    response = await _stream(request, head, (event async for _, event in live.events()))
    response.headers[SESSION] = session_id
    return response


async def _stream(request: Request, head: MessageHead, events: AsyncIterator[ChatEvent]) -> Response:
    batches = stream_message(MessageStream(head), until_lapsed(request, events))
    return await event_stream(request, batches, lambda batch: batch, ping=PING.encode())


def _count(drafts: Sequence[Draft], beside: Sequence[str]) -> int:
    return sum(map(_counter.count_message, drafts)) + sum(map(_counter.count, beside))
