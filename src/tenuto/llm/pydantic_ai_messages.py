"""Our prompts as Pydantic AI's messages, and its answers as our events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

import msgspec
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    MultiModalContent,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.tools import ToolDefinition

from tenuto.errors import Invalid
from tenuto.llm.pydantic_ai_items import to_native_part
from tenuto.llm.pydantic_ai_media import to_contents
from tenuto.model.attachment import MEDIA_PARTS, Content
from tenuto.model.generation import UNREADABLE, ToolCall, ToolSpec
from tenuto.model.media import LEFT_OUT
from tenuto.model.message import IS_ERROR, Role, readable_part, text_part
from tenuto.model.prompt import PromptMessage
from tenuto.model.provider_items import ITEM_TYPES
from tenuto.model.reasoning import REASONING
from tenuto.model.values import Json, JsonObject, check_json, make_storable

_SENT: Final = frozenset({"text", *MEDIA_PARTS})
# How much is kept of arguments that cannot be read: a caller gets what a model wrote until its answer was cut.
_UNREADABLE: Final = 64_000
_PAST: Final = "Was called before. Is not there any more."
_NO_PARAMETERS: Final[JsonObject] = {"type": "object", "properties": {}}
# Anthropic takes no empty text.
_SAYS_SOMETHING: Final = "anthropic"
_NOTHING: Final = "(no output)"
SIGNATURE: Final = "thought_signature"
"""What Google calls the signature of a call."""
OVER_CHAT: Final = "-chat"
"""The end of a provider's name in thoughts that came over the chat completions protocol."""


def to_messages(
    prompt: Sequence[PromptMessage], contents: Mapping[str, Content] = MappingProxyType({}), provider: str = ""
) -> list[ModelMessage]:
    """The prompt: what the assistant said as responses, all that lies between two of them as one request.

    `contents` are the bytes of the attachments that it shows, `provider` is what Pydantic AI calls the model's own.
    """
    names = {part["id"]: part["name"] for message in prompt for part in message.parts if part["type"] == "tool_call"}
    messages: list[ModelMessage] = []
    for answered, run in groupby(prompt, key=lambda message: message.role is Role.ASSISTANT):
        if answered:
            messages += [ModelResponse(parts=parts) for message in run if (parts := list(_response_parts(message)))]
        else:
            shown = _Shown(contents, provider)
            if asked := [part for message in run for part in _request_parts(message, names, shown)]:
                messages.append(ModelRequest(parts=asked))
    return messages


class _Shown(NamedTuple):
    """What is needed to send pictures, sounds and files."""

    contents: Mapping[str, Content]
    provider: str

    def of(self, parts: Iterable[JsonObject]) -> list[str | MultiModalContent]:
        return list(to_contents(parts, self.contents, self.provider))


def _request_parts(message: PromptMessage, names: dict[str, str], shown: _Shown) -> Iterator[ModelRequestPart]:
    for part in message.parts:
        if part["type"] == "tool_result":
            call_id = str(part["call_id"])
            output = _output(part["output"], shown)
            if shown.provider == _SAYS_SOMETHING and isinstance(output, str) and not output.strip():
                output = _NOTHING
            outcome: Literal["success", "failed"] = "failed" if part.get(IS_ERROR) is True else "success"
            name = names.get(call_id, "tool")
            yield ToolReturnPart(tool_name=name, content=output, tool_call_id=call_id, outcome=outcome)
    if message.role is Role.USER and any(part["type"] in MEDIA_PARTS for part in message.parts):
        yield UserPromptPart(content=shown.of(_joined_texts(message.parts)))
    elif text := message.text:
        yield SystemPromptPart(content=text) if message.role is Role.SYSTEM else UserPromptPart(content=text)


def _joined_texts(parts: Iterable[JsonObject]) -> Iterator[JsonObject]:
    """The parts, with texts that stand side by side as one."""
    for is_text, run in groupby(parts, key=lambda part: part["type"] == "text"):
        if is_text:
            yield text_part("".join([part["text"] for part in run]))
        else:
            yield from run


def _output(output: Json, shown: _Shown) -> str | list[str | MultiModalContent]:
    """A tool's output: its text, or its texts with what it shows between them."""
    items = output if isinstance(output, list) else []
    typed = [item for item in items if isinstance(item, dict) and isinstance(item.get("type"), str)]
    if not any(item["type"] in MEDIA_PARTS or LEFT_OUT in item for item in typed):
        return _output_text(output)
    parts = [readable_part(item) if item in typed else text_part(_output_text(item)) for item in items]
    known = [part if part["type"] in _SENT else text_part(_output_text(part)) for part in parts]
    sent = shown.of(_joined_texts(known))
    return "".join(map(str, sent)) if all(isinstance(one, str) for one in sent) else sent


def _response_parts(message: PromptMessage) -> Iterator[ModelResponsePart]:
    """Text before calls, but with thoughts or what the provider did all in the order in which it came."""
    if not any(part["type"] == REASONING or part["type"] in ITEM_TYPES for part in message.parts):
        if text := message.text:
            yield TextPart(content=text)
        yield from (_call_part(part) for part in message.parts if part["type"] == "tool_call")
        return
    signatures = {part["call_id"]: part for part in message.parts if part["type"] == REASONING and "call_id" in part}
    for kind, run in groupby(message.parts, key=lambda part: part["type"]):
        if kind == "text":
            if text := "".join(part["text"] for part in run):
                yield TextPart(content=text)
        elif kind == REASONING:
            yield from (to_thinking(part) for part in run if "call_id" not in part)
        elif kind == "tool_call":
            yield from (_call_part(part, signatures.get(part["id"])) for part in run)
        elif kind in ITEM_TYPES:
            yield from map(to_native_part, run)


def to_thinking(part: JsonObject) -> ThinkingPart:
    """A thought as it came."""
    return ThinkingPart(
        content=part["text"],
        id=part.get("id"),
        signature=part.get("signature") or part.get("encrypted"),
        provider_name=str(part["provider"]).removesuffix(OVER_CHAT),
        provider_details=part.get("details"),
    )


def _call_part(part: JsonObject, signed: JsonObject | None = None) -> ToolCallPart:
    """A call, with the thought that has its signature."""
    arguments = part["arguments"]
    args = arguments if isinstance(arguments, dict) else _output_text(arguments)
    call = ToolCallPart(tool_name=part["name"], args=args, tool_call_id=part["id"])
    if signed is not None:
        details, provider = {SIGNATURE: signed["signature"]}, str(signed["provider"])
        call.provider_name = provider.removesuffix(OVER_CHAT)
        call.provider_details = {"extra_content": {"google": details}} if provider.endswith(OVER_CHAT) else details
    return call


def _output_text(output: Json) -> str:
    return output if isinstance(output, str) else msgspec.json.encode(output).decode()


def past_tools(prompt: Sequence[PromptMessage]) -> list[ToolSpec]:
    """The tools that a prompt has calls of: Anthropic refuses calls of tools that a request does not describe."""
    names = {part["name"]: None for message in prompt for part in message.parts if part["type"] == "tool_call"}
    return [ToolSpec(name=name, description=_PAST, parameters=_NO_PARAMETERS) for name in names]


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
