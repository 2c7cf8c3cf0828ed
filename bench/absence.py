"""Whether time tells what a not-found answer hides: that a session is absent, somebody else's, expired or deleted.

Asked twice: of the library, where microseconds show, and at the HTTP door, called in this process without a network in
between, which is the best place an outsider could dream of.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from statistics import median
from time import perf_counter
from typing import Final

import httpx

from bench.ours import drafts_of
from bench.plan import Plan
from bench.stats import told_apart
from bench.workload import WINDOW, Words
from tenuto.app import Tenuto, open_app
from tenuto.errors import SessionNotFound
from tenuto.model import AppendBatch, NewSession, Page, Retention, Scope
from tenuto.server.app import create_app
from tenuto.settings import Settings

Question = Callable[[str], Awaitable[object]]
HTTP_GET: Final = "HTTP get"
KINDS: Final = ("absent", "foreign", "expired", "deleted")
_OWNER: Final = Scope(tenant="bench", user="owner")
_STRANGER: Final = Scope(tenant="bench", user="stranger")
_LONG: Final = NewSession(retention=Retention(idle=timedelta(days=30)))
_SHORT: Final = NewSession(retention=Retention(idle=timedelta(hours=1)))
_NEWEST: Final = Page(limit=WINDOW)
_SIDE_BY_SIDE: Final = 32


@dataclass(frozen=True, slots=True)
class Absence:
    """One kind of not-found against a session that never was."""

    backend: str
    what: str
    kind: str
    hot: bool
    median: float
    chance: float
    p: float

    @property
    def told_apart(self) -> bool:
        """Whether an observer does clearly better than a coin."""
        return self.p < 0.001 and abs(self.chance - 0.5) > 0.1


@dataclass(slots=True)
class ShiftedClock:
    """The wall clock, moved on."""

    ahead: timedelta = field(default_factory=timedelta)

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead


async def measure_absence(backend: str, url: str, plan: Plan) -> list[Absence]:
    """Look every session up once, as a caller who cannot have it, kinds mixed at random."""
    clock = ShiftedClock()
    settings = Settings(store=url)
    found: list[Absence] = []
    async with open_app(settings, clock=clock, run_upkeep=False) as app, _door(settings, app, clock) as client:
        questions = {
            "get": lambda session: app.sessions.get(_STRANGER, session),
            "messages": lambda session: app.sessions.messages(_STRANGER, session, _NEWEST),
            HTTP_GET: lambda session: _get(client, session),
        }
        for what, ask in questions.items():
            for hot in (False, True):
                prefix = f"{what.split()[0]}-{'hot' if hot else 'cold'}"
                clock.ahead = timedelta()
                await _prepare(app, prefix, plan.lookups, hot=hot)
                clock.ahead = timedelta(hours=2)
                times = await _look_up(app, ask, prefix, plan.lookups, hot=hot)
                found += _judged(backend, what, times, hot=hot)
    return found


@asynccontextmanager
async def _door(settings: Settings, app: Tenuto, clock: ShiftedClock) -> AsyncIterator[httpx.AsyncClient]:
    """The server without its socket, and somebody who asks it as the stranger."""
    server = create_app(settings, clock=clock, opened=app)
    who = {"X-Tenant-ID": "bench", "X-User-ID": "stranger"}
    async with (
        server.router.lifespan_context(server),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(server, client=("127.0.0.1", 1)), base_url="http://127.0.0.1", headers=who
        ) as client,
    ):
        yield client


async def _get(client: httpx.AsyncClient, session: str) -> None:
    answer = await client.get(f"/v1/sessions/{session}")
    if answer.status_code != HTTPStatus.NOT_FOUND:
        raise RuntimeError(f"the server answered {answer.status_code} where nothing is to be found")
    raise SessionNotFound(session)


def _judged(backend: str, what: str, times: dict[str, list[float]], *, hot: bool) -> list[Absence]:
    return [
        Absence(backend, what, kind, hot, median(times[kind]), *told_apart(times[kind], times["absent"]))
        for kind in KINDS
    ]


async def _prepare(app: Tenuto, prefix: str, count: int, *, hot: bool) -> None:
    words = Words()
    for first in range(0, count, _SIDE_BY_SIDE):
        places = range(first, min(count, first + _SIDE_BY_SIDE))
        await asyncio.gather(*(_make(app, words, prefix, place, hot=hot) for place in places))


async def _make(app: Tenuto, words: Words, prefix: str, place: int, *, hot: bool) -> None:
    """One session of each kind that was, all of them the owner's: of their own sessions callers know anyway."""
    drafts = tuple(draft for _ in range(2) for draft in drafts_of(words.turn()))
    for kind, create in (("alive", _LONG), ("foreign", _LONG), ("expired", _SHORT), ("deleted", _LONG)):
        session = f"{prefix}-{kind}-{place}"
        await app.store.sessions.append(
            _OWNER, session, AppendBatch(id=f"{session}-batch", messages=drafts, create=create)
        )
        if hot:
            await app.store.sessions.messages(_OWNER, session, _NEWEST)
        if kind == "deleted":
            await app.store.sessions.delete(_OWNER, session)


async def _look_up(app: Tenuto, ask: Question, prefix: str, count: int, *, hot: bool) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    dice = random.Random(7)
    for place in range(count):
        # One of each kind, in any order: what slows the machine down for a moment slows all of them.
        for kind in dice.sample(KINDS, len(KINDS)):
            # Somebody was served before, whatever comes next: their own session, or a neighbour.
            served = kind if hot and kind == "foreign" else "alive"
            await app.store.sessions.messages(_OWNER, f"{prefix}-{served}-{place}", _NEWEST)
            session = f"{prefix}-{kind}-{place}"
            started = perf_counter()
            try:
                await ask(session)
            except SessionNotFound:
                times[kind].append(perf_counter() - started)
    return times
