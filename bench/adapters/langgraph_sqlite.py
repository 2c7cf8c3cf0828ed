"""LangGraph's checkpointer on SQLite. A turn reads the newest checkpoint, and puts one with the question and one with
the answer; a thread has 20 turns. LangGraph's own saver comes from `.venv-peers` (`make peers`).
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint, empty_checkpoint

import tenuto
from bench.adapters.__main__ import Turn
from tenuto.integrations.langgraph import TenutoSaver

# Few enough that the slower side gets through a thread, too: both must have histories of the same length.
_TURNS = 20
_ANSWER = "It is on the second shelf, behind the blue box. " * 8


def peer(module: str) -> Any:
    """A module of another project, installed beside us; what we have installed ourselves comes first."""
    folders = Path(__file__).parents[2].glob(".venv-peers/lib/python*/site-packages")
    sys.path += [str(folder) for folder in folders if str(folder) not in sys.path]
    return import_module(module)


@asynccontextmanager
async def ours(url: str) -> AsyncIterator[Turn]:
    """Threads in a store of tenuto."""
    async with tenuto.open(url) as app:
        yield turns(TenutoSaver(app, user="ann"))


@asynccontextmanager
async def _ours(folder: Path) -> AsyncIterator[Turn]:
    async with ours(f"sqlite:///{folder / 'chat.db'}") as turn:
        yield turn


@asynccontextmanager
async def _theirs(folder: Path) -> AsyncIterator[Turn]:
    saver = peer("langgraph.checkpoint.sqlite.aio").AsyncSqliteSaver
    async with saver.from_conn_string(str(folder / "chat.db")) as opened:
        yield turns(opened)


def turns(saver: BaseCheckpointSaver[Any]) -> Turn:
    """Turns by the calls that a graph makes, without the graph."""

    async def put(config: RunnableConfig, old: Checkpoint, message: Any) -> tuple[RunnableConfig, Checkpoint]:
        versions: Any = old["channel_versions"]
        versions = {"messages": saver.get_next_version(versions.get("messages"), None)}
        values = {"messages": [*old["channel_values"].get("messages", []), message]}
        new: Any = {**empty_checkpoint(), "channel_values": values, "channel_versions": versions}
        return await saver.aput(config, new, {"source": "loop", "step": 1, "parents": {}}, versions), new

    async def turn(writer: int, number: int) -> None:
        thread = f"{writer}.{number // _TURNS}"
        config: RunnableConfig = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
        found = await saver.aget_tuple(config)
        old = empty_checkpoint()
        if found is not None:
            config, old = found.config, found.checkpoint
        config, old = await put(config, old, HumanMessage(content=f"Question {number}: where is it?", id=f"q{number}"))
        await put(config, old, AIMessage(content=_ANSWER, id=f"a{number}"))

    return turn


SIDES = {"ours": _ours, "theirs": _theirs}
