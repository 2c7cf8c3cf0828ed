"""A talk in LangGraph's store: each message is an item, in the order of their creation."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from tenuto.integrations.event_loops import Installation
from tenuto.integrations.langgraph import TenutoStore
from tenuto.model import Scope


class ItemsTalk:
    """LangGraph, the store."""

    kinds: list[Any] = [
        {"text": "find 茶"},
        {"text": "", "rows": [1, 2.5, True, None, {"a": []}]},
        {"text": "green tea", "from": {"land": "cn"}},
    ]

    def __init__(self, where: Installation, scope: Scope, name: str) -> None:
        self._store, self._namespace = TenutoStore(where, scope), ("talks", name)

    async def add(self, text: str) -> None:
        await self.store([{"text": text}])

    async def texts(self) -> list[str]:
        return [value["text"] for value in await self.read()]

    async def store(self, messages: list[Any]) -> None:
        for message in messages:
            await self._store.aput(self._namespace, str(uuid4()), message)

    async def read(self) -> list[Any]:
        found = await self._store.asearch(self._namespace, limit=10_000)
        return [item.value for item in sorted(found, key=lambda item: item.created_at)]

    async def clear(self) -> None:
        for item in await self._store.asearch(self._namespace, limit=10_000):
            await self._store.adelete(self._namespace, item.key)


TALK = ItemsTalk
