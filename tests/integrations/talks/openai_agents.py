"""A talk in a session of the OpenAI Agents SDK."""

from __future__ import annotations

from typing import Any

from tenuto.integrations.event_loops import Installation
from tenuto.integrations.openai_agents import TenutoSession
from tenuto.model import Scope
from tests.attachments import PNG, data_url

PICTURE = {"type": "input_image", "image_url": data_url(PNG, "image/png"), "detail": "low"}
LINK = {"type": "input_file", "file_url": "https://example.com/a.pdf"}


class AgentsTalk:
    """OpenAI Agents."""

    kinds: list[Any] = [
        {"role": "user", "content": "How warm is it in 北京?"},
        {"role": "developer", "content": "Be short."},
        {"type": "message", "role": "user", "content": [PICTURE, LINK]},
        {"type": "function_call", "call_id": "c0", "name": "draw", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c0", "output": [PICTURE, {"type": "input_text", "text": "a cup"}]},
        {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "sealed": "x"},
        {"id": "fc_1", "type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}", "status": "completed"},
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "21"}]},
        {"type": "compaction", "encrypted_content": "sealed"},
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "phase": "final_answer",
            "content": [{"type": "output_text", "text": "21°", "annotations": [], "logprobs": []}],
        },
        {"role": "assistant", "content": ""},
        {"unknown": {"deep": [None, 1.5, {"a": []}]}},
    ]  # fmt: skip

    def __init__(self, where: Installation, scope: Scope | None, name: str) -> None:
        self._session = TenutoSession(name, where, scope)

    async def add(self, text: str) -> None:
        await self.store([{"role": "user", "content": text}])

    async def texts(self) -> list[str]:
        return [item["content"] for item in await self.read()]

    async def store(self, messages: list[Any]) -> None:
        await self._session.add_items(messages)

    async def read(self) -> list[Any]:
        items: list[Any] = await self._session.get_items()
        return items

    async def clear(self) -> None:
        await self._session.clear_session()


TALK = AgentsTalk
