"""Routes for those who run the server: health, readiness, metrics."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from tenuto.errors import StoreUnavailable, Unavailable
from tenuto.model.values import View
from tenuto.server.auth import authenticate_operator, service
from tenuto.server.json_io import answer
from tenuto.server.metrics import Metrics
from tenuto.server.openapi import Router, describe
from tenuto.server.task_worker import TaskWorker, TaskWorkerView
from tenuto.wiring.tasks import can_run_plans

routes = Router("health")

_PATIENCE_SECONDS: Final = 2.0
_METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"

_VERSION: Final = version("tenuto")


class HealthView(View, frozen=True, kw_only=True):
    """The state of the process. With `memories_without_user`, callers that name no user share one memory."""

    status: str
    version: str
    store: str
    auth: str
    memories_without_user: bool
    plans: bool


class JournalView(View, frozen=True, kw_only=True):
    """Turns in the journal: those that wait for the store, and those that it refused for good."""

    waiting: int
    quarantined: int


class ReadinessView(View, frozen=True, kw_only=True, omit_defaults=True):
    """Whether the server can answer requests. `degraded`: the store does not answer, and a journal stores turns."""

    status: str
    store: str | None = None
    journal: JournalView | None = None
    tasks: TaskWorkerView | None = None


@routes.get("/healthz", describe(HealthView, public=True))
async def get_health(request: Request) -> Response:
    """Check that the process is alive. Tells the kind of store, and how requests are authenticated."""
    here = service(request)
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            auth = await here.gate.mode()
    except (TimeoutError, Unavailable):
        auth = "unknown: the store does not answer"
    store = here.settings.store.split(":", 1)[0]
    shared = here.settings.memory_policy().without_user
    view = HealthView(
        status="ok", version=_VERSION, store=store, auth=auth, memories_without_user=shared, plans=can_run_plans()
    )
    return answer(view)


@routes.get("/readyz", describe(ReadinessView, public=True, problems=(503,)))
async def get_readiness(request: Request) -> Response:
    """Check that the server can answer requests.

    200 if the store answers, or if a journal stores turns meanwhile and requests can be authenticated without the
    store.
    """
    here = service(request)
    stores, worker = here.tenuto.stores, _task_worker(request)
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await stores.front.upkeep.ping()
    except (TimeoutError, StoreUnavailable) as away:
        journal = stores.writable_journal
        if journal is None or not here.gate.works_without_store():
            raise away if isinstance(away, StoreUnavailable) else Unavailable("session store") from None
        held = JournalView.of(journal.status)
        return answer(ReadinessView(status="degraded", store="unavailable", journal=held, tasks=worker.view))
    return answer(ReadinessView(status="ready", tasks=worker.view))


def _task_worker(request: Request) -> TaskWorker:
    worker: TaskWorker = request.app.state.task_worker
    return worker


@routes.get("/metrics", describe(None, content={"text/plain": {"schema": {"type": "string"}}}))
async def get_metrics(request: Request) -> Response:
    """Get metrics in the text format of Prometheus.

    They cover all tenants: a server with keys asks for `metrics_token` or the role `operator`.
    """
    await authenticate_operator(request, "metrics are")
    meters: Metrics = request.app.state.meters
    return Response(meters.text(), media_type=_METRICS)
