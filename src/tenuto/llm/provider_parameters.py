"""Which parameters of a request reach which provider, and by what name.

OpenAI's go into the request's body as they came, so that the provider itself judges them: Pydantic AI leaves out what
it believes a model does not take.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from tenuto.model.parameters import PARAMETERS, ModelParameters


class Dialect(StrEnum):
    """The API that a model is asked by."""

    OPENAI_CHAT = "OpenAI chat completions, and servers that speak it"
    OPENAI_RESPONSES = "OpenAI responses"
    ANTHROPIC = "Anthropic messages"
    OTHER = "other providers"


# How the tables below write a place: `name` is a field of the request's body, `.name` one of Pydantic AI's settings. It
# drops a setting that it does not know, and the parameter would count as taken: the setting must exist.
_SETTING: Final = "."
# Fields of the provider's own, each by its name.
_EXTRA: Final = "extra"
_SAMPLING: Final = ("temperature", "top_p", "top_k", "seed", "presence_penalty", "frequency_penalty", "logit_bias")
_CALLER_FIELDS: Final = ("service_tier", "prompt_cache_key", "safety_identifier", "user")
_COMMON: Final[Mapping[str, str]] = {
    **{name: f".{name}" for name in _SAMPLING},
    "stop": ".stop_sequences",
    "parallel_tool_calls": ".parallel_tool_calls",
    "service_tier": ".service_tier",
    "reasoning_effort": ".thinking",
}
TABLE: Final[Mapping[Dialect, Mapping[str, str]]] = {
    Dialect.OPENAI_CHAT: {
        **{
            name: name
            for name in (*_SAMPLING, *_CALLER_FIELDS, "stop", "logprobs", "top_logprobs", "verbosity", "prediction")
        },
        "reasoning_effort": ".openai_reasoning_effort",
        "parallel_tool_calls": ".parallel_tool_calls",
        "provider_store": "store",
        "provider_metadata": "metadata",
        _EXTRA: _EXTRA,
    },
    Dialect.OPENAI_RESPONSES: {
        **{name: name for name in ("temperature", "top_p", *_CALLER_FIELDS)},
        "logprobs": ".openai_logprobs",
        "top_logprobs": "top_logprobs",
        "reasoning_effort": ".openai_reasoning_effort",
        "reasoning_summary": ".openai_reasoning_summary",
        "verbosity": ".openai_text_verbosity",
        "parallel_tool_calls": ".parallel_tool_calls",
        "provider_store": ".openai_store",
        _EXTRA: _EXTRA,
    },
    Dialect.ANTHROPIC: {**_COMMON, "user": ".anthropic_metadata", "safety_identifier": ".anthropic_metadata"},
    Dialect.OTHER: _COMMON,
}
# The values that reach a provider, of parameters of which Pydantic AI leaves out others.
_VALUES: Final[Mapping[Dialect, Mapping[str, frozenset[str]]]] = {
    Dialect.ANTHROPIC: {"service_tier": frozenset({"auto", "default"})}
}
# What a model does where nothing is said: to say it changes nothing, so it is never refused.
_DEFAULTS: Final[Mapping[str, object]] = {
    "temperature": 1,
    "top_p": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "logprobs": False,
    "top_logprobs": 0,
    "parallel_tool_calls": True,
    # As much as there is.
    "reasoning_summary": "auto",
    "service_tier": "auto",
    "provider_store": False,
}


def parameters_taken(dialect: Dialect, ignored_settings: frozenset[str]) -> frozenset[str]:
    """The parameters that reach a model of this dialect; Pydantic AI ignores some settings for its class."""
    places = TABLE[dialect]
    return frozenset(
        name for name in PARAMETERS if name in places and places[name].removeprefix(_SETTING) not in ignored_settings
    )


def refused_parameters(dialect: Dialect, parameters: ModelParameters, taken: frozenset[str]) -> tuple[str, ...]:
    """The parameters that a model does not take, and that ask for something."""
    values = _VALUES.get(dialect, {})
    refused = [
        name
        for name, value in parameters.given.items()
        if (name not in taken or (name in values and value not in values[name])) and value != _DEFAULTS.get(name, ...)
    ]
    return tuple(name for name in refused if name != _EXTRA) + tuple(parameters.extra if _EXTRA in refused else ())


def to_settings(dialect: Dialect, parameters: ModelParameters, taken: frozenset[str]) -> dict[str, Any]:
    """The parameters that a model takes, as Pydantic AI's settings."""
    settings: dict[str, Any] = {}
    body: dict[str, Any] = {}
    for name, value in parameters.given.items():
        if name not in taken:
            continue
        place = TABLE[dialect][name]
        if place == _EXTRA:
            body |= value
        elif not place.startswith(_SETTING):
            body[place] = value
        elif place == ".thinking":
            settings["thinking"] = False if value == "none" else value
        elif place == ".anthropic_metadata":
            settings["anthropic_metadata"] = {"user_id": value}
        else:
            settings[place.removeprefix(_SETTING)] = list(value) if isinstance(value, tuple) else value
    if dialect is Dialect.OPENAI_RESPONSES and parameters.top_logprobs:
        settings["openai_logprobs"] = True
    if body:
        settings["extra_body"] = body
    return settings


def any_object(dialect: Dialect, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that demand any JSON object, for which Pydantic AI has no word and other providers no mode."""
    if dialect is not Dialect.OPENAI_RESPONSES:
        return {}
    verbosity = given.get("openai_text_verbosity")
    text = {"format": {"type": "json_object"}, **({"verbosity": verbosity} if verbosity is not None else {})}
    return {"extra_body": {**given.get("extra_body", {}), "text": text}}
