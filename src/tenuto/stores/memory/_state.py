"""Small JSON values in memory."""

from __future__ import annotations

from collections.abc import Sequence

from tenuto.errors import VersionConflict
from tenuto.model import Scope, StateChange, StateEntry, StateLocation
from tenuto.model.scope import owner_key, owner_scope, site_key, state_key
from tenuto.model.session import check_changes
from tenuto.model.values import Json
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
        change = StateChange(key=key, value=value, if_version=if_version)
        (version,) = await self.change_states(scope, namespace, (change,))
        return StateEntry(key=key, value=value, version=version)

    async def delete_state(self, scope: Scope, namespace: str, key: str, if_version: int | None = None) -> bool:
        change = StateChange(key=key, removes=True, if_version=if_version)
        return any(await self.change_states(scope, namespace, (change,)))

    async def read_states(self, scope: Scope, namespace: str, keys: Sequence[str]) -> tuple[StateEntry | None, ...]:
        drawer = self._tables.state.get(state_key(scope, namespace), {})
        return tuple(drawer.get(key) for key in keys)

    async def change_states(self, scope: Scope, namespace: str, changes: Sequence[StateChange]) -> tuple[int, ...]:
        check_changes(changes)
        drawer = self._tables.state.get(state_key(scope, namespace), {})
        found = [entry.version if (entry := drawer.get(change.key)) is not None else 0 for change in changes]
        for change, version in zip(changes, found, strict=True):
            if change.if_version is not None and change.if_version != version:
                raise VersionConflict(change.if_version, version)
        return tuple(self._apply(scope, namespace, *one) for one in zip(changes, found, strict=True))

    def _apply(self, scope: Scope, namespace: str, change: StateChange, version: int) -> int:
        if change.removes:
            return self._remove_value(scope, namespace, change.key)
        return self._set_value(scope, namespace, change, version)

    def _set_value(self, scope: Scope, namespace: str, change: StateChange, version: int) -> int:
        place = state_key(scope, namespace)
        entry = StateEntry(key=change.key, value=change.value, version=version + 1)
        self._tables.state.setdefault(place, {})[change.key] = entry
        if scope.owner:
            self._tables.drawers.setdefault(owner_key(scope), {})[place] = (owner_scope(scope), namespace)
        else:
            self._tables.homes[place] = (site_key(scope), owner_key(scope))
        return entry.version

    def _remove_value(self, scope: Scope, namespace: str, key: str) -> bool:
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
