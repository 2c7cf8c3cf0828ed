"""Small JSON values in memory."""

from __future__ import annotations

from tenuto.errors import VersionConflict
from tenuto.model import Scope, StateEntry, StateLocation
from tenuto.model.scope import owner_key, owner_scope, site_key, state_key
from tenuto.model.values import Json, check_id, check_json
from tenuto.stores.memory.record import MemoryTables
from tenuto.stores.paging import stretch


class MemoryState:
    """The `StateStore` port over plain dictionaries."""

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables

    async def read_state(self, scope: Scope, namespace: str, key: str) -> StateEntry | None:
        return self._tables.state.get(state_key(scope, namespace), {}).get(key)

    async def write_state(
        self, scope: Scope, namespace: str, key: str, value: Json, if_version: int | None = None
    ) -> StateEntry:
        check_id(key, "the state key")
        check_json(value, "the state value")
        place = state_key(scope, namespace)
        before = self._tables.state.get(place, {}).get(key)
        version = before.version if before is not None else 0
        if if_version is not None and if_version != version:
            raise VersionConflict(if_version, version)
        entry = self._tables.state.setdefault(place, {})[key] = StateEntry(key=key, value=value, version=version + 1)
        if scope.owner:
            self._tables.drawers.setdefault(owner_key(scope), {})[place] = (owner_scope(scope), namespace)
        else:
            self._tables.homes[place] = (site_key(scope), owner_key(scope))
        return entry

    async def delete_state(self, scope: Scope, namespace: str, key: str) -> bool:
        place = state_key(scope, namespace)
        drawer = self._tables.state.get(place, {})
        gone = drawer.pop(key, None) is not None
        if gone and not drawer:
            self._tables.remove_drawer(owner_key(scope), place)
        return gone

    async def list_state(
        self, scope: Scope, namespace: str, after: str = "", limit: int = 100
    ) -> tuple[StateEntry, ...]:
        drawer = self._tables.state.get(state_key(scope, namespace), {})
        return tuple(drawer[key] for key in sorted(drawer) if key > after)[:limit]

    async def state_keys(self, scope: Scope, namespace: str, after: str = "", limit: int = 100) -> tuple[str, ...]:
        return tuple(entry.key for entry in await self.list_state(scope, namespace, after, limit))

    async def list_state_locations(
        self, scope: Scope, after: StateLocation | None = None, limit: int = 100
    ) -> tuple[StateLocation, ...]:
        *behind, last = stretch(scope, after)
        found = sorted(
            (owner, place, key)
            for owner, drawers in self._tables.drawers.items()
            for place, (whose, _) in drawers.items()
            if scope.reaches(whose)
            for key in self._tables.state[place]
        )
        wanted = [one for one in found if [*one] > behind and one[0] <= last][: max(0, limit)]
        names = ((*self._tables.drawers[owner][place], key) for owner, place, key in wanted)
        return tuple(StateLocation(scope=whose, namespace=namespace, key=key) for whose, namespace, key in names)
