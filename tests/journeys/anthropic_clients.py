"""Unmodified clients of Anthropic's API, pointed at a server on a loopback port."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from anthropic import AsyncAnthropic

from tests.journeys.http_service import ANN, HttpService, http_service
from tests.journeys.scripted_providers import provided
from tests.providers import ScriptedProvider
from tests.servers.loopback import serving


class AnthropicService(NamedTuple):
    """A server that needs no keys, its address, and Ann's client."""

    service: HttpService
    url: str
    ann: AsyncAnthropic


@asynccontextmanager
async def anthropic_served(**given: Any) -> AsyncIterator[AnthropicService]:
    """The server, as `http_service` opens it."""
    async with http_service(**given) as service, _asking(service) as opened:
        yield opened


@asynccontextmanager
async def anthropic_provided(provider: ScriptedProvider, *tools: Any, **given: Any) -> AsyncIterator[AnthropicService]:
    """The server with the models of a scripted provider, which must have refused nothing."""
    async with provided(provider, *tools, **given) as service, _asking(service) as opened:
        yield opened


@asynccontextmanager
async def _asking(service: HttpService) -> AsyncIterator[AnthropicService]:
    async with (
        serving(service.app) as url,
        AsyncAnthropic(base_url=url, api_key="none", max_retries=0, default_headers=ANN) as ann,
    ):
        yield AnthropicService(service, url, ann)
