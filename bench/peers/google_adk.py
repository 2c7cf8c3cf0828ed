"""google-adk's DatabaseSessionService: a session with its newest events, and `append_event`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

from bench.workload import WINDOW, Turn

_WHO: Final = {"app_name": "bench", "user_id": "user"}
_COPY_EVENTS: Final = """
INSERT INTO events (id, app_name, user_id, session_id, invocation_id, timestamp, event_data)
SELECT id, app_name, user_id, :copy, invocation_id, timestamp, event_data FROM events WHERE session_id = :original
"""


class SessionService:
    """Every cycle begins with a fresh session, since the service refuses to append to a stale one."""

    def __init__(self, service: Any) -> None:
        self._service = service
        self._event: Any = import_module("google.adk.events").Event
        self._types: Any = import_module("google.genai.types")
        config = import_module("google.adk.sessions.base_session_service").GetSessionConfig
        self._newest = config(num_recent_events=WINDOW)
        self._seeded: dict[int, str] = {}
        self._seeding = asyncio.Lock()

    async def seed(self, session: str, turns: Sequence[Turn]) -> None:
        """Appending event by event takes minutes, so later sessions get copies of the first one's rows."""
        async with self._seeding:
            opened = await self._service.create_session(**_WHO, session_id=session)
            original = self._seeded.setdefault(len(turns), session)
            if original != session:
                await self._copy(original, session)
                return
            for turn in turns:
                for event in self._events(turn):
                    await self._service.append_event(opened, event)

    async def append(self, session: str, turn: Turn) -> None:
        opened = await self._open(session)
        for event in self._events(turn):
            await self._service.append_event(opened, event)

    async def load(self, session: str) -> int:
        return len((await self._open(session)).events)

    async def cycle(self, session: str, turn: Turn) -> int:
        opened = await self._open(session)
        found = len(opened.events)
        for event in self._events(turn):
            await self._service.append_event(opened, event)
        return found

    async def close(self) -> None:
        await self._service.close()

    async def _open(self, session: str) -> Any:
        return await self._service.get_session(**_WHO, session_id=session, config=self._newest)

    def _events(self, turn: Turn) -> list[Any]:
        return [self._say("user", "user", turn.user), self._say("assistant", "model", turn.assistant)]

    def _say(self, author: str, role: str, text: str) -> Any:
        content = self._types.Content(role=role, parts=[self._types.Part(text=text)])
        return self._event(author=author, invocation_id="bench", content=content)

    async def _copy(self, original: str, copy: str) -> None:
        text = import_module("sqlalchemy").text
        async with self._service.db_engine.begin() as db:
            await db.execute(text(_COPY_EVENTS), {"original": original, "copy": copy})


async def open_service(url: str) -> SessionService:
    """Over aiosqlite or asyncpg."""
    make = import_module("google.adk.sessions.database_session_service").DatabaseSessionService
    driver = "sqlite+aiosqlite:" if url.startswith("sqlite") else "postgresql+asyncpg:"
    service = make(driver + url.partition(":")[2])
    await service.prepare_tables()
    return SessionService(service)
