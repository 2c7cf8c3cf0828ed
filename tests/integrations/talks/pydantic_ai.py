"""A talk in a conversation store of Pydantic AI."""

from __future__ import annotations

from typing import Any

from pydantic_ai import BinaryImage
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from tenuto.integrations.event_loops import Installation
from tenuto.integrations.pydantic_ai import TenutoConversationStore
from tenuto.model import Scope
from tests.integrations.conversations import PIXEL


class PydanticTalk:
    """Pydantic AI."""

    kinds: list[Any] = [
        ModelRequest(parts=[SystemPromptPart("Be short."), UserPromptPart("How warm is it?")], instructions="Now."),
        ModelRequest(parts=[UserPromptPart(["Look", BinaryImage(PIXEL, media_type="image/png")])]),
        ModelResponse(parts=[ThinkingPart("hm", signature="s"), ToolCallPart("weather", {"city": "北京"}, "c1")]),
        ModelRequest(parts=[ToolReturnPart("weather", {"degrees": 21.5}, "c1")]),
        ModelResponse(parts=[TextPart("21°")], model_name="m", provider_details={"a": [1]}, finish_reason="stop"),
    ]

    def __init__(self, where: Installation, scope: Scope | None, name: str) -> None:
        self._store, self._name = TenutoConversationStore(where, scope), name

    async def add(self, text: str) -> None:
        await self.store([ModelRequest(parts=[UserPromptPart(text)])])

    async def texts(self) -> list[str]:
        parts = [part for message in await self.read() for part in message.parts]
        return [str(part.content) for part in parts if isinstance(part, UserPromptPart)]

    async def store(self, messages: list[Any]) -> None:
        while True:
            known = await self._store.load(self._name) or Conversation(conversation_id=self._name)
            known.messages += messages
            try:
                await self._store.save(known)
            except ConversationConflict:
                continue
            return

    async def read(self) -> list[Any]:
        known = await self._store.load(self._name)
        messages: list[ModelMessage] = known.messages if known is not None else []
        return messages

    async def clear(self) -> None:
        await self._store.delete(self._name)


TALK = PydanticTalk
