"""Routes for those who run the server: health, readiness, metrics."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import Any, Final

from fastapi import Request
from fastapi.responses import Response

from tenuto.errors import StoreUnavailable, Unavailable
from tenuto.model.values import JsonObject
from tenuto.server.answers import Health, Ready
from tenuto.server.metrics import Meters
from tenuto.server.openapi import room, tells
from tenuto.server.service import service
from tenuto.server.wire import answer

routes = room("health")

_PATIENCE_SECONDS: Final = 2.0
_METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"

_metering: dict[str, Any] = tells((200, None), public=True)
_metering["responses"][200] = {
    "description": "Prometheus text.",
    "content": {"text/plain": {"schema": {"type": "string"}}},
}


@routes.get("/healthz", **tells((200, Health), public=True))
async def get_health(request: Request) -> Response:
    """The process lives; which store it works on, and how requests get in."""
    here = service(request)
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            auth = await here.gate.mode()
    except (TimeoutError, Unavailable):
        auth = "unknown: the store does not answer"
    store = here.settings.store.split(":", 1)[0]
    return answer({"status": "ok", "version": version("tenuto"), "store": store, "auth": auth})


@routes.get("/readyz", **tells((200, Ready), public=True, problems=(503,)))
async def get_readiness(request: Request) -> Response:
    """The store answers, or a journal keeps what those say until it does whom the gate can tell without the store."""
    here = service(request)
    stores = here.tenuto.stores
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await stores.front.upkeep.ping()
    except (TimeoutError, StoreUnavailable) as away:
        journal = stores.ready_journal
        if journal is None or not here.gate.holds_alone():
            raise away if isinstance(away, StoreUnavailable) else Unavailable("session store") from None
        counts: JsonObject = {"waiting": journal.status.waiting, "aside": journal.status.aside}
        return answer({"status": "degraded", "store": "away", "journal": counts})
    return answer({"status": "ready"})


@routes.get("/metrics", **_metering)
async def get_metrics(request: Request) -> Response:
    """Meters, as Prometheus reads them."""
    meters: Meters = request.app.state.meters
    return Response(meters.text(), media_type=_METRICS)
