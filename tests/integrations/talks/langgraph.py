"""A talk in LangGraph's checkpointer: the messages of a thread, read and put as a run does."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import empty_checkpoint

from tenuto.integrations.event_loops import Installation
from tenuto.integrations.langgraph import TenutoSaver
from tenuto.model import Scope

_CALL: Any = {"name": "find", "args": {"what": "tea"}, "id": "c1", "type": "tool_call"}


class ThreadTalk:
    """LangGraph, the checkpointer."""

    kinds: list[Any] = [
        HumanMessage(content="find 茶", id="h1", additional_kwargs={"a": [{"b": None}]}),
        AIMessage(content="", tool_calls=[_CALL], id="a1"),
        ToolMessage(content="green tea", tool_call_id="c1", id="t1", artifact={"rows": [1, 2.5, True]}),
        {"role": "user", "content": [b"bytes"]},
        "a plain text",
    ]

    def __init__(self, where: Installation, scope: Scope, name: str) -> None:
        self._saver, self._name = TenutoSaver(where, scope), name
        self._config: RunnableConfig = {"configurable": {"thread_id": name, "checkpoint_ns": ""}}

    async def add(self, text: str) -> None:
        await self.store([text])

    async def texts(self) -> list[str]:
        return await self.read()

    async def store(self, messages: list[Any]) -> None:
        found = await self._saver.aget_tuple(self._config)
        config, old = (found.config, found.checkpoint) if found else (self._config, empty_checkpoint())
        versions: Any = old["channel_versions"]
        versions = {"messages": self._saver.get_next_version(versions.get("messages"), None)}
        longer = [*old["channel_values"].get("messages", []), *messages]
        new: Any = {**empty_checkpoint(), "channel_values": {"messages": longer}, "channel_versions": versions}
        await self._saver.aput(config, new, {"source": "loop", "step": 1, "parents": {}}, versions)

    async def read(self) -> list[Any]:
        found = await self._saver.aget_tuple(self._config)
        return found.checkpoint["channel_values"]["messages"] if found else []

    async def clear(self) -> None:
        await self._saver.adelete_thread(self._name)


TALK = ThreadTalk
