"""Changes as arguments of the server's functions, and its rows as values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import UNSET

from tenuto.model import Scope
from tenuto.model.stored import (
    Action,
    Drop,
    Entry,
    FoundRecord,
    IndexColumns,
    Part,
    RecordChange,
    StoredRecord,
    Totals,
    WordChange,
)
from tenuto.stores.columns import decode_index
from tenuto.stores.postgres._client import Row

# Deadlines are later than 1970.
_STAYS: Final = -1
STRICT_NTH: Final = 0
"""The number of the row that tells the number of a strict change."""

COMMIT_HEADS: Final = (
    "SELECT * FROM commit_heads($1, $2, $3, $4, $5::text::bigint[], $6::text::bigint[], $7::text::bigint[], "
    "$8::text::bigint[], $9::text::bigint[], $10::text::bigint[], $11::text::bigint[], $12::text::bigint[], "
    "$13::text::bigint[], $14::text::bigint[], $15::text::bigint[], $16::text::bigint[], $17::text::bigint[], "
    "$18, $19::text::bigint[], $20, $21, $22)"
)


def is_plain(change: RecordChange) -> bool:
    """Whether a change is of those that are made many at a time: of a record that is there, and nothing is removed."""
    return not (
        change.action is not Action.WRITE
        or change.if_revision == 0
        or change.drops
        or change.replaces
        or change.copies is not None
        or change.words is not None
        or _rewrites(change)
    )


def weigh(change: RecordChange) -> int:
    """About how many bytes a change has."""
    return len(change.head) + sum([len(put.body) for put in change.puts])


def weigh_all(changes: Sequence[RecordChange]) -> int:
    """About how many bytes changes have."""
    return sum(map(weigh, changes))


def head_arguments(
    changes: Sequence[RecordChange], has_turn: bool | None = None, keeps_turn: bool | None = None
) -> tuple[Any, ...]:
    """The arguments of `COMMIT_HEADS`; a change that is made in turn is alone."""
    keys, heads, *numbers = zip(
        *[
            (
                change.key,
                change.head,
                change.if_revision,
                change.revision,
                "NULL" if change.deadline is None else _deadline(change),
                *change.totals.numbers,
                change.tail,
                change.known.message,
                change.known.page,
            )
            for change in changes
        ],
        strict=True,
    )
    puts = [(nth, put) for nth, change in enumerate(changes, 1) for put in change.puts]
    profiles = [change.profile for change in changes]
    places = [None if change.index is None else _index_argument(change.index) for change in changes]
    return (
        keys,
        heads,
        profiles if profiles.count(None) < len(changes) else (),
        places if places.count(None) < len(changes) else (),
        *map(to_literal, numbers),
        to_literal([nth for nth, _ in puts]),
        "".join([put.part for _, put in puts]),
        to_literal([put.number for _, put in puts]),
        [put.body for _, put in puts],
        has_turn,
        keeps_turn,
    )


def to_literal(numbers: Iterable[object]) -> str:
    """An array of numbers as text: the driver takes five times as long for an array in binary form."""
    return "{" + ",".join(map(str, numbers)) + "}"


def change_argument(batch: int, change: RecordChange) -> tuple[Any, ...]:
    """A `record_change`."""
    index, copies, words = change.index, change.copies, change.words or WordChange()
    return (
        batch,
        change.key,
        change.if_revision,
        change.revision,
        change.action,
        change.head,
        change.profile,
        _deadline(change),
        None if index is None else _index_argument(index),
        *change.totals.numbers,
        change.replaces,
        [(drop.part, drop.first, drop.last, drop.keep) for drop in change.drops],
        None if copies is None else copies.source,
        None if copies is None else copies.revision,
        None if copies is None else copies.first,
        None if copies is None else copies.through,
        () if copies is None else copies.attachments,
        [put.part for put in change.puts],
        [put.number for put in change.puts],
        [put.body for put in change.puts],
        words.added,
        words.removed,
        words.forgets,
        is_strict(change),
        change.tail,
        change.known.message,
        change.known.page,
    )


def _deadline(change: RecordChange) -> int | None:
    deadline = change.deadline
    return _STAYS if deadline is UNSET else deadline


def _rewrites(change: RecordChange) -> bool:
    """Whether messages that the caller knew are written over."""
    return any(put.part is Part.MESSAGES and put.number <= change.known.message for put in change.puts)


def is_strict(change: RecordChange) -> bool:
    """Whether a change takes back what was said: no cache may serve it once the commit is acknowledged."""
    return (
        change.action is not Action.WRITE
        or change.replaces
        or any(drop.part is Part.MESSAGES and not _is_eviction(drop, change) for drop in change.drops)
        or _rewrites(change)
    )


def _is_eviction(drop: Drop, change: RecordChange) -> bool:
    """Whether a drop makes room for newer messages, which stay."""
    return drop.first <= 0 and not drop.keep and drop.last < change.known.message


def _index_argument(index: IndexColumns) -> tuple[Any, ...]:
    return (
        index.space,
        index.owner,
        index.kind,
        None if index.scope is None else encode_scope(index.scope),
        index.listed_at,
        index.status,
        index.title,
        index.drawer,
        index.namespace,
        index.name,
    )


@lru_cache(maxsize=4096)
def encode_scope(scope: Scope) -> bytes:
    """A scope as bytes."""
    return msgspec.msgpack.encode(scope)


def to_record(row: Row) -> StoredRecord | None:
    """The record of a `standing`."""
    _, key, revision, head, profile, deadline, numbers, bodies, *beside = row
    if revision is None:
        return None
    return StoredRecord(
        key=key,
        revision=revision,
        head=head,
        profile=profile,
        deadline=deadline,
        entries=tuple(
            [
                Entry(part=Part(part.decode()), number=number, body=body)
                for part, number, body in zip(*[column or () for column in beside], strict=True)
            ]
        ),
        messages=to_entries(Part.MESSAGES, numbers, bodies)[::-1],
    )


def to_entries(part: Part, numbers: Iterable[int] | None, bodies: Iterable[bytes] | None) -> tuple[Entry, ...]:
    """Entries of two columns of arrays, which are null where there are none."""
    pairs = zip(numbers or (), bodies or (), strict=True)
    return tuple([Entry(part=part, number=number, body=body) for number, body in pairs])


def to_found(row: Row) -> FoundRecord:
    """A row of `records`."""
    return FoundRecord(
        record=StoredRecord(
            key=row["key"] or row["aside"],
            revision=row["revision"],
            head=row["head"],
            profile=row["profile"],
            deadline=row["deadline"],
        ),
        index=decode_index(
            row["space"],
            row["kind"],
            row["scope"],
            row["status"],
            owner=row["owner"],
            listed_at=row["listed_at"],
            title=row["title"],
            drawer=row["drawer"],
            namespace=row["namespace"],
            name=row["name"],
        ),
        totals=Totals.of([row[name] or 0 for name in Totals.__struct_fields__]),
    )
