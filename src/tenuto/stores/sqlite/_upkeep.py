"""What keeps a SQLite file in shape."""

from __future__ import annotations

import sqlite3
from typing import Final

from tenuto.model import Compaction, Erased, Gone, Scope, Stats
from tenuto.model.scope import owner_key, person_of, session_key
from tenuto.stores.codec import to_micros
from tenuto.stores.erasing import in_steps
from tenuto.stores.sqlite import _erasing, _shelves
from tenuto.stores.sqlite._database import Database
from tenuto.stores.sqlite._faults import Damaged
from tenuto.stores.sqlite._file import compact

# Upkeep removes this many sessions in one transaction, so that turns need not wait long for it.
_UPKEEP_STRIDE: Final = 50


class SqliteUpkeep:
    """The `StoreUpkeep` port over one SQLite file."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def sweep(self, limit: int = 1000) -> tuple[Gone, ...]:
        gone: tuple[Gone, ...] = ()
        while len(gone) < limit:
            stride = min(_UPKEEP_STRIDE, limit - len(gone))
            looked_at, removed = await self._db.writer.run(_shelves.sweep, stride, to_micros(self._db.clock()))
            gone += removed
            if looked_at < stride:
                break
        return gone

    async def evict(self, scope: Scope, keep: int, sparing: str | None = None) -> tuple[Gone, ...]:
        spared = None if sparing is None else session_key(scope, sparing)
        gone: tuple[Gone, ...] = ()
        for _ in range(0, await self._db.readers.run(_shelves.excess, scope, keep), _UPKEEP_STRIDE):
            now = to_micros(self._db.clock())
            gone += await self._db.writer.run(_shelves.evict, scope, keep, spared, _UPKEEP_STRIDE, now)
        return gone

    async def erase(self, scope: Scope, limit: int = 100) -> Erased:
        owner = owner_key(person_of(scope))
        return await in_steps(lambda size: self._db.writer.run(_erasing.erase, owner, size), limit, _UPKEEP_STRIDE)

    async def spaces(self, after: Scope | None = None, limit: int = 100) -> tuple[Scope, ...]:
        while True:
            try:
                return await self._db.readers.run(_shelves.spaces, after, limit)
            except Damaged as damage:
                await self._db.set_aside(damage)  # As in `list`.

    async def compact(self) -> Compaction:
        """Write the file anew and empty its log. Writes wait meanwhile, and it takes the file's size on the disk."""
        await self._db.writer.run_alone(compact)
        return Compaction(cleared=True)

    async def stats(self, scope: Scope) -> Stats:
        return await self._db.readers.run(_shelves.counted, scope, self._db.clock())

    async def ping(self) -> None:
        await self._db.readers.run(_ping)


def _ping(db: sqlite3.Connection) -> None:
    db.execute("SELECT 1 FROM session LIMIT 1").fetchone()
