"""The table of parameters names settings that exist."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from pydantic_ai.models.anthropic import AnthropicModelSettings
from pydantic_ai.models.openai import OpenAIChatModelSettings, OpenAIResponsesModelSettings
from pydantic_ai.settings import ModelSettings

from tenuto.llm.provider_parameters import TABLE, Dialect

SETTINGS: Mapping[Dialect, type] = {
    Dialect.OPENAI_CHAT: OpenAIChatModelSettings,
    Dialect.OPENAI_RESPONSES: OpenAIResponsesModelSettings,
    Dialect.ANTHROPIC: AnthropicModelSettings,
    Dialect.OTHER: ModelSettings,
}


@pytest.mark.parametrize("dialect", Dialect)
def test_a_parameter_that_is_taken_has_a_setting_that_carries_it(dialect: Dialect) -> None:
    """Pydantic AI drops a setting that it does not know: the request would be accepted, and the model not told."""
    settings = [place[1:] for place in TABLE[dialect].values() if place.startswith(".")]

    assert [name for name in settings if name not in SETTINGS[dialect].__annotations__] == []
