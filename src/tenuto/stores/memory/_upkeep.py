"""What keeps a store in memory in shape."""

from __future__ import annotations

from collections.abc import Iterable

from tenuto.model import Compaction, Erased, Gone, Scope, Stats
from tenuto.model.scope import owner_key, person_of, session_key, space_key
from tenuto.stores.codec import to_micros
from tenuto.stores.memory._tables import Tables
from tenuto.stores.naming import in_order


class MemoryUpkeep:
    """The `StoreUpkeep` port over plain dictionaries."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def sweep(self, limit: int = 1000) -> tuple[Gone, ...]:
        now = self._tables.clock()
        over = [key for key, record in self._tables.records.items() if record.session.expired(now)]
        return self._remove(over[:limit])

    async def evict(self, scope: Scope, keep: int, sparing: str | None = None) -> tuple[Gone, ...]:
        space = space_key(scope)
        spared = session_key(scope, sparing) if sparing is not None else None
        places = sorted(
            (to_micros(record.session.updated_at), key)
            for key, record in self._tables.records.items()
            if space_key(record.session.scope) == space
        )
        beyond = max(0, len(places) - keep)
        return self._remove([key for _, key in places if key != spared][:beyond])

    async def erase(self, scope: Scope, limit: int = 100) -> Erased:
        owner, tables = owner_key(person_of(scope)), self._tables
        places = sorted(
            (to_micros(record.session.updated_at), key)
            for key, record in tables.records.items()
            if owner_key(record.session.scope) == owner
        )
        going = [key for _, key in places[: max(0, limit)]]
        records = [tables.records[key] for key in going]
        more = len(places) > len(going)
        return Erased(
            gone=self._remove(going),
            messages=sum(len(record.log) for record in records),
            traces=sum(len(record.traces) for record in records),
            states=0 if more else sum(len(tables.state.pop(place)) for place in tables.drawers.pop(owner, ())),
            more=more,
        )

    async def spaces(self, after: Scope | None = None, limit: int = 100) -> tuple[Scope, ...]:
        behind = b"" if after is None else space_key(after)
        held = [record.session.scope for record in self._tables.records.values()]
        held += [
            whose
            for drawers in self._tables.drawers.values()
            for place, (whose, _) in drawers.items()
            if whose.owner and self._tables.state[place]
        ]
        return in_order((scope for scope in held if space_key(scope) > behind), limit)

    async def compact(self) -> Compaction:
        return Compaction(cleared=True)

    async def stats(self, scope: Scope) -> Stats:
        heads = [self._tables.records[key].session for _, key in self._tables.visible(scope)]
        return Stats(
            sessions=len(heads),
            messages=sum(head.messages for head in heads),
            tokens=sum(head.tokens for head in heads),
            cost_nanos=sum(head.cost_nanos for head in heads),
        )

    async def ping(self) -> None:
        return None

    def _remove(self, keys: Iterable[bytes]) -> tuple[Gone, ...]:
        gone = (self._tables.records.pop(key).session for key in keys)
        return tuple(Gone(scope=session.scope, session_id=session.id) for session in gone)
