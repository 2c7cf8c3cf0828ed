"""Our prompts as Pydantic AI's messages, and its answers as our events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

import msgspec
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.tools import ToolDefinition

from tenuto.errors import Invalid
from tenuto.model.generation import UNREADABLE, ToolCall, ToolSpec
from tenuto.model.message import Role
from tenuto.model.prompt import PromptMessage
from tenuto.model.reasoning import REASONING
from tenuto.model.values import Json, JsonObject, check_json, make_storable

# How much is kept of arguments that cannot be read: enough for the model to see what it wrote.
_UNREADABLE: Final = 2_000
OVER_CHAT: Final = "-chat"
"""The end of a provider's name in thoughts that came over the chat completions protocol."""


def to_messages(prompt: Sequence[PromptMessage]) -> list[ModelMessage]:
    """The prompt: what the assistant said as responses, all that lies between two of them as one request."""
    names = {part["id"]: part["name"] for message in prompt for part in message.parts if part["type"] == "tool_call"}
    messages: list[ModelMessage] = []
    for answered, run in groupby(prompt, key=lambda message: message.role is Role.ASSISTANT):
        if answered:
            messages += [ModelResponse(parts=parts) for message in run if (parts := list(_response_parts(message)))]
        elif asked := [part for message in run for part in _request_parts(message, names)]:
            messages.append(ModelRequest(parts=asked))
    return messages


def _request_parts(message: PromptMessage, names: dict[str, str]) -> Iterator[ModelRequestPart]:
    for part in message.parts:
        if part["type"] == "tool_result":
            call_id = str(part["call_id"])
            yield ToolReturnPart(
                tool_name=names.get(call_id, "tool"), content=_output_text(part["output"]), tool_call_id=call_id
            )
    if text := message.text:
        yield SystemPromptPart(content=text) if message.role is Role.SYSTEM else UserPromptPart(content=text)


def _response_parts(message: PromptMessage) -> Iterator[ModelResponsePart]:
    """Text before calls, but with thoughts all in the order in which it came."""
    if not any(part["type"] == REASONING for part in message.parts):
        if text := message.text:
            yield TextPart(content=text)
        yield from (_call_part(part) for part in message.parts if part["type"] == "tool_call")
        return
    for kind, run in groupby(message.parts, key=lambda part: part["type"]):
        if kind == "text":
            if text := "".join(part["text"] for part in run):
                yield TextPart(content=text)
        elif kind == REASONING:
            yield from map(to_thinking, run)
        elif kind == "tool_call":
            yield from map(_call_part, run)


def to_thinking(part: JsonObject) -> ThinkingPart:
    """A thought as it came."""
    return ThinkingPart(
        content=part["text"],
        id=part.get("id"),
        signature=part.get("signature") or part.get("encrypted"),
        provider_name=str(part["provider"]).removesuffix(OVER_CHAT),
        provider_details=part.get("details"),
    )


def _call_part(part: JsonObject) -> ToolCallPart:
    arguments = part["arguments"]
    args = arguments if isinstance(arguments, dict) else _output_text(arguments)
    return ToolCallPart(tool_name=part["name"], args=args, tool_call_id=part["id"])


def _output_text(output: Json) -> str:
    return output if isinstance(output, str) else msgspec.json.encode(output).decode()


def to_tools(tools: Sequence[ToolSpec]) -> list[ToolDefinition]:
    """The tools as they are offered; their schemas go as they are, in strict mode where they ask for it."""
    return [
        ToolDefinition(
            name=tool.name,
            description=tool.description,
            parameters_json_schema=tool.parameters,
            strict=tool.strict or False,
        )
        for tool in tools
    ]


def to_call(part: ToolCallPart) -> ToolCall:
    """A call as our tools get it.

    Arguments that are no JSON object, or nothing that a store keeps, are handed on as `UNREADABLE`: the tool refuses
    them, and the model learns of it and may try again.
    """
    return ToolCall(id=make_storable(part.tool_call_id), name=make_storable(part.tool_name), arguments=_arguments(part))


def _arguments(part: ToolCallPart) -> JsonObject:
    try:
        arguments = part.args_as_dict(raise_if_invalid=True)
        check_json(arguments, "a tool's arguments")
    except (ValueError, AssertionError, Invalid):
        return {UNREADABLE: make_storable(str(part.args))[:_UNREADABLE]}
    return arguments
