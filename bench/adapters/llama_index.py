"""Chat stores of LlamaIndex's `Memory` on SQLite. A turn counts and reads the messages, and adds two."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.storage.chat_store.sql import SQLAlchemyChatStore

import tenuto
from bench.adapters.__main__ import Turn
from tenuto.integrations.llama_index import TenutoChatStore

_KEPT = 20
_ANSWER = "It is on the second shelf, behind the blue box. " * 8


@asynccontextmanager
async def _ours(folder: Path) -> AsyncIterator[Turn]:
    async with tenuto.open(f"sqlite:///{folder / 'chat.db'}") as app:
        yield _turns(TenutoChatStore(app, app.scope(user="ann")))


@asynccontextmanager
async def _theirs(folder: Path) -> AsyncIterator[Turn]:
    store = SQLAlchemyChatStore("messages", f"sqlite+aiosqlite:///{folder / 'chat.db'}")
    yield _turns(store)
    if store._async_engine is not None:
        await store._async_engine.dispose()


def _turns(store: Any) -> Turn:
    async def turn(writer: int, number: int) -> None:
        key = f"s{writer}"
        await store.add_message(key, ChatMessage(role=MessageRole.USER, content=f"Question {number}: where is it?"))
        found = await store.get_messages(key)
        # As `Memory` does when the queue is longer than its share of tokens.
        if len(found) > _KEPT:
            await store.archive_oldest_messages(key, 2)
        await store.add_message(key, ChatMessage(role=MessageRole.ASSISTANT, content=_ANSWER))

    return turn


SIDES = {"ours": _ours, "theirs": _theirs}
