"""A request for a response: the turn that it asks for, and the conversation before it."""

from __future__ import annotations

from contextlib import suppress
from typing import Final, NamedTuple

from tenuto.chat import Chat, ChatRequest
from tenuto.errors import Invalid, SessionNotFound
from tenuto.model import Draft, Message, Page, Scope
from tenuto.model.policy import SessionPolicy
from tenuto.model.values import Json, JsonObject
from tenuto.server.auth import ServerContext
from tenuto.server.json_io import fingerprint
from tenuto.server.openai.bodies import ResponseBody, tools_of
from tenuto.server.openai.chains import existing, find_turn
from tenuto.server.openai.conversations import check_metadata, drafts_of_items
from tenuto.server.openai.errors import ResponseNotFound
from tenuto.server.openai.items import CALL_OUTPUT, ECHO
from tenuto.server.openai.log import ItemLog
from tenuto.server.openai.response_objects import Echo, place_of_response
from tenuto.sessions import Sessions

# How an answer travels is no part of what is asked.
_NOT_SAID: Final = ("stream", "background")


class Asked(NamedTuple):
    """A request for a response: the turn it asks for, and what its response repeats."""

    scope: Scope
    body: ResponseBody
    turn: ChatRequest
    created_at: int
    said: JsonObject

    def echo(self, trace: str) -> Echo:
        """What the response of that turn repeats."""
        return Echo.of(trace, self.created_at, self.body.model or str(self.turn.assistant), self.said)


async def read_request(context: ServerContext, scope: Scope, body: ResponseBody, idempotency_key: str | None) -> Asked:
    """What a client asks for.

    Raises:
        Invalid: the request contradicts itself, or brings nothing to answer.
    """
    check_metadata(body.metadata)
    if body.store is False and body.background:
        raise Invalid("background: a response that is not stored cannot be made in the background")
    said, created_at = body.said(), now_in_seconds(context)
    follows = body.previous_response_id
    session_id = body.conversation_id if follows is None else place_of_response(follows)[1]
    drafts: tuple[Draft, ...] = ()
    if isinstance(body.input, list):
        items = await _without_known_outputs(context.sessions, scope, body)
        drafts = await drafts_of_items(context, scope, items, session_id)
    if not drafts and not isinstance(body.input, str):
        raise Invalid("input: expected a text or items")
    assistant = assistant_of(context.chat, body.model)
    tools = tools_of(body.tools, body.tool_choice, body.text)
    turn = ChatRequest(
        text=body.input if isinstance(body.input, str) else "",
        messages=drafts,
        assistant=assistant,
        idempotency_key=idempotency_key,
        fingerprint=fingerprint([getattr(body, name) for name in body.__struct_fields__ if name not in _NOT_SAID]),
        instructions=body.instructions or None,
        tools=tools.tools,
        tool_choice=tools.choice,
        answer_tool=tools.answer,
        reply_tokens=body.max_output_tokens,
        reply_metadata={ECHO: {"created_at": created_at, "model": body.model or assistant, **said}},
        policy=existing(policy_of(context.chat, assistant)),
        compress_above=body.compress_above,
    )
    return Asked(scope, body, turn, created_at, said)


async def _without_known_outputs(sessions: Sessions, scope: Scope, body: ResponseBody) -> list[JsonObject]:
    """The input without outputs that the conversation has: the AI SDK repeats those of its earlier steps.

    Only beside other items: an output alone is a retry after a turn that failed, or unknown.
    """
    items = body.input if isinstance(body.input, list) else []
    if body.conversation_id is None or not any(item.get("type") == CALL_OUTPUT for item in items):
        return items
    known: dict[str, Json] = {}
    with suppress(SessionNotFound):
        known = await ItemLog(sessions, scope, body.conversation_id).known_outputs()
    return [item for item in items if not _is_known(item, known)] or items


def _is_known(item: JsonObject, known: dict[str, Json]) -> bool:
    call = str(item.get("call_id"))
    return item.get("type") == CALL_OUTPUT and call in known and known[call] == item.get("output")


def assistant_of(chat: Chat, model: str | None) -> str:
    """The assistant that a model's name stands for; the default one for names of others' models."""
    known = chat.assistants
    return model if model is not None and model in known.names else known.default


def policy_of(chat: Chat, assistant: str) -> SessionPolicy:
    """The assistant's own policy for sessions."""
    return chat.assistants.find(assistant).policies.sessions


async def history_of(sessions: Sessions, scope: Scope, body: ResponseBody, limit: int) -> tuple[Message, ...]:
    """The newest messages before a request that is not stored.

    Raises:
        SessionNotFound: there is no such conversation for this caller.
        ResponseNotFound: there is no such response to follow.
    """
    session_id, before = body.conversation_id, None
    if body.previous_response_id is not None:
        turn = await find_turn(sessions, scope, body.previous_response_id)
        if turn.reply is None:
            raise ResponseNotFound
        session_id, before = turn.session.id, turn.reply.seq + 1
    if session_id is None:
        return ()
    return (await sessions.messages(scope, session_id, Page(limit=limit, before=before))).messages


def now_in_seconds(context: ServerContext) -> int:
    """The time, as the API counts it."""
    return int(context.clock().timestamp())
