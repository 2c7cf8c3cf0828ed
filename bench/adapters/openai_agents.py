"""Sessions of the OpenAI Agents SDK on SQLite. A turn reads 20 items, and adds a question and an answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from agents import SQLiteSession

import tenuto
from bench.adapters.__main__ import Turn
from tenuto.integrations.openai_agents import TenutoSession

_LIMIT = 20
_ANSWER = "It is on the second shelf, behind the blue box. " * 8


@asynccontextmanager
async def _ours(folder: Path) -> AsyncIterator[Turn]:
    async with tenuto.open(f"sqlite:///{folder / 'chat.db'}") as app:
        ann = app.scope(user="ann")
        yield _turns(lambda name: TenutoSession(name, app, ann))


@asynccontextmanager
async def _theirs(folder: Path) -> AsyncIterator[Turn]:
    made: list[SQLiteSession] = []

    def open_session(name: str) -> SQLiteSession:
        made.append(SQLiteSession(name, folder / "chat.db"))
        return made[-1]

    yield _turns(open_session)
    for session in made:
        session.close()


def _turns(open_session: Callable[[str], Any]) -> Turn:
    sessions: dict[int, Any] = {}

    async def turn(writer: int, number: int) -> None:
        session = sessions.get(writer) or sessions.setdefault(writer, open_session(f"s{writer}"))
        await session.get_items(_LIMIT)
        await session.add_items([{"role": "user", "content": f"Question {number}: where is it?"}])
        said = {"type": "output_text", "text": _ANSWER, "annotations": []}
        await session.add_items([{"type": "message", "role": "assistant", "id": f"m{number}", "content": [said]}])

    return turn


SIDES = {"ours": _ours, "theirs": _theirs}
