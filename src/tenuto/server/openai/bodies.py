"""What clients of responses and chat completions send, and the turn that they ask for."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from tenuto.errors import Invalid
from tenuto.model.generation import ToolSpec
from tenuto.model.values import Json, JsonObject
from tenuto.server.openai.items import answer_function
from tenuto.server.openai.response_objects import DEFAULTS

_Tokens: TypeAlias = Annotated[int, Meta(ge=1, le=2**31 - 1)]
_REQUIRED: Final = "required"
_NO_PARAMETERS: Final[JsonObject] = {"type": "object", "properties": {}}


class ResponseBody(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a response. Fields that are not here are accepted and have no effect."""

    input: str | list[JsonObject] | None = None
    model: str | None = None
    instructions: str | None = None
    conversation: str | JsonObject | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    stream: bool | None = None
    background: bool | None = None
    tools: list[JsonObject] | None = None
    tool_choice: str | JsonObject | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: _Tokens | None = None
    max_tool_calls: int | None = None
    metadata: dict[str, str] | None = None
    text: JsonObject | None = None
    reasoning: JsonObject | None = None
    truncation: Literal["auto", "disabled"] | None = None
    context_management: list[Any] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    user: str | None = None

    @property
    def conversation_id(self) -> str | None:
        """The conversation that the request names.

        Raises:
            Invalid: it names none, or a response to follow as well.
        """
        named = self.conversation
        if isinstance(named, dict):
            named = named.get("id")
            if not isinstance(named, str):
                raise Invalid("conversation: expected an id, or an object with an id")
        if named is not None and self.previous_response_id is not None:
            raise Invalid("previous_response_id: a request follows a response or a conversation, not both")
        return named

    @property
    def compress_above(self) -> int | None:
        """From how many tokens on the conversation is to be compressed."""
        for one in self.context_management or ():
            if isinstance(one, dict) and one.get("type") == "compaction":
                threshold = one.get("compact_threshold")
                return threshold if type(threshold) is int and threshold > 0 else None
        return None

    def said(self) -> JsonObject:
        """What the response repeats of the request, as far as it is not the default."""
        said: JsonObject = {}
        for name, usual in DEFAULTS.items():
            value = getattr(self, name)
            if value is not None and value != usual:
                said[name] = {**usual, **value} if isinstance(usual, dict) else value
        if self.tools:
            said["tools"] = [_with_strict(tool) for tool in self.tools]
        if self.conversation_id is not None:
            said["conversation"] = {"id": self.conversation_id}
        if said.get("service_tier") == "auto":
            del said["service_tier"]
        return said


class ToolChoice(msgspec.Struct, frozen=True):
    """The caller's tools that a turn offers, which of them it must call, and the one that gives its answer."""

    tools: tuple[ToolSpec, ...] = ()
    choice: str = "auto"
    answer: str | None = None


def _with_strict(tool: JsonObject) -> JsonObject:
    if tool.get("type") != "function":
        return tool
    return {"description": None, "parameters": None, "strict": True, **tool}


def tools_of(
    tools: list[JsonObject] | None, choice: str | JsonObject | None, text: JsonObject | None = None
) -> ToolChoice:
    """The functions among the tools, and the choice between them; tools that OpenAI would run are not offered.

    An answer in a demanded form is the call of one more function, which every model can make.

    Raises:
        Invalid: a function has no name, or the choice is of none of them.
    """
    specs = [_spec(tool) for tool in tools or () if tool.get("type") == "function"]
    wanted = "auto"
    match choice:
        case str():
            wanted = choice
        case {"type": "allowed_tools", "mode": str(mode), "tools": list(allowed)}:
            specs, wanted = _allowed(specs, allowed), mode
        case {"type": "allowed_tools", "allowed_tools": {"mode": str(mode), "tools": list(allowed)}}:
            specs, wanted = _allowed(specs, allowed), mode
        case {"type": "function", "name": str(name)} | {"type": "function", "function": {"name": str(name)}}:
            wanted = name
            if name not in {spec.name for spec in specs}:
                raise Invalid("tool_choice: names none of the tools")
    if wanted == "none":
        specs, wanted = [], "auto"
    answer = answer_function(text)
    if answer is not None and text is not None:
        while answer in {spec.name for spec in specs}:
            # The name of a form says nothing of the functions, so both may have the same.
            answer += "_"
        specs.append(_answer_spec(answer, text["format"]))
        wanted = _REQUIRED if wanted == "auto" and len(specs) > 1 else answer if wanted == "auto" else wanted
    return ToolChoice(tuple(specs), wanted, answer)


def _allowed(specs: list[ToolSpec], allowed: list[Json]) -> list[ToolSpec]:
    """The functions among those that are named, in either form."""
    named = [one.get("function", one) for one in allowed if isinstance(one, dict)]
    names = [function.get("name") for function in named if isinstance(function, dict)]
    return [spec for spec in specs if spec.name in names]


def _spec(tool: JsonObject) -> ToolSpec:
    """A function as Responses describe it, or as chat completions do, one level deeper."""
    function = tool.get("function", tool)
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str) or not name:
        raise Invalid("tools: a function has no name")
    about, parameters = function.get("description") or "", function.get("parameters") or _NO_PARAMETERS
    if not isinstance(about, str) or not isinstance(parameters, dict):
        raise Invalid("tools: a function's description is not a text, or its parameters are not a schema")
    return ToolSpec(name=name, description=about, parameters=parameters)


def _answer_spec(name: str, form: JsonObject) -> ToolSpec:
    schema = form.get("schema") or {"type": "object"}
    if not isinstance(schema, dict):
        raise Invalid("text: the format's schema is not an object")
    about = form.get("description") or "Gives the answer to the user, in this form."
    return ToolSpec(name=name, description=about, parameters=schema)
