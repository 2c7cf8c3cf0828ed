"""The HTTP application: everything put together."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from tenuto.access import ApiKeys, JwtPolicy, JwtVerifier
from tenuto.app import Tenuto, open_app
from tenuto.background import running
from tenuto.chat import LiveTurns, SentTurns, SharedTurns
from tenuto.errors import InvalidSetting, StoreUnavailable
from tenuto.model.urls import is_loopback
from tenuto.ports import Clock, utc_now
from tenuto.recall.embedding import CachedEmbedder
from tenuto.recall.service import Memories
from tenuto.server import (
    agents,
    analytics,
    attachments,
    export,
    goods,
    health,
    keys,
    memories,
    messages,
    npc,
    people,
    privacy,
    problems,
    session_events,
    sessions,
    status,
    task_runs,
    tasks,
    turns,
    web_console,
)
from tenuto.server import chat as talks
from tenuto.server.a2a import routes as a2a
from tenuto.server.anthropic import messages as anthropic_messages
from tenuto.server.apps.by_history import SessionsByHistory
from tenuto.server.apps.presets import AppRules
from tenuto.server.auth import OPEN, Gate, ServerContext
from tenuto.server.channels import channel_routes, serving_channels
from tenuto.server.error_shapes import handle_http_error, own_addresses
from tenuto.server.mcp import routes as mcp
from tenuto.server.metrics import Metrics
from tenuto.server.middleware import RequestMiddleware
from tenuto.server.openai import completions, conversations, responses
from tenuto.server.openai import models as openai_models
from tenuto.server.rates import RateLimiter, SharedRates
from tenuto.server.routing import IndexedRouter
from tenuto.server.session_events import SessionEvents
from tenuto.server.task_worker import TaskWorker
from tenuto.server.web_streams import ag_ui, ai_sdk
from tenuto.server.workers import Peers, WorkerPlace
from tenuto.settings import Settings
from tenuto.stores.factory import place_of

_log = logging.getLogger(__name__)
# Where nothing is set: enough for a busy backend, too little to search or flood.
_PER_MINUTE = 6000
# What pages of other origins may send, and which headers of an answer they may read.
_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_EXPOSED: Final = (
    "X-Request-ID",
    "Retry-After",
    "ETag",
    "Location",
    "Tenuto-Session",
    "Tenuto-Degraded",
    "Tenuto-App-Task",
    "Tenuto-Store",
)
# Seconds after the start when the embedder loads: the first requests come before it.
_WARM_AFTER = 2.0


def create_app(
    settings: Settings,
    *,
    clock: Clock = utc_now,
    ticks: Callable[[], float] = time.monotonic,
    opened: Tenuto | None = None,
    place: WorkerPlace | None = None,
    turns_grace: float | None = None,
) -> Starlette:
    """The application. It opens the installation when it starts and closes it when it ends, unless handed an open one.

    `clock` tells the time of day, `ticks` the seconds that limits and trust in a credential are counted by. With a
    `place` it is one of several workers. At the end, turns have `turns_grace` seconds.

    Raises:
        InvalidSetting: a key file of the settings does not hold a fitting key, or no preset has the name of an app.
    """
    app_rules = AppRules.of(settings)
    verifier = _make_jwt_verifier(settings)
    meters = Metrics()

    async def start(app: Starlette, tenuto: Tenuto, stack: AsyncExitStack) -> None:
        if settings.memories_without_user:
            _log.warning("memories_without_user is on: callers that name no user share one memory")
        # No other process has a store in memory.
        shared_state = None if settings.store.startswith("memory:") else tenuto.store.state
        shared = SharedRates(state=shared_state, clock=clock, ticks=ticks) if shared_state is not None else None
        gate = _gate(settings, verifier, tenuto, clock, ticks, shared)
        # Opened now: a model or an assistant that cannot be had stops the start, not the first question.
        chat = await tenuto.chat()
        for each in chat.assistants:
            if each.missing is not None and each.missing.cause:
                _log.warning("assistant %s is missing: %s; %s", each.name, each.missing.cause, each.missing.advice)
        hub = app.state.session_events = SessionEvents(
            tenuto.sessions.get, tenuto.sessions.running_turn, tenuto.stores.elsewhere, state=shared_state, clock=clock
        )
        await stack.enter_async_context(hub.running())
        turn_logs, others = tenuto.stores.turn_logs, None
        if turn_logs is not None:
            others = SharedTurns(turn_logs, tenuto.sessions, chat.redaction, clock=clock)
            await stack.enter_async_context(others.running())
        live = await stack.enter_async_context(LiveTurns(chat, tenuto.sessions, hub.on_turn_started, others))
        live.grace = turns_grace
        app.state.service = ServerContext(
            settings=settings,
            tenuto=tenuto,
            chat=chat,
            live=live,
            sent_turns=SentTurns(tenuto.sessions, chat.redaction, live),
            gate=gate,
            clock=clock,
            embedding_rates=RateLimiter(
                settings.embedding_tokens_per_minute, what="tokens of embeddings", now=ticks, shared=shared
            ),
            apps=app_rules,
            by_history=SessionsByHistory(
                state=tenuto.store.state,
                sessions=tenuto.sessions,
                redaction=chat.redaction,
                clock=clock,
                kept_for=settings.sessions_by_history,
            ),
        )
        tenuto.add_listener(meters.count_session_event)
        tenuto.add_listener(hub.on_session_event)
        chat.observe(meters.count_turn)
        meters.watch(tenuto.stores, chat.model_calls, tenuto.upkeep, tenuto.redactor.outside, tenuto.scheduled_scan)
        try:
            mode = await gate.mode()
        except StoreUnavailable:
            mode = "access is unknown until the store answers"
        if mode == OPEN and settings.allowed_hosts:
            _log.warning("open without a credential to whoever reaches the proxy of %s", settings.allowed_hosts)
        _log.info("store %s, model %s, %s", place_of(settings.store).rstrip("?"), settings.model, mode)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            opening = nullcontext(opened) if opened is not None else open_app(settings, clock=clock)
            tenuto = await stack.enter_async_context(opening)
            try:
                await start(app, tenuto, stack)
                app.state.gateways = await stack.enter_async_context(serving_channels(tenuto, clock))
            except InvalidSetting as error:
                # uvicorn logs only where the start failed; this line says what to correct.
                _log.error("cannot start: %s", error)
                raise
            worker = app.state.task_worker = TaskWorker(tenuto)
            live, chat = app.state.service.live, app.state.service.chat
            app.state.status = status.ServerStatus(
                tenuto=tenuto, live=live, chat=chat, meters=meters, worker=worker, clock=clock
            )
            mcp_server = app.state.mcp = mcp.lazy_mcp_server(tenuto)
            a2a_server = app.state.a2a = a2a.lazy_a2a_server(tenuto, live)
            if app.state.peers is not None:
                answers = {"metrics": meters.encode, "status": app.state.status.encode}
                await stack.enter_async_context(app.state.peers.answering(answers))
            async with _warming(await tenuto.memories()), worker.running(), mcp_server.running(), a2a_server.running():
                yield

    modules = (
        talks,
        turns,
        messages,
        attachments,
        sessions,
        session_events,
        memories,
        tasks,
        agents,
        task_runs,
        analytics,
        export,
        privacy,
        keys,
        people,
        npc,
        goods,
        ai_sdk,
        ag_ui,
        conversations,
        responses,
        completions,
        openai_models,
        anthropic_messages,
        health,
        status,
        web_console,
        mcp,
        a2a,
    )
    app = Starlette(exception_handlers={**problems.HANDLERS, HTTPException: handle_http_error}, lifespan=lifespan)

    app.add_middleware(RequestMiddleware, meters=meters)
    if origins := settings.allowed_origins():
        # Outermost, so that pages can read errors, too. Keys travel in headers: without cookies, browsers need not be
        # told to send credentials.
        app.add_middleware(
            CORSMiddleware, allow_origins=origins, allow_methods=_METHODS, allow_headers=["*"], expose_headers=_EXPOSED
        )
    router = IndexedRouter(
        [*(route for module in modules for route in module.routes.routes), *channel_routes(settings)]
    )
    router.lifespan_context = app.router.lifespan_context
    app.router = router
    app.state.meters = meters
    app.state.peers = Peers(place) if place is not None else None
    app.state.own_addresses = own_addresses(router.routes)
    return app


@asynccontextmanager
async def _warming(memories: Memories) -> AsyncIterator[None]:
    """Meanwhile, the embedder of memories loads its weights: the first question need not do without them."""

    async def warm(embedder: CachedEmbedder) -> None:
        await asyncio.sleep(_WARM_AFTER)
        await embedder.warm()

    if memories.embedder is None or memories.embedder.ready or not memories.policy.enabled:
        yield
        return
    async with running(warm(memories.embedder), "embedder"):
        yield


def _gate(
    settings: Settings,
    tokens: JwtVerifier | None,
    tenuto: Tenuto,
    clock: Clock,
    ticks: Callable[[], float],
    shared: SharedRates | None,
) -> Gate:
    per_minute = settings.requests_per_minute
    return Gate(
        keys=ApiKeys(store=tenuto.store.state, clock=clock),
        people=tenuto.people,
        tokens=tokens,
        may_be_open=is_loopback(settings.host),
        origins=frozenset(settings.allowed_origins()),
        hosts=settings.proxied_hosts(),
        rates=RateLimiter(_PER_MINUTE if per_minute is None else per_minute, now=ticks, shared=shared),
        open_rates=RateLimiter(per_minute or 0, now=ticks, shared=shared),
        wrong_rates=RateLimiter(
            settings.wrong_credentials_per_minute, what="wrong credentials", now=ticks, shared=shared
        ),
        now=ticks,
    )


def _make_jwt_verifier(settings: Settings) -> JwtVerifier | None:
    policy = JwtPolicy(
        secret=settings.jwt_secret,
        key_file=settings.jwt_key_file,
        jwks_file=settings.jwt_jwks_file,
        algorithm=settings.jwt_algorithm,
        issuer=settings.jwt_issuer,
        audience=settings.jwt_audience,
        tenant_claim=settings.jwt_tenant_claim,
        site_claim=settings.jwt_site_claim,
        user_claim=settings.jwt_user_claim,
        role_claim=settings.jwt_role_claim,
        agent_claim=settings.jwt_agent_claim,
        person_claim=settings.jwt_person_claim,
    )
    return JwtVerifier(policy) if policy.configured else None
