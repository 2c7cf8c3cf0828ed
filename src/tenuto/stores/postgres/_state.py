"""Small JSON values in Postgres."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tenuto.errors import VersionConflict
from tenuto.model import Scope, StateChange, StateEntry, StateLocation
from tenuto.model.scope import owner_key, owner_scope, site_key, state_key
from tenuto.model.session import check_changes
from tenuto.model.values import Json, check_id, check_json
from tenuto.stores.codec import digest_id
from tenuto.stores.paging import stretch
from tenuto.stores.postgres._database import Database
from tenuto.stores.postgres._ops import clamp
from tenuto.stores.postgres._rows import entry_of, to_state_location


class PostgresState:
    """The `StateStore` port over a Postgres schema."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def read_state(self, scope: Scope, namespace: str, key: str) -> StateEntry | None:
        rows = await self._db.link.fetch(
            "SELECT * FROM read_state($1, $2, $3)", site_key(scope), state_key(scope, namespace), digest_id(key)
        )
        return entry_of(rows[0]) if rows else None

    async def write_state(
        self, scope: Scope, namespace: str, key: str, value: Json, if_version: int | None = None
    ) -> StateEntry:
        check_id(key, "the state key")
        check_json(value, "the state value")
        row = await self._db.link.row(
            "SELECT * FROM write_state($1, $2, $3, $4, $5, $6, $7, $8, $9)",
            site_key(scope),
            owner_key(scope),
            state_key(scope, namespace),
            digest_id(key),
            msgspec.json.encode(owner_scope(scope)).decode() if scope.owner else None,
            namespace if scope.owner else None,
            key,
            msgspec.json.encode(value),
            None if if_version is None else clamp(if_version),
        )
        if row["conflict"] is not None:
            raise VersionConflict(if_version or 0, row["conflict"])
        return StateEntry(key=key, value=value, version=row["written"])

    async def delete_state(self, scope: Scope, namespace: str, key: str, if_version: int | None = None) -> bool:
        change = StateChange(key=key, removes=True, if_version=if_version)
        return any(await self.change_states(scope, namespace, (change,)))

    async def read_states(self, scope: Scope, namespace: str, keys: Sequence[str]) -> tuple[StateEntry | None, ...]:
        names = [digest_id(key) for key in keys]
        rows = await self._db.link.fetch(
            "SELECT * FROM read_states($1, $2, $3)", site_key(scope), state_key(scope, namespace), names
        )
        found = {row["name"]: row for row in rows}
        return tuple(entry_of(found[name]) if name in found else None for name in names)

    async def change_states(self, scope: Scope, namespace: str, changes: Sequence[StateChange]) -> tuple[int, ...]:
        check_changes(changes)
        row = await self._db.link.row(
            "SELECT * FROM change_states($1, $2, $3, $4, $5, $6, $7, $8, $9)",
            site_key(scope),
            owner_key(scope),
            state_key(scope, namespace),
            msgspec.json.encode(owner_scope(scope)).decode() if scope.owner else None,
            namespace if scope.owner else None,
            [digest_id(change.key) for change in changes],
            [None if change.removes else change.key for change in changes],
            [None if change.removes else msgspec.json.encode(change.value) for change in changes],
            [None if change.if_version is None else clamp(change.if_version) for change in changes],
        )
        if row["conflict"] is not None:
            raise VersionConflict(changes[row["place"] - 1].if_version or 0, row["conflict"])
        return tuple(row["done"] or ())

    async def list_state(
        self, scope: Scope, namespace: str, after: str = "", limit: int = 100
    ) -> tuple[StateEntry, ...]:
        rows = await self._db.link.fetch(
            "SELECT * FROM list_state($1, $2, $3, $4)",
            site_key(scope),
            state_key(scope, namespace),
            after,
            clamp(limit),
        )
        return tuple(entry_of(row) for row in rows)

    async def state_keys(self, scope: Scope, namespace: str, after: str = "", limit: int = 100) -> tuple[str, ...]:
        rows = await self._db.link.fetch(
            "SELECT key FROM list_state($1, $2, $3, $4)",
            site_key(scope),
            state_key(scope, namespace),
            after,
            clamp(limit),
        )
        return tuple(row["key"] for row in rows)

    async def list_state_locations(
        self, scope: Scope, after: StateLocation | None = None, limit: int = 100
    ) -> tuple[StateLocation, ...]:
        owner, drawer, key, last = stretch(scope, after)
        return await self.names(site_key(scope), (owner, drawer, digest_id(key) if key else b""), last, clamp(limit))

    async def names(
        self, space: bytes, behind: tuple[bytes, bytes, bytes], last: bytes, limit: int
    ) -> tuple[StateLocation, ...]:
        """Readable locations of state after a place."""
        found: list[StateLocation] = []
        while (wanted := limit - len(found)) > 0:
            query = "SELECT * FROM list_state_names($1, $2, $3, $4, $5, $6)"
            rows = await self._db.link.fetch(query, space, *behind, last, wanted)
            found += [name for row in rows if (name := to_state_location(row)) is not None]
            if len(rows) < wanted:
                break
            behind = (rows[-1]["owner"], rows[-1]["drawer"], rows[-1]["name"])
        return tuple(found)
