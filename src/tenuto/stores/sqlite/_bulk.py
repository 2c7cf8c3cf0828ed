"""Whole records of a SQLite file: sessions as `_bulk_rows` reads and writes them, and state."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from tenuto.errors import Invalid
from tenuto.model.privacy import TENANTS_NAMESPACE
from tenuto.model.records import StatePlace, StoredHead, StoredSession, StoredState
from tenuto.model.scope import SYSTEM, Scope, owner_key, site_key, site_scope, state_key
from tenuto.stores.sqlite._bulk_rows import find_rows, list_rows, read_head_row, read_session_row, write_session
from tenuto.stores.sqlite._database import Database
from tenuto.stores.sqlite._edits import remove
from tenuto.stores.sqlite._heads import Transaction

_PAGE: Final = 200
_STATE_PAGE: Final = 1000
# Keys as bytes: text that is not UTF-8 would fail the whole statement.
_STATE: Final = """
    SELECT coalesce(space, home), owner, drawer, CAST(key AS BLOB), value, version, scope, CAST(namespace AS BLOB)
    FROM state
"""
_scopes: Final = msgspec.json.Decoder(Scope)


class SqliteBulk:
    """The `BulkStore` port over one SQLite file: pages in order of keys, one transaction for each call."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self.unreadable = 0

    async def iter_heads(self) -> AsyncIterator[Sequence[StoredHead]]:
        after = b""
        while page := await self._db.readers.run(_list_heads, after):
            after = page[-1][0]
            heads = [head for _, head in page if head is not None]
            self.unreadable += len(page) - len(heads)
            yield heads

    async def read_heads(self, keys: Sequence[bytes]) -> dict[bytes, StoredHead]:
        return await self._db.readers.run(_read_heads, keys)

    async def read_sessions(self, keys: Sequence[bytes]) -> dict[bytes, StoredSession]:
        return await self._db.readers.run(_read_sessions, keys)

    async def write_sessions(self, records: Sequence[StoredSession]) -> None:
        await self._db.writer.run(_write_sessions, records)

    async def delete_sessions(self, heads: Sequence[StoredHead]) -> None:
        await self._db.writer.run(_delete_sessions, [head.key for head in heads])

    async def iter_state(self) -> AsyncIterator[Sequence[StoredState]]:
        homes, after = await self._db.readers.run(_known_homes), (b"", b"")
        while rows := await self._db.readers.run(_list_state, after):
            after = rows[-1][2], rows[-1][3]
            records = [record for row in rows if (record := _to_state(row, homes)) is not None]
            self.unreadable += len(rows) - len(records)
            yield records

    async def read_state(self, records: Sequence[StoredState]) -> dict[StatePlace, StoredState]:
        return await self._db.readers.run(_read_state, [record.place for record in records])

    async def write_state(self, records: Sequence[StoredState]) -> None:
        await self._db.writer.run(_write_state, records)

    async def delete_state(self, records: Sequence[StoredState]) -> None:
        await self._db.writer.run(_delete_state, [(record.place.drawer, record.place.key) for record in records])


def _list_heads(db: sqlite3.Connection, after: bytes) -> list[tuple[bytes, StoredHead | None]]:
    return [(key, read_head_row(db, row)) for row, key in list_rows(db, after, _PAGE)]


def _read_heads(db: sqlite3.Connection, keys: Sequence[bytes]) -> dict[bytes, StoredHead]:
    found = {key: read_head_row(db, row) for row, key in find_rows(db.execute, keys)}
    return {key: head for key, head in found.items() if head is not None}


def _read_sessions(db: sqlite3.Connection, keys: Sequence[bytes]) -> dict[bytes, StoredSession]:
    found = {key: read_session_row(db, row) for row, key in find_rows(db.execute, keys)}
    return {key: session for key, session in found.items() if session is not None}


def _write_sessions(txn: Transaction, records: Sequence[StoredSession]) -> None:
    _delete_sessions(txn, [record.head.key for record in records])
    for record in records:
        write_session(txn, record)


def _delete_sessions(txn: Transaction, keys: Sequence[bytes]) -> None:
    for row, key in find_rows(txn.execute, keys):
        remove(txn, row, key)


def _list_state(db: sqlite3.Connection, after: tuple[bytes, bytes]) -> list[tuple[Any, ...]]:
    query = f"{_STATE} WHERE (drawer, key) > (?, CAST(? AS TEXT)) ORDER BY drawer, key LIMIT {_STATE_PAGE}"
    return db.execute(query, after).fetchall()


def _read_state(db: sqlite3.Connection, places: Sequence[StatePlace]) -> dict[StatePlace, StoredState]:
    found = {}
    for place in places:
        row = db.execute(f"{_STATE} WHERE drawer = ? AND key = ?", (place.drawer, place.key)).fetchone()
        record = None if row is None else _to_state(row, {place.owner: place.space})
        if record is not None:
            found[place] = record
    return found


def _known_homes(db: sqlite3.Connection) -> dict[bytes, bytes]:
    """The sites by their owner, for the tenants' own state of older files, which did not store it."""
    if db.execute("SELECT 1 FROM state WHERE space IS NULL AND home IS NULL LIMIT 1").fetchone() is None:
        return {}
    sites = {SYSTEM}
    for (scope,) in db.execute("SELECT scope FROM profile UNION SELECT scope FROM state WHERE scope IS NOT NULL"):
        with suppress(msgspec.MsgspecError, Invalid):
            sites.add(site_scope(_scopes.decode(scope)))
    for (tenant,) in db.execute("SELECT key FROM state WHERE drawer = ?", (state_key(SYSTEM, TENANTS_NAMESPACE),)):
        with suppress(Invalid):
            sites.add(Scope(tenant=tenant))
    return {owner_key(site): site_key(site) for site in sites}


def _to_state(row: tuple[Any, ...], homes: dict[bytes, bytes]) -> StoredState | None:
    """A value; `None` if its name cannot be decoded, or its site is not known."""
    space, owner, drawer, key, value, version, scope, namespace = row
    try:
        return StoredState(
            place=StatePlace(homes[owner] if space is None else space, owner, drawer, key.decode()),
            value=value,
            version=version,
            scope=None if scope is None else _scopes.decode(scope),
            namespace=None if namespace is None else namespace.decode(),
        )
    except (KeyError, UnicodeDecodeError, msgspec.MsgspecError, Invalid):
        return None


def _write_state(txn: Transaction, records: Sequence[StoredState]) -> None:
    txn.executemany(
        "INSERT OR REPLACE INTO state (drawer, key, value, version, owner, space, scope, namespace, home) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [_state_row(record) for record in records],
    )


def _state_row(record: StoredState) -> tuple[Any, ...]:
    space, owner, drawer, key = record.place
    listed = record.scope is not None
    scope = msgspec.json.encode(record.scope) if listed else None
    sites = (space, scope, record.namespace, None) if listed else (None, None, None, space)
    return drawer, key, record.value, record.version, owner, *sites


def _delete_state(txn: Transaction, places: Sequence[tuple[bytes, str]]) -> None:
    txn.executemany("DELETE FROM state WHERE drawer = ? AND key = ?", places)
