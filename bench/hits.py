"""What L1 saves: a hit in this process against the same question put to the store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import cycle, islice
from statistics import median
from time import perf_counter
from typing import Final

from bench.ours import BareStore, scope_of
from bench.plan import Plan
from bench.workload import WINDOW, Words
from tenuto.model import Page
from tenuto.ports import Backend, Store
from tenuto.stores.cached import CachedStore
from tenuto.stores.factory import open_store

_SESSIONS: Final = [f"hit-{place}" for place in range(32)]
_TURNS: Final = 50
_ROUNDS: Final = 7
# A store is asked less often than L1, which answers in microseconds.
_FEWER: Final = 20


@dataclass(frozen=True, slots=True)
class Hits:
    """Seconds for one `get` or one page of 20 messages."""

    backend: str
    what: str
    store: float
    hit: float
    missed: int
    """Lookups that L1 passed on although it should have known; a figure with misses is not one of hits."""

    @property
    def ratio(self) -> float:
        """How many times faster a hit is."""
        return self.store / self.hit


async def measure_hits(backend: str, url: str, plan: Plan) -> list[Hits]:
    """Hits and store in turn; nothing when the store has no change feed, since L1 then stays away."""
    store = await open_store(url)
    try:
        if store.feed is None:
            return []
        await _seed(store)
        async with CachedStore(store=store, feed=store.feed) as cached:
            return [await _compare(backend, what, store, cached, plan) for what in ("get", "messages")]
    finally:
        await store.close()


async def _seed(store: Backend) -> None:
    words = Words()
    bare = BareStore(store)
    for session in _SESSIONS:
        await bare.seed(session, [words.turn() for _ in range(_TURNS)])


async def _compare(backend: str, what: str, store: Store, cached: CachedStore, plan: Plan) -> Hits:
    ask_store, ask_l1 = _question(what, store), _question(what, cached)
    await _timed(ask_l1, len(_SESSIONS))
    await _timed(ask_store, len(_SESSIONS))
    misses = cached.sessions.misses
    took = [(await _timed(ask_store, plan.hits // _FEWER), await _timed(ask_l1, plan.hits)) for _ in range(_ROUNDS)]
    return Hits(
        backend,
        what,
        store=median(store for store, _ in took),
        hit=median(hit for _, hit in took),
        missed=cached.sessions.misses - misses,
    )


def _question(what: str, store: Store) -> Callable[[str], Awaitable[object]]:
    newest = Page(limit=WINDOW)
    scopes = {session: scope_of(session) for session in _SESSIONS}
    if what == "get":
        return lambda session: store.sessions.get(scopes[session], session)
    return lambda session: store.sessions.messages(scopes[session], session, newest)


async def _timed(ask: Callable[[str], Awaitable[object]], times: int) -> float:
    """Seconds for one, over many in a row."""
    sessions = list(islice(cycle(_SESSIONS), times))
    started = perf_counter()
    for session in sessions:
        await ask(session)
    return (perf_counter() - started) / times
