"""Upkeep of the records in Redis."""

from __future__ import annotations

from tenuto.errors import StoreFull, StoreReadOnly
from tenuto.model import CompactionResult, EraseResult, RemovedSession, Scope, SessionStats
from tenuto.model.scope import session_key, user_scope
from tenuto.stores.redis._compaction import compact
from tenuto.stores.redis._erasure import UserEraser
from tenuto.stores.redis._failures import failure
from tenuto.stores.redis._listing import SessionListing
from tenuto.stores.redis._resp import CallFailed
from tenuto.stores.redis._runner import ScriptRunner
from tenuto.stores.redis._sites import SiteIndex
from tenuto.stores.redis._sweeper import Sweeper
from tenuto.stores.redis._window_cache import WindowCache


class RedisUpkeep:
    """The `StoreUpkeep` port over Redis or Valkey."""

    def __init__(
        self,
        asking: ScriptRunner,
        *,
        windows: WindowCache,
        shelves: SessionListing,
        spaces: SiteIndex,
        sweeping: Sweeper,
        erasing: UserEraser,
    ) -> None:
        self._asking = asking
        self._windows = windows
        self._shelves = shelves
        self._spaces = spaces
        self._sweeping = sweeping
        self._erasing = erasing

    async def sweep(self, limit: int = 1000) -> tuple[RemovedSession, ...]:
        self._windows.clear()
        return await self._sweeping.sweep(limit)

    async def evict(self, scope: Scope, keep: int, keep_session: str | None = None) -> tuple[RemovedSession, ...]:
        self._windows.clear()
        return await self._sweeping.evict(
            scope, keep, None if keep_session is None else session_key(scope, keep_session)
        )

    async def erase(self, scope: Scope, limit: int = 100) -> EraseResult:
        self._windows.clear()
        return await self._erasing.erase(user_scope(scope), max(0, limit))

    async def compact(self) -> CompactionResult:
        """Have the servers rewrite their logs and snapshots; returns when they have."""
        try:
            return await compact(self._asking.link)
        except CallFailed as exc:
            raise failure(exc) from exc

    async def list_sites(self, after: Scope | None = None, limit: int = 100) -> tuple[Scope, ...]:
        return await self._spaces.page(after, limit)

    async def stats(self, scope: Scope) -> SessionStats:
        return await self._shelves.stats(scope, self._asking.now())

    async def ping(self) -> None:
        try:
            await self._asking.call("PING")
        except (StoreFull, StoreReadOnly):
            return  # A server that cannot write its files refuses even this, but can be read.
