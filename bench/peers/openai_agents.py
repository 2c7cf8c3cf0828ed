"""openai-agents: a session object for each conversation, `get_items` and `add_items`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import cycle
from typing import Any

from bench.workload import WINDOW, Turn, Words


class AgentsSessions:
    """Session objects are made once and kept, which spares them their set-up at every request."""

    def __init__(self, make: Callable[[str], Any], close: Callable[[], Any] | None = None) -> None:
        self._make = make
        self._close = close
        self._sessions: dict[str, Any] = {}

    async def seed(self, session: str, turns: Sequence[Turn]) -> None:
        await self._session(session).add_items([item for turn in turns for item in _items(turn)])

    async def append(self, session: str, turn: Turn) -> None:
        await self._session(session).add_items(_items(turn))

    async def load(self, session: str) -> int:
        return len(await self._session(session).get_items(limit=WINDOW))

    async def cycle(self, session: str, turn: Turn) -> int:
        question, answer = _items(turn)
        log = self._session(session)
        found = await log.get_items(limit=WINDOW)
        await log.add_items([question])
        await log.add_items([answer])
        return len(found)

    async def close(self) -> None:
        if self._close is not None:
            await self._close()

    def _session(self, name: str) -> Any:
        session = self._sessions.get(name)
        if session is None:
            session = self._sessions[name] = self._make(name)
        return session


class AgentsRunner(AgentsSessions):
    """Whole turns: `Runner.run` with a session. Its tracing is off, which favours it."""

    def __init__(self, make: Callable[[str], Any]) -> None:
        super().__init__(make)
        agents = import_module("agents")
        self._run: Callable[..., Any] = agents.Runner.run
        self._agent = agents.Agent(name="bench", instructions="You help.", model=_instant_model(agents))
        self._config = agents.RunConfig(tracing_disabled=True)

    async def seed(self, session: str, turns: Sequence[Turn]) -> None:
        """In the form that the runner stores."""
        items: list[Any] = []
        for turn in turns:
            items.append({"role": "user", "content": turn.user})
            items.append(_output(turn.assistant).model_dump(exclude_unset=True))
        await self._session(session).add_items(items)

    async def ask(self, session: str, turn: Turn) -> None:
        await self._run(self._agent, turn.user, session=self._session(session), run_config=self._config)

    async def settle(self) -> None:
        """It leaves nothing behind."""


def _instant_model(agents: Any) -> Any:
    words = Words()
    answers = cycle([words.turn().assistant for _ in range(64)])

    async def get_response(*_: Any, **__: Any) -> Any:
        return agents.ModelResponse(
            output=[_output(next(answers))],
            usage=agents.Usage(requests=1, input_tokens=300, output_tokens=100, total_tokens=400),
            response_id=None,
        )

    # Made at run time: the environment in which types are checked does not have the base class.
    methods = {"get_response": staticmethod(get_response), "stream_response": staticmethod(get_response)}
    return type("InstantModel", (agents.Model,), methods)()


def _output(text: str) -> Any:
    types = import_module("openai.types.responses")
    content = types.ResponseOutputText(annotations=[], text=text, type="output_text")
    return types.ResponseOutputMessage(
        id="msg", content=[content], role="assistant", status="completed", type="message"
    )


def _items(turn: Turn) -> list[dict[str, str]]:
    return [{"role": "user", "content": turn.user}, {"role": "assistant", "content": turn.assistant}]


async def open_sqlite(url: str) -> AgentsSessions:
    """SQLiteSession, which puts SQLite into WAL and leaves synchronous at FULL."""
    sqlite_session = import_module("agents").SQLiteSession
    path = url.removeprefix("sqlite:///")
    return AgentsSessions(lambda name: sqlite_session(name, path))


async def open_runner(url: str) -> AgentsRunner:
    """Runner and SQLiteSession."""
    sqlite_session = import_module("agents").SQLiteSession
    path = url.removeprefix("sqlite:///")
    return AgentsRunner(lambda name: sqlite_session(name, path))


async def open_sqlalchemy(url: str) -> AgentsSessions:
    """SQLAlchemySession over aiosqlite or asyncpg; on Postgres with a connection for every task."""
    memory = import_module("agents.extensions.memory.sqlalchemy_session")
    make_engine = import_module("sqlalchemy.ext.asyncio").create_async_engine
    if url.startswith("sqlite"):
        engine = make_engine(url.replace("sqlite:", "sqlite+aiosqlite:", 1))
    else:
        engine = make_engine(url.replace("postgresql:", "postgresql+asyncpg:", 1), pool_size=32)
    # Tables are made by the first; asking for it in each session would cost them a check at every call.
    first = memory.SQLAlchemySession("first", engine=engine, create_tables=True)
    await first.get_items(limit=1)
    return AgentsSessions(lambda name: memory.SQLAlchemySession(name, engine=engine), engine.dispose)


async def open_redis(url: str) -> AgentsSessions:
    """RedisSession over one client with its pool."""
    memory = import_module("agents.extensions.memory.redis_session")
    client = import_module("redis.asyncio").from_url(url)
    return AgentsSessions(lambda name: memory.RedisSession(name, redis_client=client), client.aclose)
