"""The routes of messages: stateless as clients expect it, or a turn in the session that a header names; and their size.

Clients send the whole conversation each time. With a session, what is new in it is stored there; without one, nothing
is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from tenuto.chat import ChatEvent, ChatRequest, SentTurn, TurnStarted
from tenuto.context import TokenCounter
from tenuto.model import Draft, Scope
from tenuto.model.values import JsonObject
from tenuto.server.anthropic.errors import AnthropicRouter
from tenuto.server.anthropic.message_blocks import plain_messages
from tenuto.server.anthropic.message_objects import MessageHead
from tenuto.server.anthropic.message_requests import (
    CountBody,
    MessageBody,
    fingerprinted_fields,
    read_drafts,
    system_text,
    template_of,
    tools_of_body,
    unstored_turn,
)
from tenuto.server.anthropic.message_stream import PING, MessageStream, stream_message
from tenuto.server.apps.naming import UNMARKED, AppNaming, AppRequest
from tenuto.server.auth import ServerContext
from tenuto.server.handlers import Answer
from tenuto.server.json_io import key_fingerprint, unknown_fields
from tenuto.server.openai.items import as_text
from tenuto.server.openai.responses import last_reply
from tenuto.server.sent_history import begin_sent_turn, events_while_here, headers_of, reply_while_here
from tenuto.server.streams import cancel_on_disconnect, event_stream, events_behind_head, until_lapsed

routes = AnthropicRouter()

_EXAMPLE: Final[JsonObject] = {
    "model": "general",
    "max_tokens": 1024,
    "messages": [{"role": "user", "content": "Hello!"}],
}
# Seconds until a stream begins without a word.
_SILENCE: Final = 10.0
_counter: Final = TokenCounter()


@routes.post("/messages", body=_EXAMPLE, streams=True)
async def create_message(
    request: Request, naming: AppNaming, context: ServerContext, idempotency_key: str | None, body: MessageBody
) -> Answer[JsonObject] | Response:
    """Answer messages.

    With the header `Tenuto-Session`, or an id of an app that the settings name, as a turn of that session; else nothing
    is stored.
    """
    app = naming.read(body)
    template, degraded = await template_of(context, app, body, unknown_fields(request))
    head, headers = MessageHead(body.model, degraded), app.headers
    if app.is_stored:
        if idempotency_key is not None:
            digest = await key_fingerprint(idempotency_key, fingerprinted_fields(body))
            template = replace(template, idempotency_key=idempotency_key, fingerprint=digest)
        sent = await _begin_in_session(request, context, app, template, body)
        headers = await headers_of(sent, app)
        if sent.live is not None:
            if not body.stream:
                return Answer(head.whole(await reply_while_here(request, sent.live)), headers=headers)
            return await _stream(request, head, events_while_here(request, sent.live), headers)
        template = replace(template, app_task=UNMARKED)
    turn, history = await unstored_turn(context, app.scope, body, template)
    events = context.chat.stream(app.scope, turn, history)
    if body.stream:
        return await _stream(request, head, until_lapsed(request, events), headers)
    return Answer(head.whole(await cancel_on_disconnect(request, last_reply(events))), headers=headers)


@routes.post("/messages/count_tokens", body=_EXAMPLE)
async def count_message_tokens(scope: Scope, context: ServerContext, body: CountBody) -> JsonObject:
    """Count the input tokens of messages, with their system prompt and tools."""
    drafts = await read_drafts(context, scope, body.messages, range(len(body.messages)))
    tools_of_body(body.tools, body.tool_choice)
    beside = [system_text(body.system), as_text(body.tools) if body.tools else ""]
    return {"input_tokens": await asyncio.to_thread(_count, drafts, beside)}


async def _begin_in_session(
    request: Request, context: ServerContext, app: AppRequest, template: ChatRequest, body: MessageBody
) -> SentTurn:
    """Begin the turn that the messages ask for, by what is new in them."""

    async def read(items: list[JsonObject], places: list[int]) -> tuple[Draft, ...]:
        return await read_drafts(context, app.scope, items, places)

    items = plain_messages(body.messages)
    return await begin_sent_turn(request, context, app, template, items, read, streams=bool(body.stream))


async def _stream(
    request: Request, head: MessageHead, events: AsyncIterator[ChatEvent], headers: Mapping[str, str]
) -> Response:
    """A stream that begins with the model's first word: the error of a model that says none has a status."""
    waiting = events_behind_head(
        events,
        is_head=lambda event: isinstance(event, TurnStarted),
        is_raised=lambda _: True,
        within=_SILENCE,
        awaits_first=False,
    )
    batches = stream_message(MessageStream(head), await cancel_on_disconnect(request, waiting))
    response = await event_stream(request, batches, lambda batch: batch, ping=PING.encode())
    response.headers.update(headers)
    return response


def _count(drafts: Sequence[Draft], beside: Sequence[str]) -> int:
    return sum(map(_counter.count_message, drafts)) + sum(map(_counter.count, beside))
