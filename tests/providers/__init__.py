"""A scripted provider of language models on loopback, in three dialects: OpenAI chat completions, OpenAI responses, and
Anthropic messages.

It refuses what the real services refuse: unknown parameters and values, calls without results, thoughts that do not
come back, pictures that are none. `start_provider` opens one, `plays` says what it answers, `received` is what arrived.
"""

from __future__ import annotations

from tests.providers.provider import KEY, Received, ScriptedProvider, start_provider
from tests.providers.refusals import Refused
from tests.providers.script import (
    Answer,
    Ending,
    Failure,
    Hold,
    ProviderItem,
    Reasoning,
    Refusal,
    Text,
    Tokens,
    ToolCall,
    Turn,
)

__all__ = [
    "KEY",
    "Answer",
    "Ending",
    "Failure",
    "Hold",
    "ProviderItem",
    "Reasoning",
    "Received",
    "Refusal",
    "Refused",
    "ScriptedProvider",
    "Text",
    "Tokens",
    "ToolCall",
    "Turn",
    "start_provider",
]
