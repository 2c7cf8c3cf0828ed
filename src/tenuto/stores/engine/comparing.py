"""Compares two stores record by record: counts and digests of each site on both sides, and what differs."""

from __future__ import annotations

from asyncio import gather
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

import msgspec

from tenuto.errors import DecryptionFailed
from tenuto.model.scope import SYSTEM, site_key, site_scope
from tenuto.model.stored import FoundRecord, Kind, Part
from tenuto.ports import Clock, RecordStore, utc_now
from tenuto.stores.copy_reports import MESSAGES_AT_ONCE, SESSIONS_AT_ONCE, Comparison, SiteSums, describe_site
from tenuto.stores.encoding import Undecodable
from tenuto.stores.engine.codec import PLAIN
from tenuto.stores.engine.whole_records import WholeRecord, columns, describe, is_expired, iter_pages, read_whole

_Pair = tuple[FoundRecord | None, FoundRecord | None]
_Read = WholeRecord | Undecodable | None
_PARTS: Final = {
    Part.MESSAGES: "messages",
    Part.TRACES: "traces",
    Part.KEYS: "idempotency keys",
    Part.PRODUCERS: "producers",
    Part.ATTACHMENTS: "attachments",
    Part.VERSIONS: "versions",
}
# What a store notes for itself with each commit.
_BOOKKEEPING: Final = frozenset({"writers", "listed_at", "edition", "stored_from"})


class RecordComparer:
    """Compares `source` with `target`."""

    def __init__(
        self,
        source: RecordStore,
        target: RecordStore,
        *,
        clock: Clock = utc_now,
        on_progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._source = source
        self._target = target
        self._clock = clock
        self._on_progress = on_progress
        self._compared = 0
        self._sites = {site_key(SYSTEM): describe_site(SYSTEM.tenant, SYSTEM.site)}
        self._sums: dict[bytes, tuple[SiteSums, SiteSums]] = {}
        self._result = Comparison()

    async def compare(self) -> Comparison:
        """Read both sides; records that change meanwhile differ, and so do those that cannot be read in the source."""
        batch = list[_Pair]()
        async for pair in _join(self._source, self._target):
            batch.append(self._live(*pair))
            if len(batch) == SESSIONS_AT_ONCE or _messages(batch) >= MESSAGES_AT_ONCE:
                await self._compare_batch(batch)
                batch = []
        await self._compare_batch(batch)
        self._result.sites = {self._sites.get(space, space.hex()): sums for space, sums in sorted(self._sums.items())}
        return self._result

    def _live(self, here: FoundRecord | None, there: FoundRecord | None) -> _Pair:
        now = self._clock()
        return _unless_expired(here, now), _unless_expired(there, now)

    async def _compare_batch(self, batch: list[_Pair]) -> None:
        left, right = await gather(
            read_whole(self._source, [here for here, _ in batch]),
            read_whole(self._target, [there for _, there in batch], checks=False),
        )
        for (here, there), whole, other in zip(batch, left, right, strict=True):
            self._compare(here, there, whole, other)
        self._compared += _messages(batch)
        self._on_progress(self._compared)

    def _compare(self, here: FoundRecord | None, there: FoundRecord | None, whole: _Read, other: _Read) -> None:
        if isinstance(whole, Undecodable):
            self._result.unreadable += 1
            self._result.different += 1
            return
        digests = [self._add(side, one) for side, one in enumerate((whole, other)) if isinstance(one, WholeRecord)]
        if here is None:
            if there is not None:
                self._result.note(f"{describe(there.index)} is in the target alone")
        elif there is None:
            self._result.note(f"{describe(here.index)} is missing")
        elif whole is None or not isinstance(other, WholeRecord):
            self._result.note(f"{describe(here.index)} is being changed")
        elif digests[0] != digests[1]:
            self._result.note(f"{describe(here.index)} differs in {', '.join(_differing_parts(whole, other))}")

    def _add(self, side: int, record: WholeRecord) -> bytes:
        """Count a record; returns its digest."""
        index = record.found.index
        if index.scope is not None:
            site = site_scope(index.scope)
            self._sites[index.space] = describe_site(site.tenant, site.site)
        sums = self._sums.setdefault(index.space, (SiteSums(), SiteSums()))[side]
        if index.kind is Kind.SESSION:
            sums.sessions += 1
            sums.messages += record.found.totals.messages
            sums.traces += record.count(Part.TRACES)
        else:
            sums.state += 1
        return sums.add_digest(record.digest())


def _unless_expired(found: FoundRecord | None, now: datetime) -> FoundRecord | None:
    return None if found is None or is_expired(found, now) else found


def _messages(batch: list[_Pair]) -> int:
    return sum([here.totals.messages for here, _ in batch if here is not None])


async def _join(source: RecordStore, target: RecordStore) -> AsyncIterator[_Pair]:
    """The records of both stores, those of one key together; both are read in order of their keys."""
    left, right = _iter_records(source), _iter_records(target)
    here, there = await anext(left, None), await anext(right, None)
    while here is not None or there is not None:
        if there is None or (here is not None and here.record.key < there.record.key):
            yield here, None
            here = await anext(left, None)
        elif here is None or there.record.key < here.record.key:
            yield None, there
            there = await anext(right, None)
        else:
            yield here, there
            here, there = await anext(left, None), await anext(right, None)


async def _iter_records(records: RecordStore) -> AsyncIterator[FoundRecord]:
    async for page in iter_pages(records):
        for found in page:
            yield found


def _differing_parts(here: WholeRecord, there: WholeRecord) -> list[str]:
    """What differs: parts of the record, and fields of its head where that is not sealed."""
    names = [name for part, name in _PARTS.items() if _bodies(here, part) != _bodies(there, part)]
    names += _differing_fields(here.found, there.found)
    if columns(here.found) != columns(there.found):
        names.append("index columns")
    return names


def _bodies(record: WholeRecord, part: Part) -> list[tuple[int, bytes]]:
    return [(entry.number, entry.body) for entry in record.entries if entry.part is part]


def _differing_fields(here: FoundRecord, there: FoundRecord) -> list[str]:
    one, other = here.record, there.record
    names = [name for name in ("head", "profile", "deadline") if getattr(one, name) != getattr(other, name)]
    if here.index.kind is Kind.SESSION and {"head", "profile"} & {*names}:
        with suppress(DecryptionFailed, Undecodable):
            fields = _fields(here), _fields(there)
            known = [name for name, value in fields[0].items() if value != fields[1][name] and name not in _BOOKKEEPING]
            return known or names
    return names


def _fields(found: FoundRecord) -> dict[str, Any]:
    """The fields of a session's head and profile."""
    record = PLAIN.decode_record(found.record, found.index.name)
    assert record is not None
    return msgspec.structs.asdict(record.profile) | msgspec.structs.asdict(record.head)
