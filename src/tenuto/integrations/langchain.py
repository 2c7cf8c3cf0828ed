"""LangChain's chat history, kept by tenuto: messages of all kinds come back equal, and other sessions can be read.

history = TenutoChatMessageHistory("conversation-1", "chat.db", user="ann")
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tenuto.client.api import TenutoApi
from tenuto.errors import SessionNotFound
from tenuto.integrations import missing_extra
from tenuto.integrations.event_loops import Installation, find_bridge
from tenuto.integrations.session_log import SessionLog
from tenuto.model import Draft, Role, Scope, text_part, tool_call, tool_result
from tenuto.model.message import is_summary
from tenuto.model.values import Json, JsonObject, deep_copy
from tenuto.ports import Clock, utc_now
from tenuto.sessions import fresh_id

try:
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
except ImportError as error:
    raise missing_extra("langchain") from error

OWN: Final = "langchain"
"""The key of a message's extra fields that holds what of LangChain's message has no place of its own."""
# The key of a text that stood in a list without being a part.
_BARE: Final = "bare"
_ROLES: Final = {"human": Role.USER, "ai": Role.ASSISTANT, "system": Role.SYSTEM, "tool": Role.TOOL}


class TenutoChatMessageHistory(BaseChatMessageHistory):
    """The messages of one session of an owner, which is made with the first message.

    `where` is an open installation, or the URL or the file of a store, which is opened once per process. With `window`,
    only so many of the newest messages are read. Blocking methods are for threads other than that of the installation's
    event loop.
    """

    def __init__(
        self,
        session_id: str,
        where: Installation,
        scope: Scope | None = None,
        *,
        user: str | None = None,
        tenant: str = "local",
        window: int | None = None,
    ) -> None:
        self.session_id = session_id
        self.scope = scope or Scope(tenant=tenant, user=user)
        self._as_tenant = scope is not None
        self._bridge = find_bridge(where)
        self._window = window
        self._session_log: SessionLog | None = None

    async def aget_messages(self) -> list[BaseMessage]:
        """All messages, or the newest of the window, oldest first; none without the session."""
        return await self._bridge.read(self._read)

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Append messages in one atomic step."""
        drafts = [to_draft(message) for message in messages]
        if drafts:
            await self._bridge.write(lambda app: self._open_log(app).append(drafts))

    async def aclear(self) -> None:
        """Remove the messages; the session with its title stays."""
        await self._bridge.write(self._reset)

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]  # LangChain's own histories are read-only, too
        """As `aget_messages`, for threads other than that of the event loop."""
        return self._bridge.wait(self._read)

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """As `aadd_messages`, for threads other than that of the event loop."""
        self._bridge.wait(lambda _: self.aadd_messages(messages))

    def clear(self) -> None:
        """As `aclear`, for threads other than that of the event loop."""
        self._bridge.wait(self._reset)

    def close(self) -> None:
        """Release a store that this history named; an open installation stays open."""
        self._bridge.close()

    async def _read(self, app: TenutoApi) -> list[BaseMessage]:
        _, log = await self._open_log(app).messages(self._window)
        messages = [message for one in log if (message := to_langchain(one)) is not None]
        return messages if self._window is None else messages[-self._window :]

    async def _reset(self, app: TenutoApi) -> None:
        log = self._open_log(app)
        try:
            await log.on_session(log.sessions.reset)
        except SessionNotFound:
            return

    def _open_log(self, app: TenutoApi) -> SessionLog:
        if self._session_log is None:
            self._session_log = SessionLog(app, self.scope, self.session_id, as_tenant=self._as_tenant)
        return self._session_log


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
        parts = [{**text_part(part), _BARE: True} if isinstance(part, str) else part for part in content]
        if not all(_is_part(part) for part in parts):
            own["content"] = content  # Blocks that are no parts.
            parts = [part for part in parts if _is_part(part)]
        own["listed"] = True
    if isinstance(message, AIMessage):
        parts += [tool_call(call["id"] or "", call["name"], call["args"]) for call in message.tool_calls]
    role = _ROLES.get(message.type.removesuffix("MessageChunk").lower(), Role.ITEM)
    return Draft(
        id=message.id or fresh_id(), role=role, sent_at=clock(), parts=tuple(parts), extra={OWN: {**own, "data": data}}
    )


def _is_part(block: JsonObject) -> bool:
    """Whether a block of the content can be a part. Its calls cannot: they are those of the message."""
    if block.get("type") == "text":
        return isinstance(block.get("text"), str)
    return isinstance(block.get("type"), str) and block["type"] != "tool_call"


def to_langchain(message: Draft) -> BaseMessage | None:
    """The message for LangChain; `None` for entries of the log that are no messages, such as summaries."""
    own = message.extra.get(OWN)
    if is_summary(message) or not isinstance(own, dict):
        return _from_chat(message)
    # A copy: the stored message may be in a cache, and readers change what they get.
    data = deep_copy({**own["data"], "content": _content(message, own)})
    return messages_from_dict([{"type": own["type"], "data": data}])[0]


def _content(message: Draft, own: JsonObject) -> Json:
    if "content" in own:
        return own["content"]
    if own.get("listed"):
        parts = [part for part in message.parts if part["type"] != "tool_call"]
        return [part["text"] if part.get(_BARE) else part for part in parts]
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
    return ToolCall(name=part["name"], args=deep_copy(part["arguments"]), id=part["id"])
