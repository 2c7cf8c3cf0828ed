"""History and recall for agents of Microsoft's Agent Framework, kept by tenuto.

    agent = Agent(client, context_providers=[TenutoHistoryProvider("chat.db", user="ann")])
    await agent.run("Hello!", session=agent.create_session(session_id="conversation-1"))

Messages come back as they were stored, without their `raw_representation`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tenuto.client.api import TenutoApi
from tenuto.integrations import missing_extra
from tenuto.integrations.embedded_media import EmbeddedMedia
from tenuto.integrations.event_loops import Installation, find_bridge
from tenuto.integrations.session_log import SessionLog, SessionLogs
from tenuto.model import Draft, Role, Scope
from tenuto.model import Message as Stored
from tenuto.model.memory import Memory, MemoryQuery
from tenuto.model.message import is_summary
from tenuto.model.values import JsonObject, deep_copy
from tenuto.ports import utc_now
from tenuto.sessions import fresh_id

try:
    from agent_framework import AgentSession, ContextProvider, HistoryProvider, Message, SessionContext
    from agent_framework._sessions import filter_new_messages
except ImportError as error:
    raise missing_extra("agent-framework") from error

_NAME: Final = "agent_framework"
_SESSION: Final = "default"
"""The session of runs without an id, as the framework's own providers have it."""
_MEDIA: Final = EmbeddedMedia(("uri", "media_type"))
_ROLES: Final = {role.value: role for role in Role}


class TenutoHistoryProvider(HistoryProvider):
    """The messages of an agent's sessions.

    `where` is an open installation, or the URL or the file of a store, which is opened once per process. The sessions
    belong to `scope`, or to that user of that tenant; their ids are ids of sessions of tenuto. `options` are those of
    `HistoryProvider`.
    """

    def __init__(
        self,
        where: Installation,
        scope: Scope | None = None,
        *,
        user: str | None = None,
        tenant: str = "local",
        source_id: str = "tenuto_history",
        **options: Any,
    ) -> None:
        super().__init__(source_id, **options)
        self.scope = scope or Scope(tenant=tenant, user=user)
        self._logs = SessionLogs(as_tenant=scope is not None)
        self._bridge = find_bridge(where)

    async def get_messages(
        self, session_id: str | None, *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[Message]:
        """All messages of the session, oldest first."""
        log = await self._bridge.read(lambda app: self._open_log(app, session_id).messages())
        return [_message(message) for message in log[1] if not is_summary(message)]

    async def save_messages(
        self, session_id: str | None, messages: Sequence[Message], *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        """Store messages, all or none of them; those at the beginning that repeat the history's end are left out."""
        if not messages:
            return

        async def save(app: TenutoApi) -> None:
            log = self._open_log(app, session_id)
            _, stored_messages = await log.messages(len(messages) + 1)
            history = [_message(message) for message in stored_messages if not is_summary(message)]
            new = filter_new_messages(history, messages)
            if new:
                await log.append([_draft(message) for message in new])

        await self._bridge.write(save)

    def close(self) -> None:
        """Release the store that this provider named; it is closed with its last user."""
        self._bridge.close()

    def _open_log(self, app: TenutoApi, session_id: str | None) -> SessionLog:
        return self._logs.find(app, self.scope, session_id or _SESSION)


class TenutoMemoryProvider(ContextProvider):
    """Adds what is remembered of the user and fits the question to the instructions of a run."""

    def __init__(
        self,
        where: Installation,
        scope: Scope | None = None,
        *,
        user: str | None = None,
        tenant: str = "local",
        source_id: str = "tenuto_memory",
        limit: int = 5,
    ) -> None:
        super().__init__(source_id)
        self.scope = scope or Scope(tenant=tenant, user=user)
        self._limit = limit
        self._bridge = find_bridge(where)

    async def before_run(self, *, agent: Any, session: AgentSession, context: SessionContext, state: Any) -> None:
        """Search with the text of the input; without hits nothing is added."""
        question = " ".join(message.text for message in context.input_messages if message.text)
        if not question.strip():
            return

        async def search(app: TenutoApi) -> list[Memory]:
            result = await (await app.memories()).search(self.scope, MemoryQuery(text=question, limit=self._limit))
            return [hit.memory for hit in result.hits]

        memories = await self._bridge.read(search)
        if memories:
            lines = "\n".join(f"- {memory.text}" for memory in memories)
            context.extend_instructions(self.source_id, f"What is remembered of the user:\n{lines}")

    def close(self) -> None:
        """Release the store that this provider named; it is closed with its last user."""
        self._bridge.close()


def _draft(message: Message) -> Draft:
    rest: JsonObject = message.to_dict()
    # Contents have a type, as our parts do, and text contents are text parts.
    parts = tuple([part for content in rest.pop("contents", ()) for part in _MEDIA.take_out(content)])
    role = _ROLES.get(str(message.role), Role.ITEM)
    return Draft(id=fresh_id(), role=role, sent_at=utc_now(), parts=parts, extra={_NAME: rest})


def _message(message: Stored) -> Message:
    rest = message.extra.get(_NAME)
    if isinstance(rest, dict):
        contents = _MEDIA.join(message.parts, lambda part: part)
        # A copy: the stored message may be that of a cache.
        return Message.from_dict(deep_copy({**rest, "contents": contents}))
    return Message(message.role.value, [message.text] if message.text else [])
