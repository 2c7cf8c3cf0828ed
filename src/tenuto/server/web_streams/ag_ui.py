"""AG-UI 1.0: a run of an assistant as a stream of events. A thread is a session, and its state the attributes."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tenuto.chat import ChatEvent, LiveTurn, LiveTurns, ReplyFinished, TurnStarted
from tenuto.context.wording import quote_text
from tenuto.errors import Invalid, SessionNotFound, TenutoError
from tenuto.model import Changes, Draft, Message, Role, Scope, text_part, tool_result
from tenuto.model.values import JsonObject
from tenuto.server.auth import ServerContext
from tenuto.server.json_io import RequestBody
from tenuto.server.openapi import EventStream, Router
from tenuto.server.requests import Name
from tenuto.server.streams import told_error, until_lapsed
from tenuto.server.web_streams.ag_ui_events import AgUiStream, thread_messages
from tenuto.server.web_streams.media import AG_UI_MEDIA, part_of_ag_ui, with_media
from tenuto.server.web_streams.turns import (
    WebTool,
    WebTurn,
    chat_request,
    chunk_response,
    interface_id,
    is_shown,
    load_log,
)

routes = Router("web streams", prefix="/v1/ag-ui")
_STREAM = EventStream(
    "Server-sent events with an event of AG-UI as `data`, from `RUN_STARTED` to `RUN_FINISHED` or `RUN_ERROR`.",
    example='data: {"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"The "}\n\n',
)
_ROLES = {"user": Role.USER, "system": Role.SYSTEM, "developer": Role.SYSTEM, "tool": Role.TOOL}
_log = logging.getLogger(__name__)


class AgUiMessage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A message of a thread; other fields are ignored."""

    id: Name
    role: str
    content: Any = None
    tool_call_id: str | None = None


class AgUiContext(msgspec.Struct, frozen=True, kw_only=True):
    """What the page tells of itself."""

    description: str = ""
    value: str = ""


class RunAgentInput(RequestBody, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=False):
    """What AG-UI clients send. Of `messages` only those after the last answer matter that are not stored yet; without
    any, the run shows the thread as it is, and joins the turn that runs in it."""

    EXAMPLE = {
        "threadId": "trip",
        "runId": "run-1",
        "messages": [{"id": "m1", "role": "user", "content": "I live in Porto."}],
    }

    thread_id: Name
    run_id: Name
    messages: list[AgUiMessage]
    state: Any = None
    tools: list[WebTool] | None = None
    context: list[AgUiContext] | None = None


@routes.post("/{assistant}", problems=(409, 502), stream=_STREAM)
async def run_agent(
    request: Request, scope: Scope, context: ServerContext, assistant: str, body: RunAgentInput
) -> Response:
    """Answer the new messages of a thread as a run. A repeated `runId` joins its run."""
    context.chat.assistants.find(assistant)
    session_id = await context.sessions.find_named(scope, body.thread_id)
    log = await load_log(context.sessions, scope, session_id)
    given, first = _input(body, context.clock())
    given = await with_media(context, scope, given, lambda one, part: f"messages[{first[one]}].content[{part}]")
    run = _Run(request, context, scope, body, session_id, missing=_misses(body, log or ()))
    if not given:
        return await chunk_response(request, run.show(await _running(context.live, scope, session_id)))
    asked = WebTurn(
        name=body.thread_id,
        session_id=session_id,
        messages=given,
        key=body.run_id,
        assistant=assistant,
        tools=tuple(tool.spec() for tool in body.tools or ()),
        # A page may put words of its user here: data, not instructions.
        instructions="\n".join([f"- {quote_text(it.description)}: {quote_text(it.value)}" for it in body.context or ()])
        or None,
    )
    turn = context.live.start(scope, chat_request(context, asked, log))
    return await chunk_response(request, run.follow(turn))


async def _running(live: LiveTurns, scope: Scope, session_id: str) -> LiveTurn | None:
    try:
        turn = await live.find(scope, session_id)
    except SessionNotFound:
        return None
    return turn if turn is not None and turn.has_news else None


def _input(body: RunAgentInput, now: datetime) -> tuple[tuple[Draft, ...], list[int]]:
    """The messages after the last answer, and the place of each among those of the request."""
    behind = [*takewhile(lambda message: message.role != "assistant", reversed(body.messages))]
    start = len(body.messages) - len(behind)
    places = [place for place in range(start, len(body.messages)) if body.messages[place].role in _ROLES]
    drafts = [_draft(body.messages[place], f"messages[{place}]", now) for place in places]
    return tuple(drafts), places


def _draft(message: AgUiMessage, place: str, now: datetime) -> Draft:
    return Draft(
        id=message.id,
        role=_ROLES[message.role],
        sent_at=now,
        parts=_parts(message, place),
        extra={"role": message.role} if message.role == "developer" else {},
    )


def _parts(message: AgUiMessage, place: str) -> tuple[JsonObject, ...]:
    content = message.content
    if message.role == "tool":
        return (tool_result(message.tool_call_id or "", content),)
    if isinstance(content, str):
        return (text_part(content),)
    if isinstance(content, list) and all(
        isinstance(part, dict) and isinstance(part.get("type"), str) for part in content
    ):
        return tuple(_part(part, f"{place}.content[{number}]") for number, part in enumerate(content))
    raise Invalid("messages: the content must be a text or a list of parts")


def _part(part: JsonObject, place: str) -> JsonObject:
    if part["type"] in AG_UI_MEDIA:
        return part_of_ag_ui(part, place)
    return text_part(part["text"]) if part["type"] == "text" and "text" in part else part


def _misses(body: RunAgentInput, log: Sequence[Message]) -> bool:
    """Whether the session has messages that the client does not."""
    sent = {message.id for message in body.messages}
    return any(is_shown(message) and interface_id(message) not in sent for message in log)


@dataclass(slots=True)
class _Run:
    """One run for one client."""

    request: Request
    context: ServerContext
    scope: Scope
    body: RunAgentInput
    session_id: str
    missing: bool

    async def show(self, running: LiveTurn | None) -> AsyncIterator[JsonObject | str]:
        """The thread as it is, then the turn that runs in it."""
        if running is not None:
            async for chunk in self.follow(running):
                yield chunk
            return
        encoder = AgUiStream(self.body.thread_id, self.body.run_id)
        yield encoder.start()
        yield await self._state()
        yield self._snapshot(await self._thread())
        yield encoder.run_finished({"type": "success"})

    async def follow(self, turn: LiveTurn) -> AsyncIterator[JsonObject | str]:
        """The events of a turn."""
        encoder = AgUiStream(self.body.thread_id, self.body.run_id)
        try:
            async for _, event in until_lapsed(self.request, turn.events()):
                opening = not encoder.started
                for chunk in encoder.encode(event):
                    yield chunk
                    if opening:
                        opening = False
                        async for first in self._open(event, encoder.trace_id):
                            yield first
                if isinstance(event, ReplyFinished):
                    if encoder.differs(event.reply):
                        yield self._snapshot(await self._thread())
                    yield encoder.finish(event.reply)
        except Exception as error:
            if not encoder.started:
                raise
            for chunk in encoder.fail(told_error(error)):
                yield chunk

    async def _open(self, event: ChatEvent, trace_id: str) -> AsyncIterator[JsonObject]:
        """What a run tells before the answer, which that trace names: the state, and what the client does not have."""
        if isinstance(event, TurnStarted):
            # Another one, if the thread's id is another user's session.
            self.session_id = event.session_id
            yield await self._state(self.body.state)
        if self.missing:
            before = [message for message in await self._thread() if message["id"] != trace_id]
            sent = [message.id for message in self.body.messages]
            if sent != [message["id"] for message in before[: len(sent)]]:
                # Clients leave what they have in its place and append the rest, so they forget it first.
                yield self._snapshot([])
            yield self._snapshot(before)

    async def _state(self, given: object = None) -> JsonObject:
        """The session's attributes, with those that the client has changed."""
        try:
            session = await self.context.sessions.get(self.scope, self.session_id)
            if isinstance(given, dict) and any(session.attributes.get(name) != value for name, value in given.items()):
                changes = Changes(attributes=given)
                session = await self.context.sessions.patch(self.scope, self.session_id, changes)
        except TenutoError as error:
            _log.warning("the state of a thread was not stored: %s", error.code)
            return {"type": "STATE_SNAPSHOT", "snapshot": given if isinstance(given, dict) else {}}
        return {"type": "STATE_SNAPSHOT", "snapshot": session.attributes}

    async def _thread(self) -> list[JsonObject]:
        log = await load_log(self.context.sessions, self.scope, self.session_id)
        return [each for one in log or () for each in thread_messages(one, self.session_id)]

    @staticmethod
    def _snapshot(messages: list[JsonObject]) -> JsonObject:
        return {"type": "MESSAGES_SNAPSHOT", "messages": messages}
