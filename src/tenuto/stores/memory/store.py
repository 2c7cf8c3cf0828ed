"""Sessions in this process's memory: for tests, for transient state, and as the plain statement of the rules.

No method awaits anything, so each is atomic under asyncio.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tenuto.model import CompactionResult, EraseResult, RemovedSession, Scope, SessionStats
from tenuto.model.scope import owner_key, session_key, site_key, user_scope
from tenuto.ports import Clock, utc_now
from tenuto.stores.codec import to_micros
from tenuto.stores.memory._bulk import MemoryBulk
from tenuto.stores.memory._sessions import MemorySessions, MemoryTraces
from tenuto.stores.memory._state import MemoryState
from tenuto.stores.memory.record import MemoryTables
from tenuto.stores.paging import first_sites


class MemoryStore:
    """A backend of plain dictionaries, which only this process can change: there is no feed."""

    feed: Final = None

    def __init__(self, *, clock: Clock = utc_now) -> None:
        self.tables = MemoryTables(clock)
        self.sessions = MemorySessions(self.tables)
        self.traces = MemoryTraces(self.tables)
        self.state = MemoryState(self.tables)
        self.upkeep = MemoryUpkeep(self.tables)
        self.bulk = MemoryBulk(self.tables)

    async def close(self) -> None:
        return None


class MemoryUpkeep:
    """The `StoreUpkeep` port over plain dictionaries."""

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables

    async def sweep(self, limit: int = 1000) -> tuple[RemovedSession, ...]:
        now = self._tables.clock()
        over = [key for key, record in self._tables.records.items() if record.session.expired(now)]
        return self._remove(over[:limit])

    async def evict(self, scope: Scope, keep: int, keep_session: str | None = None) -> tuple[RemovedSession, ...]:
        space = site_key(scope)
        spared = session_key(scope, keep_session) if keep_session is not None else None
        places = sorted(
            (to_micros(record.session.updated_at), key)
            for key, record in self._tables.records.items()
            if site_key(record.session.scope) == space
        )
        beyond = max(0, len(places) - keep)
        return self._remove([key for _, key in places if key != spared][:beyond])

    async def erase(self, scope: Scope, limit: int = 100) -> EraseResult:
        owner, tables = owner_key(user_scope(scope)), self._tables
        places = sorted(
            (to_micros(record.session.updated_at), key)
            for key, record in tables.records.items()
            if owner_key(record.session.scope) == owner
        )
        going = [key for _, key in places[: max(0, limit)]]
        records = [tables.records[key] for key in going]
        more = len(places) > len(going)
        return EraseResult(
            removed_sessions=self._remove(going),
            messages=sum(len(record.log) for record in records),
            traces=sum(len(record.traces) for record in records),
            states=0 if more else sum(len(tables.state.pop(place)) for place in tables.drawers.pop(owner, ())),
            more=more,
        )

    async def list_sites(self, after: Scope | None = None, limit: int = 100) -> tuple[Scope, ...]:
        behind = b"" if after is None else site_key(after)
        held = [record.session.scope for record in self._tables.records.values()]
        held += [
            whose
            for drawers in self._tables.drawers.values()
            for place, (whose, _) in drawers.items()
            if self._tables.state[place]
        ]
        return first_sites((scope for scope in held if site_key(scope) > behind), limit)

    async def compact(self) -> CompactionResult:
        return CompactionResult(cleared=True)

    async def stats(self, scope: Scope) -> SessionStats:
        heads = [self._tables.records[key].session for _, key in self._tables.visible(scope)]
        return SessionStats(
            sessions=len(heads),
            messages=sum(head.messages for head in heads),
            tokens=sum(head.tokens for head in heads),
            cost_nanos=sum(head.cost_nanos for head in heads),
        )

    async def ping(self) -> None:
        return None

    def _remove(self, keys: Iterable[bytes]) -> tuple[RemovedSession, ...]:
        gone = (self._tables.records.pop(key).session for key in keys)
        return tuple(RemovedSession(scope=session.scope, session_id=session.id) for session in gone)
