"""What the cache of records saves: a read that it answers against the same of a record that it does not hold."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import cycle, islice
from statistics import median
from time import perf_counter
from typing import Final

from bench.ours import BareStore, open_bare, scope_of
from bench.plan import Plan
from bench.workload import WINDOW, Words
from tenuto.model import Page
from tenuto.model.scope import session_key
from tenuto.stores.engine import Engine

_SESSIONS: Final = [f"hit-{place}" for place in range(32)]
_TURNS: Final = 50
_ROUNDS: Final = 7
# A store is asked less often than the cache, which answers in microseconds.
_FEWER: Final = 20


@dataclass(frozen=True, slots=True)
class Hits:
    """Seconds for one `get` or one page of 20 messages."""

    backend: str
    what: str
    store: float
    hit: float
    missed: int
    """Reads that the cache passed on although it should have known; a figure with misses is not one of hits."""

    @property
    def ratio(self) -> float:
        """How many times faster a hit is."""
        return self.store / self.hit


async def measure_hits(backend: str, url: str, plan: Plan) -> list[Hits]:
    """Hits and loads in turn."""
    bare = await open_bare(url)
    try:
        await _seed(bare)
        return [await _compare(backend, what, bare.engine, plan) for what in ("get", "messages")]
    finally:
        await bare.close()


async def _seed(bare: BareStore) -> None:
    words = Words()
    for session in _SESSIONS:
        await bare.seed(session, [words.turn() for _ in range(_TURNS)])


async def _compare(backend: str, what: str, engine: Engine, plan: Plan) -> Hits:
    hit = _question(what, engine)
    keys = {session: session_key(scope_of(session), session) for session in _SESSIONS}

    async def load(session: str) -> None:
        engine.cache.drop(keys[session])
        await hit(session)

    loads, hits, missed = list[float](), list[float](), 0
    for _ in range(_ROUNDS):
        await _timed(hit, len(_SESSIONS))
        misses = engine.cache.misses
        hits.append(await _timed(hit, plan.hits))
        missed += engine.cache.misses - misses
        loads.append(await _timed(load, plan.hits // _FEWER))
    return Hits(backend, what, store=median(loads), hit=median(hits), missed=missed)


def _question(what: str, engine: Engine) -> Callable[[str], Awaitable[object]]:
    newest = Page(limit=WINDOW)
    scopes = {session: scope_of(session) for session in _SESSIONS}
    if what == "get":
        return lambda session: engine.sessions.get(scopes[session], session)
    return lambda session: engine.sessions.messages(scopes[session], session, newest)


async def _timed(ask: Callable[[str], Awaitable[object]], times: int) -> float:
    """Seconds for one, over many in a row."""
    sessions = list(islice(cycle(_SESSIONS), times))
    started = perf_counter()
    for session in sessions:
        await ask(session)
    return (perf_counter() - started) / times
