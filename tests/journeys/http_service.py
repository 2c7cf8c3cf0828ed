"""The HTTP door for journeys: the whole application in this process, and a client that speaks to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

import httpx
from starlette.applications import Starlette

from tenuto.access import ApiKeys
from tenuto.app import Tenuto, open_app
from tenuto.assistants import Assistant
from tenuto.chat import live
from tenuto.llm import ScriptedModel
from tenuto.ports import ChatModel, Clock, utc_now
from tenuto.server import create_app
from tenuto.settings import Settings
from tests.chats import helper
from tests.clock import Ticks

NO_MODELS: Mapping[str, ChatModel] = MappingProxyType({})
# How long a busy machine takes is not what journeys look at.
BY_DEFAULT: Mapping[str, Any] = {"store": "memory://", "privacy_detector_timeout": timedelta(minutes=1)}
# A turn that hangs at the end of a test has had its time.
live._GRACE = 0.0  # type: ignore[misc]  # declared as final for the product
BASE = "http://127.0.0.1:8765"
PROBLEM = "application/problem+json"


@dataclass(frozen=True)
class HttpService:
    """A server that is up, and what stands behind it."""

    http: httpx.AsyncClient
    app: Starlette
    tenuto: Tenuto
    keys: ApiKeys
    ticks: Ticks

    async def key(self, tenant: str = "acme", **bound: Any) -> dict[str, str]:
        """The header of a new key."""
        _, secret = await self.keys.create(tenant=tenant, **bound)
        return bearer(secret)

    def from_elsewhere(self, address: str) -> httpx.AsyncClient:
        """A client at another address."""
        return httpx.AsyncClient(transport=httpx.ASGITransport(app=self.app, client=(address, 50000)), base_url=BASE)


@asynccontextmanager
async def http_service(
    *,
    clock: Clock = utc_now,
    locked: bool = False,
    models: Mapping[str, ChatModel] = NO_MODELS,
    assistants: Sequence[Assistant] = (),
    folder: str | None = None,
    **given: Any,
) -> AsyncIterator[HttpService]:
    """A server on a store in memory, or on the one given. `locked`: a key exists, so requests need one. `folder`: that
    of assistants in files."""
    settings = Settings(**{**BY_DEFAULT, **given, "assistants": folder})
    ticks = Ticks()
    async with open_app(settings, clock=clock, models=models, assistants=assistants, run_upkeep=False) as tenuto:
        keys = ApiKeys(store=tenuto.store.state, clock=clock)
        if locked:
            await keys.create(tenant="first")
        app = create_app(settings, clock=clock, ticks=ticks, opened=tenuto)
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url=BASE) as http:
            yield HttpService(http, app, tenuto, keys, ticks)


def playing(model: ScriptedModel, **fields: Any) -> dict[str, Any]:
    """What `served` takes for a server whose one assistant, with these fields, plays the model's scripts."""
    settings = {"model": "scripted", "summarizer_model": "offline", "assistant": "helper"}
    return {"models": {"scripted": model}, "assistants": [helper(**fields)], **settings}


def bearer(credential: str) -> dict[str, str]:
    """A credential as a header."""
    return {"Authorization": f"Bearer {credential}"}


def user(name: str, tenant: str = "acme") -> dict[str, str]:
    """A caller, as an open server takes them."""
    return {"X-Tenant-ID": tenant, "X-User-ID": name}


ANN, BOB, EVE = user("ann"), user("bob"), user("ann", tenant="evil")


def at(session_id: str, *further: str) -> str:
    """The address of a session, however odd its id."""
    part = quote(session_id, safe="") if session_id.strip(".") else session_id.replace(".", "%2E")
    return "/".join(["/v1/sessions", part, *further])


def says(text: str, role: str = "user", **fields: Any) -> dict[str, Any]:
    """A message."""
    return {"role": role, "text": text, **fields}


def code(response: httpx.Response) -> tuple[int, str]:
    """A problem's status and stable code."""
    assert response.headers["content-type"] == PROBLEM, response.text
    body = response.json()
    assert body["status"] == response.status_code
    return response.status_code, body["code"]
