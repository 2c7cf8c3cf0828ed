"""A talk in the chat store of LlamaIndex that `Memory` takes."""

from __future__ import annotations

from typing import Any

from llama_index.core.base.llms.types import ChatMessage, ImageBlock, MessageRole, TextBlock, ToolCallBlock

from tenuto.integrations.event_loops import Installation
from tenuto.integrations.llama_index import TenutoChatStore
from tenuto.model import Scope
from tests.integrations.conversations import PIXEL


class LlamaTalk:
    """LlamaIndex, the store of `Memory`."""

    kinds: list[Any] = [
        ChatMessage(role=MessageRole.SYSTEM, content="Be short."),
        ChatMessage(role=MessageRole.USER, blocks=[TextBlock(text="Look at 北京"), ImageBlock(image=PIXEL)]),
        ChatMessage(role=MessageRole.ASSISTANT, blocks=[ToolCallBlock(tool_name="f", tool_kwargs={"city": "x"})]),
        ChatMessage(role=MessageRole.TOOL, content="21", additional_kwargs={"tool_call_id": "c1", "a": [{"b": None}]}),
        ChatMessage(role=MessageRole.ASSISTANT, blocks=[]),
    ]  # fmt: skip

    def __init__(self, where: Installation, scope: Scope | None, name: str) -> None:
        self._chats, self._name = TenutoChatStore(where, scope), name

    async def add(self, text: str) -> None:
        await self.store([ChatMessage(role=MessageRole.USER, content=text)])

    async def texts(self) -> list[str]:
        return [str(message.content) for message in await self.read()]

    async def store(self, messages: list[Any]) -> None:
        await self._chats.add_messages(self._name, messages)

    async def read(self) -> list[Any]:
        return await self._chats.get_messages(self._name)

    async def clear(self) -> None:
        await self._chats.delete_messages(self._name)


TALK = LlamaTalk
