"""A talk in the chat store of LlamaIndex that `ChatMemoryBuffer` takes."""

from __future__ import annotations

from typing import Any

from tenuto.integrations.event_loops import Installation
from tenuto.integrations.llama_index import TenutoBaseChatStore
from tenuto.model import Scope
from tests.integrations.talks.llama_index import LlamaTalk


class BaseTalk(LlamaTalk):
    """LlamaIndex, the store of `ChatMemoryBuffer`."""

    def __init__(self, where: Installation, scope: Scope | None, name: str) -> None:
        self._base, self._name = TenutoBaseChatStore(where, scope), name

    async def store(self, messages: list[Any]) -> None:
        for message in messages:
            await self._base.async_add_message(self._name, message)

    async def read(self) -> list[Any]:
        return await self._base.aget_messages(self._name)

    async def clear(self) -> None:
        await self._base.adelete_messages(self._name)


TALK = BaseTalk
