"""The real clients that speak to the scripted provider."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from anthropic import Anthropic
from openai import OpenAI

from tests.providers import ScriptedProvider


@dataclass(frozen=True)
class RealClients:
    """Unmodified clients that check every answer against their own types, and try nothing twice."""

    openai: OpenAI
    anthropic: Anthropic


@pytest.fixture(scope="session")
def clients(running_provider: ScriptedProvider) -> Iterator[RealClients]:
    url, key = running_provider.openai_url, running_provider.key
    with (
        OpenAI(base_url=url, api_key=key, max_retries=0, _strict_response_validation=True) as openai,
        Anthropic(
            base_url=running_provider.anthropic_url, api_key=key, max_retries=0, _strict_response_validation=True
        ) as anthropic,
    ):
        yield RealClients(openai, anthropic)
