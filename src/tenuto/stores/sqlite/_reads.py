"""What is read from a SQLite file of records: steps of the reader threads, which each read one snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any, Final

from tenuto.model import Scope
from tenuto.model.scope import site_scope
from tenuto.model.stored import (
    BESIDE,
    OWNER_BYTES,
    Entry,
    EntryPage,
    FoundRecord,
    IndexColumns,
    IndexOrder,
    IndexQuery,
    Kind,
    Known,
    Part,
    StoredRecord,
    Totals,
    ValuePlace,
)
from tenuto.stores.columns import decode_index, decode_scope, refuse_damaged

_COLUMNS: Final = "key, revision, head, profile, deadline"
_INDEX: Final = "space, owner, kind, scope, listed_at, status, title, drawer, namespace, name"
_UNKNOWN_KIND: Final = f"kind NOT IN ({', '.join(repr(kind.value) for kind in Kind)})"
_TOTALS: Final = ", ".join(Totals.__struct_fields__)
_OLDEST_ENTRIES: Final = (
    "SELECT number, body FROM entry WHERE record = ? AND part = ? AND number BETWEEN ? AND ? ORDER BY number LIMIT ?"
)
_NEWEST_ENTRIES: Final = _OLDEST_ENTRIES.replace("ORDER BY number", "ORDER BY number DESC")
_AT_ONCE: Final = 500
_ZERO: Final = Totals()
_ORDERS: Final = {
    IndexOrder.NEWEST: ("listed_at, key", "listed_at DESC, key DESC", "<"),
    IndexOrder.OLDEST: ("listed_at, key", "listed_at, key", ">"),
    IndexOrder.DEADLINE: ("deadline, key", "deadline, key", ">"),
    IndexOrder.PLACE: ("owner, drawer, name", "owner, drawer, name", ">"),
}


def load_records(db: Any, loads: Sequence[tuple[bytes, int, Known]]) -> list[StoredRecord | None]:
    """Several records, as of one moment."""
    return [load_record(db, *one) for one in loads]


def load_heads(db: Any, keys: Sequence[bytes]) -> tuple[StoredRecord | None, ...]:
    """Several records without their entries, as of one moment."""
    found = dict[bytes, StoredRecord]()
    for start in range(0, len(keys), _AT_ONCE):
        stretch = keys[start : start + _AT_ONCE]
        text = f"SELECT {_COLUMNS} FROM whole WHERE key IN ({', '.join('?' * len(stretch))})"  # noqa: S608
        for key, revision, head, profile, deadline in db.execute(text, stretch):
            found[key] = StoredRecord(key=key, revision=revision, head=head, profile=profile, deadline=deadline)
    return tuple([found.get(key) for key in keys])


def load_record(db: Any, key: bytes, tail: int, known: Known) -> StoredRecord | None:
    """A record with its newest messages."""
    row = db.execute(f"SELECT id, {_COLUMNS} FROM whole WHERE key = ?", (key,)).fetchone()  # noqa: S608
    if row is None:
        return None
    newest = db.execute(
        "SELECT number, body FROM entry WHERE record = ? AND part = ? AND number > ? ORDER BY number DESC LIMIT ?",
        (row[0], Part.MESSAGES, known.message, tail),
    ).fetchall()
    beside = db.execute(
        "SELECT part, number, body FROM entry WHERE record = ? AND (part = ? AND number > ? OR part = ?) "
        "ORDER BY part, number",
        (row[0], BESIDE[0], known.page, BESIDE[1]),
    )
    return StoredRecord(
        key=row[1],
        revision=row[2],
        head=row[3],
        profile=row[4],
        deadline=row[5],
        entries=tuple([Entry(part=Part(part), number=number, body=body) for part, number, body in beside]),
        messages=tuple([Entry(part=Part.MESSAGES, number=number, body=body) for number, body in reversed(newest)]),
    )


def read_page(db: Any, key: bytes, part: Part, first: int, last: int, limit: int) -> EntryPage:
    """Entries of a part."""
    row = db.execute("SELECT id, revision FROM whole WHERE key = ?", (key,)).fetchone()
    if row is None:
        return EntryPage(revision=0)
    text = _OLDEST_ENTRIES if limit >= 0 else _NEWEST_ENTRIES
    rows = db.execute(text, (row[0], part, first, last, abs(limit))).fetchall()
    found = [Entry(part=part, number=number, body=body) for number, body in rows]
    return EntryPage(revision=row[1], entries=tuple(found if limit >= 0 else found[::-1]))


def list_records(db: Any, query: IndexQuery) -> tuple[FoundRecord, ...]:
    """Records by their columns."""
    columns, order, behind = _ORDERS[query.order]
    wanted: dict[str, Any] = {
        "kind = ?": query.kind,
        "space = ?": query.space,
        "owner = ?": query.owner,
        "drawer = ?": query.drawer,
        "status = ?": query.status,
        "instr(title, ?) > 0": query.title,
        "due <= ?": query.due,
    }
    # A sign before a column keeps its index out: few sessions have the words.
    sign = "+" if query.words else ""
    conditions = {sign + text: value for text, value in wanted.items() if value is not None}
    clauses = [*conditions, "key IS NOT NULL"]
    if query.kind is None:
        clauses.append(_UNKNOWN_KIND)
    values = list(conditions.values())
    for group in query.words:
        place = "" if query.owner is None else " AND owner = ?"
        words = f"SELECT record FROM word WHERE word IN ({', '.join('?' * len(group))}){place}"  # noqa: S608
        clauses.append(f"id IN ({words})")
        values += map(place_number, group)
        if query.owner is not None:
            values.append(place_number(query.owner[:OWNER_BYTES]))
    if query.due is not None:
        clauses.append("deadline <= ?")
        values.append(query.due)
    if query.named:
        clauses.append("scope IS NOT NULL")
    if query.order is IndexOrder.DEADLINE:
        clauses.append("deadline IS NOT NULL")
    if query.behind is not None:
        start: tuple[Any, ...] = query.behind
        if isinstance(query.behind, ValuePlace):
            # Columns that are the same for all are not compared: SQLite would begin at the first name that has them.
            given = 0 if query.owner is None else 1 if query.drawer is None else 2
            columns, start = ", ".join(query.behind._fields[given:]), query.behind[given:]
        clauses.append(f"({columns}) {behind} ({', '.join('?' * len(start))})")
        values += start
    table = "value" if query.order is IndexOrder.PLACE else "whole"
    text = f"SELECT {_COLUMNS}, {_INDEX}, {_TOTALS} FROM {table} WHERE {' AND '.join(clauses)} ORDER BY {order} LIMIT ?"  # noqa: S608
    limit, found = max(0, query.limit), list[FoundRecord]()
    for offset in count(0, max(1, limit)):
        rows = db.execute(f"{text} OFFSET ?", (*values, limit, offset)).fetchall()
        found += [one for one in map(_found, rows) if one.index.scope is not None or not query.named]
        if len(rows) < limit or len(found) >= limit:
            break
    return tuple(found[:limit])


def place_number(digest: bytes) -> int:
    """A short digest as a number, which a column holds in as many bytes."""
    return int.from_bytes(digest, "big", signed=True)


def list_aside(db: Any) -> tuple[IndexColumns, ...]:
    """The columns of what was set aside."""
    rows = db.execute(f"SELECT {_COLUMNS}, {_INDEX}, {_TOTALS} FROM whole WHERE aside IS NOT NULL")  # noqa: S608
    return tuple([_found(row).index for row in rows])


def scan_records(db: Any, after: bytes, limit: int) -> tuple[FoundRecord, ...]:
    """Records in order of their keys.

    Raises:
        StoreDamaged: columns of one cannot be decoded.
    """
    text = f"SELECT {_COLUMNS}, {_INDEX}, {_TOTALS} FROM whole WHERE key > ? ORDER BY key LIMIT ?"  # noqa: S608
    return refuse_damaged([_found(row) for row in db.execute(text, (after, limit))])


def _found(row: Any) -> FoundRecord:
    """The record of a row."""
    key, revision, head, profile, deadline, space, owner, kind, scope, listed_at, status, *rest = row
    title, drawer, namespace, name, *sums = rest
    # A column of this database may hold any type.
    is_whole = {int}.issuperset(map(type, (listed_at, deadline or 0, *sums)))
    if not is_whole:
        listed_at, deadline = _number(listed_at) or 0, _number(deadline)
        sums = [_number(number) or 0 for number in sums]
    return FoundRecord(
        record=StoredRecord(key=key, revision=revision, head=head, profile=profile, deadline=deadline),
        index=decode_index(
            space,
            kind,
            scope,
            status,
            owner=owner,
            is_whole=is_whole,
            listed_at=listed_at,
            title=title,
            drawer=drawer,
            namespace=namespace,
            name=name,
        ),
        totals=Totals.of(sums) if any(sums) else _ZERO,
    )


def _number(stored: Any) -> int | None:
    return stored if isinstance(stored, int) else None


def sum_totals(db: Any, space: bytes, owner: bytes | None, now: int) -> Totals:
    """The sums over sessions."""
    sums = ", ".join(f"coalesce(sum({name}), 0)" for name in _TOTALS.split(", "))
    live = "key IS NOT NULL AND (deadline IS NULL OR deadline > ?)"
    text = f"SELECT {sums} FROM whole WHERE kind = ? AND space = ? AND {live}"  # noqa: S608
    values: tuple[Any, ...] = (Kind.SESSION, space, now)
    if owner is not None:
        text, values = f"{text} AND owner = ?", (*values, owner)
    return Totals.of(db.execute(text, values).fetchone())


def list_sites(db: Any, after: bytes, limit: int) -> tuple[Scope, ...]:
    """The sites of records, each by the scope of an owner that can be read."""
    found = list[Scope]()
    spaces = db.execute("SELECT DISTINCT space FROM record WHERE space > ? ORDER BY space", (after,))
    while len(found) < limit and (row := spaces.fetchone()):
        owners = db.execute("SELECT DISTINCT scope FROM record WHERE space = ? AND scope NOTNULL AND key NOTNULL", row)
        for (scope,) in owners:
            if (owner := decode_scope(scope, row[0])) is not None:
                found.append(site_scope(owner))
                break
    return tuple(found)
