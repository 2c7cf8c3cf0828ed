"""Every adapter as the same thing: a conversation to which texts are added, and which is read back.

A framework is imported when its adapter is asked for: every worker of the suite collects every test.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final, Protocol

from tenuto.integrations.event_loops import Installation
from tenuto.model import Scope


class Talk(Protocol):
    """A conversation of one owner. `kinds` are messages of all kinds that the framework has."""

    kinds: list[Any]

    async def add(self, text: str) -> None:
        """Store what a user said; returns when it is stored."""
        ...

    async def texts(self) -> list[str]:
        """What was said."""
        ...

    async def store(self, messages: list[Any]) -> None:
        """Store messages of the framework."""
        ...

    async def read(self) -> list[Any]:
        """The messages of the framework."""
        ...

    async def clear(self) -> None:
        """Remove all of them."""
        ...


PIXEL: Final = b"\x89PNG\r\n\x1a\n\x00\xff"
ADAPTERS: Final = (
    "openai_agents",
    "pydantic_ai",
    "adk",
    "agent_framework",
    "llama_index",
    "llama_index_base",
    "langchain",
    "langgraph",
    "langgraph_store",
)
# Checkpoints and items need a store that the process itself opens.
IN_PROCESS: Final = ("langgraph", "langgraph_store")

# Their users have names.
NAMED: Final = ("adk", "langgraph", "langgraph_store")


def open_talk(adapter: str, where: Installation, scope: Scope | None, name: str) -> Talk:
    """A conversation of that owner; without one, of a caller who is not named."""
    talk: Talk = import_module(f"tests.integrations.talks.{adapter}").TALK(where, scope, name)
    return talk
