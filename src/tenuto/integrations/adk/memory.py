"""The memory service of the Agent Development Kit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from tenuto.app import Tenuto
from tenuto.client.api import TenutoApi
from tenuto.errors import Invalid
from tenuto.integrations import missing_extra
from tenuto.integrations.event_loops import Installation, find_bridge
from tenuto.model import Scope
from tenuto.model.memory import MAX_MEMORY, Memory, MemoryKind, MemoryQuery, MemorySource
from tenuto.sessions import derived_id, fresh_id

try:
    from google.adk.events import Event
    from google.adk.memory import BaseMemoryService
    from google.adk.memory.base_memory_service import SearchMemoryResponse
    from google.adk.memory.memory_entry import MemoryEntry
    from google.adk.sessions import Session
    from google.genai import types
except ImportError as error:
    raise missing_extra("adk") from error

_MOST_HITS: Final = 10


class TenutoMemoryService(BaseMemoryService):
    """What is remembered of the users of one tenant's apps: the texts of events, found by words and by meaning."""

    def __init__(self, where: Installation, *, tenant: str = "local") -> None:
        self._tenant = tenant
        self._bridge = find_bridge(where)

    async def add_session_to_memory(self, session: Session) -> None:
        """Remember the texts of a session's events; those that are remembered already stay as they are."""
        await self.add_events_to_memory(
            app_name=session.app_name, user_id=session.user_id, events=session.events, session_id=session.id
        )

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Remember the texts of these events, each once."""
        memories = [
            _memory(_text(event.content), event.author, event.timestamp, session_id or "", event.id)
            for event in events
            if _text(event.content)
        ]
        await self._remember(app_name, user_id, memories)

    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[MemoryEntry],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Remember these texts."""
        now = datetime.now(UTC).timestamp()
        entries = [
            _memory(_text(one.content), one.author or "", _instant(one.timestamp, now), "", one.id or fresh_id())
            for one in memories
            if _text(one.content)
        ]
        await self._remember(app_name, user_id, entries)

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        """The memories that fit best, best first."""
        scope = Scope(tenant=self._tenant, site=app_name, user=user_id)

        async def search(app: TenutoApi) -> list[Memory]:
            result = await (await app.memories()).search(scope, MemoryQuery(text=query, limit=_MOST_HITS))
            return [hit.memory for hit in result.hits]

        return SearchMemoryResponse(memories=[_entry(memory) for memory in await self._bridge.read(search)])

    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str | None = None) -> None:
        """Forget one memory; an unknown one is no error."""
        if memory_id:
            scope, memory_ids = Scope(tenant=self._tenant, site=app_name, user=user_id), [memory_id]
            await self._bridge.write(lambda app: _delete(app, scope, memory_ids))

    def close(self) -> None:
        """Release the store that this service named; it is closed with its last user."""
        self._bridge.close()

    async def _remember(self, app_name: str, user_id: str, memories: list[Memory]) -> None:
        scope = Scope(tenant=self._tenant, site=app_name, user=user_id)

        async def remember(app: TenutoApi) -> None:
            if not isinstance(app, Tenuto):
                raise Invalid("a server remembers what is said to it: memories from here need tenuto.open")
            await (await app.memories()).remember(scope, memories)

        await self._bridge.write(remember)


async def _delete(app: TenutoApi, scope: Scope, ids: Sequence[str]) -> int:
    return await (await app.memories()).forget(scope, ids)


def _text(content: types.Content | None) -> str:
    parts = content.parts if content is not None else None
    return " ".join(part.text for part in parts or [] if part.text and not part.thought)


def _memory(text: str, author: str, timestamp: float, session_id: str, key: str) -> Memory:
    return Memory(
        id=key or derived_id("m-", author, str(timestamp), text),
        kind=MemoryKind.FACT,
        text=text[:MAX_MEMORY],
        said_at=datetime.fromtimestamp(timestamp, UTC),
        source=MemorySource.QUOTE,
        speaker=author,
        session_id=session_id,
    )


def _instant(timestamp: str | None, otherwise: float) -> float:
    return datetime.fromisoformat(timestamp).timestamp() if timestamp else otherwise


def _entry(memory: Memory) -> MemoryEntry:
    return MemoryEntry(
        id=memory.id,
        author=memory.speaker or None,
        timestamp=memory.said_at.isoformat(),
        content=types.Content(
            role="user" if memory.speaker in ("", "user") else "model", parts=[types.Part(text=memory.text)]
        ),
    )
