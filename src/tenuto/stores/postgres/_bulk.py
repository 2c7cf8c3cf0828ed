"""Whole records of a Postgres schema: pages in order of keys, one transaction for each call.

Rows are inserted by ordinary statements: COPY takes none where row-level security stands.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec

from tenuto.errors import Invalid
from tenuto.model.records import StatePlace, StoredHead, StoredSession, StoredState
from tenuto.model.scope import Scope
from tenuto.stores.codec import Undecodable, digest_id
from tenuto.stores.postgres._bulk_rows import (
    HEAD_COLUMNS,
    INSERT_HEAD,
    head_row,
    keyed_rows,
    mark_rows,
    message_rows,
    to_head,
    to_session,
    trace_rows,
)
from tenuto.stores.postgres._client import Connection, Row
from tenuto.stores.postgres._database import Database

_PAGE: Final = 500
_STATE_PAGE: Final = 1000
# A long session takes longer than a turn may.
_SECONDS: Final = 120
_STATE: Final = "SELECT space, owner, drawer, name, key, value, version, scope, namespace FROM state"
_GIVEN: Final = "(drawer, name) IN (SELECT * FROM unnest($1::bytea[], $2::bytea[]))"
_DELETE_STATE: Final = f"DELETE FROM state WHERE {_GIVEN}"  # noqa: S608
_PARTS: Final = {
    "messages": "SELECT ref, seq, turn, body FROM messages WHERE ref = ANY ($1) ORDER BY ref, seq",
    "keyed": "SELECT * FROM keyed WHERE ref = ANY ($1) ORDER BY ref, nth",
    "marks": "SELECT ref, producer, seq FROM marks WHERE ref = ANY ($1) ORDER BY ref, producer",
    "traces": "SELECT ref, number, body FROM traces WHERE ref = ANY ($1) ORDER BY ref, number",
}
_scopes: Final = msgspec.json.Decoder(Scope)


class PostgresBulk:
    """The `BulkStore` port over a Postgres schema."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self.unreadable = 0

    # Sessions

    async def iter_heads(self) -> AsyncIterator[Sequence[StoredHead]]:
        query = f"SELECT {HEAD_COLUMNS} FROM sessions WHERE key > $1 ORDER BY key LIMIT $2"  # noqa: S608
        after = b""
        while True:
            async with self._copying() as connection:
                rows = await connection.fetch(query, after, _PAGE)
            if not rows:
                return
            after = rows[-1]["key"]
            heads = _readable(rows)
            self.unreadable += len(rows) - len(heads)
            yield list(heads.values())

    async def read_heads(self, keys: Sequence[bytes]) -> dict[bytes, StoredHead]:
        async with self._copying() as connection:
            return _readable(await _fetch_heads(connection, keys))

    async def read_sessions(self, keys: Sequence[bytes]) -> dict[bytes, StoredSession]:
        async with self._copying() as connection:
            # One snapshot: the rows of a session must belong together.
            await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            rows = await _fetch_heads(connection, keys)
            refs = [row["ref"] for row in rows]
            parts = {}
            for name, query in _PARTS.items():
                parts[name] = _by_ref(await connection.fetch(query, refs, timeout=_SECONDS))
        heads = _readable(rows)
        numbers = {row["key"]: row["ref"] for row in rows}
        return {
            key: to_session(head, {name: found[numbers[key]] for name, found in parts.items()})
            for key, head in heads.items()
        }

    async def write_sessions(self, records: Sequence[StoredSession]) -> None:
        async with self._copying() as connection:
            await _remove(connection, [record.head.key for record in records])
            numbers = await connection.fetch(
                "SELECT nextval(pg_get_serial_sequence('sessions', 'ref')) AS ref FROM generate_series(1, $1)",
                len(records),
            )
            placed = [(row["ref"], record) for row, record in zip(numbers, records, strict=True)]
            await connection.executemany(INSERT_HEAD, [head_row(ref, record) for ref, record in placed])
            for insert, rows in (message_rows(placed), keyed_rows(placed), mark_rows(placed), trace_rows(placed)):
                if rows[0]:
                    await connection.execute(insert, *rows, timeout=_SECONDS)
            await self._announce(connection, [record.head.key for record in records])

    async def delete_sessions(self, heads: Sequence[StoredHead]) -> None:
        keys = [head.key for head in heads]
        async with self._copying() as connection:
            await _remove(connection, keys)
            await self._announce(connection, keys)

    # State

    async def iter_state(self) -> AsyncIterator[Sequence[StoredState]]:
        query = f"{_STATE} WHERE (drawer, name) > ($1, $2) ORDER BY drawer, name LIMIT $3"
        after = b"", b""
        while True:
            async with self._copying() as connection:
                rows = await connection.fetch(query, *after, _STATE_PAGE)
            if not rows:
                return
            after = rows[-1]["drawer"], rows[-1]["name"]
            records = [record for row in rows if (record := _to_state(row)) is not None]
            self.unreadable += len(rows) - len(records)
            yield records

    async def read_state(self, records: Sequence[StoredState]) -> dict[StatePlace, StoredState]:
        async with self._copying() as connection:
            rows = await connection.fetch(f"{_STATE} WHERE {_GIVEN}", *_names(records))
        return {record.place: record for row in rows if (record := _to_state(row)) is not None}

    async def write_state(self, records: Sequence[StoredState]) -> None:
        async with self._copying() as connection:
            await connection.execute(_DELETE_STATE, *_names(records))
            await connection.executemany(
                "INSERT INTO state (space, owner, drawer, name, key, value, version, scope, namespace)"
                " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
                list(map(_state_row, records)),
            )
            listed = sorted({record.space for record in records if record.scope is not None})
            await connection.execute(
                "INSERT INTO state_spaces SELECT * FROM unnest($1::bytea[]) ON CONFLICT DO NOTHING", listed
            )

    async def delete_state(self, records: Sequence[StoredState]) -> None:
        async with self._copying() as connection:
            await connection.execute(_DELETE_STATE, *_names(records))

    # What the methods share

    @asynccontextmanager
    async def _copying(self) -> AsyncIterator[Connection]:
        """A transaction that stands before no wall."""
        async with self._db.link.transaction() as connection:
            await connection.execute(f"SET LOCAL tenuto.copying = 'on'; SET LOCAL statement_timeout = '{_SECONDS}s'")
            yield connection

    async def _announce(self, connection: Connection, keys: Sequence[bytes]) -> None:
        """Tell caches, as of sessions that were removed: nothing that they know may stay."""
        await connection.execute("SELECT announce($1, $2, next_strict())", self._db.writer, keys)


async def _fetch_heads(connection: Connection, keys: Sequence[bytes]) -> Sequence[Row]:
    query = f"SELECT {HEAD_COLUMNS} FROM sessions WHERE key = ANY ($1)"  # noqa: S608
    rows: Sequence[Row] = await connection.fetch(query, keys)
    return rows


def _readable(rows: Sequence[Row]) -> dict[bytes, StoredHead]:
    found = {}
    for row in rows:
        try:
            found[row["key"]] = to_head(row)
        except Undecodable:
            continue
    return found


def _by_ref(rows: Sequence[Row]) -> dict[int, list[Row]]:
    found = defaultdict(list)
    for row in rows:
        found[row["ref"]].append(row)
    return found


async def _remove(connection: Connection, keys: Sequence[bytes]) -> None:
    gone = await connection.fetch("DELETE FROM sessions WHERE key = ANY ($1) RETURNING ref", keys)
    if gone:
        for table in _PARTS:
            await connection.execute(f"DELETE FROM {table} WHERE ref = ANY ($1)", [row["ref"] for row in gone])  # noqa: S608


def _names(records: Sequence[StoredState]) -> tuple[list[bytes], list[bytes]]:
    return [record.place.drawer for record in records], [digest_id(record.place.key) for record in records]


def _to_state(row: Row) -> StoredState | None:
    """A value; `None` if its owner cannot be decoded."""
    try:
        return StoredState(
            place=StatePlace(row["space"], row["owner"], row["drawer"], row["key"]),
            value=row["value"],
            version=row["version"],
            scope=None if row["scope"] is None else _scopes.decode(row["scope"]),
            namespace=row["namespace"],
        )
    except (msgspec.MsgspecError, Invalid):
        return None


def _state_row(record: StoredState) -> tuple[Any, ...]:
    space, owner, drawer, key = record.place
    scope = None if record.scope is None else msgspec.json.encode(record.scope).decode()
    return space, owner, drawer, digest_id(key), key, record.value, record.version, scope, record.namespace
