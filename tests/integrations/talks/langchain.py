"""A talk in LangChain's chat history."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from tenuto.integrations.event_loops import Installation
from tenuto.integrations.langchain import TenutoChatMessageHistory
from tenuto.model import Scope
from tests.attachments import PDF, PNG, base64, data_url

_CALL: Any = {"name": "find", "args": {"what": "tea", "deep": {"a": [1]}}, "id": "c1", "type": "tool_call"}
_USAGE: Any = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
_PICTURE: Any = {"type": "image_url", "image_url": {"url": "http://x"}}
_CONTENTS: list[Any] = [
    {"type": "image_url", "image_url": {"url": data_url(PNG, "image/png"), "detail": "low"}},
    {"type": "image", "source_type": "base64", "mime_type": "image/png", "data": base64(PNG)},
    {"type": "image", "base64": base64(PNG), "mime_type": "image/png"},
    {"type": "file", "file": {"filename": "a.pdf", "file_data": data_url(PDF, "application/pdf")}},
]


class HistoryTalk:
    """LangChain."""

    kinds: list[Any] = [
        SystemMessage(content="be brief"),
        HumanMessage(content="find 茶", id="h1", name="ann", additional_kwargs={"lang": "en"}),
        AIMessage(content="", tool_calls=[_CALL], usage_metadata=_USAGE, response_metadata={"model": "m"}),
        ToolMessage(content="green tea", tool_call_id="c1", artifact={"rows": [1, 2]}, status="success"),
        ToolMessage(content=[{"type": "text", "text": "black tea"}], tool_call_id="c2", status="error"),
        AIMessage(content=[{"type": "text", "text": "here"}, _PICTURE]),
        HumanMessage(content=_CONTENTS),
        HumanMessage(content=["a plain text", {"type": "text", "text": "and a part"}, {"untyped": True}]),
        AIMessage(content=[{"type": "text", "text": "calling"}, _CALL, {"type": "text"}], tool_calls=[_CALL]),
        ChatMessage(content="as a judge", role="judge"),
        FunctionMessage(content="old style", name="find"),
        AIMessageChunk(content="piece"),
    ]

    def __init__(self, where: Installation, scope: Scope | None, name: str) -> None:
        self._history = TenutoChatMessageHistory(name, where, scope)

    async def add(self, text: str) -> None:
        await self.store([HumanMessage(content=text)])

    async def texts(self) -> list[str]:
        return [message.text for message in await self.read()]

    async def store(self, messages: list[Any]) -> None:
        await self._history.aadd_messages(messages)

    async def read(self) -> list[Any]:
        return await self._history.aget_messages()

    async def clear(self) -> None:
        await self._history.aclear()


TALK = HistoryTalk
