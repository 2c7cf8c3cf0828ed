"""Anthropic's messages: what it refuses, and how it answers, whole and streamed.

Stricter than the service in one point: the thoughts before a call come back also where thinking is adaptive.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tests.providers.anthropic_answers import event, message_events, render_message
from tests.providers.anthropic_shapes import (
    BLOCKS,
    ONLY_ASSISTANT,
    RESULT_BLOCKS,
    THOUGHTS,
    CustomTool,
    DocumentBlock,
    ImageBlock,
    MessageShape,
    MessagesRequest,
    OutputConfig,
    RedactedThinkingBlock,
    ServiceTool,
    Source,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from tests.providers.dialect import Ledger, Prompt, content_of, sign
from tests.providers.media import IMAGE_TYPES, decoded, image_type, is_pdf
from tests.providers.models import ANTHROPIC_MODELS, AnthropicModel
from tests.providers.prompts import canonical, digest, tokens
from tests.providers.refusals import Problem, Refused, ShapeError, shaped, tagged
from tests.providers.script import Answer, Failure, Tokens
from tests.providers.strict_schemas import anthropic_format_fault

_MOST_BREAKPOINTS: Final = 4
_LOOK_BACK: Final = 20
_LEAST_CACHED: Final = 1024
_MOST_IMAGE_BYTES: Final = 5 * 1024 * 1024
_BINDING_BETA: Final = "thinking-binding-controls-2026-08-01"
# The tools that Anthropic runs, or has trained its models for, carry the day of their version.
_SERVICE_TOOL: Final = re.compile(r"[a-z0-9_]+_\d{8}")
_FAILURES: Final = {
    400: ("invalid_request_error", "The request is not valid."),
    401: ("authentication_error", "invalid x-api-key"),
    402: ("billing_error", "Your credit balance is too low to access the Anthropic API."),
    403: ("permission_error", "Your API key does not have permission to use the specified resource."),
    404: ("not_found_error", "model: not found"),
    413: ("request_too_large", "Request exceeds the maximum size"),
    429: ("rate_limit_error", "This request would exceed your account's rate limit. Please try again later."),
    500: ("api_error", "Internal server error"),
    504: ("timeout_error", "Request timed out"),
    529: ("overloaded_error", "Overloaded"),
}


class Turn(NamedTuple):
    """What one side says until the other does: its first message's place, its blocks, and each block's own place."""

    role: str
    place: int
    blocks: list[Any]
    raw: list[dict[str, Any]]
    places: list[str]


@dataclass(frozen=True)
class AnthropicMessages:
    """The dialect of `POST /v1/messages`."""

    ledger: Ledger

    def check_key(self, headers: Mapping[str, str], key: str) -> None:
        """Compare the key, and demand a version."""
        if headers.get("x-api-key") != key and headers.get("authorization") != f"Bearer {key}":
            raise self.fail(Failure(401))
        if "anthropic-version" not in headers:
            raise Refused("anthropic-version: header is required")

    def read(self, raw: bytes, headers: Mapping[str, str]) -> Prompt:
        """Take a request, or refuse it as the service does."""
        content = content_of(raw, "The request body is not valid JSON.")
        try:
            body = shaped(content, MessagesRequest)
            if body.model not in ANTHROPIC_MODELS:
                raise Refused(f"model: {body.model}", status=404, kind="not_found_error")
            model = ANTHROPIC_MODELS[body.model]
            mode = body.thinking.type if body.thinking else model.default_thinking
            _check_parameters(body, model)
            _check_thinking(body, model, mode)
            tools = [_read_tool(one, f"tools.{at}") for at, one in enumerate(body.tools or [])]
            names = _check_tools(body, tools)
            system = _read_system(body.system)
            turns = list(self._turns(body.messages, model))
        except ShapeError as error:
            raise _refuse_shape(error) from None
        _check_pairs(turns, bool(tools))
        _check_end(turns, model, mode)
        prefix = [canonical(body.tools or []), canonical(system)]
        self._check_thoughts(turns, prefix, body, model, mode, _BINDING_BETA in headers.get("anthropic-beta", ""))
        prompt = _prompt(body, system, turns, names, reasons=mode != "disabled")
        _check_length(prompt, model)
        return prompt

    def cached_tokens(self, prompt: Prompt, equal: int, written: Mapping[str, int]) -> tuple[int, int]:
        """The longest entry at or shortly before a breakpoint; what follows, up to the last breakpoint, is written."""
        if not prompt.breakpoints:
            return 0, 0
        wanted = tokens(len(prompt.text_until(prompt.breakpoints[-1])))
        places = {at for end in prompt.breakpoints for at in range(max(1, end - _LOOK_BACK), end + 1)}
        found = next((at for at in sorted(places, reverse=True) if digest(prompt.text_until(at)) in written), 0)
        cached = tokens(len(prompt.text_until(found))) if found else 0
        return (cached, wanted - cached) if wanted >= _LEAST_CACHED else (0, 0)

    def _turns(self, messages: Sequence[MessageShape], model: AnthropicModel) -> Iterator[Turn]:
        """Neighbours of one role are one turn; a system message among them belongs to none."""
        turn: Turn | None = None
        for place, message in enumerate(messages):
            if message.role == "system" and model.inline_system:
                _read_system(message.content)
                continue
            if message.role not in ("user", "assistant"):
                text = (
                    f'messages: Unexpected role "{message.role}". The Messages API accepts a top-level `system` '
                    'parameter, not "system" as an input message role.'
                )
                raise Refused(text)
            if not message.content and not (message.role == "assistant" and place == len(messages) - 1):
                text = (
                    f"messages.{place}: all messages must have non-empty content except for the optional final "
                    "assistant message"
                )
                raise Refused(text)
            raw = _blocks_of(message.content)
            paths = [f"messages.{place}.content.{at}" for at in range(len(raw))]
            blocks = [self._read_block(one, message.role, path) for one, path in zip(raw, paths, strict=True)]
            if turn is not None and turn.role == message.role:
                turn.blocks.extend(blocks)
                turn.raw.extend(raw)
                turn.places.extend(paths)
                continue
            if turn is not None:
                yield turn
            turn = Turn(message.role, place, blocks, list(raw), paths)
        if turn is not None:
            yield turn

    def _read_block(self, raw: Any, role: str, path: str) -> Any:
        block = tagged(raw, BLOCKS, path)
        if isinstance(block, ONLY_ASSISTANT) and role != "assistant":
            raise Refused(f"{path}: `{block.type}` blocks can only be in `assistant` messages")
        if isinstance(block, ToolResultBlock) and role != "user":
            raise Refused(f"{path}: `tool_result` blocks can only be in `user` messages")
        self._check_block(block, path)
        if isinstance(block, ToolResultBlock) and isinstance(block.content, list):
            for at, one in enumerate(block.content):
                here = f"{path}.tool_result.content.{at}"
                self._check_block(tagged(one, RESULT_BLOCKS, here), here)
        return block

    def _check_block(self, block: Any, path: str) -> None:
        match block:
            case TextBlock(text=""):
                raise Refused("messages: text content blocks must be non-empty")
            case TextBlock() if not block.text.strip():
                raise Refused("messages: text content blocks must contain non-whitespace text")
            case ImageBlock():
                self._check_image(block.source, f"{path}.image.source")
            case DocumentBlock():
                self._check_document(block.source, f"{path}.document.source")

    def _check_image(self, source: Source, at: str) -> None:
        if source.type != "base64":
            self._check_remote(source, at)
            return
        content = _content_of_source(source, at)
        if source.media_type not in IMAGE_TYPES:
            raise Refused(f"{at}.base64.media_type: Input should be {', '.join(map(repr, IMAGE_TYPES))}")
        if len(source.data or "") > _MOST_IMAGE_BYTES:
            text = (
                f"{at}.base64: image exceeds 5 MB maximum: {len(source.data or '')} bytes > {_MOST_IMAGE_BYTES} bytes"
            )
            raise Refused(text)
        kind = image_type(content)
        if kind is None:
            raise Refused("Could not process image")
        if kind != source.media_type:
            text = (
                f"{at}.base64: The image was specified using the {source.media_type} media type, but the image "
                f"appears to be a {kind} image"
            )
            raise Refused(text)

    def _check_document(self, source: Source, at: str) -> None:
        match source.type:
            case "base64":
                content = _content_of_source(source, at)
                if source.media_type != "application/pdf":
                    raise Refused(f"{at}.base64.media_type: Input should be 'application/pdf'")
                if not is_pdf(content):
                    raise Refused(f"{at}.base64.data: The PDF specified was not valid.")
            case "text":
                if source.media_type != "text/plain" or not source.data:
                    raise Refused(f"{at}.text.media_type: Input should be 'text/plain'")
            case "content":
                pass
            case _:
                self._check_remote(source, at)

    def _check_remote(self, source: Source, at: str) -> None:
        match source.type:
            case "url":
                if not (source.url or "").startswith("https://"):
                    raise Refused(f"{at}.url.url: Only HTTPS URLs are supported.")
                if source.url in self.ledger.unreachable:
                    raise Refused("Unable to download the file. Please verify the URL and try again.")
            case "file":
                if source.file_id not in self.ledger.files:
                    raise Refused(f"File not found: {source.file_id}", status=404, kind="not_found_error")
            case _:
                raise Refused(
                    f"{at}: Input tag '{source.type}' found using 'type' does not match any of the expected tags"
                )

    def _check_thoughts(
        self,
        turns: Sequence[Turn],
        prefix: list[str],
        body: MessagesRequest,
        model: AnthropicModel,
        mode: str,
        may_drop: bool,
    ) -> None:
        binding = body.thinking.block_binding if body.thinking else None
        if binding is not None and not may_drop:
            raise Refused("thinking.block_binding: Extra inputs are not permitted")
        drops = binding is not None and binding.prefix_mismatch_behavior == "drop_block"
        last = max((at for at, turn in enumerate(turns) if turn.role == "assistant"), default=None)
        for at, turn in enumerate(turns):
            if turn.role == "assistant":
                bound = _bound_to(prefix, turns[:at]) if model.binds else ""
                _check_signatures(turn, bound, drops)
                if at == last and mode != "disabled":
                    self._check_latest(turn, mode, in_loop=_has_result(turns[at + 1 :]) or at == len(turns) - 1)

    def _check_latest(self, turn: Turn, mode: str, *, in_loop: bool) -> None:
        thoughts = [raw for raw in turn.raw if raw["type"] in THOUGHTS]
        if mode == "enabled" and in_loop and turn.blocks and turn.raw[0]["type"] not in THOUGHTS:
            text = (
                f"{turn.places[0]}.type: Expected `thinking` or `redacted_thinking`, but found "
                f"`{turn.raw[0]['type']}`. When "
                "`thinking` is enabled, a final `assistant` message must start with a thinking block (preceeding the "
                "lastmost set of `tool_use` and `tool_result` blocks). We recommend you include thinking blocks from "
                "previous turns. To avoid this requirement, disable `thinking`."
            )
            raise Refused(text)
        called = [block.id for block in turn.blocks if isinstance(block, ToolUseBlock)]
        issued = next(
            (self.ledger.thoughts_of_call[one] for one in called if one in self.ledger.thoughts_of_call), None
        )
        if in_loop and issued is not None and thoughts != issued:
            text = (
                f"{turn.places[0]}: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be "
                "modified. These blocks must remain as they were in the original response."
            )
            raise Refused(text)

    def whole(self, prompt: Prompt, answer: Answer, tokens: Tokens) -> dict[str, Any]:
        """A message."""
        return render_message(self.ledger, prompt, answer, tokens)

    def stream(self, prompt: Prompt, answer: Answer, tokens: Tokens) -> Iterator[bytes]:
        """The events of a message."""
        return message_events(self.ledger, prompt, answer, tokens)

    def error(self, refused: Refused) -> dict[str, Any]:
        """The body of an error."""
        error = {"type": refused.kind, "message": refused.message}
        return {"type": "error", "error": error, "request_id": self.ledger.next_id("req_")}

    def fail(self, failure: Failure) -> Refused:
        """A failure in Anthropic's words."""
        kind, message = _FAILURES.get(failure.status, _FAILURES[500])
        return Refused(failure.message or message, status=failure.status, kind=kind)

    def error_event(self, refused: Refused) -> bytes:
        """An error in the middle of a stream."""
        return event("error", **{key: value for key, value in self.error(refused).items() if key != "type"})

    def headers(self) -> dict[str, str]:
        """What every answer carries."""
        return {"request-id": self.ledger.next_id("req_"), "anthropic-organization-id": "org-scripted"}


def _refuse_shape(error: ShapeError) -> Refused:
    """A wrong shape in Anthropic's words."""
    problem, path, detail, groups = error.complaint
    path = path.replace("[", ".").replace("]", "").lstrip(".")
    match problem:
        case Problem.UNKNOWN:
            return Refused(f"{path}: Extra inputs are not permitted")
        case Problem.MISSING:
            return Refused(f"{path}: Field required")
        case Problem.VALUE:
            return Refused(f"{path}: Input {groups[0]} does not match any of the expected: {detail}")
        case Problem.RANGE:
            words = {">=": "greater than or equal to", "<=": "less than or equal to"}
            return Refused(f"{path}: Input should be {words.get(groups[1], groups[1])} {groups[2]}")
        case Problem.LENGTH:
            return Refused(f"{path}: at least one message is required")
        case Problem.PATTERN:
            return Refused(f"{path}: String should match pattern {groups[0]}")
        case Problem.TYPE:
            return Refused(f"{path}: Input should be a valid {groups[0]}")


def _check_parameters(body: MessagesRequest, model: AnthropicModel) -> None:
    if body.max_tokens > model.longest_answer:
        text = (
            f"max_tokens: {body.max_tokens} > {model.longest_answer}, which is the maximum allowed number of output "
            f"tokens for {body.model}"
        )
        raise Refused(text)
    for name in ("temperature", "top_p", "top_k"):
        if getattr(body, name) is not None and not model.samples:
            raise Refused(f"`{name}` is deprecated for this model.")
    if body.temperature is not None and body.top_p is not None:
        text = "`temperature` and `top_p` cannot both be specified for this model. Please use only one."
        raise Refused(text)
    if any(not sequence.strip() for sequence in body.stop_sequences or []):
        raise Refused("stop_sequences: each stop sequence must contain non-whitespace")
    wanted = body.output_config or OutputConfig()
    if wanted.effort is not None and wanted.effort not in model.efforts:
        raise Refused("This model does not support the effort parameter.")
    if wanted.format is not None and (fault := anthropic_format_fault(wanted.format.schema)):
        raise Refused(f"output_config.format.schema: {fault}")


def _check_thinking(body: MessagesRequest, model: AnthropicModel, mode: str) -> None:
    if mode not in model.thinking:
        text = f'"thinking.type.{mode}" is not supported for this model. Use "thinking.type.{model.thinking[0]}".'
        raise Refused(text)
    forced = body.tool_choice is not None and body.tool_choice.type in ("any", "tool")
    if forced and not model.forces_tools:
        raise Refused("tool_choice: this model does not support forcing tool use.")
    if mode != "enabled" or body.thinking is None:
        return
    if body.thinking.budget_tokens is None:
        raise Refused("thinking.enabled.budget_tokens: Field required")
    if body.thinking.budget_tokens >= body.max_tokens:
        raise Refused("`max_tokens` must be greater than `thinking.budget_tokens`.")
    if forced:
        raise Refused("Thinking may not be enabled when tool_choice forces tool use.")
    if body.temperature not in (None, 1):
        raise Refused("`temperature` may only be set to 1 when thinking is enabled.")
    if body.top_k is not None:
        raise Refused("`top_k` must be unset when thinking is enabled.")
    if body.top_p is not None and body.top_p < 0.95:
        raise Refused("`top_p` must be greater than or equal to 0.95 or unset when thinking is enabled.")


def _read_tool(raw: Any, path: str) -> CustomTool | ServiceTool:
    kind = raw.get("type") if isinstance(raw, dict) else None
    if kind not in (None, "custom"):
        if not _SERVICE_TOOL.fullmatch(str(kind)):
            raise Refused(f"{path}: Input tag '{kind}' found using 'type' does not match any of the expected tags")
        return shaped(raw, ServiceTool, path)
    tool = shaped(raw, CustomTool, f"{path}.custom")
    if tool.input_schema.get("type") != "object":
        raise Refused(f"{path}.custom.input_schema.type: Input should be 'object'")
    if tool.strict and (fault := anthropic_format_fault(tool.input_schema)):
        raise Refused(f"{path}.custom.input_schema: {fault}")
    return tool


def _check_tools(body: MessagesRequest, tools: Sequence[CustomTool | ServiceTool]) -> frozenset[str]:
    names = [tool.name for tool in tools if tool.name]
    if len(set(names)) < len(names):
        raise Refused("tools: Tool names must be unique.")
    if body.tool_choice is not None:
        if not tools and body.tool_choice.type != "none":
            raise Refused("tool_choice: tool_choice may only be specified while providing tools.")
        if body.tool_choice.type == "tool" and body.tool_choice.name not in names:
            raise Refused(f"Tool '{body.tool_choice.name}' not found in provided tools")
    return frozenset(names)


def _blocks_of(content: str | list[Any]) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) and content else list(content)


def _read_system(system: str | list[Any] | None) -> list[Any]:
    blocks = _blocks_of(system or [])
    for at, block in enumerate(blocks):
        if not tagged(block, {"text": TextBlock}, f"system.{at}").text:
            raise Refused("system: text content blocks must be non-empty")
    return blocks


def _check_pairs(turns: Sequence[Turn], has_tools: bool) -> None:
    """Each call has one result, first in the turn behind it."""
    seen: set[str] = set()
    waiting: list[str] = []
    for turn in turns:
        if turn.role == "user":
            _check_results(turn, waiting)
            waiting = []
            continue
        waiting = [block.id for block in turn.blocks if isinstance(block, ToolUseBlock)]
        if len(set(waiting)) < len(waiting) or seen & set(waiting):
            raise Refused("messages: `tool_use` ids must be unique")
        seen.update(waiting)
    if waiting:
        raise _without_results(turns[-1].place, waiting)
    if seen and not has_tools:
        raise Refused("Requests which include `tool_use` or `tool_result` blocks must define tools.")
    if turns and turns[0].role != "user":
        raise Refused('messages: first message must use the "user" role')


def _check_results(turn: Turn, called: Sequence[str]) -> None:
    results = [
        (block, path)
        for block, path in zip(turn.blocks, turn.places, strict=True)
        if isinstance(block, ToolResultBlock)
    ]
    ids = [block.tool_use_id for block, _ in results]
    first = [block.tool_use_id for block in turn.blocks[: len(results)] if isinstance(block, ToolResultBlock)]
    for block, path in results:
        if block.tool_use_id not in called:
            text = (
                f"{path}: unexpected `tool_use_id` found in `tool_result` blocks: {block.tool_use_id}. Each "
                "`tool_result` block must have a corresponding `tool_use` block in the previous message."
            )
            raise Refused(text)
        if ids.count(block.tool_use_id) > 1:
            text = (
                f"{path}: each tool_use must have a single result. Found multiple `tool_result` blocks with id: "
                f"{block.tool_use_id}"
            )
            raise Refused(text)
    if missing := [call_id for call_id in called if call_id not in first]:
        raise _without_results(turn.place - 1, missing)


def _without_results(place: int, ids: Sequence[str]) -> Refused:
    return Refused(
        f"messages.{place}: `tool_use` ids were found without `tool_result` blocks immediately after: "
        f"{', '.join(ids)}. Each `tool_use` block must have a corresponding `tool_result` block in the next message."
    )


def _check_end(turns: Sequence[Turn], model: AnthropicModel, mode: str) -> None:
    if not turns or turns[-1].role != "assistant" or not turns[-1].blocks:
        return
    last = turns[-1].blocks[-1]
    if not model.prefills:
        text = "This model does not support assistant message prefill. The conversation must end with a user message."
        raise Refused(text)
    if isinstance(last, TextBlock) and last.text != last.text.rstrip():
        raise Refused("messages: final assistant content cannot end with trailing whitespace")
    if mode == "disabled" and any(isinstance(block, ThinkingBlock) for block in turns[-1].blocks):
        text = (
            f"{turns[-1].places[0]}: When thinking is disabled, an `assistant` message in the final position cannot "
            "contain `thinking`. To use thinking blocks, enable `thinking` in your request."
        )
        raise Refused(text)


def _check_signatures(turn: Turn, bound: str, drops: bool) -> None:
    kinds = [raw["type"] for raw in turn.raw]
    if kinds and kinds[-1] in THOUGHTS:
        raise Refused(f"messages.{turn.place}: The final block in an assistant message cannot be `{kinds[-1]}`.")
    for block, path in zip(turn.blocks, turn.places, strict=True):
        if isinstance(block, ThinkingBlock):
            signature, _, binding = block.signature.partition(".")
            if signature != sign("thinking", block.thinking):
                raise Refused(f"{path}: Invalid `signature` in `thinking` block")
            if bound and binding and binding != sign("bound", bound) and not drops:
                text = (
                    f"{path}: Invalid `signature` in `thinking` block. The block is bound to a different "
                    "conversation. Remove "
                    'the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block". That setting '
                    f"requires the `{_BINDING_BETA}` value in the `anthropic-beta` header."
                )
                raise Refused(text)
        elif isinstance(block, RedactedThinkingBlock):
            name, _, signature = block.data.partition(".")
            if signature != sign("redacted", name):
                raise Refused(f"{path}: Invalid `data` in `redacted_thinking` block")


def _bound_to(prefix: list[str], turns: Sequence[Turn]) -> str:
    """What thoughts behind these turns are bound to: all but other thoughts."""
    said = [[turn.role, [raw for raw in turn.raw if raw["type"] not in THOUGHTS]] for turn in turns]
    return "\n".join([*prefix, canonical(said)])


def _has_result(turns: Sequence[Turn]) -> bool:
    return any(isinstance(block, ToolResultBlock) for turn in turns for block in turn.blocks)


def _content_of_source(source: Source, at: str) -> bytes:
    for name in ("media_type", "data"):
        if getattr(source, name) is None:
            raise Refused(f"{at}.base64.{name}: Field required")
    content = decoded(source.data or "")
    if content is None:
        raise Refused(f"{at}.base64.data: Invalid base64 data")
    return content


def _prompt(
    body: MessagesRequest, system: list[Any], turns: Sequence[Turn], names: frozenset[str], *, reasons: bool
) -> Prompt:
    """Tools, system and messages in the order of the cache, with the places where the client marks it."""
    flat = [(raw, raw) for raw in [*(body.tools or []), *system]]
    flat += [([turn.role, raw], raw) for turn in turns for raw in turn.raw]
    marks = [(at, raw["cache_control"]) for at, (_, raw) in enumerate(flat, 1) if raw.get("cache_control")]
    if body.cache_control is not None:
        marks.append((len(flat), {"ttl": body.cache_control.ttl}))
    if len(marks) > _MOST_BREAKPOINTS:
        text = f"A maximum of {_MOST_BREAKPOINTS} blocks with cache_control may be provided. Found {len(marks)}."
        raise Refused(text)
    lifetimes = [mark.get("ttl") or "5m" for _, mark in marks]
    if lifetimes != sorted(lifetimes):
        text = "cache_control: a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block."
        raise Refused(text)
    bound = _bound_to([canonical(body.tools or []), canonical(system)], turns)
    return Prompt(
        model=body.model,
        stream=bool(body.stream),
        parts=tuple(canonical(item) for item, _ in flat),
        tools=names,
        reasons=reasons,
        body=_Accepted(body, bound if ANTHROPIC_MODELS[body.model].binds else ""),
        breakpoints=tuple(sorted({at for at, _ in marks})),
    )


class _Accepted(NamedTuple):
    request: MessagesRequest
    bound: str


def _check_length(prompt: Prompt, model: AnthropicModel) -> None:
    if (length := tokens(len(prompt.text))) > model.window:
        raise Refused(f"prompt is too long: {length} tokens > {model.window} maximum")
