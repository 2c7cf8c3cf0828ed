"""What the offline model does with tools of the caller: it calls the one a question names, and quotes its output."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile
from typing import Final

import msgspec

from tenuto.model import Message, Role
from tenuto.model.generation import NONE, REQUIRED, ModelRequest, ToolCall, ToolSpec
from tenuto.model.graphemes import boundary_before
from tenuto.model.prompt import PromptMessage
from tenuto.model.values import Json, JsonObject
from tenuto.ports import Tool
from tenuto.recall import terms

# Where the words of a name like `get_weather` or `getWeather` meet.
_JOINT: Final = re.compile(r"[_\-.]+|(?<=[a-z])(?=[A-Z])")
_QUOTED: Final = 2_000
_NULL: Final = {"type": "null"}
# Schemas may refer to themselves.
_DEPTH: Final = 4


def plan_callers_calls(request: ModelRequest, tools: Sequence[Tool]) -> list[ToolCall]:
    """The call of a tool that shares a word with the question, or that the request demands; else none.

    After an output of such a tool only a demand makes another call.
    """
    own = {tool.spec.name for tool in tools}
    callers = [spec for spec in request.tools if spec.name not in own]
    turn = request.tool_context
    if request.requires_call and request.tool_choice != REQUIRED:
        callers = [spec for spec in callers if spec.name == request.tool_choice]
    if not callers or turn is None or request.tool_results or request.tool_choice == NONE:
        return []
    asked = set(terms(turn.question))
    shared = [len(asked.intersection(terms(f"{_JOINT.sub(' ', spec.name)} {spec.description}"))) for spec in callers]
    best = max(shared)
    if not request.requires_call and (not best or _ends_with_output(request)):
        return []
    chosen = callers[shared.index(best)]
    call_id = f"call_{int(turn.now.timestamp() * 1000):x}_{chosen.name}"
    return [ToolCall(id=call_id, name=chosen.name, arguments=_arguments(chosen, turn.question))]


def quote_outputs(request: ModelRequest) -> str:
    """The outputs that the request ends with, one below the other; empty if it ends with something else."""
    if request.tool_results or not _ends_with_output(request):
        return ""
    talk: Sequence[Message | PromptMessage] = request.messages
    if request.tool_context is not None:
        talk = request.tool_context.history
    newest = takewhile(lambda message: message.role in (Role.TOOL, Role.SYSTEM), reversed(talk))
    outputs = [part.get("output") for message in newest for part in reversed(message.parts) if "output" in part]
    return "\n".join(filter(None, map(_quote, reversed(outputs))))


def _ends_with_output(request: ModelRequest) -> bool:
    last = next((message for message in reversed(request.messages) if message.role is not Role.SYSTEM), None)
    return last is not None and last.role is Role.TOOL


def _quote(output: Json) -> str:
    text = output if isinstance(output, str) else msgspec.json.encode(output).decode()
    return text.strip() if len(text) <= _QUOTED else text[: boundary_before(text, _QUOTED)].strip() + "…"


def _arguments(spec: ToolSpec, question: str) -> JsonObject:
    value = _value(spec.parameters, spec.parameters, question, _DEPTH)
    return value if isinstance(value, dict) else {}


def _value(schema: Json, root: JsonObject, question: str, depth: int) -> Json:
    """A value of the schema: the question for a text, else the first or the emptiest there is."""
    schema = _resolve(schema, root)
    if depth == 0 or not isinstance(schema, dict):
        return None
    if "const" in schema or schema.get("enum"):
        return schema["const"] if "const" in schema else schema["enum"][0]
    for options in (schema.get(key) for key in ("anyOf", "oneOf", "allOf")):
        if isinstance(options, list) and options:
            return _value(next((one for one in options if one != _NULL), _NULL), root, question, depth - 1)
    kind = schema.get("type", "object" if "properties" in schema or schema is root else "string")
    match kind[0] if isinstance(kind, list) and kind else kind:
        case "object":
            fields, needed = schema.get("properties"), schema.get("required")
            known = fields if isinstance(fields, dict) else {}
            names = [name for name in needed if isinstance(name, str)] if isinstance(needed, list) else []
            return {name: _value(known.get(name, {}), root, question, depth - 1) for name in names}
        case "integer" | "number":
            return 0
        case "boolean":
            return False
        case "array":
            return []
        case "null":
            return None
        case _:
            return question


def _resolve(schema: Json, root: JsonObject) -> Json:
    """The schema that a reference names."""
    path = schema.get("$ref") if isinstance(schema, dict) else None
    if not isinstance(path, str) or not path.startswith("#/"):
        return schema
    found: Json = root
    for step in path[2:].split("/"):
        found = found.get(step) if isinstance(found, dict) else None
    return found
