"""Unmodified clients of the OpenAI API, pointed at a server on a loopback port."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from openai import AsyncOpenAI

from tests.clock import FakeClock
from tests.journeys.http_service import HttpService, http_service
from tests.servers.loopback import serving


@dataclass(frozen=True)
class OpenAIService:
    """A server that needs keys, and a client for each of two tenants."""

    service: HttpService
    base_url: str
    ann: AsyncOpenAI
    eve: AsyncOpenAI

    @property
    def key(self) -> str:
        """Ann's key."""
        return self.ann.api_key


@asynccontextmanager
async def openai_served(**given: Any) -> AsyncIterator[OpenAIService]:
    """The server, as `http_service` opens it; a model of any name is the default assistant."""
    async with AsyncExitStack() as stack:
        # A response that is read again has the same times.
        service = await stack.enter_async_context(
            http_service(locked=True, **{"clock": FakeClock(), "unknown_models": "default", **given})
        )
        base_url = f"{await stack.enter_async_context(serving(service.app))}/v1"
        clients = []
        for tenant in ("acme", "evil"):
            _, secret = await service.keys.create(tenant=tenant, user="ann")
            client = AsyncOpenAI(base_url=base_url, api_key=secret, max_retries=0)
            clients.append(await stack.enter_async_context(client))
        yield OpenAIService(service, base_url, *clients)
