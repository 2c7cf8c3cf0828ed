"""OpenAI's chat completions: what it refuses, and how it answers, whole and streamed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from tests.providers.dialect import Prompt, content_of
from tests.providers.media import audio_format, decoded, is_pdf, read_data_url
from tests.providers.models import OpenAIModel
from tests.providers.openai_rules import (
    FunctionSpec,
    Name,
    OpenAIDialect,
    Penalty,
    PromptCacheBreakpoint,
    Share,
    Temperature,
    TopLogprobs,
    check_file_id,
    check_function,
    check_image_url,
    check_metadata,
    openai_model,
    refuse_shape,
)
from tests.providers.prompts import canonical, tokens
from tests.providers.refusals import Refused, Shape, ShapeError, shaped, tagged
from tests.providers.script import Answer, Ending, Reasoning, Refusal, Text, Tokens, ToolCall
from tests.providers.strict_schemas import openai_strict_fault

_CREATED: Final = 1_767_225_600
_SPEAKER = Annotated[str, Meta(pattern=r"^[^\s<|\\/>]+$", max_length=64)]


class TextPart(Shape, kw_only=True):
    type: str
    text: str
    prompt_cache_breakpoint: PromptCacheBreakpoint | None = None


class ImageUrl(Shape, kw_only=True):
    url: str
    detail: Literal["auto", "low", "high", "original"] | None = None


class ImagePart(Shape, kw_only=True):
    type: str
    image_url: ImageUrl
    prompt_cache_breakpoint: PromptCacheBreakpoint | None = None


class InputAudio(Shape, kw_only=True):
    data: str
    format: Literal["wav", "mp3"]


class AudioPart(Shape, kw_only=True):
    type: str
    input_audio: InputAudio
    prompt_cache_breakpoint: PromptCacheBreakpoint | None = None


class InputFile(Shape, kw_only=True):
    file_data: str | None = None
    file_id: str | None = None
    filename: str | None = None


class FilePart(Shape, kw_only=True):
    type: str
    file: InputFile
    prompt_cache_breakpoint: PromptCacheBreakpoint | None = None


class RefusalPart(Shape, kw_only=True):
    type: str
    refusal: str


class CalledFunction(Shape, kw_only=True):
    name: Name
    arguments: str


class CallShape(Shape, kw_only=True):
    id: Annotated[str, Meta(max_length=40)]
    type: Literal["function", "custom"]
    function: CalledFunction | None = None
    custom: dict[str, Any] | None = None


class Message(Shape, kw_only=True):
    role: str
    content: str | list[Any] | None = None
    name: _SPEAKER | None = None


class AssistantMessage(Message, kw_only=True):
    refusal: str | None = None
    tool_calls: list[CallShape] | None = None
    audio: dict[str, Any] | None = None
    function_call: dict[str, Any] | None = None


class ToolMessage(Message, kw_only=True):
    tool_call_id: str


class FunctionTool(Shape, kw_only=True):
    type: str
    function: FunctionSpec


class CustomSpec(Shape, kw_only=True):
    name: Name
    description: str | None = None
    format: dict[str, Any] | None = None


class CustomTool(Shape, kw_only=True):
    type: str
    custom: CustomSpec


class JsonSchema(Shape, kw_only=True):
    name: Name
    description: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class ResponseFormat(Shape, kw_only=True):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class StreamOptions(Shape, kw_only=True):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class ChatRequest(Shape, kw_only=True):
    """The body. A field that OpenAI adds shows as a difference to its own client (see the tests)."""

    model: str
    messages: Annotated[list[Any], Meta(min_length=1)]
    audio: dict[str, Any] | None = None
    frequency_penalty: Penalty | None = None
    function_call: str | dict[str, Any] | None = None
    functions: list[Any] | None = None
    logit_bias: dict[str, Annotated[float, Meta(ge=-100, le=100)]] | None = None
    logprobs: bool | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    metadata: dict[str, str] | None = None
    modalities: list[Literal["text", "audio"]] | None = None
    moderation: dict[str, Any] | None = None
    n: Annotated[int, Meta(ge=1, le=128)] | None = None
    parallel_tool_calls: bool | None = None
    prediction: dict[str, Any] | None = None
    presence_penalty: Penalty | None = None
    prompt_cache_key: str | None = None
    prompt_cache_options: dict[str, Any] | None = None
    prompt_cache_retention: Literal["in_memory", "24h"] | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    response_format: ResponseFormat | None = None
    safety_identifier: Annotated[str, Meta(max_length=128)] | None = None
    seed: int | None = None
    service_tier: Literal["auto", "default", "flex", "scale", "priority", "fast"] | None = None
    stop: str | Annotated[list[str], Meta(max_length=4)] | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: Temperature | None = None
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = None
    tools: Annotated[list[Any], Meta(min_length=1, max_length=128)] | None = None
    top_logprobs: TopLogprobs | None = None
    top_p: Share | None = None
    user: str | None = None
    verbosity: Literal["low", "medium", "high"] | None = None
    web_search_options: dict[str, Any] | None = None


_PARTS: Final = {
    "text": TextPart,
    "image_url": ImagePart,
    "input_audio": AudioPart,
    "file": FilePart,
    "refusal": RefusalPart,
}
_ROLES: Final = {
    "developer": Message,
    "system": Message,
    "user": Message,
    "assistant": AssistantMessage,
    "tool": ToolMessage,
    "function": Message,
}
_TOOLS: Final = {"function": FunctionTool, "custom": CustomTool}
# What reasoning models take no other value of, and what they do not take at all.
_FIXED: Final = {"temperature": 1, "top_p": 1, "n": 1, "presence_penalty": 0, "frequency_penalty": 0}
_UNKNOWN_TO_REASONERS: Final = ("stop", "logprobs", "top_logprobs", "logit_bias")
_NEEDS_TOOLS: Final = ("tool_choice", "parallel_tool_calls")


class OpenAIChat(OpenAIDialect):
    """The dialect of `POST /v1/chat/completions`."""

    def read(self, raw: bytes, headers: Mapping[str, str]) -> Prompt:
        """Take a request, or refuse it as the service does."""
        content = content_of(raw, "We could not parse the JSON body of your request.")
        if "model" not in content:
            raise Refused("you must provide a model parameter")
        model = openai_model(str(content["model"]))
        if (extra := sorted(content.keys() - set(ChatRequest.__struct_fields__))) and not model.efforts:
            raise Refused(f"Unrecognized request argument supplied: {extra[0]}")
        try:
            body = shaped(content, ChatRequest)
            messages = [tagged(one, _ROLES, f"messages[{at}]", "role") for at, one in enumerate(body.messages)]
            tools = [tagged(one, _TOOLS, f"tools[{at}]") for at, one in enumerate(body.tools or [])]
            reasons = model.reasons(body.reasoning_effort)
            _check_parameters(body, model, reasons)
            names = _check_tools(body, tools)
            _check_format(body)
            for at, message in enumerate(messages):
                self._check_content(message, at, model)
            _check_pairs(messages)
        except ShapeError as error:
            raise refuse_shape(error) from None
        parts = tuple(map(canonical, [*(body.tools or []), *body.messages]))
        _check_length("\n".join(parts), model)
        return Prompt(model=body.model, stream=bool(body.stream), parts=parts, tools=names, reasons=reasons, body=body)

    def _check_content(self, message: Message, place: int, model: OpenAIModel) -> None:
        if message.content is None or not isinstance(message.content, list):
            says_nothing = message.content is None and getattr(message, "refusal", None) is None
            if says_nothing and not getattr(message, "tool_calls", None):
                text = "Invalid value for 'content': expected a string, got null."
                raise Refused(text, param=f"messages.[{place}].content")
            return
        for at, one in enumerate(message.content):
            path = f"messages[{place}].content[{at}]"
            part = tagged(one, _PARTS, path)
            if part.type == "refusal" and message.role != "assistant":
                raise Refused("Invalid value: 'refusal'.", param=f"{path}.type", code="invalid_value")
            if part.type not in ("text", "refusal") and message.role != "user":
                text = (
                    f"Invalid 'messages[{place}]'. Image URLs are only allowed for messages with role 'user', but this "
                    f"message with role '{message.role}' contains an image URL."
                )
                raise Refused(text, param=f"messages[{place}]", code="invalid_value")
            self._check_media(part, path, model)

    def _check_media(self, part: Shape, at: str, model: OpenAIModel) -> None:
        match part:
            case ImagePart():
                if not model.sees:
                    raise _unfit("image_url", at)
                check_image_url(part.image_url.url, f"{at}.image_url.url", self.ledger)
            case AudioPart():
                if not model.hears:
                    raise _unfit("input_audio", at)
                content = decoded(part.input_audio.data)
                if content is None or audio_format(content) != part.input_audio.format:
                    text = f"The data provided for 'input_audio' is not of valid {part.input_audio.format} format."
                    raise Refused(text, param=f"{at}.input_audio", code="invalid_value")
            case FilePart():
                if not model.sees:
                    raise _unfit("file", at)
                self._check_file(part.file, f"{at}.file")

    def _check_file(self, file: InputFile, at: str) -> None:
        if file.file_id is not None:
            check_file_id(file.file_id, f"{at}.file_id", self.ledger)
        elif file.file_data is None:
            raise Refused(
                f"Missing required parameter: '{at}.file_id'.", param=f"{at}.file_id", code="missing_required_parameter"
            )
        else:
            data = read_data_url(file.file_data)
            if data is None or data.media_type != "application/pdf" or data.content is None:
                text = (
                    f"Invalid file data: '{at}.file_data'. Expected a base64-encoded data URL with an application/pdf "
                    "MIME type."
                )
                raise Refused(text, param=f"{at}.file_data", code="invalid_value")
            if file.filename is None:
                path = f"{at}.filename"
                raise Refused(f"Missing required parameter: '{path}'.", param=path, code="missing_required_parameter")
            if not is_pdf(data.content):
                raise Refused("The file could not be read as a PDF.", param=f"{at}.file_data", code="invalid_file")

    def whole(self, prompt: Prompt, answer: Answer, tokens: Tokens) -> dict[str, Any]:
        """A chat completion."""
        texts = [part for part in answer.parts if type(part) is Text]
        message: dict[str, Any] = {
            "role": "assistant",
            "content": "".join(part.whole for part in texts) if texts else None,
            "refusal": answer.refusal.whole if answer.refusal else None,
            "annotations": [],
        }
        if answer.calls:
            message["tool_calls"] = [
                {"id": call_id, "type": "function", "function": {"name": call.name, "arguments": call.written}}
                for call, call_id in self._calls(answer)
            ]
        pieces = [piece for part in texts for piece in part.pieces]
        choice = {
            "message": message,
            "logprobs": _logprobs(prompt.body, pieces),
            "finish_reason": _finish_reason(answer),
        }
        choices = [{"index": index, **choice} for index in range(prompt.body.n or 1)]
        return {**self._head(prompt, "chat.completion"), "choices": choices, "usage": _usage(tokens)}

    def stream(self, prompt: Prompt, answer: Answer, tokens: Tokens) -> Iterator[bytes]:
        """Chunks; the usage comes last, where it was asked for."""
        head = self._head(prompt, "chat.completion.chunk")
        options = prompt.body.stream_options
        counted = bool(options and options.include_usage)
        for index in range(prompt.body.n or 1):
            deltas = [({"role": "assistant", "content": "", "refusal": None}, None), *self._deltas(prompt, answer)]
            for delta, logprobs in deltas:
                choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": None}
                yield _event({**head, "choices": [choice], **({"usage": None} if counted else {})})
            last = {"index": index, "delta": {}, "logprobs": None, "finish_reason": _finish_reason(answer)}
            if answer.fails is None:
                yield _event({**head, "choices": [last], **({"usage": None} if counted else {})})
        if answer.fails is not None:
            return
        if counted:
            yield _event({**head, "choices": [], "usage": _usage(tokens)})
        yield b"data: [DONE]\n\n"

    def error_event(self, refused: Refused) -> bytes:
        """An error in the middle of a stream."""
        return _event(self.error(refused))

    def _deltas(self, prompt: Prompt, answer: Answer) -> Iterator[tuple[dict[str, Any], dict[str, Any] | None]]:
        for part in answer.parts:
            match part:
                case Reasoning() | ToolCall():
                    pass
                case Refusal():
                    yield from (({"refusal": piece}, None) for piece in part.pieces)
                case Text():
                    yield from (({"content": piece}, _logprobs(prompt.body, [piece])) for piece in part.pieces)
        for index, (call, call_id) in enumerate(self._calls(answer)):
            half = len(call.written) // 2
            function = {"name": call.name, "arguments": ""}
            yield {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]}, None
            for piece in (call.written[:half], call.written[half:]):
                yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}, None

    def _calls(self, answer: Answer) -> list[tuple[ToolCall, str]]:
        return [(call, call.id or self.ledger.next_id("call_")) for call in answer.calls]

    def _head(self, prompt: Prompt, kind: str) -> dict[str, Any]:
        tier = prompt.body.service_tier
        return {
            "id": self.ledger.next_id("chatcmpl-"),
            "object": kind,
            "created": _CREATED,
            "model": prompt.model,
            "service_tier": "default" if tier in (None, "auto") else tier,
            "system_fingerprint": "fp_scripted",
        }


def _check_parameters(body: ChatRequest, model: OpenAIModel, reasons: bool) -> None:
    if model.efforts:
        _check_effort(body, model)
        if body.max_tokens is not None:
            text = (
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' "
                "instead."
            )
            raise Refused(text, param="max_tokens", code="unsupported_parameter")
    elif body.reasoning_effort is not None:
        raise Refused("Unrecognized request argument supplied: reasoning_effort")
    if reasons:
        _check_fixed(body)
    if body.max_tokens is not None and body.max_completion_tokens is not None:
        text = "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported."
        raise Refused(text, param="max_tokens", code="invalid_parameter_combination")
    longest = body.max_completion_tokens or body.max_tokens or 0
    if longest > model.longest_answer:
        text = (
            f"max_tokens is too large: {longest}. This model supports at most {model.longest_answer} completion tokens."
        )
        raise Refused(text, param="max_tokens", code="invalid_value")
    if body.top_logprobs is not None and not body.logprobs:
        text = "The 'top_logprobs' parameter is only allowed when 'logprobs' is enabled."
        raise Refused(text, param="top_logprobs")
    if body.stream_options is not None and not body.stream:
        text = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        raise Refused(text, param="stream_options")
    check_metadata(body.metadata)
    if body.metadata and not body.store:
        raise Refused("The 'metadata' parameter is only allowed when 'store' is enabled.", param="metadata")


def _check_effort(body: ChatRequest, model: OpenAIModel) -> None:
    effort = body.reasoning_effort
    if effort is not None and effort not in model.efforts:
        text = (
            f"Unsupported value: 'reasoning_effort' does not support '{effort}' with this model. Supported values are: "
            f"{', '.join(model.efforts)}."
        )
        raise Refused(text, param="reasoning_effort", code="unsupported_value")


def _check_fixed(body: ChatRequest) -> None:
    for name, only in _FIXED.items():
        value = getattr(body, name)
        if value is not None and value != only:
            text = (
                f"Unsupported value: '{name}' does not support {value} with this model. Only the default ({only}) "
                "value is supported."
            )
            raise Refused(text, param=name, code="unsupported_value")
    for name in _UNKNOWN_TO_REASONERS:
        if getattr(body, name):
            text = f"Unsupported parameter: '{name}' is not supported with this model."
            raise Refused(text, param=name, code="unsupported_parameter")


def _check_tools(body: ChatRequest, tools: Sequence[FunctionTool | CustomTool]) -> frozenset[str]:
    for at, tool in enumerate(tools):
        if isinstance(tool, FunctionTool):
            check_function(tool.function, f"tools[{at}].function")
    names = {tool.function.name if isinstance(tool, FunctionTool) else tool.custom.name for tool in tools}
    for name in _NEEDS_TOOLS:
        if getattr(body, name) is not None and not tools:
            text = f"Invalid value for '{name}': '{name}' is only allowed when 'tools' are specified."
            raise Refused(text, param=name)
    if isinstance(body.tool_choice, dict):
        wanted = body.tool_choice.get(body.tool_choice.get("type", ""), {}).get("name")
        if wanted is not None and wanted not in names:
            raise Refused(f"Tool choice '{wanted}' not found in 'tools' parameter.", param="tool_choice")
    return frozenset(names)


def _check_format(body: ChatRequest) -> None:
    wanted = body.response_format
    if wanted is None:
        return
    if wanted.type == "json_object" and "json" not in json.dumps(body.messages).lower():
        text = "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'."
        raise Refused(text, param="messages")
    if wanted.type == "json_schema":
        if wanted.json_schema is None:
            path = "response_format.json_schema"
            raise Refused(f"Missing required parameter: '{path}'.", param=path, code="missing_required_parameter")
        fault = openai_strict_fault(wanted.json_schema.schema or {}) if wanted.json_schema.strict else None
        if fault is not None:
            text = f"Invalid schema for response_format '{wanted.json_schema.name}': {fault}"
            raise Refused(text, param="response_format")


def _check_pairs(messages: Sequence[Message]) -> None:
    """Calls and results stand together: all results right behind the message that called."""
    waiting: list[str] = []
    for place, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            if message.tool_call_id not in waiting:
                text = (
                    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
                    "'tool_calls'."
                )
                raise Refused(text, param=f"messages.[{place}].role")
            waiting.remove(message.tool_call_id)
        else:
            _check_answered(waiting, place)
            calls = message.tool_calls if isinstance(message, AssistantMessage) else None
            waiting = [call.id for call in calls or []]
    _check_answered(waiting, len(messages))


def _check_answered(waiting: Sequence[str], place: int) -> None:
    if waiting:
        text = (
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(waiting)}"
        )
        raise Refused(text, param=f"messages.[{place}].role")


def _check_length(text: str, model: OpenAIModel) -> None:
    if (length := tokens(len(text))) > model.window:
        message = (
            f"This model's maximum context length is {model.window} tokens. However, your messages resulted in "
            f"{length} tokens."
        )
        raise Refused(message, param="messages", code="context_length_exceeded")


def _unfit(kind: str, at: str) -> Refused:
    return Refused(f"Invalid content type. {kind} is only supported by certain models.", param=f"{at}.type")


def _finish_reason(answer: Answer) -> str:
    by_ending = {Ending.LENGTH: "length", Ending.FILTERED: "content_filter"}
    return by_ending.get(answer.ending, "tool_calls" if answer.calls else "stop")


def _logprobs(body: ChatRequest, pieces: Sequence[str]) -> dict[str, Any] | None:
    """One token a piece, as likely as a coin."""
    if not body.logprobs:
        return None
    tokens = [{"token": piece, "logprob": -0.6931, "bytes": list(piece.encode())} for piece in pieces]
    top = body.top_logprobs or 0
    return {"content": [{**token, "top_logprobs": [token][:top]} for token in tokens], "refusal": None}


def _usage(tokens: Tokens) -> dict[str, Any]:
    return {
        "prompt_tokens": tokens.input,
        "completion_tokens": tokens.output,
        "total_tokens": tokens.input + tokens.output,
        "prompt_tokens_details": {"cached_tokens": tokens.cached, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": tokens.reasoning,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def _event(data: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(data)}\n\n".encode()
