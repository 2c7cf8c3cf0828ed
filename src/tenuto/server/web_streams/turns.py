"""What both protocols share: from the messages of a request to a turn, and from its events to a response."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from tenuto.chat import ChatRequest
from tenuto.chat.revision import digest_of_key
from tenuto.errors import Invalid, SessionNotFound
from tenuto.model import Draft, Message, Page, Role, Scope
from tenuto.model.generation import ToolSpec
from tenuto.model.message import INPUT, TOOL_PARTS, is_input, is_summary
from tenuto.model.policy import OnMissing, SessionPolicy
from tenuto.model.turn import ONCE
from tenuto.model.values import JsonObject
from tenuto.server.auth import ServerContext
from tenuto.server.json_io import fingerprint
from tenuto.server.streams import ServerSentEvent, event_stream
from tenuto.sessions import Sessions

# The newest messages of a session, among which those of a request are looked for.
_NEWEST = 200


class WebTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that the browser runs; `parameters` is a JSON schema."""

    name: str
    description: str = ""
    parameters: JsonObject | None = None

    def spec(self) -> ToolSpec:
        """The tool as models are told of it."""
        return ToolSpec(name=self.name, description=self.description, parameters=self.parameters or _NO_PARAMETERS)


_NO_PARAMETERS: JsonObject = {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True, kw_only=True)
class WebTurn:
    """What a browser asks for: input of its own in one session, or with `anew` another answer to it.

    `name` is the page's own for the session, and `key` the same if the request is sent again.
    """

    name: str
    session_id: str
    messages: tuple[Draft, ...]
    key: str
    anew: bool = False
    assistant: str | None = None
    persona: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    instructions: str | None = None
    reply_metadata: JsonObject = field(default_factory=dict)


async def load_log(sessions: Sessions, scope: Scope, session_id: str) -> tuple[Message, ...] | None:
    """The newest messages of a session without summaries; `None` if there is no such session for this caller."""
    try:
        page = await sessions.messages(scope, session_id, Page(limit=_NEWEST))
    except SessionNotFound:
        return None
    return tuple(message for message in page.messages if not is_summary(message))


def chat_request(context: ServerContext, asked: WebTurn, log: Sequence[Message] | None) -> ChatRequest:
    """The turn that a browser asks for. A session that does not exist is created."""
    base = ChatRequest(
        session_id=asked.session_id,
        assistant=asked.assistant,
        persona=asked.persona,
        tools=asked.tools,
        instructions=asked.instructions,
        reply_metadata=asked.reply_metadata,
        policy=_adopting(context, asked.assistant) if log is None else None,
        regenerate=True,
    )
    mark = digest_of_key(asked.key)
    known = {message.id: message for message in log or ()}
    fresh = tuple(
        draft
        for draft in asked.messages
        if draft.id not in known or (not asked.anew and known[draft.id].metadata.get(ONCE) == mark)
    )
    if fresh:
        prints = fingerprint([asked.name, [[draft.id, list(draft.parts)] for draft in fresh]])
        return replace(base, regenerate=False, messages=fresh, idempotency_key=asked.key, fingerprint=prints)
    last = asked.messages[-1]
    said, stored = (last.role, last.text), known[last.id]
    newest = next(message for message in reversed(log or ()) if is_input(message))
    if newest.id == last.id and (stored.role, stored.text) == said:
        return base
    return replace(base, regenerate=False, messages=(last,), edit=stored.seq)


def _adopting(context: ServerContext, assistant: str | None) -> SessionPolicy:
    known = context.chat.assistants
    return replace(known.find(assistant or known.default).policies.sessions, on_missing=OnMissing.ADOPT)


async def chunk_response(request: Request, chunks: AsyncIterator[JsonObject | str]) -> Response:
    """Each chunk as a server-sent event without a name. A failure before the first is an ordinary error response."""

    def encode(chunk: JsonObject | str) -> ServerSentEvent:
        return ServerSentEvent("", chunk.encode() if isinstance(chunk, str) else msgspec.json.encode(chunk))

    return await event_stream(request, chunks, encode)


def check_messages_given(messages: Sequence[object]) -> None:
    """Refuse a request that says nothing."""
    if not messages:
        raise Invalid("messages: there is no message to answer")


def interface_id(message: Message) -> str:
    """The id of a message in the browser: an answer has one before it is stored, that of its trace."""
    named = message.metadata.get("ui_id") or message.metadata.get("trace") if message.role is Role.ASSISTANT else None
    return str(named or message.id)


def is_shown(message: Message) -> bool:
    """Whether the browser has this message: what the server's own tools did on the way to an answer is not shown."""
    if message.role is Role.ASSISTANT:
        return "trace" in message.metadata or not any(part["type"] in TOOL_PARTS for part in message.parts)
    return message.role is Role.USER or (message.role is Role.TOOL and INPUT in message.metadata)
