"""The shapes of requests in OpenAI's dialect of responses: which fields an object may have, of which types."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from tests.providers.openai_rules import FunctionSpec, Name, PromptCacheBreakpoint, Share, Temperature, TopLogprobs
from tests.providers.refusals import OpenShape, Shape

_CallId = Annotated[str, Meta(min_length=1, max_length=64)]
_ItemStatus = Literal["in_progress", "completed", "incomplete"]


class InputText(Shape, kw_only=True):
    type: str
    text: str
    prompt_cache_breakpoint: PromptCacheBreakpoint | None = None


class InputImage(Shape, kw_only=True):
    type: str
    detail: Literal["auto", "low", "high", "original"] | None = None
    image_url: str | None = None
    file_id: str | None = None
    prompt_cache_breakpoint: PromptCacheBreakpoint | None = None


class InputFile(Shape, kw_only=True):
    type: str
    file_data: str | None = None
    file_id: str | None = None
    file_url: str | None = None
    filename: str | None = None
    detail: Literal["auto", "low", "high"] | None = None
    prompt_cache_breakpoint: PromptCacheBreakpoint | None = None


class OutputText(Shape, kw_only=True):
    type: str
    text: str
    annotations: list[Any] = []
    logprobs: list[Any] | None = None


class OutputRefusal(Shape, kw_only=True):
    type: str
    refusal: str


class MessageItem(Shape, kw_only=True):
    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[Any]
    type: str = "message"
    id: str | None = None
    status: _ItemStatus | None = None
    phase: Literal["commentary", "final_answer"] | None = None


class FunctionCallItem(Shape, kw_only=True):
    type: str
    call_id: _CallId
    name: Name
    arguments: str
    id: str | None = None
    status: _ItemStatus | None = None
    namespace: str | None = None
    caller: dict[str, Any] | None = None


class FunctionOutputItem(Shape, kw_only=True):
    type: str
    call_id: _CallId
    output: str | list[Any]
    id: str | None = None
    status: _ItemStatus | None = None
    name: str | None = None
    namespace: str | None = None
    caller: dict[str, Any] | None = None


class ReasoningItem(Shape, kw_only=True):
    type: str
    summary: list[dict[str, str]]
    id: str | None = None
    content: list[dict[str, str]] | None = None
    encrypted_content: str | None = None
    status: _ItemStatus | None = None


class ItemReference(Shape, kw_only=True):
    id: str
    type: str = "item_reference"


class ProviderItem(OpenShape, kw_only=True):
    type: str
    id: str | None = None


class FunctionTool(FunctionSpec, kw_only=True):
    type: str
    defer_loading: bool | None = None
    allowed_callers: list[str] | None = None
    output_schema: dict[str, Any] | None = None


class ProviderTool(OpenShape, kw_only=True):
    type: str
    name: str | None = None


class TextFormat(Shape, kw_only=True):
    type: Literal["text", "json_object", "json_schema"]
    name: Name | None = None
    schema: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None


class TextConfig(Shape, kw_only=True):
    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ReasoningConfig(Shape, kw_only=True):
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None
    context: Literal["auto", "current_turn", "all_turns"] | None = None
    mode: str | None = None


class StreamOptions(Shape, kw_only=True):
    include_obfuscation: bool | None = None


_Includable = Literal[
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
]


class ResponsesRequest(Shape, kw_only=True):
    """The body. A field that OpenAI adds shows as a difference to its own client (see the tests)."""

    model: str
    input: str | list[Any] | None = None
    access_programs: dict[str, Any] | None = None
    background: bool | None = None
    context_management: list[Any] | None = None
    conversation: str | dict[str, Any] | None = None
    image: dict[str, Any] | None = None
    include: list[_Includable] | None = None
    instructions: str | None = None
    max_output_tokens: Annotated[int, Meta(ge=16)] | None = None
    max_tool_calls: Annotated[int, Meta(ge=1)] | None = None
    metadata: dict[str, str] | None = None
    moderation: dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    previous_response_id: str | None = None
    prompt: dict[str, Any] | None = None
    prompt_cache_key: str | None = None
    prompt_cache_options: dict[str, Any] | None = None
    prompt_cache_retention: Literal["in_memory", "24h"] | None = None
    reasoning: ReasoningConfig | None = None
    safety_identifier: Annotated[str, Meta(max_length=128)] | None = None
    service_tier: Literal["auto", "default", "flex", "scale", "priority", "fast", "ultrafast"] | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: Temperature | None = None
    text: TextConfig | None = None
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = None
    tools: list[Any] | None = None
    top_logprobs: TopLogprobs | None = None
    top_p: Share | None = None
    truncation: Literal["auto", "disabled"] | None = None
    user: str | None = None


INPUTS: Final = {"input_text": InputText, "input_image": InputImage, "input_file": InputFile}
OUTPUTS: Final = {"output_text": OutputText, "refusal": OutputRefusal}
_PROVIDER_ITEMS: Final = (
    "file_search_call",
    "computer_call",
    "computer_call_output",
    "web_search_call",
    "tool_search_call",
    "tool_search_output",
    "additional_tools",
    "configuration_update",
    "compaction",
    "image_generation_call",
    "code_interpreter_call",
    "local_shell_call",
    "local_shell_call_output",
    "shell_call",
    "shell_call_output",
    "apply_patch_call",
    "apply_patch_call_output",
    "mcp_list_tools",
    "mcp_approval_request",
    "mcp_approval_response",
    "mcp_call",
    "custom_tool_call",
    "custom_tool_call_output",
    "compaction_trigger",
    "program",
    "program_output",
)
ITEMS: Final[dict[str, type]] = {
    "message": MessageItem,
    "function_call": FunctionCallItem,
    "function_call_output": FunctionOutputItem,
    "reasoning": ReasoningItem,
    "item_reference": ItemReference,
    **dict.fromkeys(_PROVIDER_ITEMS, ProviderItem),
}
_PROVIDER_TOOLS: Final = (
    "custom",
    "file_search",
    "computer",
    "computer_use_preview",
    "web_search",
    "web_search_2025_08_26",
    "web_search_preview",
    "web_search_preview_2025_03_11",
    "mcp",
    "code_interpreter",
    "programmatic_tool_calling",
    "image_generation",
    "local_shell",
    "shell",
    "apply_patch",
    "namespace",
    "tool_search",
)
TOOLS: Final[dict[str, type]] = {"function": FunctionTool, **dict.fromkeys(_PROVIDER_TOOLS, ProviderTool)}
PREFIXES: Final = {
    "message": "msg",
    "function_call": "fc",
    "reasoning": "rs",
    "web_search_call": "ws",
    "file_search_call": "fs",
    "code_interpreter_call": "ci",
    "mcp_call": "mcp",
    "mcp_list_tools": "mcpl",
}
