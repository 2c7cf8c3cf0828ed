"""Whole records as stores hold them, with every entry: for copies and comparisons of stores, sealed ones too."""

from __future__ import annotations

from asyncio import gather
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import datetime
from hashlib import blake2b
from typing import Final

import msgspec

from tenuto.errors import DecryptionFailed
from tenuto.model.scope import SYSTEM, state_key
from tenuto.model.stored import BESIDE, Entry, EntryPage, FoundRecord, IndexColumns, Kind, Part, StoredRecord
from tenuto.model.values import Json, Value
from tenuto.ports import RecordStore
from tenuto.stores.copy_reports import COPIES, MESSAGES_AT_ONCE, SESSIONS_AT_ONCE, describe_site
from tenuto.stores.encoding import Undecodable, to_micros
from tenuto.stores.engine.codec import PLAIN

_ALL: Final = 2**31
_LAST: Final = 2**62
_DIGEST_BYTES: Final = 16
_PAGED: Final = tuple(part for part in Part if part is not Part.MESSAGES and part not in BESIDE)
# What belongs to a store rather than to its data: markers of copies, and which processes have a journal for it.
_OF_THE_STORE: Final = state_key(SYSTEM, COPIES)
_encoder: Final = msgspec.msgpack.Encoder(order="deterministic")


class WholeRecord(Value, frozen=True, kw_only=True):
    """A record at one moment, and its entries in order of parts and numbers."""

    found: FoundRecord
    entries: tuple[Entry, ...] = ()

    def count(self, part: Part) -> int:
        """How many entries a part has."""
        return sum([entry.part is part for entry in self.entries])

    def digest(self) -> bytes:
        """The digest of everything but the revision, which each store counts for itself."""
        entries = [(entry.part, entry.number, entry.body) for entry in self.entries]
        return _digest([_fields(self.found.record), columns(self.found), entries])


def record_digest(record: StoredRecord) -> bytes:
    """The digest of a record without its entries: every change of those is a change of the head as well."""
    return _digest([record.key, *_fields(record)])


def columns(found: FoundRecord) -> Json:
    """The columns by which a record is found and counted."""
    index, totals = found.index, found.totals
    scope = None if index.scope is None else msgspec.to_builtins(index.scope)
    places = (index.space, index.owner, index.kind, scope, index.drawer, index.namespace, index.name)
    return [*places, index.listed_at, index.status, index.title, *totals.numbers]


def is_same(here: StoredRecord, there: StoredRecord | None) -> bool:
    """Whether two stores hold the same record."""
    return there is not None and _fields(here) == _fields(there)


def _fields(record: StoredRecord) -> Json:
    return [record.head, record.profile, record.deadline]


def _digest(value: Json) -> bytes:
    return blake2b(_encoder.encode(value), digest_size=_DIGEST_BYTES).digest()


# Reading


async def iter_pages(records: RecordStore, size: int = 200) -> AsyncIterator[tuple[FoundRecord, ...]]:
    """All records of a store in order of their keys, page by page; not those of the store itself."""
    after = b""
    while page := await records.scan(after, size):
        after = page[-1].record.key
        yield tuple([found for found in page if found.index.drawer != _OF_THE_STORE])


async def read_whole(
    records: RecordStore, found: Sequence[FoundRecord | None], *, checks: bool = True
) -> list[WholeRecord | Undecodable | None]:
    """Found records with their entries; `None` for one that is at another revision by now, or absent.

    Where it `checks`, what is damaged is returned as the error; what is sealed is not looked into.
    """
    return await gather(*[_read(records, one, checks=checks) for one in found])


async def _read(records: RecordStore, found: FoundRecord | None, *, checks: bool) -> WholeRecord | Undecodable | None:
    if found is None:
        return None
    key, is_session = found.record.key, found.index.kind is Kind.SESSION
    loading = records.load(key, _ALL)
    paging = [records.page(key, part, 0, _LAST, _ALL) for part in _PAGED if is_session]
    stored = await loading
    pages: list[EntryPage] = [await page for page in paging]
    revisions = {0 if stored is None else stored.revision, *[page.revision for page in pages]}
    if stored is None or revisions != {found.record.revision}:
        return None
    try:
        if checks:
            _check(found, stored, _ALL)
    except Undecodable as error:
        return error
    entries = [*stored.messages, *stored.entries, *[entry for page in pages for entry in page.entries]]
    entries.sort(key=lambda entry: (entry.part, entry.number))
    record = msgspec.structs.replace(stored, messages=(), entries=())
    return WholeRecord(found=msgspec.structs.replace(found, record=record), entries=tuple(entries))


def _check(found: FoundRecord, stored: StoredRecord, tail: int) -> None:
    """Decode a record that was loaded with this `tail`, as far as that takes no key."""
    with suppress(DecryptionFailed):
        if found.index.kind is Kind.SESSION:
            PLAIN.decode_record(stored, found.index.name, tail=tail)
        else:
            PLAIN.decode_value(stored.head, ())


def is_readable(found: FoundRecord) -> bool:
    """Whether the head of a found record can be decoded, or is sealed."""
    try:
        _check(found, found.record, 0)
    except Undecodable:
        return False
    return True


def is_expired(found: FoundRecord, now: datetime) -> bool:
    """Whether it exists for no caller any more."""
    deadline = found.record.deadline
    return deadline is not None and deadline <= to_micros(now)


def in_batches(records: Sequence[FoundRecord]) -> list[list[FoundRecord]]:
    """Records to read or write together."""
    batches, messages = [list[FoundRecord]()], 0
    for found in records:
        if len(batches[-1]) == SESSIONS_AT_ONCE or messages >= MESSAGES_AT_ONCE:
            batches.append([])
            messages = 0
        batches[-1].append(found)
        messages += found.totals.messages
    return batches


def describe(index: IndexColumns) -> str:
    """A record by its site and name; a tenant's own value by its namespace, since no column names the tenant."""
    if index.is_damaged:
        return "a record whose columns cannot be decoded"
    if index.scope is None:
        return f"state {index.name} in {index.namespace} of {'the installation' if _is_system(index) else 'a tenant'}"
    site = describe_site(index.scope.tenant, index.scope.site)
    if index.kind is Kind.SESSION:
        return f"session {index.name} of {site}"
    return f"state {index.name} in {index.namespace} of {':'.join(index.scope.owner)} of {site}"


def _is_system(index: IndexColumns) -> bool:
    return index.drawer == state_key(SYSTEM, index.namespace)
