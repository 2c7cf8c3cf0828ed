"""A conversation with the shop at the level of its tools."""

from __future__ import annotations

from typing import Any

from tenuto.assistants.assistant import Assistant
from tenuto.assistants.goods import goods_assistant
from tenuto.model import Scope
from tenuto.model.generation import ToolContext, ToolOutput
from tenuto.model.prompt import Language
from tenuto.ports import OfflineTool, Tool
from tests.clock import START
from tests.doubles import MemoryStore

ANN = Scope(tenant="acme", user="1001")
BOB = Scope(tenant="acme", user="1002")
SOMEBODY = Scope(tenant="acme")


class Customer:
    """A conversation with the assistant without a model: the one tool that plans a call answers."""

    def __init__(self, assistant: Assistant | None = None, scope: Scope = ANN) -> None:
        self.assistant = assistant or goods_assistant(MemoryStore().state)
        self.scope = scope
        self.state: dict[str, Any] = {}
        self.outcome = ToolOutput(output=None)
        self.tool = ""

    def turn(self, question: str) -> ToolContext:
        chinese = any("\u4e00" <= character <= "\u9fff" for character in question)
        language = Language.CHINESE if chinese else Language.ENGLISH
        return ToolContext(
            scope=self.scope, session=None, question=question, language=language, now=START, state=self.state
        )

    def wanted(self, question: str) -> list[tuple[Tool, dict[str, Any]]]:
        turn = self.turn(question)
        found: list[tuple[Tool, dict[str, Any]]] = []
        for tool in self.assistant.tools:
            assert isinstance(tool, OfflineTool)
            arguments = tool.plan(turn)
            if arguments is not None:
                found.append((tool, arguments))
        return found

    async def ask(self, question: str) -> str:
        [(tool, arguments)] = self.wanted(question)
        return await self.call(tool.spec.name, arguments, question)

    async def call(self, name: str, arguments: dict[str, Any], question: str = "?") -> str:
        turn = self.turn(question)
        tool = next(tool for tool in self.assistant.tools if tool.spec.name == name)
        self.tool = name
        self.outcome = await tool.run(arguments, turn)
        self.state |= self.outcome.state
        assert isinstance(tool, OfflineTool)
        return tool.render(self.outcome.output, turn)

    @property
    def ids(self) -> list[str]:
        return [good["id"] for good in self.outcome.data["goods"]]
