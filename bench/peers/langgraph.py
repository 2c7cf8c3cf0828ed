"""LangGraph: its checkpointers, called directly, and a graph of one node for whole turns.

A conversation is the `messages` channel of a thread's newest checkpoint. A load fetches that checkpoint, an append puts
a new one with the longer list; without the graph, which favours it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from importlib import import_module
from itertools import cycle
from typing import Any

from bench.workload import WINDOW, Turn, Words

Config = dict[str, dict[str, str]]


class Checkpoints:
    """Threads of a checkpointer."""

    def __init__(self, saver: Any, close: Callable[[], Awaitable[None]]) -> None:
        self._saver = saver
        self._close = close
        self._empty: Callable[[], dict[str, Any]] = import_module("langgraph.checkpoint.base").empty_checkpoint
        messages = import_module("langchain_core.messages")
        self._human: Callable[..., Any] = messages.HumanMessage
        self._ai: Callable[..., Any] = messages.AIMessage

    async def seed(self, session: str, turns: Sequence[Turn]) -> None:
        config, checkpoint = await self._newest(session)
        await self._put(config, checkpoint, [message for turn in turns for message in self._messages(turn)])

    async def append(self, session: str, turn: Turn) -> None:
        config, checkpoint = await self._newest(session)
        await self._put(config, checkpoint, self._messages(turn))

    async def load(self, session: str) -> int:
        _, checkpoint = await self._newest(session)
        return len(checkpoint["channel_values"]["messages"][-WINDOW:])

    async def cycle(self, session: str, turn: Turn) -> int:
        question, answer = self._messages(turn)
        config, checkpoint = await self._newest(session)
        found = len(checkpoint["channel_values"]["messages"][-WINDOW:])
        config, checkpoint = await self._put(config, checkpoint, [question])
        await self._put(config, checkpoint, [answer])
        return found

    async def close(self) -> None:
        await self._close()

    def _messages(self, turn: Turn) -> list[Any]:
        return [
            self._human(content=turn.user, id=f"q-{turn.number}"),
            self._ai(content=turn.assistant, id=f"a-{turn.number}"),
        ]

    async def _newest(self, session: str) -> tuple[Config, dict[str, Any]]:
        config = _thread(session)
        found = await self._saver.aget_tuple(config)
        return (found.config, found.checkpoint) if found else (config, self._empty())

    async def _put(
        self, config: Config, checkpoint: dict[str, Any], messages: Sequence[Any]
    ) -> tuple[Config, dict[str, Any]]:
        version = self._saver.get_next_version(checkpoint["channel_versions"].get("messages"), None)
        versions = {"messages": version}
        longer = [*checkpoint["channel_values"].get("messages", ()), *messages]
        fresh = {**self._empty(), "channel_values": {"messages": longer}, "channel_versions": versions}
        metadata = {"source": "loop", "step": len(longer), "parents": {}}
        return await self._saver.aput(config, fresh, metadata, versions), fresh


class GraphThreads:
    """Whole turns: a graph whose node answers at once, and a checkpointer."""

    def __init__(self, saver: Any, close: Callable[[], Awaitable[None]]) -> None:
        self._close = close
        messages, graphs = import_module("langchain_core.messages"), import_module("langgraph.graph")
        self._human: Callable[..., Any] = messages.HumanMessage
        self._ai: Callable[..., Any] = messages.AIMessage
        words = Words()
        answers = cycle([words.turn().assistant for _ in range(64)])

        async def answer(_: Any) -> dict[str, Any]:
            return {"messages": [self._ai(content=next(answers))]}

        builder = graphs.StateGraph(graphs.MessagesState)
        builder.add_node("answer", answer)
        builder.add_edge(graphs.START, "answer")
        builder.add_edge("answer", graphs.END)
        self._graph = builder.compile(checkpointer=saver)

    async def seed(self, session: str, turns: Sequence[Turn]) -> None:
        pairs = [(self._human(content=turn.user), self._ai(content=turn.assistant)) for turn in turns]
        state = {"messages": [message for pair in pairs for message in pair]}
        await self._graph.aupdate_state(_thread(session), state, as_node="answer")

    async def load(self, session: str) -> int:
        return len((await self._graph.aget_state(_thread(session))).values["messages"][-WINDOW:])

    async def ask(self, session: str, turn: Turn) -> None:
        await self._graph.ainvoke({"messages": [self._human(content=turn.user)]}, _thread(session))

    async def settle(self) -> None:
        """It leaves nothing behind."""

    async def close(self) -> None:
        await self._close()


def _thread(session: str) -> Config:
    return {"configurable": {"thread_id": session, "checkpoint_ns": ""}}


async def open_graph(url: str) -> GraphThreads:
    """A graph with AsyncSqliteSaver."""
    saver = import_module("langgraph.checkpoint.sqlite.aio").AsyncSqliteSaver
    stack = AsyncExitStack()
    opened = await stack.enter_async_context(saver.from_conn_string(url.removeprefix("sqlite:///")))
    return GraphThreads(opened, stack.aclose)


async def open_sqlite(url: str) -> Checkpoints:
    """AsyncSqliteSaver."""
    saver = import_module("langgraph.checkpoint.sqlite.aio").AsyncSqliteSaver
    stack = AsyncExitStack()
    opened = await stack.enter_async_context(saver.from_conn_string(url.removeprefix("sqlite:///")))
    return Checkpoints(opened, stack.aclose)


async def open_postgres(url: str) -> Checkpoints:
    """AsyncPostgresSaver over a pool of ten connections, set up as its documentation asks."""
    saver = import_module("langgraph.checkpoint.postgres.aio").AsyncPostgresSaver
    pools = import_module("psycopg_pool")
    rows = import_module("psycopg.rows")
    stack = AsyncExitStack()
    settings = {"autocommit": True, "prepare_threshold": 0, "row_factory": rows.dict_row}
    pool = pools.AsyncConnectionPool(url, min_size=10, max_size=10, open=False, kwargs=settings)
    opened = saver(await stack.enter_async_context(pool))
    await opened.setup()
    return Checkpoints(opened, stack.aclose)
