"""Chat stores for LlamaIndex, kept by tenuto.

    memory = Memory.from_defaults(session_id="conversation-1", chat_store=TenutoChatStore("chat.db", user="ann"))

`TenutoChatStore` is for `Memory`; `TenutoBaseChatStore` for `ChatMemoryBuffer` and others of its time. A key is the id
of a session. Archived messages are those before the session's window, or marked so when they were added.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, Final

from tenuto.client.api import TenutoApi
from tenuto.compare_and_set import retry_on_conflict
from tenuto.integrations import missing_extra
from tenuto.integrations.embedded_media import EmbeddedMedia
from tenuto.integrations.event_loops import Installation, find_bridge
from tenuto.integrations.parts import FrameworkForm, without
from tenuto.integrations.session_log import SessionLog, SessionLogs, has_access
from tenuto.model import Changes, Draft, Message, Role, Scope, Session, SessionQuery
from tenuto.model.message import is_summary
from tenuto.model.values import JsonObject, deep_copy
from tenuto.ports import utc_now
from tenuto.sessions import fresh_id

try:
    from llama_index.core.base.llms.types import ChatMessage
    from llama_index.core.bridge.pydantic import PrivateAttr
    from llama_index.core.storage.chat_store.base import BaseChatStore
    from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore, MessageStatus
except ImportError as error:
    raise missing_extra("llama-index") from error

_NAME: Final = "llama_index"
"""The key of a session's metadata that holds its key; in a message's extra fields, that of the message."""
_ARCHIVED: Final = "archived"
_FORM: Final = FrameworkForm(
    *(_NAME, "text", lambda block: block.get("block_type") == "text"),
    media=EmbeddedMedia(
        ("image", "image_mimetype"), ("audio", "format"), ("video", "video_mimetype"), ("data", "document_mimetype")
    ),
)
_ROLES: Final = {
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "model": Role.ASSISTANT,
    "chatbot": Role.ASSISTANT,
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "tool": Role.TOOL,
    "function": Role.TOOL,
}
_PAGE: Final = 1000


class _Keys:
    """The conversations of one owner, by their keys."""

    def __init__(self, where: Installation, scope: Scope | None, user: str | None, tenant: str) -> None:
        self.bridge = find_bridge(where)
        self._scope = scope or Scope(tenant=tenant, user=user)
        self._as_tenant = scope is not None
        self._logs = SessionLogs(as_tenant=self._as_tenant)

    def log(self, app: TenutoApi, key: str) -> SessionLog:
        return self._logs.find(app, self._scope, key, {_NAME: key})

    async def read(self, app: TenutoApi, key: str, *, in_window: bool = False) -> tuple[Session | None, list[Message]]:
        """The head and the messages without summaries, or at least those in the window."""
        head, log = await self.log(app, key).messages(in_window=in_window)
        return head, [message for message in log if not is_summary(message)]

    async def replace(self, app: TenutoApi, key: str, drafts: Sequence[Draft]) -> None:
        """Have these messages only. They are stored before others are removed, so that a crash loses none."""
        log = self.log(app, key)
        new = {message.seq for message in (await log.append(drafts)).messages} if drafts else set[int]()
        # What others add meanwhile comes after them, and stays.
        last = max(new, default=None)
        await log.remove(
            lambda head, messages: [one for one in messages if one.seq not in new and (last is None or one.seq < last)]
        )

    async def keys(self, app: TenutoApi) -> list[str]:
        return [head.metadata[_NAME] async for head in self._heads(app)]

    async def _heads(self, app: TenutoApi) -> AsyncIterator[Session]:
        query = SessionQuery(limit=_PAGE)
        while True:
            page = await app.sessions.list(self._scope, query)
            for head in page.sessions:
                visible_log = has_access(self._scope, head, as_tenant=self._as_tenant)
                if visible_log and _NAME in head.metadata and head.messages:
                    yield head
            if page.cursor is None:
                return
            query = SessionQuery(limit=_PAGE, cursor=page.cursor)


class TenutoChatStore(AsyncDBChatStore):
    """The chat store of `Memory`. The id of a message, for `delete_message`, is its sequence number in the session.

    `where` is an open installation, or the URL or the file of a store, which is opened once per process. The
    conversations belong to `scope`, or to that user of that tenant.
    """

    _keys: _Keys = PrivateAttr()

    def __init__(
        self, where: Installation, scope: Scope | None = None, *, user: str | None = None, tenant: str = "local"
    ) -> None:
        super().__init__()
        self._keys = _Keys(where, scope, user, tenant)

    async def get_messages(
        self,
        key: str,
        status: MessageStatus | None = MessageStatus.ACTIVE,
        limit: int | None = None,
        offset: int | None = None,
    ) -> list[ChatMessage]:
        """Messages with that status (`None`: all), oldest first, from the `offset` on."""
        active = status is MessageStatus.ACTIVE
        head, log = await self._keys.bridge.read(lambda app: self._keys.read(app, key, in_window=active))
        messages = [message for message in log if status is None or _status(head, message) == status]
        start = offset or 0
        return [_message(one) for one in messages[start : None if limit is None else start + limit]]

    async def count_messages(self, key: str, status: MessageStatus | None = MessageStatus.ACTIVE) -> int:
        """How many messages have that status."""
        return len(await self.get_messages(key, status))

    async def add_message(self, key: str, message: ChatMessage, status: MessageStatus = MessageStatus.ACTIVE) -> None:
        """Append a message."""
        await self.add_messages(key, [message], status)

    async def add_messages(
        self, key: str, messages: list[ChatMessage], status: MessageStatus = MessageStatus.ACTIVE
    ) -> None:
        """Append messages, all or none of them."""
        if messages:
            drafts = [_draft(message, status) for message in messages]
            await self._keys.bridge.write(lambda app: self._keys.log(app, key).append(drafts))

    async def set_messages(
        self, key: str, messages: list[ChatMessage], status: MessageStatus = MessageStatus.ACTIVE
    ) -> None:
        """Have these messages instead of all others."""
        drafts = [_draft(message, status) for message in messages]
        await self._keys.bridge.write(lambda app: self._keys.replace(app, key, drafts))

    async def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Remove one message and return it; `None` if there is none of that number."""
        removed_messages = await self._remove(key, lambda head, log: [one for one in log if one.seq == idx])
        return removed_messages[0] if removed_messages else None

    async def delete_messages(self, key: str, status: MessageStatus | None = None) -> None:
        """Remove the messages with that status, or all."""
        await self._remove(key, lambda head, log: [one for one in log if status in (None, _status(head, one))])

    async def delete_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        """Remove the oldest active messages and return them."""
        return await self._remove(key, lambda head, log: _active(head, log)[:n], in_window=True)

    async def archive_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        """Archive the oldest active messages and return them: the session's window begins behind them."""

        async def archive(app: TenutoApi) -> list[Message]:
            head, log = await self._keys.read(app, key, in_window=True)
            oldest = _active(head, log)[:n] if head is not None else []
            if head is not None and oldest:
                changes = Changes(window_start=oldest[-1].seq + 1, if_version=head.version)
                await self._keys.log(app, key).on_session(app.sessions.patch, changes)
            return oldest

        archiving = self._keys.bridge.write(lambda app: retry_on_conflict(lambda: archive(app)))
        return [_message(one) for one in await archiving]

    async def get_keys(self) -> list[str]:
        """The keys of conversations with messages, the latest change first."""
        return await self._keys.bridge.read(self._keys.keys)

    def close(self) -> None:
        """Release the store that this object named; it is closed with its last user."""
        self._keys.bridge.close()

    async def _remove(
        self, key: str, choose: Callable[[Session, Sequence[Message]], Sequence[Message]], *, in_window: bool = False
    ) -> list[ChatMessage]:
        messages = await self._keys.bridge.write(
            lambda app: self._keys.log(app, key).remove(choose, in_window=in_window)
        )
        return [_message(one) for one in messages]


class TenutoBaseChatStore(BaseChatStore):
    """The chat store of `ChatMemoryBuffer`, with methods that block and their asynchronous twins.

    Methods that block may not be called in the event loop of an open installation; where the store is named by its URL
    or file, they may be called anywhere.
    """

    _keys: _Keys = PrivateAttr()

    def __init__(
        self, where: Installation, scope: Scope | None = None, *, user: str | None = None, tenant: str = "local"
    ) -> None:
        super().__init__()
        self._keys = _Keys(where, scope, user, tenant)

    @classmethod
    def class_name(cls) -> str:
        """The name in dumps."""
        return "TenutoBaseChatStore"

    def set_messages(self, key: str, messages: list[ChatMessage]) -> None:
        """Have these messages instead of all others."""
        self._keys.bridge.wait(self._setting(key, messages))

    async def aset_messages(self, key: str, messages: list[ChatMessage]) -> None:
        """As `set_messages`."""
        await self._keys.bridge.write(self._setting(key, messages))

    def get_messages(self, key: str) -> list[ChatMessage]:
        """All messages, oldest first."""
        return self._keys.bridge.wait(self._getting(key))

    async def aget_messages(self, key: str) -> list[ChatMessage]:
        """As `get_messages`."""
        return await self._keys.bridge.read(self._getting(key))

    def add_message(self, key: str, message: ChatMessage) -> None:
        """Append a message."""
        self._keys.bridge.wait(self._adding(key, message))

    async def async_add_message(self, key: str, message: ChatMessage) -> None:
        """As `add_message`."""
        await self._keys.bridge.write(self._adding(key, message))

    def delete_messages(self, key: str) -> list[ChatMessage] | None:
        """Remove all messages and return them; `None` if there are none."""
        return self._keys.bridge.wait(self._removing(key, lambda log: log)) or None

    async def adelete_messages(self, key: str) -> list[ChatMessage] | None:
        """As `delete_messages`."""
        return await self._keys.bridge.write(self._removing(key, lambda log: log)) or None

    def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Remove the message at that place and return it; `None` if there is none."""
        return _only(self._keys.bridge.wait(self._removing(key, lambda log: log[idx:][:1])))

    async def adelete_message(self, key: str, idx: int) -> ChatMessage | None:
        """As `delete_message`."""
        return _only(await self._keys.bridge.write(self._removing(key, lambda log: log[idx:][:1])))

    def delete_last_message(self, key: str) -> ChatMessage | None:
        """Remove the newest message and return it; `None` if there is none."""
        return _only(self._keys.bridge.wait(self._removing(key, lambda log: log[-1:], newest=1)))

    async def adelete_last_message(self, key: str) -> ChatMessage | None:
        """As `delete_last_message`."""
        return _only(await self._keys.bridge.write(self._removing(key, lambda log: log[-1:], newest=1)))

    def get_keys(self) -> list[str]:
        """The keys of conversations with messages, the latest change first."""
        return self._keys.bridge.wait(self._keys.keys)

    async def aget_keys(self) -> list[str]:
        """As `get_keys`."""
        return await self._keys.bridge.read(self._keys.keys)

    def close(self) -> None:
        """Release the store that this object named; it is closed with its last user."""
        self._keys.bridge.close()

    def _setting(self, key: str, messages: list[ChatMessage]) -> Callable[[TenutoApi], Coroutine[Any, Any, None]]:
        drafts = [_draft(message) for message in messages]
        return lambda app: self._keys.replace(app, key, drafts)

    def _getting(self, key: str) -> Callable[[TenutoApi], Coroutine[Any, Any, list[ChatMessage]]]:
        async def get(app: TenutoApi) -> list[ChatMessage]:
            return [_message(one) for one in (await self._keys.read(app, key))[1]]

        return get

    def _adding(self, key: str, message: ChatMessage) -> Callable[[TenutoApi], Coroutine[Any, Any, object]]:
        draft = _draft(message)
        return lambda app: self._keys.log(app, key).append([draft])

    def _removing(
        self, key: str, choose: Callable[[Sequence[Message]], Sequence[Message]], newest: int | None = None
    ) -> Callable[[TenutoApi], Coroutine[Any, Any, list[ChatMessage]]]:
        async def remove(app: TenutoApi) -> list[ChatMessage]:
            messages = await self._keys.log(app, key).remove(lambda head, log: choose(log), newest)
            return [_message(one) for one in messages]

        return remove


def _draft(message: ChatMessage, status: MessageStatus = MessageStatus.ACTIVE) -> Draft:
    body: JsonObject = message.model_dump(mode="json")
    rest = without(body, "blocks")
    if status == MessageStatus.ARCHIVED:
        rest[_ARCHIVED] = True
    role = _ROLES.get(body["role"], Role.ITEM)
    return _FORM.draft(role, body["blocks"], rest, message_id=fresh_id(), sent_at=utc_now())


def _message(message: Message) -> ChatMessage:
    rest = _FORM.rest(message)
    if rest is None:
        return ChatMessage(role=message.role.value if message.role is not Role.ITEM else "system", content=message.text)
    # A copy: the stored message may be that of a cache.
    return ChatMessage.model_validate(deep_copy({**without(rest, _ARCHIVED), "blocks": _FORM.elements(message)}))


def _status(head: Session | None, message: Message) -> MessageStatus:
    before = head is not None and message.seq < head.window_start
    status = before or (_FORM.rest(message) or {}).get(_ARCHIVED)
    return MessageStatus.ARCHIVED if status else MessageStatus.ACTIVE


def _active(head: Session | None, log: Sequence[Message]) -> list[Message]:
    return [message for message in log if _status(head, message) is MessageStatus.ACTIVE]


def _only(messages: list[ChatMessage]) -> ChatMessage | None:
    return messages[0] if messages else None
