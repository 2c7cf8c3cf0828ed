"""Plain functions as tools: the name is the tool's, the docstring tells the model, the types are the schema."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar, get_type_hints

import msgspec

from tenuto.errors import Invalid, InvalidSetting
from tenuto.model.generation import ToolContext, ToolOutput, ToolSpec
from tenuto.model.values import Json, JsonObject
from tenuto.ports import OfflineTool, Tool

_Function = TypeVar("_Function", bound=Callable[..., Any])
Plan = Callable[[ToolContext], JsonObject | None]
Render = Callable[[Json, ToolContext], str]

_OFFLINE: Final = "__tenuto_offline__"


def offline(*, plan: Plan, render: Render) -> Callable[[_Function], _Function]:
    """Let a function serve without a language model too: `plan` reads its arguments out of a question (`None` when it
    is not wanted), `render` says what it found."""

    def mark(function: _Function) -> _Function:
        setattr(function, _OFFLINE, (plan, render))
        return function

    return mark


def make_tool(function: Callable[..., Any]) -> Tool:
    """The function as a tool. A parameter called `turn` is handed the turn, and no model sees it.

    Raises:
        InvalidSetting: a parameter has no type, or one that no model can fill in, or a default that cannot be one.
    """
    if hasattr(function, "spec") and hasattr(function, "run"):
        ready: Tool = function
        return ready
    serving: tuple[Plan, Render] | None = getattr(function, _OFFLINE, None)
    if not hasattr(function, "__name__"):
        raise InvalidSetting("tools", f"a {type(function).__name__} has no name of its own; put a function around it")
    try:
        return _FunctionTool(function) if serving is None else _OfflineFunctionTool(function, *serving)
    except InvalidSetting:
        raise
    except Exception as error:
        # The code is the user's: an error names the file and is no crash of the server.
        raise InvalidSetting(function.__name__, f"cannot be a tool ({type(error).__name__}: {error})") from None


class _FunctionTool:
    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._fields = _fields(function)
        self._takes_turn = "turn" in inspect.signature(function).parameters
        self._arguments = msgspec.defstruct(
            "Arguments",
            [(name, *rest) for name, rest in self._fields.items()],
            kw_only=True,
            forbid_unknown_fields=True,
        )
        self.spec = ToolSpec(
            name=function.__name__,
            description=inspect.getdoc(function) or function.__name__,
            parameters=_schema(self._arguments),
        )

    async def run(self, arguments: JsonObject, turn: ToolContext) -> ToolOutput:
        """Call it; a plain function runs in a thread, so that it may wait."""
        try:
            # Models write numbers as text.
            fitting = msgspec.convert(arguments, self._arguments, strict=False)
        except msgspec.ValidationError as error:
            # The value of an unknown choice may be user text, so the message names its place alone.
            reason, _, place = str(error).rpartition(" - at ")
            raise Invalid(f"Invalid value - at {place}" if reason.startswith("Invalid") else str(error)) from None
        given = {name: getattr(fitting, name) for name in self._fields}
        if self._takes_turn:
            given["turn"] = turn
        if inspect.iscoroutinefunction(self._function):
            answer = await self._function(**given)
        else:
            answer = await asyncio.to_thread(self._function, **given)
        if isinstance(answer, ToolOutput):
            return answer
        return ToolOutput(output=msgspec.to_builtins(answer))


class _OfflineFunctionTool(_FunctionTool):
    def __init__(self, function: Callable[..., Any], plan: Plan, render: Render) -> None:
        super().__init__(function)
        self._plan = plan
        self._render = render

    def plan(self, turn: ToolContext) -> JsonObject | None:
        """What this question calls for."""
        return self._plan(turn)

    def render(self, output: Json, turn: ToolContext) -> str:
        """What was found, in words."""
        return self._render(output, turn)


def _fields(function: Callable[..., Any]) -> Mapping[str, tuple[Any, ...]]:
    """The parameters a model fills in, as fields: type, and default where there is one."""
    try:
        hints = get_type_hints(function)
    except (NameError, TypeError) as error:
        raise InvalidSetting(function.__name__, f"its types cannot be read ({error})") from None
    fields: dict[str, tuple[Any, ...]] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name == "turn":
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise InvalidSetting(function.__name__, f"{name} cannot be given by name")
        if name not in hints:
            raise InvalidSetting(function.__name__, f"{name} has no type")
        default = () if parameter.default is parameter.empty else (parameter.default,)
        fields[name] = (hints[name], *default)
    return fields


def _schema(arguments: type[msgspec.Struct]) -> JsonObject:
    try:
        schema = msgspec.json.schema(arguments)
    except TypeError as error:
        raise InvalidSetting("tools", f"a parameter's type has no JSON schema ({error})") from None
    # One object, spelled out: models take no references at the top.
    found: JsonObject = {**schema["$defs"].pop("Arguments")}
    found.pop("title", None)
    return {**found, "$defs": schema["$defs"]} if schema["$defs"] else found


__all__ = ["OfflineTool", "make_tool", "offline"]
