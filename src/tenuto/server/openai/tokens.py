"""Routes about the size of a conversation: how many tokens a request has, and a shorter form of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final
from uuid import uuid4

from tenuto.context import TokenCounter, language_of
from tenuto.context.compression import LogTail
from tenuto.context.extract import summarise
from tenuto.errors import Invalid
from tenuto.model import Message, Role, Scope
from tenuto.model.values import JsonObject
from tenuto.server.auth import ServerContext
from tenuto.server.openai.bodies import ResponseBody
from tenuto.server.openai.conversations import drafts_of_items
from tenuto.server.openai.errors import InputTooLong, OpenAIRouter
from tenuto.server.openai.items import as_text, compaction_item, items_of, messages_of
from tenuto.server.openai.response_objects import usage_of
from tenuto.server.openai.response_requests import Asked, history_of
from tenuto.sessions.ids import derived_id

routes = OpenAIRouter()

_counter: Final = TokenCounter()
# The most that a compaction says of a conversation, and the most messages that it reads.
_SUMMARY_TOKENS: Final = 1024
_READ: Final = 1000


@routes.post("/responses/input_tokens", body={"input": "Where do I start?"})
async def count_input_tokens(scope: Scope, context: ServerContext, body: ResponseBody) -> JsonObject:
    """Count the input tokens of a request, with the conversation before it."""
    messages = await _read(context, scope, body)
    beside = [body.instructions or "", as_text(body.tools) if body.tools else ""]
    count = await asyncio.to_thread(_count, messages, beside)
    return {"object": "response.input_tokens", "input_tokens": count}


@routes.post("/responses/compact", body={"input": "Where do I start?"})
async def compact_response(scope: Scope, context: ServerContext, body: ResponseBody) -> JsonObject:
    """Compact a conversation. The result has the user messages, and one item that stands for the rest."""
    messages = await _read(context, scope, body)
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
        "output": [*items_of(said), compaction_item(summary)],
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
    policy, loaded = assistant.prompt, assistant.policies.context.loaded_messages
    tail = LogTail(await history_of(context.sessions, asked.scope, body, max(loaded, 1)))
    summary = tail.summary()
    talk = tail.talk if summary is None else [one for one in tail.talk if one.seq > summary.through]
    beside = [turn.text, body.instructions or "", as_text(body.tools) if body.tools else ""]
    tokens = await asyncio.to_thread(_count, (*talk, *messages_of(turn.messages)), beside)
    tokens += summary.tokens if summary is not None else 0
    limit = policy.budget - min(turn.reply_tokens or policy.reply_tokens, policy.reply_tokens)
    if tokens > limit:
        raise InputTooLong(tokens, limit)


def _count(messages: Sequence[Message], beside: Sequence[str] = ()) -> int:
    """The tokens of messages and of texts beside them; megabytes take long enough to keep other requests waiting."""
    return sum(map(_counter.count_message, messages)) + sum(map(_counter.count, beside))


async def _read(context: ServerContext, scope: Scope, body: ResponseBody) -> tuple[Message, ...]:
    """All messages that a request speaks of."""
    given = [{"role": "user", "content": body.input}] if isinstance(body.input, str) else body.input or []
    new = messages_of(await drafts_of_items(context, scope, given))
    return (*await history_of(context.sessions, scope, body, _READ), *new)
