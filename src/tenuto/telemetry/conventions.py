"""Names and values of OpenTelemetry's conventions, those for generative AI in their version of 2026 (1.41).

They are spelled out: the package of their constants has them among its private modules, and as deprecated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from opentelemetry.trace import Span, StatusCode
from opentelemetry.util.types import AttributeValue

from tenuto.errors import reply_error_code
from tenuto.model.parameters import FinishReason, ModelFacts

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
CONVERSATION: Final = "gen_ai.conversation.id"
SESSION: Final = "session.id"
AGENT: Final = "gen_ai.agent.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
RESPONSE_ID: Final = "gen_ai.response.id"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
STREAM: Final = "gen_ai.request.stream"
MAX_TOKENS: Final = "gen_ai.request.max_tokens"
OUTPUT_TYPE: Final = "gen_ai.output.type"
TOOL: Final = "gen_ai.tool.name"
TOOL_CALL: Final = "gen_ai.tool.call.id"
TOOL_TYPE: Final = "gen_ai.tool.type"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS: Final = "gen_ai.usage.cache_creation.input_tokens"
REASONING_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
KIND_OF_TOKENS: Final = "gen_ai.token.type"
ERROR: Final = "error.type"

CHAT: Final = "chat"
INVOKE_AGENT: Final = "invoke_agent"
EXECUTE_TOOL: Final = "execute_tool"

# Parameters of a request that are numbers or words of a list; texts of callers stay out.
PARAMETERS: Final[Mapping[str, str]] = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "seed": "gen_ai.request.seed",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "reasoning_effort": "gen_ai.request.reasoning.level",
}
# The conventions' names of providers, where Pydantic AI has others. A server that speaks a provider's API counts as it.
_PROVIDERS: Final[Mapping[str, str]] = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "google": "gcp.gemini",
    "google-gla": "gcp.gemini",
    "google-cloud": "gcp.vertex_ai",
    "google-vertex": "gcp.vertex_ai",
    "grok": "x_ai",
    "mistral": "mistral_ai",
    "moonshotai": "moonshot_ai",
    "openai-compatible": "openai",
    "xai": "x_ai",
}
_UNKNOWN: Final = "_OTHER"
# Clients may send ids of any length; spans keep this much of one.
_LONGEST: Final = 200


def provider_name(facts: ModelFacts) -> str:
    """The provider of a model."""
    return _PROVIDERS.get(facts.provider, facts.provider) or _UNKNOWN


def finish_reason(reason: FinishReason) -> str:
    """Why an answer ended."""
    return "tool_call" if reason is FinishReason.TOOL_CALLS else reason.value


def known_attributes(attributes: Mapping[str, AttributeValue | None]) -> dict[str, AttributeValue]:
    """Those that are known, long ids cut."""
    return {
        name: value[:_LONGEST] if isinstance(value, str) else value
        for name, value in attributes.items()
        if value is not None
    }


def record_exception(span: Span, error: BaseException) -> str:
    """Record an exception by its code alone, since its text may quote a user; returns the code."""
    code = reply_error_code(error)
    if isinstance(error, asyncio.CancelledError | GeneratorExit):
        # No error: who asked has left on purpose, or was stopped.
        code = "cancelled"
        span.set_attribute(ERROR, code)
    else:
        record_error(span, code)
    return code


def record_error(span: Span, code: str) -> None:
    """Mark a span as failed."""
    span.set_attribute(ERROR, code)
    span.set_status(StatusCode.ERROR, code)
