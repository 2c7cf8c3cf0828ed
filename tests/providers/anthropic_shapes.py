"""The shapes of requests in Anthropic's dialect: which fields an object may have, of which types."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from tests.providers.refusals import OpenShape, Shape

_Id = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_-]+$")]


class CacheControl(Shape, kw_only=True):
    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] | None = None


class Cacheable(Shape, kw_only=True):
    type: str
    cache_control: CacheControl | None = None


class TextBlock(Cacheable, kw_only=True):
    text: str
    citations: list[Any] | None = None


class Source(Shape, kw_only=True):
    type: str
    media_type: str | None = None
    data: str | None = None
    url: str | None = None
    file_id: str | None = None
    content: str | list[Any] | None = None


class ImageBlock(Cacheable, kw_only=True):
    source: Source
    transformations: dict[str, Any] | None = None


class DocumentBlock(Cacheable, kw_only=True):
    source: Source
    title: str | None = None
    context: str | None = None
    citations: dict[str, Any] | None = None


class ThinkingBlock(Shape, kw_only=True):
    type: str
    thinking: str
    signature: str


class RedactedThinkingBlock(Shape, kw_only=True):
    type: str
    data: str


class ToolUseBlock(Cacheable, kw_only=True):
    id: _Id
    name: str
    input: dict[str, Any]
    caller: dict[str, Any] | None = None
    toolset_name: str | None = None


class ToolResultBlock(Cacheable, kw_only=True):
    tool_use_id: _Id
    content: str | list[Any] | None = None
    is_error: bool | None = None
    toolset_name: str | None = None


class ServiceBlock(OpenShape, kw_only=True):
    type: str
    cache_control: CacheControl | None = None


class MessageShape(Shape, kw_only=True):
    role: str
    content: str | list[Any]


class CustomTool(Shape, kw_only=True):
    name: Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_-]{1,128}$")]
    input_schema: dict[str, Any]
    type: str | None = None
    description: str | None = None
    cache_control: CacheControl | None = None
    strict: bool | None = None
    allowed_callers: list[str] | None = None
    defer_loading: bool | None = None
    eager_input_streaming: bool | None = None
    input_examples: list[dict[str, Any]] | None = None


class ServiceTool(OpenShape, kw_only=True):
    type: str
    name: str = ""
    cache_control: CacheControl | None = None


class ToolChoice(Shape, kw_only=True):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class BlockBinding(Shape, kw_only=True):
    prefix_mismatch_behavior: Literal["error", "drop_block"] | None = None


class Thinking(Shape, kw_only=True):
    type: Literal["enabled", "adaptive", "disabled", "between_tools"]
    budget_tokens: Annotated[int, Meta(ge=1024)] | None = None
    display: Literal["summarized", "omitted"] | None = None
    block_binding: BlockBinding | None = None


class OutputFormat(Shape, kw_only=True):
    type: Literal["json_schema"]
    schema: dict[str, Any]


class OutputConfig(Shape, kw_only=True):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: OutputFormat | None = None


class Metadata(Shape, kw_only=True):
    user_id: str | None = None


class MessagesRequest(Shape, kw_only=True):
    """The body. A field that Anthropic adds shows as a difference to its own client (see the tests)."""

    model: str
    max_tokens: Annotated[int, Meta(ge=0)]
    messages: Annotated[list[MessageShape], Meta(min_length=1)]
    cache_control: CacheControl | None = None
    container: Any = None
    diagnostics: dict[str, Any] | None = None
    inference_geo: str | None = None
    metadata: Metadata | None = None
    output_config: OutputConfig | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    speed: Literal["standard", "fast"] | None = None
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    system: str | list[Any] | None = None
    temperature: Annotated[float, Meta(ge=0, le=1)] | None = None
    thinking: Thinking | None = None
    tool_choice: ToolChoice | None = None
    tools: list[Any] | None = None
    top_k: Annotated[int, Meta(ge=0)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    user_profile_id: str | None = None


_SERVICE_BLOCKS: Final = (
    "search_result",
    "server_tool_use",
    "web_search_tool_result",
    "web_fetch_tool_result",
    "code_execution_tool_result",
    "bash_code_execution_tool_result",
    "text_editor_code_execution_tool_result",
    "tool_search_tool_result",
    "container_upload",
)
THOUGHTS: Final = {"thinking": ThinkingBlock, "redacted_thinking": RedactedThinkingBlock}
BLOCKS: Final[dict[str, type]] = {
    "text": TextBlock,
    "image": ImageBlock,
    "document": DocumentBlock,
    **THOUGHTS,
    "tool_use": ToolUseBlock,
    "tool_result": ToolResultBlock,
    **dict.fromkeys(_SERVICE_BLOCKS, ServiceBlock),
}
RESULT_BLOCKS: Final[dict[str, type]] = {
    "text": TextBlock,
    "image": ImageBlock,
    "document": DocumentBlock,
    **dict.fromkeys(("search_result", "tool_reference", "browser_state"), ServiceBlock),
}
ONLY_ASSISTANT: Final = (ThinkingBlock, RedactedThinkingBlock, ToolUseBlock)
