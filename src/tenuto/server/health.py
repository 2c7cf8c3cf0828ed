"""Routes for those who run the server: health, readiness, metrics."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from tenuto.errors import StoreUnavailable, Unavailable
from tenuto.model.values import View
from tenuto.server.auth import ServerContext, authenticate_operator
from tenuto.server.metrics import Metrics, merged_text
from tenuto.server.openapi import Router
from tenuto.server.task_worker import TaskWorker, TaskWorkerView
from tenuto.server.workers import Peers
from tenuto.wiring.tasks import can_run_plans

routes = Router("health")

_TIMEOUT_SECONDS: Final = 2.0
_METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"

_VERSION: Final = version("tenuto")


class HealthView(View, frozen=True, kw_only=True):
    """The state of the process. With `memories_without_user`, callers that name no user share one memory."""

    status: str
    version: str
    store: str
    auth: str
    memories_without_user: bool
    session_search: bool
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


@routes.get("/healthz", public=True)
async def get_health(context: ServerContext) -> HealthView:
    """Check that the process is alive. Tells the kind of store, and how requests are authenticated."""
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            auth = await context.gate.mode()
    except (TimeoutError, Unavailable):
        auth = "unknown: the store does not answer"
    store = context.settings.store.split(":", 1)[0]
    shared = context.settings.memory_policy().without_user
    return HealthView(
        status="ok",
        version=_VERSION,
        store=store,
        auth=auth,
        memories_without_user=shared,
        session_search=context.settings.session_search,
        plans=can_run_plans(),
    )


@routes.get("/readyz", public=True, problems=(503,))
async def get_readiness(request: Request, context: ServerContext) -> ReadinessView:
    """Check that the server can answer requests.

    200 if the store answers, or if a journal stores turns meanwhile and requests can be authenticated without the
    store.
    """
    stores, worker = context.tenuto.stores, _task_worker(request)
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            await stores.front.upkeep.ping()
    except (TimeoutError, StoreUnavailable) as error:
        journal = stores.writable_journal
        if journal is None or not context.gate.works_without_store():
            raise error if isinstance(error, StoreUnavailable) else Unavailable("session store") from None
        held = JournalView.of(journal.status)
        return ReadinessView(status="degraded", store="unavailable", journal=held, tasks=worker.view)
    return ReadinessView(status="ready", tasks=worker.view)


def _task_worker(request: Request) -> TaskWorker:
    worker: TaskWorker = request.app.state.task_worker
    return worker


@routes.get("/metrics", content={"text/plain": {"schema": {"type": "string"}}})
async def get_metrics(request: Request) -> Response:
    """Get metrics in the text format of Prometheus, those of all workers.

    They cover all tenants: a server with keys asks for `metrics_token` or the role `operator`.
    """
    await authenticate_operator(request, "metrics are")
    meters: Metrics = request.app.state.meters
    peers: Peers | None = request.app.state.peers
    text = meters.text() if peers is None else merged_text(await peers.ask("metrics"), peers.of)
    return Response(text, media_type=_METRICS)
