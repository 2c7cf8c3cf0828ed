"""What keeps the records in Redis in shape, off the request path."""

from __future__ import annotations

from tenuto.errors import StoreFull, StoreReadOnly
from tenuto.model import Compaction, Erased, Gone, Scope, Stats
from tenuto.model.scope import person_of, session_key
from tenuto.stores.redis._asking import Asking, failure
from tenuto.stores.redis._compacting import compact
from tenuto.stores.redis._erasing import Erasing
from tenuto.stores.redis._faults import LinkDown
from tenuto.stores.redis._shelves import Shelves
from tenuto.stores.redis._spaces import Spaces
from tenuto.stores.redis._sweeping import Sweeping
from tenuto.stores.redis._windows import Windows


class RedisUpkeep:
    """The `StoreUpkeep` port over Redis or Valkey."""

    def __init__(
        self,
        asking: Asking,
        *,
        windows: Windows,
        shelves: Shelves,
        spaces: Spaces,
        sweeping: Sweeping,
        erasing: Erasing,
    ) -> None:
        self._asking = asking
        self._windows = windows
        self._shelves = shelves
        self._spaces = spaces
        self._sweeping = sweeping
        self._erasing = erasing

    async def sweep(self, limit: int = 1000) -> tuple[Gone, ...]:
        self._windows.clear()
        return await self._sweeping.sweep(limit)

    async def evict(self, scope: Scope, keep: int, sparing: str | None = None) -> tuple[Gone, ...]:
        self._windows.clear()
        return await self._sweeping.evict(scope, keep, None if sparing is None else session_key(scope, sparing))

    async def erase(self, scope: Scope, limit: int = 100) -> Erased:
        self._windows.clear()
        return await self._erasing.erase(person_of(scope), max(0, limit))

    async def compact(self) -> Compaction:
        """Have the servers rewrite their logs and snapshots; returns when they have."""
        try:
            return await compact(self._asking.link)
        except LinkDown as exc:
            raise failure(exc) from exc

    async def spaces(self, after: Scope | None = None, limit: int = 100) -> tuple[Scope, ...]:
        return await self._spaces.page(after, limit)

    async def stats(self, scope: Scope) -> Stats:
        return await self._shelves.stats(scope, self._asking.now())

    async def ping(self) -> None:
        try:
            await self._asking.call("PING")
        except (StoreFull, StoreReadOnly):
            # A server that cannot write its files refuses even this. It answers, and can be read.
            return
