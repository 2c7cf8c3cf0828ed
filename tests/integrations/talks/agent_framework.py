"""A talk with a history provider of Agent Framework."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from agent_framework import Content
from agent_framework import Message as AgentMessage

from tenuto.integrations.agent_framework import TenutoHistoryProvider
from tenuto.integrations.event_loops import Installation
from tenuto.model import Scope
from tests.integrations.conversations import PIXEL


class FrameworkTalk:
    """Agent Framework; its messages have no equality, so they are compared by their dictionaries."""

    kinds: list[Any] = [
        AgentMessage("user", ["How warm is it in 北京?"], author_name="ann", additional_properties={"a": [1]}),
        AgentMessage("user", [Content.from_data(PIXEL, media_type="image/png")]),
        AgentMessage("assistant", [Content.from_function_call("c1", "f", arguments={"city": "x"})], message_id="m"),
        AgentMessage("tool", [Content.from_function_result("c1", result="21")]),
        AgentMessage("assistant", [Content.from_text_reasoning(text="hm"), "21°"]),
        AgentMessage("system", []),
    ]  # fmt: skip

    def __init__(self, where: Installation, scope: Scope | None, name: str) -> None:
        self._history, self._name = TenutoHistoryProvider(where, scope), name
        self.kinds = [message.to_dict() for message in FrameworkTalk.kinds]

    async def add(self, text: str) -> None:
        await self.store([AgentMessage("user", [text], message_id=str(uuid4())).to_dict()])

    async def texts(self) -> list[str]:
        return [message["contents"][0]["text"] for message in await self.read()]

    async def store(self, messages: list[Any]) -> None:
        await self._history.save_messages(self._name, [AgentMessage.from_dict(message) for message in messages])

    async def read(self) -> list[Any]:
        return [message.to_dict() for message in await self._history.get_messages(self._name)]

    async def clear(self) -> None:
        """The framework has no call for it."""


TALK = FrameworkTalk
