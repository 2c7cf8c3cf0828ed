"""Session services of the Agent Development Kit on SQLite. A turn reads 20 events, and adds two with state."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from google.adk.events import Event, EventActions
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

import tenuto
from bench.adapters.__main__ import Turn
from tenuto.integrations.adk import TenutoSessionService

_RECENT = GetSessionConfig(num_recent_events=20)
_ANSWER = "It is on the second shelf, behind the blue box. " * 8


@asynccontextmanager
async def _ours(folder: Path) -> AsyncIterator[Turn]:
    async with tenuto.open(f"sqlite:///{folder / 'chat.db'}") as app:
        yield _turns(TenutoSessionService(app))


@asynccontextmanager
async def _theirs(folder: Path) -> AsyncIterator[Turn]:
    yield _turns(SqliteSessionService(str(folder / "chat.db")))


def _turns(service: Any) -> Turn:
    async def turn(writer: int, number: int) -> None:
        place = {"app_name": "shop", "user_id": f"u{writer}", "session_id": f"s{writer}"}
        if not number:
            await service.create_session(**place)
        session = await service.get_session(**place, config=_RECENT)
        await service.append_event(session, _event("user", f"Question {number}: where is it?", {}))
        await service.append_event(session, _event("bot", _ANSWER, {"asked": number}))

    return turn


def _event(author: str, text: str, state: dict[str, int]) -> Event:
    role = "user" if author == "user" else "model"
    content = types.Content(role=role, parts=[types.Part(text=text)])
    return Event(id=str(uuid4()), author=author, content=content, actions=EventActions(state_delta=state))


SIDES = {"ours": _ours, "theirs": _theirs}
