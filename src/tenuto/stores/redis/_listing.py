"""Finds records: by the places in an index, and the columns of the records themselves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from operator import add
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from tenuto.model import Scope
from tenuto.model.scope import KEY_BYTES, site_scope
from tenuto.model.stored import OWNER_BYTES, FoundRecord, IndexColumns, IndexOrder, IndexQuery, Kind, Totals, ValuePlace
from tenuto.stores.columns import refuse_damaged, split_words
from tenuto.stores.redis._index import Places, readable_columns
from tenuto.stores.redis._keys import RecordKeys, behind_name
from tenuto.stores.redis._servers import Servers
from tenuto.stores.redis._wire import ALL_FIELDS, decode_columns, decode_found, decode_totals, is_lost

_Listed: TypeAlias = tuple[int, bytes]
"""A place in the order of a listing: the score and the key."""
_CHUNK: Final = 500
_DRAWERS: Final = 50
_NEVER: Final = 2**53
_AFTER_OWNER: Final = b"\xff" * (2 * KEY_BYTES + 1)
_AFTER_ALL: Final = b"\xff" * (KEY_BYTES + 1)


class RecordListing:
    """Reads the indexes."""

    def __init__(self, servers: Servers, keys: RecordKeys, places: Places) -> None:
        self._servers = servers
        self._keys = keys
        self._places = places

    async def find(self, query: IndexQuery) -> tuple[FoundRecord, ...]:
        """The records of a query: sessions of a site or an owner, what is due, or values by their place."""
        limit = max(0, query.limit)
        if query.order is IndexOrder.DEADLINE:
            return await self._due(query)
        if query.order is IndexOrder.PLACE:
            return await _first(self._values(query), limit)
        if query.words:
            return await self._by_words(query)
        index = self._index_of(query.space, query.owner)
        found = await _first(self._sessions(index, query), limit)
        if query.kind is None and len(found) < limit:
            found += await _first(self._values(query), limit - len(found))
        return found

    def _index_of(self, space: bytes | None, owner: bytes | None) -> bytes:
        if owner is not None:
            return self._keys.owner(owner)
        assert space is not None
        return self._keys.site(space)

    async def scan(self, after: bytes, limit: int) -> tuple[FoundRecord, ...]:
        return refuse_damaged(await _first(self._all(after, max(0, limit)), max(0, limit)))

    async def aside(self) -> tuple[IndexColumns, ...]:
        """The columns of what was set aside."""
        members = await self._servers.call("ZRANGE", self._keys.asides, 0, -1)
        rows = await self._servers.fields([member[KEY_BYTES:] for member in members], ("n", "i"))
        found = [readable_columns(columns) for numbers, columns in rows if numbers is not None]
        return tuple([columns or IndexColumns(space=b"", owner=b"", kind=None, is_damaged=True) for columns in found])

    # Sessions

    async def _sessions(self, index: bytes, query: IndexQuery) -> AsyncIterator[FoundRecord]:
        behind = query.behind
        chunk = _CHUNK if query.title is not None or query.status is not None else max(1, min(_CHUNK, query.limit + 2))
        start = None if behind is None else (int(behind[0]), bytes(behind[1]))
        async for places in self._walk(index, start, chunk, newest=query.order is IndexOrder.NEWEST):
            wanted = await self._matching(index, places, query)
            for (at, key), row in zip(wanted, await self._rows(wanted, ALL_FIELDS), strict=True):
                if row[0] is not None:
                    yield decode_found(key, row, at)

    async def _matching(self, index: bytes, places: Sequence[_Listed], query: IndexQuery) -> list[_Listed]:
        """Those whose columns match; places without a record are removed."""
        rows = await self._rows(places, ("i",))
        stale = [key for (_, key), (columns,) in zip(places, rows, strict=True) if columns is None]
        if stale:
            await self._places.remove_stale(index, [(key, key) for key in stale])
        return [
            place
            for place, (columns,) in zip(places, rows, strict=True)
            if columns is not None and _matches(query, decode_columns(columns))
        ]

    async def _walk(
        self, index: bytes, behind: _Listed | None, chunk: int, *, newest: bool
    ) -> AsyncIterator[list[_Listed]]:
        """The places of an index in order of score and key, behind one."""
        while True:
            start = () if behind is None else behind
            places = _pairs(await self._servers.run("walk", (index,), int(newest), chunk, *start))
            if places:
                yield places
            if len(places) < chunk:
                return
            behind = places[-1]

    async def _by_words(self, query: IndexQuery) -> tuple[FoundRecord, ...]:
        """Sessions that have one word of each group, by their places in the index of words."""
        assert query.space is not None
        name = self._keys.words(query.space)
        groups = await asyncio.gather(
            *(self._having(name, group, (query.owner or b"")[:OWNER_BYTES]) for group in query.words)
        )
        keys = sorted(set.intersection(*map(set, groups)))
        found, stale, newest = list[FoundRecord](), list[tuple[bytes, bytes]](), query.order is IndexOrder.NEWEST
        for at in range(0, len(keys), _CHUNK):
            some = keys[at : at + _CHUNK]
            for key, row in zip(some, await self._rows([(0, key) for key in some], (*ALL_FIELDS, "w")), strict=True):
                if row[0] is None:
                    stale += [(member, key) for group in groups for member in group.get(key, ())]
                    continue
                words, one = frozenset(split_words(row[5])), decode_found(key, row[:5])
                if _matches(query, one.index) and not any(words.isdisjoint(group) for group in query.words):
                    found.append(one)
        await self._places.remove_stale(name, stale)
        found.sort(key=_listed, reverse=newest)
        if query.behind is not None:
            behind = tuple(query.behind)
            found = [one for one in found if (_listed(one) < behind if newest else _listed(one) > behind)]
        return tuple(found[: max(0, query.limit)])

    async def _having(self, name: bytes, words: Sequence[bytes], owner: bytes) -> dict[bytes, list[bytes]]:
        """The keys of sessions that have one of some words, with their places."""
        places = dict[bytes, list[bytes]]()
        for word in words:
            start = word + owner
            for member in await self._servers.call("ZRANGE", name, b"[" + start, b"(" + start + _AFTER_OWNER, "BYLEX"):
                places.setdefault(member[-KEY_BYTES:], []).append(member)
        return places

    async def totals(self, space: bytes, owner: bytes | None, now: int) -> Totals:
        sums = Totals().numbers
        async for places in self._walk(self._index_of(space, owner), None, _CHUNK, newest=True):
            for numbers, deadline, columns in await self._rows(places, ("n", "d", "i")):
                if numbers is None or columns is None or (deadline and int(deadline) <= now):
                    continue
                held = decode_columns(columns)
                if held.kind is Kind.SESSION and held.space == space and owner in (None, held.owner):
                    sums = tuple(map(add, sums, decode_totals(numbers).numbers))
        return Totals.of(sums)

    # Deadlines

    async def _due(self, query: IndexQuery) -> tuple[FoundRecord, ...]:
        """Records by deadline. The index may have an earlier one, which is corrected when it is met."""
        assert query.due is not None
        limit = max(0, query.limit)
        while True:
            found, late = list[FoundRecord](), list[tuple[int, bytes, int]]()
            flats = await asyncio.gather(
                *(
                    self._servers.call("ZRANGE", part, "-inf", query.due, "BYSCORE", "LIMIT", 0, limit, "WITHSCORES")
                    for part in self._keys.due
                )
            )
            for part, flat in zip(self._keys.due, flats, strict=True):
                places = _pairs(flat)
                rows = await self._rows(places, ALL_FIELDS)
                stale = [key for (_, key), row in zip(places, rows, strict=True) if row[0] is None]
                await self._places.remove_stale(part, [(key, key) for key in stale])
                for (at, key), row in zip(places, rows, strict=True):
                    if row[0] is None:
                        continue
                    deadline = int(row[3]) if row[3] else _NEVER
                    if deadline > at:
                        late.append((at, key, deadline))
                    elif (one := decode_found(key, row)).index.kind is query.kind:
                        found.append(one)
            if not late:
                break
            await self._places.correct_deadlines(late)
        found.sort(key=lambda one: (one.record.deadline, one.record.key))
        return tuple(found[:limit])

    # Values

    async def _values(self, query: IndexQuery) -> AsyncIterator[FoundRecord]:
        behind = query.behind if isinstance(query.behind, ValuePlace) else None
        async for drawers in self._drawers(query.space, query.owner, query.drawer, behind):
            async for one in self._values_of(drawers, behind, query):
                yield one

    async def _drawers(
        self, space: bytes | None, owner: bytes | None, drawer: bytes | None, behind: ValuePlace | None
    ) -> AsyncIterator[list[tuple[bytes, bytes]]]:
        """Owners with their drawers, in order; the one drawer that is asked for, of any owner."""
        if drawer is not None:
            yield [(b"", drawer)]
            return
        assert space is not None
        name = self._keys.drawers(space)
        start = b"[" + (b"" if behind is None else behind.owner + behind.drawer)
        if behind is None and owner is not None:
            start += owner
        end = b"+" if owner is None else b"[" + owner + _AFTER_ALL
        while True:
            members = await self._servers.call("ZRANGE", name, start, end, "BYLEX", "LIMIT", 0, _DRAWERS)
            yield [(member[:KEY_BYTES], member[KEY_BYTES:]) for member in members]
            if len(members) < _DRAWERS:
                return
            start = b"(" + members[-1]

    async def _values_of(
        self, drawers: Sequence[tuple[bytes, bytes]], behind: ValuePlace | None, query: IndexQuery
    ) -> AsyncIterator[FoundRecord]:
        """The values of some drawers; empty drawers are removed from the list of a site's drawers."""
        size = max(1, min(_CHUNK, query.limit))
        starts = [
            b"(" + behind_name(behind.name) if behind is not None and drawer == behind.drawer else b"-"
            for _, drawer in drawers
        ]
        pages = await asyncio.gather(
            *(self._page(drawer, start, size) for (_, drawer), start in zip(drawers, starts, strict=True))
        )
        for (owner, drawer), start, first in zip(drawers, starts, pages, strict=True):
            if not first and start == b"-" and query.drawer is None and query.space is not None:
                lists = (self._keys.drawer(drawer),)
                await self._places.remove_empty(self._keys.drawers(query.space), owner + drawer, *lists)
            members = first
            while members:
                for one in await self._found_values(drawer, members):
                    if _matches(query, one.index) and (owner in (b"", one.index.owner) or is_lost(one.index)):
                        yield one
                members = await self._page(drawer, b"(" + members[-1], size) if len(members) == size else []

    async def _page(self, drawer: bytes, start: bytes, size: int) -> Any:
        return await self._servers.call("ZRANGE", self._keys.drawer(drawer), start, "+", "BYLEX", "LIMIT", 0, size)

    async def _found_values(self, drawer: bytes, members: Sequence[bytes]) -> list[FoundRecord]:
        places = [(0, member[-KEY_BYTES:]) for member in members]
        rows = await self._rows(places, ALL_FIELDS)
        stale = [(member, member[-KEY_BYTES:]) for member, row in zip(members, rows, strict=True) if row[0] is None]
        await self._places.remove_stale(self._keys.drawer(drawer), stale)
        return [decode_found(key, row) for (_, key), row in zip(places, rows, strict=True) if row[0] is not None]

    # Everything

    async def sites(self, after: bytes, limit: int) -> tuple[Scope, ...]:
        scopes = list[Scope]()
        while len(scopes) < limit:
            size = limit - len(scopes)
            start = b"(" + after if after else b"-"
            spaces = await self._servers.call("ZRANGE", self._keys.sites, start, "+", "BYLEX", "LIMIT", 0, size)
            found = await asyncio.gather(*(self._scope_of(space) for space in spaces))
            scopes += [site_scope(scope) for scope in found if scope is not None]
            if len(spaces) < size:
                break
            after = spaces[-1]
        return tuple(scopes)

    async def _scope_of(self, space: bytes) -> Scope | None:
        """The scope of an owner in a site; the site leaves the list if it has none."""
        sessions = IndexQuery(order=IndexOrder.NEWEST, space=space, limit=1)
        values = IndexQuery(order=IndexOrder.PLACE, kind=Kind.VALUE, space=space, named=True, limit=1)
        # The newest may be one that does not tell.
        for query in (sessions, replace(sessions, limit=_CHUNK), values):
            for found in await self.find(query):
                if found.index.scope is not None:
                    return found.index.scope
        lists = (self._keys.site(space), self._keys.drawers(space))
        await self._places.remove_empty(self._keys.sites, space, *lists)
        return None

    async def _all(self, after: bytes = b"", limit: int = _CHUNK) -> AsyncIterator[FoundRecord]:
        """All records in order of their keys."""
        size = max(1, min(_CHUNK, limit))
        for part in self._keys.all:
            start = b"(" + after if after else b"-"
            while True:
                members = await self._servers.call("ZRANGE", part, start, "+", "BYLEX", "LIMIT", 0, size)
                rows = await self._rows([(0, key) for key in members], ALL_FIELDS)
                for key, row in zip(members, rows, strict=True):
                    if row[0] is not None:
                        yield decode_found(key, row)
                stale = [(key, key) for key, row in zip(members, rows, strict=True) if row[0] is None]
                await self._places.remove_stale(part, stale)
                if len(members) < size:
                    break
                start = b"(" + members[-1]

    async def _rows(self, places: Sequence[_Listed], fields: Sequence[str]) -> list[Sequence[Any]]:
        return await self._servers.fields([self._keys.record(key) for _, key in places], fields)


async def _first(records: AsyncIterator[FoundRecord], limit: int) -> tuple[FoundRecord, ...]:
    found = list[FoundRecord]()
    if limit:
        async for one in records:
            found.append(one)
            if len(found) == limit:
                break
    return tuple(found)


def _listed(found: FoundRecord) -> tuple[int, bytes]:
    return found.index.listed_at, found.record.key


def _matches(query: IndexQuery, index: IndexColumns) -> bool:
    if query.kind is None and is_lost(index):
        return True
    pairs = (
        (query.space, index.space),
        (query.owner, index.owner),
        (query.drawer, index.drawer),
        (query.status, index.status),
    )
    if index.kind is not query.kind or any(wanted not in (None, held) for wanted, held in pairs):
        return False
    if query.named and index.scope is None:
        return False
    return query.title is None or query.title in index.title


def _pairs(flat: Sequence[bytes]) -> list[_Listed]:
    return [(int(float(flat[at + 1])), flat[at]) for at in range(0, len(flat), 2)]
