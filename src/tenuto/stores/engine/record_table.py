"""Records in plain dictionaries: what a backend has to do, and no more.

`InMemoryRecords` is this table with answers at once; the simulator puts a network that fails before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec import UNSET

from tenuto.model import Scope
from tenuto.model.scope import site_scope
from tenuto.model.stored import (
    BESIDE,
    Action,
    AsideRecords,
    Entry,
    EntryPage,
    FoundRecord,
    IndexColumns,
    IndexOrder,
    IndexQuery,
    Kind,
    Known,
    Part,
    RecordChange,
    Refused,
    StoredRecord,
    Totals,
    ValuePlace,
)
from tenuto.stores.columns import refuse_damaged


@dataclass(slots=True)
class _Row:
    """A record with everything beside it."""

    revision: int
    head: bytes
    profile: bytes
    deadline: int | None
    index: IndexColumns
    totals: Totals
    parts: dict[Part, dict[int, bytes]] = field(default_factory=dict)
    words: set[bytes] = field(default_factory=set)


class RecordTable:
    """The calls of `RecordStore`, each done when it returns."""

    def __init__(self) -> None:
        self._rows: dict[bytes, _Row] = {}
        self._aside: list[tuple[bytes, _Row]] = []

    # One record

    def load(self, key: bytes, tail: int, known: Known | None = None) -> StoredRecord | None:
        row = self._rows.get(key)
        return None if row is None else _load(key, row, tail, known or Known())

    def revision(self, key: bytes) -> int:
        """A record's revision, 0 if there is none."""
        row = self._rows.get(key)
        return 0 if row is None else row.revision

    def page(self, key: bytes, part: Part, first: int, last: int, limit: int) -> EntryPage:
        row = self._rows.get(key)
        entries = {} if row is None else row.parts.get(part, {})
        numbers = sorted(number for number in entries if first <= number <= last)
        chosen = numbers[:limit] if limit >= 0 else numbers[limit:]
        page = tuple(Entry(part=part, number=number, body=entries[number]) for number in chosen)
        return EntryPage(revision=self.revision(key), entries=page)

    def touch(self, key: bytes, deadline: int) -> None:
        row = self._rows.get(key)
        if row is not None and row.deadline is not None:
            row.deadline = max(row.deadline, deadline)

    # Commits

    def commit(self, changes: Sequence[RecordChange]) -> Refused | None:
        moved = any(
            change.copies is not None and self.revision(change.copies.source) != change.copies.revision
            for change in changes
        )
        if moved or any(self.revision(change.key) != change.if_revision for change in changes):
            standing = tuple(self.load(change.key, change.tail, change.known) for change in changes)
            return Refused(standing=standing, source_changed=moved)
        for change in changes:
            self._apply(change)
        return None

    def _apply(self, change: RecordChange) -> None:
        if change.action is not Action.WRITE:
            row = self._rows.pop(change.key)
            if change.action is Action.SET_ASIDE:
                row.words = set()
                self._aside.append((change.key, row))
            return
        row = self._write_columns(change)
        if change.replaces:
            row.parts, row.words = {}, set()
        for drop in change.drops:
            entries = row.parts.get(drop.part, {})
            for number in [n for n in entries if drop.first <= n <= drop.last and n not in drop.keep]:
                del entries[number]
        if change.copies is not None:
            source, copies = self._rows[change.copies.source].parts.get(Part.MESSAGES, {}), change.copies
            row.parts[Part.MESSAGES] = {n: body for n, body in source.items() if copies.first <= n <= copies.through}
            attachments = self._rows[change.copies.source].parts.get(Part.ATTACHMENTS, {})
            row.parts[Part.ATTACHMENTS] = {n: attachments[n] for n in copies.attachments if n in attachments}
        for entry in change.puts:
            row.parts.setdefault(entry.part, {})[entry.number] = entry.body
        if change.words is not None:
            kept = set() if change.words.forgets else row.words.difference(change.words.removed)
            row.words = kept.union(change.words.added)

    def _write_columns(self, change: RecordChange) -> _Row:
        row = self._rows.get(change.key)
        deadline = None if change.deadline is UNSET else change.deadline
        if row is None:
            assert change.index is not None, "a new record has index columns"
            row = _Row(change.revision, change.head, change.profile or b"", deadline, change.index, change.totals)
            self._rows[change.key] = row
            return row
        row.revision, row.head, row.totals = change.revision, change.head, change.totals
        if change.profile is not None:
            row.profile = change.profile
        if change.deadline is not UNSET:
            row.deadline = deadline
        if change.index is not None:
            row.index = change.index
        return row

    def list_aside(self) -> tuple[IndexColumns, ...]:
        return tuple(row.index for _, row in self._aside)

    def forget_aside(self, owner: bytes) -> AsideRecords:
        gone = [row for _, row in self._aside if row.index.owner == owner]
        self._aside = [(key, row) for key, row in self._aside if row.index.owner != owner]
        return AsideRecords(
            records=len(gone),
            messages=sum(row.totals.messages for row in gone),
            traces=sum(len(row.parts.get(Part.TRACES, ())) for row in gone),
            attachments=sum(row.totals.attachments for row in gone),
        )

    # Many records

    def list(self, query: IndexQuery) -> tuple[FoundRecord, ...]:
        found = [(_place(query.order, key, row), key, row) for key, row in self._rows.items() if _matches(query, row)]
        found.sort(key=lambda one: one[0], reverse=query.order is IndexOrder.NEWEST)
        if query.behind is not None:
            behind = tuple(query.behind)
            descending = query.order is IndexOrder.NEWEST
            found = [one for one in found if (one[0] < behind if descending else one[0] > behind)]
        return tuple(_found(key, row) for _, key, row in found[: max(0, query.limit)])

    def totals(self, space: bytes, owner: bytes | None, now: int) -> Totals:
        live = [
            row.totals
            for row in self._rows.values()
            if row.index.kind is Kind.SESSION
            and row.index.space == space
            and owner in (None, row.index.owner)
            and (row.deadline is None or row.deadline > now)
        ]
        return Totals.of(map(sum, zip(Totals().numbers, *[one.numbers for one in live], strict=True)))

    def sites(self, after: bytes, limit: int) -> tuple[Scope, ...]:
        held = {row.index.space: site_scope(row.index.scope) for row in self._rows.values() if row.index.scope}
        return tuple(held[space] for space in sorted(held) if space > after)[: max(0, limit)]

    def scan(self, after: bytes, limit: int) -> tuple[FoundRecord, ...]:
        keys = sorted(key for key in self._rows if key > after)[:limit]
        return refuse_damaged([_found(key, self._rows[key]) for key in keys])


def _load(key: bytes, row: _Row, tail: int, known: Known) -> StoredRecord:
    log = row.parts.get(Part.MESSAGES, {})
    newer = [number for number in sorted(log) if number > known.message]
    newest = newer[max(0, len(newer) - tail) :]
    beside = [
        Entry(part=part, number=number, body=body)
        for part in BESIDE
        for number, body in sorted(row.parts.get(part, {}).items())
        if part is not Part.KEYS or number > known.page
    ]
    return StoredRecord(
        key=key,
        revision=row.revision,
        head=row.head,
        profile=row.profile,
        deadline=row.deadline,
        entries=tuple(beside),
        messages=tuple(Entry(part=Part.MESSAGES, number=number, body=log[number]) for number in newest),
    )


def _found(key: bytes, row: _Row) -> FoundRecord:
    record = StoredRecord(key=key, revision=row.revision, head=row.head, profile=row.profile, deadline=row.deadline)
    return FoundRecord(record=record, index=row.index, totals=row.totals)


def _place(order: IndexOrder, key: bytes, row: _Row) -> tuple[int, bytes] | ValuePlace:
    index = row.index
    if order is IndexOrder.PLACE:
        return ValuePlace(index.owner, index.drawer, index.name)
    if order is IndexOrder.DEADLINE:
        assert row.deadline is not None
        return row.deadline, key
    return index.listed_at, key


def _matches(query: IndexQuery, row: _Row) -> bool:
    index = row.index
    if not _has_columns(query, index) or (query.named and index.scope is None):
        return False
    if query.order is IndexOrder.DEADLINE and row.deadline is None:
        return False
    if any(row.words.isdisjoint(group) for group in query.words):
        return False
    return query.due is None or (row.deadline is not None and row.deadline <= query.due)


def _has_columns(query: IndexQuery, index: IndexColumns) -> bool:
    return (
        index.kind is query.kind
        and (query.space is None or query.space == index.space)
        and (query.owner is None or query.owner == index.owner)
        and (query.drawer is None or query.drawer == index.drawer)
        and (query.status is None or query.status == index.status)
        and (query.title is None or query.title in index.title)
    )
