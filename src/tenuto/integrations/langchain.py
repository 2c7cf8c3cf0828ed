"""LangChain's chat history over a session: messages of all kinds come back equal, and chats of tenuto can be read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
    messages_from_dict,
)

from tenuto.app import Tenuto
from tenuto.errors import SessionNotFound
from tenuto.integrations.background import Blocking
from tenuto.model import Draft, Message, Page, Role, Scope, text_part, tool_call, tool_result
from tenuto.model.values import Json, JsonObject
from tenuto.ports import Clock, utc_now
from tenuto.sessions import fresh_id
from tenuto.sessions.service import AppendRequest

OWN: Final = "langchain"
"""The key of a message's extra fields that holds what of LangChain's message has no place of its own."""
_ROLES: Final = {"human": Role.USER, "ai": Role.ASSISTANT, "system": Role.SYSTEM, "tool": Role.TOOL}
_CHUNK: Final = 500


class TenutoChatMessageHistory(BaseChatMessageHistory):
    """The messages of one session of a scope, which is created with the first message.

    With `window`, only the newest messages are read. Blocking methods are for threads other than that of the event
    loop.
    """

    def __init__(
        self,
        app: Tenuto,
        session_id: str,
        scope: Scope | None = None,
        *,
        user: str | None = None,
        tenant: str = "local",
        window: int | None = None,
        clock: Clock = utc_now,
    ) -> None:
        self.session_id = session_id
        self.scope = app.scope(tenant=tenant, user=user) if scope is None else scope
        self._sessions = app.sessions
        self._blocking = Blocking(app)
        self._window = window
        self._clock = clock

    async def aget_messages(self) -> list[BaseMessage]:
        """All messages, or the newest of the window, oldest first; none without the session."""
        try:
            stored = await self._load()
        except SessionNotFound:
            return []
        return [message for one in stored if (message := to_langchain(one)) is not None]

    async def _load(self) -> list[Message]:
        if self._window is not None:
            page = await self._sessions.messages(self.scope, self.session_id, Page(limit=self._window))
            return list(page.messages)
        found: list[Message] = []
        more = True
        while more:
            query = Page(limit=_CHUNK, after=found[-1].seq if found else 0)
            page = await self._sessions.messages(self.scope, self.session_id, query)
            found += page.messages
            more = page.more_after
        return found

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Append messages in one atomic step.

        Raises:
            SessionNotFound: the id belongs to another user's session.
        """
        if not messages:
            return
        request = AppendRequest(messages=tuple(to_draft(message, self._clock) for message in messages))
        try:
            await self._sessions.append(self.scope, self.session_id, request)
        except SessionNotFound:
            made, _ = await self._sessions.create(self.scope, session_id=self.session_id)
            if made.id != self.session_id:
                await self._sessions.delete(self.scope, made.id)
                raise
            await self._sessions.append(self.scope, self.session_id, request)

    async def aclear(self) -> None:
        """Remove the messages; the session with its title stays."""
        try:
            await self._sessions.reset(self.scope, self.session_id)
        except SessionNotFound:
            return

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]  # LangChain's own histories are read-only, too
        """As `aget_messages`, for threads other than that of the event loop."""
        return self._blocking.run(self.aget_messages())

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """As `aadd_messages`, for threads other than that of the event loop."""
        self._blocking.run(self.aadd_messages(messages))

    def clear(self) -> None:
        """As `aclear`, for threads other than that of the event loop."""
        self._blocking.run(self.aclear())


def to_draft(message: BaseMessage, clock: Clock = utc_now) -> Draft:
    """A message of LangChain for a session: text, calls and results as parts, the rest beside them."""
    own: JsonObject = {"type": message.type}
    data = message.model_dump(mode="json", exclude={"content", "type"}, exclude_defaults=True)
    content: Json = message.model_dump(mode="json", include={"content"})["content"]
    if isinstance(message, ToolMessage):
        parts = [tool_result(message.tool_call_id, content)]
    elif isinstance(content, str):
        parts = [text_part(content)]
    else:
        parts = [text_part(part) if isinstance(part, str) else part for part in content]
        if not all(isinstance(part, dict) and isinstance(part.get("type"), str) for part in content):
            own["content"] = content  # Texts between the parts, or parts without a type.
            parts = [part for part in parts if isinstance(part.get("type"), str)]
        own["listed"] = True
    if isinstance(message, AIMessage):
        parts += [tool_call(call["id"] or "", call["name"], call["args"]) for call in message.tool_calls]
    role = _ROLES.get(message.type.removesuffix("MessageChunk").lower(), Role.ITEM)
    return Draft(
        id=message.id or fresh_id(), role=role, sent_at=clock(), parts=tuple(parts), extra={OWN: {**own, "data": data}}
    )


def to_langchain(message: Draft) -> BaseMessage | None:
    """The message for LangChain; `None` for entries of the log that are no messages, such as summaries."""
    own = message.extra.get(OWN)
    if not isinstance(own, dict):
        return _from_chat(message)
    return messages_from_dict([{"type": own["type"], "data": {**own["data"], "content": _content(message, own)}}])[0]


def _content(message: Draft, own: JsonObject) -> Json:
    if "content" in own:
        return own["content"]
    if own.get("listed"):
        return [part for part in message.parts if part["type"] != "tool_call"]
    results = [part["output"] for part in message.parts if part["type"] == "tool_result"]
    return results[0] if results else message.text


def _from_chat(message: Draft) -> BaseMessage | None:
    """A message that an assistant of tenuto, or another adapter, has stored."""
    match message.role:
        case Role.USER:
            return HumanMessage(content=message.text, id=message.id)
        case Role.ASSISTANT:
            return AIMessage(content=message.text, id=message.id, tool_calls=[_call(part) for part in _calls(message)])
        case Role.SYSTEM:
            return SystemMessage(content=message.text, id=message.id)
        case Role.TOOL:
            results = [part for part in message.parts if part["type"] == "tool_result"]
            part = results[0] if results else {"call_id": "", "output": message.text}
            return ToolMessage(content=str(part["output"]), tool_call_id=part["call_id"], id=message.id)
        case Role.ITEM:
            return None


def _calls(message: Draft) -> list[JsonObject]:
    return [part for part in message.parts if part["type"] == "tool_call" and isinstance(part["arguments"], dict)]


def _call(part: JsonObject) -> ToolCall:
    return ToolCall(name=part["name"], args=part["arguments"], id=part["id"])
