"""The AI SDK's UI message stream (`useChat` of the npm package `ai`): a turn, its resumption, its end, the history."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from tenuto.chat import LiveTurn
from tenuto.errors import SessionNotFound
from tenuto.model import Draft, Message, Role, Scope, text_part, tool_result
from tenuto.model.attachment import MEDIA_PARTS
from tenuto.model.message import readable_part
from tenuto.model.reasoning import is_reasoning, shown_text
from tenuto.model.values import JsonObject, View
from tenuto.server.auth import ServerContext
from tenuto.server.chat import StopView, stop_running_turn
from tenuto.server.json_io import RequestBody, fingerprint
from tenuto.server.openapi import EventStream, Router
from tenuto.server.requests import Name
from tenuto.server.streams import told_error, until_lapsed
from tenuto.server.web_streams.ai_sdk_chunks import UiStream
from tenuto.server.web_streams.media import part_of_ui, ui_part, with_media
from tenuto.server.web_streams.turns import (
    WebTool,
    WebTurn,
    chat_request,
    check_messages_given,
    chunk_response,
    interface_id,
    is_shown,
    load_log,
)
from tenuto.sessions import Sessions

routes = Router("web streams", prefix="/v1/ai-sdk")
_STREAM = EventStream(
    "A UI message stream of the AI SDK, version 1: server-sent events with a chunk as `data`, ended by `[DONE]`.",
    example='data: {"type":"text-delta","id":"text-1","delta":"The "}\n\n',
)
_DONE = "[DONE]"
_ENDED = ("output-available", "output-error")


class UiMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A `UIMessage`; other fields are ignored."""

    id: Name
    role: str
    parts: list[dict[str, Any]] = []


class UiChatBody(RequestBody, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=False):
    """What `DefaultChatTransport` sends: `id` is the session's; of `messages` only what is new matters, so a client may
    send the newest alone as `message`. Its `body` option may add `assistant`, `persona` and `tools`."""

    EXAMPLE = {
        "id": "trip",
        "messages": [{"id": "m1", "role": "user", "parts": [{"type": "text", "text": "I live in Porto."}]}],
    }

    id: Name
    messages: list[UiMessage] = []
    message: UiMessage | None = None
    trigger: Annotated[str, Meta(description="`submit-message` or `regenerate-message`.")] = "submit-message"
    assistant: Name | None = None
    persona: Name | None = None
    tools: list[WebTool] = []


class UiMessages(View, frozen=True, kw_only=True):
    """The newest messages of a session as `UIMessage`s, oldest first."""

    messages: list[dict[str, Any]]


@routes.post("/chat", problems=(409, 502), stream=_STREAM)
async def ui_chat(
    request: Request, scope: Scope, context: ServerContext, idempotency_key: str | None, body: UiChatBody
) -> Response:
    """Answer the newest message of a chat as a UI message stream.

    A message is identified by its id: a repeated one is answered once, and one with another text is edited.
    """
    given = [body.message] if body.message is not None else body.messages
    check_messages_given(given)
    # The last message may be the answer that shall be made anew.
    anew = body.trigger == "regenerate-message"
    last = given[-2] if anew and given[-1].role == "assistant" and len(given) > 1 else given[-1]
    drafts = _drafts(last, context.clock())
    check_messages_given(drafts)
    at = "message" if body.message is not None else f"messages[{given.index(last)}]"
    drafts = await with_media(context, scope, drafts, lambda _, part: f"{at}.parts[{part}]")
    session_id = await context.sessions.find_named(scope, body.id)
    asked = WebTurn(
        name=body.id,
        session_id=session_id,
        messages=drafts,
        key=idempotency_key or fingerprint([body.id, [[draft.id, list(draft.parts)] for draft in drafts]]),
        anew=anew,
        assistant=body.assistant,
        persona=body.persona,
        tools=tuple(tool.spec() for tool in body.tools),
        # The outputs of tools continue the message that called them.
        reply_metadata={"ui_id": last.id} if last.role == "assistant" else {},
    )
    log = await load_log(context.sessions, scope, session_id)
    return await _stream(request, context.live.start(scope, chat_request(context, asked, log)))


@routes.get("/chat/{session_id}/stream", stream=_STREAM, no_content="No turn is running.")
async def resume_ui_chat(request: Request, scope: Scope, context: ServerContext, session_id: str) -> Response | None:
    """Follow the running turn of a chat from its start. 204 if no turn runs."""
    try:
        turn = await context.live.find(scope, await context.sessions.find_named(scope, session_id))
    except SessionNotFound:
        turn = None
    return await _stream(request, turn) if turn is not None and turn.has_news else None


@routes.post("/chat/{session_id}/stop")
async def stop_ui_chat(scope: Scope, context: ServerContext, session_id: str) -> StopView:
    """Stop the running turn of a chat. The text so far is kept. Closing the stream does not stop the turn."""
    return await stop_running_turn(context, scope, session_id)


@routes.get("/chat/{session_id}")
async def get_ui_messages(scope: Scope, sessions: Sessions, session_id: str) -> UiMessages:
    """List the newest messages of a chat. A chat that does not exist yet has none."""
    found = await sessions.find_named(scope, session_id)
    log = await load_log(sessions, scope, found)
    return UiMessages(messages=list(_ui_messages(log or (), found)))


async def _stream(request: Request, turn: LiveTurn) -> Response:
    response = await chunk_response(request, _chunks(request, turn))
    response.headers["x-vercel-ai-ui-message-stream"] = "v1"
    return response


async def _chunks(request: Request, turn: LiveTurn) -> AsyncIterator[JsonObject | str]:
    encoder = UiStream(turn.reply_metadata.get("ui_id"))
    try:
        async for _, event in until_lapsed(request, turn.events()):
            for chunk in encoder.encode(event):
                yield chunk
    except Exception as error:
        if not encoder.started:
            raise
        for chunk in encoder.fail(told_error(error)):
            yield chunk
    yield _DONE


def _drafts(message: UiMessage, now: datetime) -> tuple[Draft, ...]:
    """What a message brings: words of the user, or outputs of the tools that the last step of an answer called."""
    if message.role == "user":
        parts = tuple(
            _user_part(part, place) for place, part in enumerate(message.parts) if isinstance(part.get("type"), str)
        )
        return (Draft(id=message.id, role=Role.USER, sent_at=now, parts=parts),) if parts else ()
    steps = [place for place, part in enumerate(message.parts) if part.get("type") == "step-start"]
    last_step = message.parts[steps[-1] :] if steps else message.parts
    return tuple(
        Draft(
            id=f"{part['toolCallId']}-output",
            role=Role.TOOL,
            sent_at=now,
            parts=(tool_result(part["toolCallId"], part.get("output", part.get("errorText"))),),
        )
        for part in last_step
        if part.get("state") in _ENDED and isinstance(part.get("toolCallId"), str)
    )


def _user_part(part: JsonObject, place: int) -> JsonObject:
    text = part.get("text")
    if part["type"] == "file":
        return part_of_ui(part, f"parts[{place}]")
    return text_part(text) if part["type"] == "text" and isinstance(text, str) else part


def _ui_messages(log: Sequence[Message], session_id: str) -> Iterator[JsonObject]:
    outputs = {
        str(part.get("call_id")): part.get("output")
        for message in log
        if message.role is Role.TOOL
        for part in map(readable_part, message.parts)
        if part["type"] == "tool_result"
    }
    before: JsonObject | None = None
    for message in log:
        if message.role is Role.TOOL or not is_shown(message):
            continue
        parts = [*_stored_parts(message, outputs, session_id)]
        if before is not None and before["id"] == interface_id(message):
            before["parts"] += [{"type": "step-start"}, *parts]
            continue
        if before is not None:
            yield before
        before = {"id": interface_id(message), "role": message.role.value, "parts": parts}
    if before is not None:
        yield before


def _stored_parts(message: Message, outputs: JsonObject, session_id: str) -> Iterator[JsonObject]:
    for part in map(readable_part, message.parts):
        if part["type"] == "text":
            yield {"type": "text", "text": part["text"]}
        elif is_reasoning(part):
            if text := shown_text(part):
                yield {"type": "reasoning", "text": text, "state": "done"}
        elif part["type"] == "tool_call":
            call_id = str(part.get("id"))
            yield {
                "type": f"tool-{part.get('name')}",
                "toolCallId": call_id,
                "input": part.get("arguments"),
                **(
                    {"state": "output-available", "output": outputs[call_id]}
                    if call_id in outputs
                    else {"state": "input-available"}
                ),
            }
        elif part["type"] in MEDIA_PARTS:
            yield ui_part(part, session_id)
        elif message.role is Role.USER:
            yield part
