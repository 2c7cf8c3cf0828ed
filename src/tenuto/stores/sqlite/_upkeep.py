"""Upkeep of a SQLite file."""

from __future__ import annotations

from typing import Final

from tenuto.model import CompactionResult, EraseResult, RemovedSession, Scope, SessionStats
from tenuto.model.scope import owner_key, session_key, user_scope
from tenuto.stores.codec import to_micros
from tenuto.stores.paging import erase_in_batches
from tenuto.stores.sqlite import _listing
from tenuto.stores.sqlite._database import Database
from tenuto.stores.sqlite._errors import CorruptRow
from tenuto.stores.sqlite._file import compact

# Sessions removed in one transaction: few, so that turns do not wait long.
_UPKEEP_STRIDE: Final = 50


class SqliteUpkeep:
    """The `StoreUpkeep` port over one SQLite file."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def sweep(self, limit: int = 1000) -> tuple[RemovedSession, ...]:
        gone: tuple[RemovedSession, ...] = ()
        while len(gone) < limit:
            stride = min(_UPKEEP_STRIDE, limit - len(gone))
            looked_at, removed = await self._db.writer.run(_listing.sweep, stride, to_micros(self._db.clock()))
            gone += removed
            if looked_at < stride:
                break
        return gone

    async def evict(self, scope: Scope, keep: int, keep_session: str | None = None) -> tuple[RemovedSession, ...]:
        spared = None if keep_session is None else session_key(scope, keep_session)
        gone: tuple[RemovedSession, ...] = ()
        count = await self._db.readers.run(lambda db: _listing.count_site_sessions(db.execute, scope))
        for _ in range(0, count - keep, _UPKEEP_STRIDE):
            now = to_micros(self._db.clock())
            gone += await self._db.writer.run(_listing.evict, scope, keep, spared, _UPKEEP_STRIDE, now)
        return gone

    async def erase(self, scope: Scope, limit: int = 100) -> EraseResult:
        owner = owner_key(user_scope(scope))
        return await erase_in_batches(
            lambda size: self._db.writer.run(_listing.erase, owner, size), limit, _UPKEEP_STRIDE
        )

    async def list_sites(self, after: Scope | None = None, limit: int = 100) -> tuple[Scope, ...]:
        while True:
            try:
                return await self._db.readers.run(_listing.spaces, after, limit)
            except CorruptRow as damage:
                await self._db.quarantine(damage)  # As in `list`.

    async def compact(self) -> CompactionResult:
        """Rewrite the file and empty its log. Writes wait meanwhile, and it needs the file's size in free space."""
        await self._db.writer.run_outside_transaction(compact)
        return CompactionResult(cleared=True)

    async def stats(self, scope: Scope) -> SessionStats:
        return await self._db.readers.run(_listing.count_sessions, scope, self._db.clock())

    async def ping(self) -> None:
        await self._db.readers.run(lambda db: db.execute("SELECT 1 FROM session LIMIT 1").fetchone())
