"""Key/value state as rows."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from tenuto.errors import StateCorrupt, VersionConflict
from tenuto.model import Scope, StateChange, StateEntry, StateLocation
from tenuto.model.scope import owner_key, owner_scope, site_key, state_key
from tenuto.model.session import check_changes
from tenuto.model.values import Json
from tenuto.stores.paging import read_location, stretch
from tenuto.stores.sqlite._database import Database
from tenuto.stores.sqlite._heads import Transaction

# As bytes: text that is not UTF-8 would fail the whole statement.
_NAMES: Final = "SELECT drawer, scope, CAST(namespace AS BLOB), CAST(key AS BLOB) FROM state WHERE space = ?"
# The key as bytes: half of a surrogate pair, which no stored key has, cannot be bound as text.
_READ: Final = "SELECT key, value, version FROM state WHERE drawer = ? AND key = CAST(? AS TEXT)"
_READ_VERSION: Final = "SELECT version FROM state WHERE drawer = ? AND key = CAST(? AS TEXT)"
_DELETE: Final = "DELETE FROM state WHERE drawer = ? AND key = CAST(? AS TEXT)"
_scopes: Final = msgspec.json.Decoder(Scope)


class Drawer(NamedTuple):
    """One scope's values under one namespace.

    `space`, `scope` and `namespace` are those of users and chats, whose state can be listed; `home` is the site of the
    tenant's own.
    """

    key: bytes
    owner: bytes
    space: bytes | None = None
    scope: bytes | None = None
    namespace: str | None = None
    home: bytes | None = None


def read_value(db: sqlite3.Connection, drawer: bytes, key: str) -> StateEntry | None:
    """One value."""
    row = db.execute(_READ, (drawer, _to_utf8(key))).fetchone()
    return None if row is None else _decode_entry(row)


def read_values(db: sqlite3.Connection, drawer: bytes, keys: Sequence[str]) -> tuple[StateEntry | None, ...]:
    """The values of some keys, by one statement and so of one moment."""
    rows = db.execute(
        "SELECT key, value, version FROM state WHERE drawer = ? AND key IN (SELECT value FROM json_each(?))",
        (drawer, json.dumps(list(keys))),
    )
    found = {row[0]: row for row in rows}
    return tuple(_decode_entry(found[key]) if key in found else None for key in keys)


def _to_utf8(key: str) -> bytes:
    return key.encode(errors="surrogatepass")


class Change(NamedTuple):
    """A value to set; without one, to remove."""

    key: str
    value: bytes | None
    if_version: int | None


def change(txn: Transaction, drawer: Drawer, changes: Sequence[Change]) -> tuple[int, ...]:
    """Set and remove values; returns the new versions, and whether there was a value to remove."""
    found: list[int] = []
    for key, _, if_version in changes:
        row = txn.execute(_READ_VERSION, (drawer.key, _to_utf8(key))).fetchone()
        found.append(row[0] if row else 0)
        if if_version is not None and if_version != found[-1]:
            raise VersionConflict(if_version, found[-1])
    return tuple(_change_one(txn, drawer, one, version) for one, version in zip(changes, found, strict=True))


def _change_one(txn: Transaction, drawer: Drawer, one: Change, version: int) -> int:
    if one.value is None:
        return txn.execute(_DELETE, (drawer.key, _to_utf8(one.key))).rowcount
    txn.execute(
        "INSERT OR REPLACE INTO state (drawer, key, value, version, owner, space, scope, namespace, home) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (drawer.key, one.key, one.value, version + 1, *drawer[1:]),
    )
    return version + 1


def list_values(db: sqlite3.Connection, drawer: bytes, after: str, limit: int) -> tuple[StateEntry, ...]:
    """Values in order of their keys; SQLite compares UTF-8 bytes, which is the order of code points."""
    rows = db.execute(
        "SELECT key, value, version FROM state WHERE drawer = ? AND key > ? ORDER BY key LIMIT ?",
        (drawer, after, limit),
    )
    return tuple(_decode_entry(row) for row in rows)


def list_keys(db: sqlite3.Connection, drawer: bytes, after: str, limit: int) -> tuple[str, ...]:
    """The keys alone, in the same order."""
    rows = db.execute("SELECT key FROM state WHERE drawer = ? AND key > ? ORDER BY key LIMIT ?", (drawer, after, limit))
    return tuple(key for (key,) in rows)


def names(db: sqlite3.Connection, scope: Scope, after: StateLocation | None, limit: int) -> tuple[StateLocation, ...]:
    """The locations of values of the users and chats of a site."""
    rows = db.execute(
        f"{_NAMES} AND (owner, drawer, key) > (?, ?, ?) AND owner <= ? ORDER BY owner, drawer, key",
        (site_key(scope), *stretch(scope, after)),
    )
    return _first_readable(rows, limit)


def owners(db: sqlite3.Connection, behind: bytes, limit: int) -> list[Scope]:
    """One user or chat with state of each space after `behind`, in order of their keys."""
    found: list[Scope] = []
    while len(found) < limit:
        row = db.execute("SELECT space FROM state WHERE space > ? ORDER BY space LIMIT 1", (behind,)).fetchone()
        if row is None:
            break
        behind = row[0]
        found += [name.scope for name in _first_readable(db.execute(_NAMES, row), 1)]
    return found


def _first_readable(rows: sqlite3.Cursor, limit: int) -> tuple[StateLocation, ...]:
    """The first locations that can be read; no row after them is fetched."""
    with closing(rows):
        return tuple(islice((name for row in rows if (name := _decode_location(*row)) is not None), max(0, limit)))


def _decode_location(drawer: bytes, scope: bytes, namespace: bytes, key: bytes) -> StateLocation | None:
    return read_location(drawer, lambda: (_scopes.decode(scope), namespace.decode(), key.decode()))


def _decode_entry(row: tuple[str, bytes, int]) -> StateEntry:
    key, raw, version = row
    try:
        value: Any = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError):
        raise StateCorrupt("state value", "cannot be decoded") from None
    return StateEntry(key=key, value=value, version=version)


class SqliteState:
    """The `StateStore` port over one SQLite file."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def read_state(self, scope: Scope, namespace: str, key: str) -> StateEntry | None:
        return await self._db.readers.run(read_value, state_key(scope, namespace), key)

    async def write_state(
        self, scope: Scope, namespace: str, key: str, value: Json, if_version: int | None = None
    ) -> StateEntry:
        one = StateChange(key=key, value=value, if_version=if_version)
        (version,) = await self.change_states(scope, namespace, (one,))
        return StateEntry(key=key, value=value, version=version)

    async def delete_state(self, scope: Scope, namespace: str, key: str, if_version: int | None = None) -> bool:
        one = StateChange(key=key, removes=True, if_version=if_version)
        return any(await self.change_states(scope, namespace, (one,)))

    async def read_states(self, scope: Scope, namespace: str, keys: Sequence[str]) -> tuple[StateEntry | None, ...]:
        return await self._db.readers.run(read_values, state_key(scope, namespace), keys)

    async def change_states(self, scope: Scope, namespace: str, changes: Sequence[StateChange]) -> tuple[int, ...]:
        check_changes(changes)
        drawer = Drawer(state_key(scope, namespace), owner_key(scope), home=site_key(scope))
        if scope.owner:
            drawer = Drawer(*drawer[:2], site_key(scope), msgspec.json.encode(owner_scope(scope)), namespace)
        encoded = [
            Change(one.key, None if one.removes else msgspec.json.encode(one.value), one.if_version) for one in changes
        ]
        return await self._db.writer.run(change, drawer, encoded)

    async def list_state(
        self, scope: Scope, namespace: str, after: str = "", limit: int = 100
    ) -> tuple[StateEntry, ...]:
        return await self._db.readers.run(list_values, state_key(scope, namespace), after, limit)

    async def state_keys(self, scope: Scope, namespace: str, after: str = "", limit: int = 100) -> tuple[str, ...]:
        return await self._db.readers.run(list_keys, state_key(scope, namespace), after, limit)

    async def list_state_locations(
        self, scope: Scope, after: StateLocation | None = None, limit: int = 100
    ) -> tuple[StateLocation, ...]:
        return await self._db.readers.run(names, scope, after, limit)
