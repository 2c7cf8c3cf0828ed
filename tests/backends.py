"""Every store that keeps the contract: a new backend or wrapper is one line in `BACKENDS`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tenuto.model import Scope
from tenuto.ports import ChangeFeed, Clock, Store
from tenuto.stores.cached import Cached
from tenuto.stores.memory import MemoryStore


@dataclass(frozen=True)
class Place:
    """Where a test opens its store: its clock, a folder of its own, and the servers the suite has started."""

    clock: Clock
    folder: Path
    server: Callable[[str], Any]


@dataclass(frozen=True)
class Backend:
    """A way to open a store; `damage` makes one stored session unreadable."""

    name: str
    open: Callable[[Place], AbstractAsyncContextManager[Store]]
    damage: Callable[[Store, Scope, str], Awaitable[None]] | None = None


@asynccontextmanager
async def _memory(place: Place) -> AsyncIterator[Store]:
    yield MemoryStore(clock=place.clock)


class Unshared:
    """The feed of a store that nobody else can change."""

    @asynccontextmanager
    async def watch(self, drop: Callable[[Iterable[bytes] | None], None]) -> AsyncIterator[None]:
        yield

    def catch_up(self) -> bool:
        return True


@asynccontextmanager
async def _cached_memory(place: Place) -> AsyncIterator[Store]:
    async with Cached(store=MemoryStore(clock=place.clock), feed=Unshared(), clock=place.clock) as cached:
        yield cached


def cached(backend: Backend) -> Backend:
    """The same backend behind an L1, which must keep the same contract."""

    @asynccontextmanager
    async def opened(place: Place) -> AsyncIterator[Store]:
        async with backend.open(place) as store:
            assert isinstance(store, ChangeFeed)
            async with Cached(store=store, feed=store, clock=place.clock) as hot:
                yield hot

    async def damage(store: Store, scope: Scope, session_id: str) -> None:
        assert isinstance(store, Cached)
        assert backend.damage is not None
        await backend.damage(store.inner, scope, session_id)

    return Backend(f"cached {backend.name}", opened, damage if backend.damage else None)


BACKENDS = [
    Backend("cached memory", _cached_memory),
    Backend("memory", _memory),
]
