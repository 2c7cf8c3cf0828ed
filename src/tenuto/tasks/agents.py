"""Agents by name: what works on one step of a task, and what it sees of it.

An agent is a function with one argument, its `AgentContext`, that returns the output of its step; or an agent of
Pydantic AI; or an assistant of this installation, named `assistant:` and its name. The decorator `agent` gives the
first two a name; those of a folder's Python files are loaded with `load_agents`.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypeVar

from tenuto.errors import Invalid, InvalidSetting
from tenuto.model import Message, Scope
from tenuto.model.agent_run import RunMessage
from tenuto.model.plan import HUMAN
from tenuto.model.prompt import Language
from tenuto.model.task import BoardEntry, Note
from tenuto.model.values import Json, JsonObject, check_id
from tenuto.task_errors import AgentNotFound
from tenuto.tasks.agent_threads import run_in
from tenuto.tasks.board import Board
from tenuto.tasks.notes import Notes
from tenuto.tasks.runs import RunRecorder
from tenuto.user_files import loading_error

ASSISTANT: Final = "assistant:"
"""The beginning of the names of agents that are assistants."""
_SETTING: Final = "agents"
_NAME: Final = "__tenuto_agent__"
_Value = TypeVar("_Value")


class AgentBoard:
    """The task's board, for one agent while it works on one step.

    The agent writes under its own name. A write raises `StepLost` once another worker has begun the step, and
    `KeyProtected` for keys of another agent. The event loop of the caller may be another one than that of the store.
    """

    def __init__(self, *, board: Board, agent: str) -> None:
        self._board = board
        self._agent = agent
        self._home = asyncio.get_running_loop()

    async def get(self, key: str, kind: type[_Value], default: _Value | None = None) -> _Value | None:
        """The value of a key if it is of this type.

        Raises:
            Invalid: it is of another type.
        """
        entry = await self.read_entry(key)
        if entry is None:
            return default
        if not isinstance(entry.value, kind):
            raise Invalid(f"the value of {key} is a {type(entry.value).__name__}, not a {kind.__name__}")
        return entry.value

    async def read(self, key: str) -> Json:
        """The value of a key, `None` if there is none."""
        entry = await self.read_entry(key)
        return None if entry is None else entry.value

    async def read_entry(self, key: str) -> BoardEntry | None:
        """The value of a key with its writer and version."""
        return await run_in(self._home, self._board.read_entry(key))

    async def values(self) -> JsonObject:
        """All values by their keys."""
        return {entry.key: entry.value for entry in (await run_in(self._home, self._board.view())).entries}

    async def others(self) -> JsonObject:
        """The values that other agents wrote, by their keys."""
        entries = (await run_in(self._home, self._board.view())).entries
        return {entry.key: entry.value for entry in entries if entry.writer != self._agent}

    async def write(
        self, key: str, value: Json, *, if_version: int | None = None, idempotency_key: str | None = None
    ) -> BoardEntry:
        """Set the value of a key, by the rules of `Board.write`."""
        result = self._board.write(
            key, value, agent=self._agent, if_version=if_version, idempotency_key=idempotency_key
        )
        return await run_in(self._home, result)

    async def append(self, key: str, item: Json, *, idempotency_key: str | None = None) -> BoardEntry:
        """Add an item to the end of a key's list, by the rules of `Board.append`."""
        result = self._board.append(key, item, agent=self._agent, idempotency_key=idempotency_key)
        return await run_in(self._home, result)

    async def increment(self, key: str, by: float = 1, *, idempotency_key: str | None = None) -> BoardEntry:
        """Add to the number of a key, by the rules of `Board.increment`."""
        result = self._board.increment(key, by, agent=self._agent, idempotency_key=idempotency_key)
        return await run_in(self._home, result)


class AgentMemory:
    """The private notes of one agent on a task, which no other agent can read."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._home = asyncio.get_running_loop()

    async def read(self, key: str) -> Json:
        """A note, `None` if there is none or it expired."""
        note = await run_in(self._home, self._notes.read_entry(key))
        return None if note is None else note.value

    async def values(self) -> JsonObject:
        """All notes by their keys."""
        return {note.key: note.value for note in await run_in(self._home, self._notes.list())}

    async def write(self, key: str, value: Json) -> Note:
        """Set a note."""
        return await run_in(self._home, self._notes.write(key, value))


PromptWriter: TypeAlias = Callable[[str, str, Mapping[str, Json], JsonObject], str]
"""Writes a system prompt from a role, a goal, the values of other agents, and the user's profile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentContext:
    """All that an agent sees of its step, its task and the conversation.

    `step_key` is `task:step`, the same each time the step is run: the idempotency key of what the agent does elsewhere.
    `scope` is the task's owner. `history` are the newest messages of the task's session, oldest first; `profile` is
    that of its user, `language` the one in which the user is to be answered, if it is known. In `run` the agent reports
    tokens, cost, tool calls and messages.
    """

    scope: Scope
    task_id: str
    step: str
    step_key: str
    agent: str
    attempt: int
    goal: str
    session_id: str | None
    history: tuple[Message, ...]
    profile: JsonObject
    language: Language | None
    board: AgentBoard
    memory: AgentMemory
    run: RunRecorder
    write_prompt: PromptWriter = field(repr=False)
    read_messages: Callable[[], Awaitable[tuple[RunMessage, ...]]] = field(repr=False)

    async def prompt(self, role: str) -> str:
        """The system prompt of this agent: its role, the goal, what other agents wrote, the user's preferred style.

        Values of the board are quoted as data.
        """
        return self.write_prompt(role, self.goal, await self.board.others(), self.profile)

    async def messages(self) -> tuple[RunMessage, ...]:
        """The messages of this agent's runs on the task so far; no other agent can read them."""
        return await self.read_messages()


AgentFunction: TypeAlias = Callable[[AgentContext], Awaitable[Any]]
# Typed as anything, since the type of a Pydantic AI agent would be an import of it.
_Agent = TypeVar("_Agent")
AgentCaller: TypeAlias = Callable[[Any, AgentContext], Awaitable[Any]]
"""Calls an agent that is no function: an agent of Pydantic AI, or an assistant by its name."""
AssistantFinder: TypeAlias = Callable[[str], Awaitable[bool]]
"""Whether there is an assistant of a name."""
_NONE: Final[Mapping[str, Any]] = MappingProxyType({})


def agent(name: str) -> Callable[[_Agent], _Agent]:
    """Name an agent: `@tenuto.agent("reader")` above `async def reader(ctx): ...`.

    An agent of Pydantic AI is named by `reader = tenuto.agent("reader")(Agent(...))`.

    Raises:
        Invalid: it is neither such an agent nor a coroutine function with one argument.
    """
    check_id(name, "the agent's name")

    def mark(function: _Agent) -> _Agent:
        _check_agent(name, function)
        setattr(function, _NAME, name)
        return function

    return mark


class Agents:
    """The agents of an installation, by name.

    Functions of files (`loaded`) run in a thread of their own, where they may block their event loop. Those that a
    program registers run in its loop, and may use what the program has opened there.
    """

    def __init__(
        self,
        agents: Mapping[str, Any] = _NONE,
        *,
        from_files: Mapping[str, Any] = _NONE,
        built_in: Mapping[str, AgentFunction] = _NONE,
        call: AgentCaller | None = None,
        is_assistant: AssistantFinder | None = None,
    ) -> None:
        self._agents: dict[str, Any] = {}
        self._shipped = built_in
        self._call = call
        self._is_assistant = is_assistant
        self._loaded = frozenset(from_files)
        for name, implementation in (*agents.items(), *from_files.items()):
            self.register(name, implementation)

    @property
    def names(self) -> frozenset[str]:
        """The names of all agents; assistants need not be registered."""
        return self.own | frozenset(self._shipped)

    @property
    def own(self) -> frozenset[str]:
        """The names of the registered agents: another process need not have them."""
        return frozenset(self._agents)

    def are_everywhere(self, names: Iterable[str]) -> bool:
        """Whether every process has agents of these names: shipped ones that are not replaced, and assistants."""
        return all(name not in self._agents and (name in self._shipped or name.startswith(ASSISTANT)) for name in names)

    def __contains__(self, name: object) -> bool:
        """Whether this agent can be called here. Of assistants `known` says which exist."""
        return (
            name in self._agents
            or name in self._shipped
            or (self._call is not None and str(name).startswith(ASSISTANT))
        )

    def runs_apart(self, name: str) -> bool:
        """Whether this agent runs in a thread of its own."""
        return name in self._loaded and inspect.iscoroutinefunction(self._agents[name])

    async def known(self, names: Iterable[str]) -> frozenset[str]:
        """Those of the names that are agents or assistants of this process."""
        return frozenset([name for name in names if name in self and await self._exists(name)])

    async def _exists(self, name: str) -> bool:
        if self._is_assistant is None or not name.startswith(ASSISTANT):
            return True
        return await self._is_assistant(name.removeprefix(ASSISTANT))

    def register(self, name: str, implementation: Any) -> None:
        """Add a coroutine function with one argument, or an agent of Pydantic AI; it may replace a shipped agent.

        Raises:
            Invalid: another agent has the name, or it is neither.
        """
        check_id(name, "the agent's name")
        _check_agent(name, implementation)
        if self._agents.setdefault(name, implementation) is not implementation:
            raise Invalid(f"there are two agents named {name}")

    def get(self, name: str) -> AgentFunction:
        """The agent of a name, as a function.

        Raises:
            AgentNotFound: there is none.
        """
        if name not in self:
            raise AgentNotFound(name)
        implementation = self._agents.get(name) or self._shipped.get(name) or name.removeprefix(ASSISTANT)
        if inspect.iscoroutinefunction(implementation):
            function: AgentFunction = implementation
            return function
        if self._call is None:
            raise AgentNotFound(name)
        return partial(self._call, implementation)


def load_agents(folder: Path) -> dict[str, Any]:
    """The agents of the Python files of a folder; files whose names begin with `_` or `.` are left out.

    Raises:
        InvalidSetting: there is no such folder, a file cannot be loaded, or two agents have one name.
    """
    if not folder.is_dir():
        raise InvalidSetting(_SETTING, f"there is no folder {folder}")
    agents: dict[str, Any] = {}
    for path in sorted(folder.glob("*.py")):
        if path.name.startswith(("_", ".")):
            continue
        for name, implementation in _agents_of(path):
            if agents.setdefault(name, implementation) is not implementation:
                raise InvalidSetting(_SETTING, f"{path.name}: there are two agents named {name}")
    return agents


def _agents_of(path: Path) -> Iterator[tuple[str, Any]]:
    name = f"tenuto_agents_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        if isinstance(error, Invalid):
            raise InvalidSetting(_SETTING, f"{path.name}: raises {error} when it is read") from None
        raise loading_error(_SETTING, path, error, when="when it is read") from None
    for value in vars(module).values():
        # A function that is imported from another file is that file's.
        if isinstance(mark := getattr(value, _NAME, None), str) and (
            _is_pydantic_agent(value) or getattr(value, "__module__", None) == name
        ):
            yield mark, value


def _check_agent(name: str, implementation: object) -> None:
    if name == HUMAN:
        raise Invalid(f"no agent may be named {HUMAN}: it is the writer of human input")
    if name.startswith(ASSISTANT):
        raise Invalid(f"no agent may have a name that begins with {ASSISTANT}: those are assistants")
    if _is_pydantic_agent(implementation):
        return
    if not inspect.iscoroutinefunction(implementation):
        raise Invalid(f"the agent {name} is neither an `async def` function nor a Pydantic AI agent")
    try:
        inspect.signature(implementation).bind(None)
    except TypeError:
        raise Invalid(f"the agent {name} must take one argument, its context") from None


def _is_pydantic_agent(implementation: object) -> bool:
    """Whether it is an agent of Pydantic AI, which the program that made one has imported."""
    library = sys.modules.get("pydantic_ai.agent")
    return library is not None and isinstance(implementation, library.AbstractAgent)
