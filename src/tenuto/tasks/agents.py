"""Agents by name: functions that work on one step of a task and see what their agent may see.

An agent is a function with one argument, its `AgentContext`, and returns the output of its step. The decorator `agent`
gives a function a name; the functions of a folder's Python files are loaded with `load_agents`.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypeVar

from tenuto.errors import AgentNotFound, Invalid, InvalidSetting
from tenuto.model import Message, Scope
from tenuto.model.plan import HUMAN
from tenuto.model.task import BoardEntry, Note
from tenuto.model.values import Json, JsonObject, check_id
from tenuto.tasks.board import Board
from tenuto.tasks.notes import Notes

_SETTING: Final = "agents"
_NAME: Final = "__tenuto_agent__"
_Value = TypeVar("_Value")


class AgentBoard:
    """The task's board, for one agent while it works on one step.

    The agent writes under its own name. A write raises `StepLost` once another worker has begun the step, and
    `KeyProtected` for keys of another agent.
    """

    def __init__(self, *, board: Board, agent: str, check_owner: Callable[[], Awaitable[None]]) -> None:
        self._board = board
        self._agent = agent
        self._check_owner = check_owner

    async def get(self, key: str, kind: type[_Value], default: _Value | None = None) -> _Value | None:
        """The value of a key if it is of this type.

        Raises:
            Invalid: it is of another type.
        """
        entry = await self._board.read_entry(key)
        if entry is None:
            return default
        if not isinstance(entry.value, kind):
            raise Invalid(f"the value of {key} is a {type(entry.value).__name__}, not a {kind.__name__}")
        return entry.value

    async def read(self, key: str) -> Json:
        """The value of a key, `None` if there is none."""
        entry = await self._board.read_entry(key)
        return None if entry is None else entry.value

    async def read_entry(self, key: str) -> BoardEntry | None:
        """The value of a key with its writer and version."""
        return await self._board.read_entry(key)

    async def values(self) -> JsonObject:
        """All values by their keys."""
        return {entry.key: entry.value for entry in (await self._board.view()).entries}

    async def write(
        self, key: str, value: Json, *, if_version: int | None = None, idempotency_key: str | None = None
    ) -> BoardEntry:
        """Set the value of a key, by the rules of `Board.write`."""
        await self._check_owner()
        return await self._board.write(
            key, value, agent=self._agent, if_version=if_version, idempotency_key=idempotency_key
        )


class AgentMemory:
    """The private notes of one agent on a task, which no other agent can read."""

    def __init__(self, *, notes: Notes, check_owner: Callable[[], Awaitable[None]]) -> None:
        self._notes = notes
        self._check_owner = check_owner

    async def read(self, key: str) -> Json:
        """A note, `None` if there is none or it expired."""
        note = await self._notes.read_entry(key)
        return None if note is None else note.value

    async def values(self) -> JsonObject:
        """All notes by their keys."""
        return {note.key: note.value for note in await self._notes.list()}

    async def write(self, key: str, value: Json) -> Note:
        """Set a note."""
        await self._check_owner()
        return await self._notes.write(key, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentContext:
    """All that an agent sees of its step, its task and the conversation.

    `step_key` is `task:step`, the same each time the step is run: the idempotency key of what the agent does elsewhere.
    `scope` is the task's owner. `history` are the newest messages of the task's session, oldest first; `profile` is
    that of its user.
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
    board: AgentBoard
    memory: AgentMemory


AgentFunction: TypeAlias = Callable[[AgentContext], Awaitable[Any]]
_Function = TypeVar("_Function", bound=AgentFunction)
_NONE: Final[Mapping[str, AgentFunction]] = MappingProxyType({})


def agent(name: str) -> Callable[[_Function], _Function]:
    """Name a coroutine function as an agent: `@tenuto.agent("reader")` above `async def reader(ctx): ...`.

    Raises:
        Invalid: it is no coroutine function with one argument.
    """
    check_id(name, "the agent's name")

    def mark(function: _Function) -> _Function:
        _check_function(name, function)
        setattr(function, _NAME, name)
        return function

    return mark


class Agents:
    """The agents of an installation, by name."""

    def __init__(self, functions: Mapping[str, AgentFunction] = _NONE) -> None:
        self._functions: dict[str, AgentFunction] = {}
        for name, function in functions.items():
            self.register(name, function)

    @property
    def names(self) -> frozenset[str]:
        """The names of all agents."""
        return frozenset(self._functions)

    def register(self, name: str, function: AgentFunction) -> None:
        """Add an agent.

        Raises:
            Invalid: another function has the name, or it is no coroutine function with one argument.
        """
        check_id(name, "the agent's name")
        _check_function(name, function)
        if self._functions.setdefault(name, function) is not function:
            raise Invalid(f"there are two agents of the name {name}")

    def get(self, name: str) -> AgentFunction:
        """The agent of a name.

        Raises:
            AgentNotFound: there is none.
        """
        try:
            return self._functions[name]
        except KeyError:
            raise AgentNotFound(name) from None


def load_agents(folder: Path) -> dict[str, AgentFunction]:
    """The agents of the Python files of a folder; files whose names begin with `_` or `.` are left out.

    Raises:
        InvalidSetting: there is no such folder, a file cannot be loaded, or two agents have one name.
    """
    if not folder.is_dir():
        raise InvalidSetting(_SETTING, "there is no such folder")
    found: dict[str, AgentFunction] = {}
    for path in sorted(folder.glob("*.py")):
        if path.name.startswith(("_", ".")):
            continue
        for name, function in _agents_of(path):
            if name in found:
                raise InvalidSetting(_SETTING, f"{path.name}: there are two agents of the name {name}")
            found[name] = function
    return found


def _agents_of(path: Path) -> Iterator[tuple[str, AgentFunction]]:
    name = f"tenuto_agents_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as broken:
        del sys.modules[name]
        raise InvalidSetting(_SETTING, f"{path.name}: raises {_describe(broken, path)} when it is read") from None
    for value in vars(module).values():
        # An agent that is imported from another file is that file's.
        if hasattr(value, _NAME) and getattr(value, "__module__", None) == name:
            yield getattr(value, _NAME), value


def _describe(broken: Exception, path: Path) -> str:
    if isinstance(broken, Invalid):
        return str(broken)
    if isinstance(broken, SyntaxError):
        return f"SyntaxError at line {broken.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(broken.__traceback__) if frame.filename == str(path)]
    return type(broken).__name__ + (f" at line {lines[-1]}" if lines else "")


def _check_function(name: str, function: object) -> None:
    if name == HUMAN:
        raise Invalid(f"no agent may be named {HUMAN}: it is the writer of human input")
    if not inspect.iscoroutinefunction(function):
        raise Invalid(f"the agent {name} is no `async def` function")
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        raise Invalid(f"the agent {name} must take one argument, its context") from None
