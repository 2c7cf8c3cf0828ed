"""What callers ask of a model beside the prompt: how it samples, how long it thinks, in which form it answers."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final

from msgspec.structs import asdict

from tenuto.errors import Invalid
from tenuto.model.attachment import NO_MEDIA, MediaInputs
from tenuto.model.values import Json, JsonObject, Value, check_json, check_text

_MOST_STOPS: Final = 4
_MOST_BIASED: Final = 1024
_MOST_CHARACTERS: Final = 512
_LARGEST_SEED: Final = 2**63 - 1


class Effort(StrEnum):
    """How much a model thinks before it answers."""

    NONE = "none"
    MINIMAL = "minimal"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    XHIGH = "xhigh"
    MAX = "max"


class ModelParameters(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a model is to answer; `None` leaves it to the model. The names are those of the chat completions API.

    `prompt_cache_key` helps a provider to find the beginning of a prompt again, `safety_identifier` and `user` tell it
    users apart, `provider_metadata` and `provider_store` are for what it keeps of the answer. `prediction` is a text
    that much of the answer will repeat, `extra` has fields that the provider alone knows.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    reasoning_summary: str | None = None
    verbosity: str | None = None
    service_tier: str | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
    user: str | None = None
    provider_metadata: dict[str, str] | None = None
    provider_store: bool | None = None
    prediction: JsonObject | None = None
    extra: JsonObject = {}

    def __post_init__(self) -> None:
        for name, value in self.given.items():
            _check_value(name, value)
        if self.stop is not None:
            _check_stops(self.stop)
        if self.logit_bias is not None:
            _check_bias(self.logit_bias)
        if self.prediction is not None:
            check_json(self.prediction, "prediction")
        if self.extra:
            check_json(self.extra, "extra")
        if self.top_logprobs is not None and self.logprobs is False:
            raise Invalid("top_logprobs: needs logprobs")

    @property
    def given(self) -> dict[str, Json]:
        """Those that are given, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None and (value or name != "extra")}

    def over(self, defaults: ModelParameters) -> ModelParameters:
        """These, and the defaults where they say nothing."""
        if defaults == NO_PARAMETERS:
            return self
        given: dict[str, Any] = {**defaults.given, **self.given, "extra": {**defaults.extra, **self.extra}}
        return ModelParameters(**given)


def overridden(extra: JsonObject, fixed: Iterable[str]) -> str | None:
    """The field of `extra` that says something else than one of these parameters, if there is one."""
    names = {name for each in fixed for name in (each, *_SAME.get(each, ()))}
    return next((name for name in extra if name in names), None)


_RANGES: Final[dict[str, tuple[float, float]]] = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "top_k": (1, 2**31 - 1),
    "seed": (-(2**63), _LARGEST_SEED),
    "presence_penalty": (-2, 2),
    "frequency_penalty": (-2, 2),
    "top_logprobs": (0, 20),
}
_WORDS: Final[dict[str, tuple[str, ...]]] = {
    "reasoning_effort": tuple(Effort),
    "reasoning_summary": ("auto", "concise", "detailed"),
    "verbosity": ("low", "medium", "high"),
    "service_tier": ("auto", "default", "flex", "scale", "priority"),
}
PARAMETERS: Final = ModelParameters.__struct_fields__
OWN_FIELDS: Final = frozenset(
    {
        *("model", "models", "route"),
        *("messages", "input", "instructions", "system", "contents", "prompt", "text", "response_format"),
        *("n", "best_of", "modalities", "max_tokens", "max_completion_tokens", "max_output_tokens"),
        *("tools", "tool_choice", "functions", "function_call", "include", "stream", "stream_options", "background"),
        *("previous_response_id", "conversation", "container", "mcp_servers"),
    }
)
"""Fields of a provider's request that no caller's `extra` writes: which model is asked, what it reads, how it answers
and for how long, and what the provider keeps of conversations, which are those of all callers."""
# Other fields in which a request can say what a parameter says.
_SAME: Final = {"reasoning_effort": ("reasoning", "thinking"), "provider_store": ("store",)}
NO_PARAMETERS: Final = ModelParameters()


def _check_value(name: str, value: Json) -> None:
    if name in _RANGES:
        low, high = _RANGES[name]
        if not low <= value <= high:
            raise Invalid(f"{name}: must be from {low:g} to {high:g}")
    elif name in _WORDS:
        if value not in _WORDS[name]:
            raise Invalid(f"{name}: expected one of {', '.join(_WORDS[name])}")
    elif isinstance(value, str):
        check_text(value, name)
        if len(value) > _MOST_CHARACTERS:
            raise Invalid(f"{name}: has more than {_MOST_CHARACTERS} characters")


def _check_stops(stops: tuple[str, ...]) -> None:
    if not 1 <= len(stops) <= _MOST_STOPS:
        raise Invalid(f"stop: expected 1 to {_MOST_STOPS} texts")
    for text in stops:
        check_text(text, "stop")
        if not text:
            raise Invalid("stop: a text to stop at is empty")


def _check_bias(bias: dict[str, float]) -> None:
    if len(bias) > _MOST_BIASED:
        raise Invalid(f"logit_bias: has more than {_MOST_BIASED} tokens")
    for token, value in bias.items():
        if not token.isdecimal():
            raise Invalid("logit_bias: its keys are the numbers of tokens")
        if not -100 <= value <= 100:
            raise Invalid("logit_bias: must be from -100 to 100")


class AnswerSchema(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The form that an answer must have: JSON that fits a schema, or any JSON object."""

    name: str = "answer"
    description: str = ""
    schema: JsonObject | None = None
    strict: bool | None = None


class FinishReason(StrEnum):
    """Why an answer ended.

    `stop`: the model was done. `length`: it was cut at its limit of tokens. `content_filter`: the provider withheld the
    rest. `refusal`: the model declined to answer, and says so. `tool_calls`: the caller's tools are to be run.
    """

    STOP = "stop"
    LENGTH = "length"
    CONTENT_FILTER = "content_filter"
    REFUSAL = "refusal"
    TOOL_CALLS = "tool_calls"


class ModelFacts(Value, frozen=True, kw_only=True):
    """What is known of a model before it is asked.

    `provider` and `model` are what its provider and it are called there. `parameters` are the names of those that reach
    it. With `schemas` it gives answers in a demanded form by itself.
    `media` are the pictures, sounds and files that it takes: none, where nothing is known. With `provider_tools` its
    provider runs tools by itself, as the responses API describes them. `thinks` is false where it is known not to. With
    `stores_answers` the provider stores each answer, unless it is told not to.
    """

    provider: str = ""
    model: str = ""
    context_window: int | None = None
    parameters: frozenset[str] = frozenset(PARAMETERS)
    schemas: bool = False
    media: MediaInputs = NO_MEDIA
    provider_tools: bool = False
    thinks: bool = True
    stores_answers: bool = False


NOTHING_KNOWN: Final = ModelFacts()
