"""Compares two stores record by record: counts and digests of each site on both sides, and what differs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from tenuto.model.records import StoredHead, StoredSession, StoredState, record_digest
from tenuto.model.scope import SYSTEM, Scope, site_key
from tenuto.ports import Backend, Clock, utc_now
from tenuto.stores.copier import batches, describe_session, describe_state, live_heads, own_records
from tenuto.stores.copy_reports import Comparison, SiteSums, describe_site


class Comparer:
    """Compares `source` with `target`."""

    def __init__(
        self,
        source: Backend,
        target: Backend,
        *,
        clock: Clock = utc_now,
        on_progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._source = source
        self._target = target
        self._clock = clock
        self._on_progress = on_progress
        self._compared = 0
        self._sites: dict[bytes, str] = {}
        self._sums: dict[bytes, tuple[SiteSums, SiteSums]] = {}
        self._result = Comparison()
        self._name_site(SYSTEM)

    async def compare(self) -> Comparison:
        """Read both sides; records that change meanwhile differ, and so do those that cannot be read in the source."""
        before = self._source.bulk.unreadable
        async for heads in self._source.bulk.iter_heads():
            for keys in batches(live_heads(heads, self._clock()).values()):
                await self._compare_sessions(keys)
        async for heads in self._target.bulk.iter_heads():
            await self._find_surplus_sessions(heads)
        async for records in self._source.bulk.iter_state():
            await self._compare_state(own_records(records))
        self._note_unreadable(self._source.bulk.unreadable - before)
        async for records in self._target.bulk.iter_state():
            await self._find_surplus_state(own_records(records))
        self._result.sites = {self._sites.get(space, space.hex()): sums for space, sums in sorted(self._sums.items())}
        return self._result

    async def _compare_sessions(self, keys: Sequence[bytes]) -> None:
        here, there = await asyncio.gather(self._source.bulk.read_sessions(keys), self._target.bulk.read_sessions(keys))
        for key, record in here.items():
            if key not in there and record.head.session.expired(self._clock()):
                continue  # It expired since it was listed.
            digest = self._add_session(0, record)
            if key not in there:
                self._result.note(f"{describe_session(record.head)} is missing")
            elif self._add_session(1, there[key]) != digest:
                differing = ", ".join(_differing_parts(record, there[key]))
                self._result.note(f"{describe_session(record.head)} differs in {differing}")
        if len(here) < len(keys):  # The rest was deleted meanwhile, or cannot be decoded.
            self._note_unreadable(len(await self._source.bulk.read_heads([key for key in keys if key not in here])))
        self._compared += sum(len(record.messages) for record in here.values())
        self._on_progress(self._compared)

    def _note_unreadable(self, count: int) -> None:
        self._result.unreadable += count
        self._result.different += count

    async def _find_surplus_sessions(self, heads: Sequence[StoredHead]) -> None:
        live = live_heads(heads, self._clock())
        known = await self._source.bulk.read_heads(list(live))
        surplus = [head for key, head in live.items() if key not in known]
        for keys in batches(surplus):
            for record in (await self._target.bulk.read_sessions(keys)).values():
                self._add_session(1, record)
                self._result.note(f"{describe_session(record.head)} is in the target alone")

    async def _compare_state(self, records: Sequence[StoredState]) -> None:
        there = await self._target.bulk.read_state(records)
        for record in records:
            digest, other = self._add_state(0, record), there.get(record.place)
            if other is None:
                self._result.note(f"{describe_state(record)} is missing")
            elif self._add_state(1, other) != digest:
                self._result.note(f"{describe_state(record)} differs")

    async def _find_surplus_state(self, records: Sequence[StoredState]) -> None:
        known = await self._source.bulk.read_state(records)
        for record in records:
            if record.place not in known:
                self._add_state(1, record)
                self._result.note(f"{describe_state(record)} is in the target alone")

    def _add_session(self, side: int, record: StoredSession) -> bytes:
        self._name_site(record.head.session.scope)
        sums = self._sums_of(record.space)[side]
        sums.sessions += 1
        sums.messages += len(record.messages)
        sums.traces += len(record.traces)
        return sums.add_digest(record_digest(record))

    def _add_state(self, side: int, record: StoredState) -> bytes:
        if record.scope is not None:
            self._name_site(record.scope)
        sums = self._sums_of(record.space)[side]
        sums.state += 1
        return sums.add_digest(record_digest(record))

    def _sums_of(self, space: bytes) -> tuple[SiteSums, SiteSums]:
        return self._sums.setdefault(space, (SiteSums(), SiteSums()))

    def _name_site(self, scope: Scope) -> None:
        self._sites[site_key(scope)] = describe_site(scope.tenant, scope.site)


def _differing_parts(here: StoredSession, there: StoredSession) -> list[str]:
    """The names of the fields that differ."""
    pairs = ((here, there), (here.head, there.head), (here.head.session, there.head.session))
    names = [
        name
        for one, other in pairs
        for name in one.__struct_fields__
        if name not in ("head", "session") and getattr(one, name) != getattr(other, name)
    ]
    return list(dict.fromkeys(names))
