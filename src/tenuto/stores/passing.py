"""What wrappers of sessions do not touch: state and a store's own shape go straight through to the store behind."""

from __future__ import annotations

from tenuto.model import Compaction, Scope, StateEntry, StateName, Stats
from tenuto.model.values import Json
from tenuto.ports import Store


class Passing:
    """The part of the `Store` port that is about no session, passed on.

    Wrappers that look at what is kept, or at every call (privacy, encryption, the breaker), name each method
    themselves, so that a new one cannot pass them by.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def inner(self) -> Store:
        """The store behind."""
        return self._store

    async def read_state(self, scope: Scope, namespace: str, key: str) -> StateEntry | None:
        return await self._store.read_state(scope, namespace, key)

    async def write_state(
        self, scope: Scope, namespace: str, key: str, value: Json, if_version: int | None = None
    ) -> StateEntry:
        return await self._store.write_state(scope, namespace, key, value, if_version)

    async def delete_state(self, scope: Scope, namespace: str, key: str) -> bool:
        return await self._store.delete_state(scope, namespace, key)

    async def list_state(
        self, scope: Scope, namespace: str, after: str = "", limit: int = 100
    ) -> tuple[StateEntry, ...]:
        return await self._store.list_state(scope, namespace, after, limit)

    async def state_keys(self, scope: Scope, namespace: str, after: str = "", limit: int = 100) -> tuple[str, ...]:
        return await self._store.state_keys(scope, namespace, after, limit)

    async def state_names(
        self, scope: Scope, after: StateName | None = None, limit: int = 100
    ) -> tuple[StateName, ...]:
        return await self._store.state_names(scope, after, limit)

    async def spaces(self, after: Scope | None = None, limit: int = 100) -> tuple[Scope, ...]:
        return await self._store.spaces(after, limit)

    async def compact(self) -> Compaction:
        return await self._store.compact()

    async def stats(self, scope: Scope) -> Stats:
        return await self._store.stats(scope)

    async def ping(self) -> None:
        await self._store.ping()

    async def close(self) -> None:
        await self._store.close()
