"""The route of operators: how this process and its store are, as numbers and findings."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace
from starlette.requests import Request

from tenuto.app import Tenuto
from tenuto.chat import Chat, LiveTurns
from tenuto.errors import Invalid, Unavailable
from tenuto.extras import with_folder
from tenuto.llm.reach import address_variables
from tenuto.model.merged_status import merge_views
from tenuto.model.status import (
    EXTRA_MISSING,
    BreakerStatus,
    CacheStatus,
    JobsStatus,
    JournalStatus,
    ModelStatus,
    ProcessStatus,
    SessionsStatus,
    StatusView,
    StoreStatus,
    TurnsStatus,
    WorkerStatus,
    find_problems,
    worst_level,
)
from tenuto.model.values import JsonObject
from tenuto.ports import Clock, Versioned
from tenuto.server.auth import authenticate_operator
from tenuto.server.metrics import Metrics
from tenuto.server.openapi import Router
from tenuto.server.task_worker import TaskWorker
from tenuto.server.workers import Peers
from tenuto.sessions.events import EventKind
from tenuto.stores.factory import place_of, sqlite_path
from tenuto.wiring.models import home_provider
from tenuto.wiring.tasks import can_run_plans

routes = Router("health", prefix="/v1")

_TIMEOUT_SECONDS: Final = 2.0
# Turns that failed within it are worth a look.
_LATELY: Final = timedelta(minutes=10)
_STATM: Final = Path("/proc/self/statm")
_EXAMPLE: Final[JsonObject] = {
    "level": "ok",
    "findings": [],
    "process": {
        "version": "0.1.0",
        "started_at": "2026-11-17T09:00:00Z",
        "uptime_seconds": 3600.0,
        "cpu_seconds": 41.5,
        "memory_bytes": 121634816,
        "workers": 1,
    },
    "store": {
        "backend": "redis",
        "address": "redis://redis:6379/0",
        "answers": True,
        "ping_ms": 0.42,
        "version": "Valkey 8.1.1",
    },
    "breaker": {"state": "closed", "rejected": 0},
    "journal": {"waiting": 0, "oldest_seconds": None, "quarantined": 0, "replayed": 0, "refused": 0, "since": None},
    "cache": {
        "sessions": 812,
        "max_sessions": 10000,
        "bytes": 9437184,
        "max_bytes": 268435456,
        "hits": 5210,
        "misses": 905,
        "hit_rate": 0.852,
    },
    "turns": {"live": 3, "answered": 1830, "failed": 2, "failed_in_a_row": 0, "per_minute": 30.5},
    "models": [
        {
            "name": "openai:gpt-5.4-mini",
            "answered": 1828,
            "failed": 2,
            "failed_in_a_row": 0,
            "failure_rate": 0.01,
            "last_answer_at": "2026-11-17T09:59:58Z",
            "last_failure": {
                "at": "2026-11-17T09:41:07Z",
                "reason": "limit",
                "code": "model_failed",
                "message": "the model openai:gpt-5.4-mini is asked more often than its provider allows (429)",
            },
            "p50_ms": 840.0,
            "p95_ms": 2310.0,
        }
    ],
    "sessions": {"created": 420, "deleted": 3, "expired": 11, "created_per_minute": 7.0},
    "jobs": {
        "waiting": 0,
        "running": 1,
        "done": 640,
        "failed": 0,
        "failed_in_a_row": 0,
        "unread": 2,
        "unread_seconds": 0.8,
    },
    "tasks": {"status": "idle", "error": None},
}


class ServerStatus:
    """Reads the status of one server process from the objects that do its work."""

    def __init__(
        self, *, tenuto: Tenuto, live: LiveTurns, chat: Chat, meters: Metrics, worker: TaskWorker, clock: Clock
    ) -> None:
        self._tenuto = tenuto
        self._calls = chat.model_calls
        missing = {each.name: each.missing for each in chat.assistants if each.missing is not None}
        self._lacking = {name: with_folder(one.install) for name, one in missing.items() if one.install}
        self._broken = {name: f"{one.cause}; {one.advice}" for name, one in missing.items() if one.cause}
        self._addresses: dict[str, tuple[str, str] | tuple[None, None]] = {}
        self._live = live
        self._meters = meters
        self._worker = worker
        self._clock = clock
        self._started_at = clock()
        self._store_version: str | None = None

    async def encode(self) -> bytes:
        """The view, for the worker that was asked."""
        return msgspec.json.encode(await self.view())

    async def view(self) -> StatusView:
        """The status of now. It pings the store, for two seconds at most."""
        store, breaker, journal = await self._store(), self._breaker(), self._journal()
        process = self._process()
        minutes = max(process.uptime_seconds, 1.0) / 60
        turns, jobs, tasks = self._turns(minutes), self._jobs(), self._tasks()
        models = [self._model(calls.status) for calls in self._calls]
        findings = find_problems(
            store=store,
            breaker=breaker,
            journal=journal,
            turns=turns,
            jobs=jobs,
            tasks=tasks,
            models=models,
            lacking=self._lacking,
            broken=self._broken,
            failed=self._meters.failed_assistants(self._clock() - _LATELY),
        )
        return StatusView(
            level=worst_level(findings),
            findings=findings,
            process=process,
            store=store,
            breaker=breaker,
            journal=journal,
            cache=self._cache(),
            turns=turns,
            models=models,
            sessions=self._sessions(minutes),
            jobs=jobs,
            tasks=tasks,
        )

    def _model(self, status: ModelStatus) -> ModelStatus:
        """The model with its address, which may have been set since the start."""
        settings = self._tenuto.settings
        if status.name not in self._addresses:
            found: dict[str, str] = {}
            # What a program gave has a name of its own kind, and no address that is known.
            with contextlib.suppress(Invalid):
                found = address_variables([status.name], home=home_provider(settings), base_url=settings.model_base_url)
            self._addresses[status.name] = next(iter(found.items()), (None, None))
        address, variable = self._addresses[status.name]
        return replace(status, address=address and _without_credentials(address), address_variable=variable)

    async def _store(self) -> StoreStatus:
        stores, ping_ms = self._tenuto.stores, None
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                began = time.perf_counter()
                await stores.front.upkeep.ping()
                ping_ms = round((time.perf_counter() - began) * 1000, 2)
                if self._store_version is None and isinstance(stores.backend, Versioned):
                    self._store_version = await stores.backend.product_version()
        except (TimeoutError, Unavailable):
            # It may come back as another version.
            self._store_version = None
        place = place_of(self._tenuto.settings.store).rstrip("?")
        file_bytes, log_bytes = _sqlite_sizes(self._tenuto.settings.store)
        return StoreStatus(
            backend=place.split(":", 1)[0],
            address=place,
            answers=ping_ms is not None,
            ping_ms=ping_ms,
            version=self._store_version,
            file_bytes=file_bytes,
            log_bytes=log_bytes,
        )

    def _breaker(self) -> BreakerStatus | None:
        circuit = self._tenuto.stores.circuit
        return BreakerStatus.of(circuit) if circuit is not None else None

    def _journal(self) -> JournalStatus | None:
        if self._tenuto.stores.journal is None:
            return None
        state = self._tenuto.stores.journal.status
        age = (self._clock() - state.oldest).total_seconds() if state.oldest is not None else None
        return JournalStatus.derive(state, oldest_seconds=age)

    def _jobs(self) -> JobsStatus:
        unread, since = self._tenuto.upkeep.backlog
        age = max(0.0, (self._clock() - since).total_seconds()) if since is not None else None
        return JobsStatus.derive(self._tenuto.upkeep.jobs, unread=unread, unread_seconds=age)

    def _cache(self) -> CacheStatus | None:
        counts, settings = self._tenuto.stores.cache, self._tenuto.settings
        if counts is None:
            return None
        hits, misses = counts.hits, counts.misses
        return CacheStatus(
            sessions=len(counts),
            max_sessions=settings.l1_sessions,
            bytes=counts.held_bytes,
            max_bytes=settings.l1_bytes,
            hits=hits,
            misses=misses,
            hit_rate=round(hits / (hits + misses), 3) if hits + misses else None,
        )

    def _turns(self, minutes: float) -> TurnsStatus:
        answered, failed = self._meters.ended_turns()
        rate = round((answered + failed) / minutes, 2)
        return TurnsStatus(
            live=self._live.running,
            answered=answered,
            failed=failed,
            failed_in_a_row=self._meters.failed_turns_in_a_row,
            per_minute=rate,
        )

    def _sessions(self, minutes: float) -> SessionsStatus:
        created, deleted, expired = (
            self._meters.session_events(kind) for kind in (EventKind.CREATED, EventKind.DELETED, EventKind.EXPIRED)
        )
        rate = round(created / minutes, 2)
        return SessionsStatus(created=created, deleted=deleted, expired=expired, created_per_minute=rate)

    def _tasks(self) -> WorkerStatus:
        view = self._worker.view
        if view is not None:
            return WorkerStatus.of(view)
        if not can_run_plans():
            return WorkerStatus(status="unavailable", error=EXTRA_MISSING)
        return WorkerStatus(status="idle", error=None)

    def _process(self) -> ProcessStatus:
        return ProcessStatus(
            version=version("tenuto"),
            started_at=self._started_at,
            uptime_seconds=round((self._clock() - self._started_at).total_seconds(), 1),
            cpu_seconds=round(time.process_time(), 2),
            memory_bytes=_resident_bytes(),
        )


@routes.get("/status", example=_EXAMPLE)
async def get_status(request: Request) -> StatusView:
    """Get the state of the server, all of its workers, and its store.

    Breaker, journal, cache, turns, upkeep, memory and findings. It covers all tenants: a server with keys asks for
    `metrics_token` or the role `operator`.
    """
    await authenticate_operator(request, "the status of the server is")
    status: ServerStatus = request.app.state.status
    peers: Peers | None = request.app.state.peers
    if peers is None:
        return await status.view()
    answers = await peers.ask("status")
    views = [msgspec.json.decode(answer, type=StatusView) for answer in answers.values()]
    return merge_views(views or [await status.view()], peers.of)


def _without_credentials(address: str) -> str:
    parts = urlsplit(address)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def _sqlite_sizes(url: str) -> tuple[int | None, int | None]:
    """The sizes of a SQLite file and of its write-ahead log."""
    if not url.startswith("sqlite:"):
        return None, None
    file = sqlite_path(url)
    try:
        size, log = file.stat().st_size, file.with_name(f"{file.name}-wal")
        return size, log.stat().st_size if log.exists() else 0
    except OSError:
        return None, None


def _resident_bytes() -> int | None:
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None
