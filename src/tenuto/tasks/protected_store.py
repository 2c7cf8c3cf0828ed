"""A store that refuses changes of the protected keys of task boards (T17).

The right to change them is the store behind it: `Tasks` writes there after it has checked the agent, and so does the
privacy scan. Every other caller has this store.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenuto.model import Scope, StateChange, StateEntry
from tenuto.model.policy import TaskPolicy
from tenuto.model.values import Json
from tenuto.ports import StateStore, Store
from tenuto.task_errors import KeyProtected
from tenuto.tasks._workspace import BOARD


class ProtectedStore:
    """A store behind the task policy."""

    def __init__(self, *, store: Store, policy: TaskPolicy) -> None:
        self.inner = store
        self.sessions, self.traces, self.upkeep = store.sessions, store.traces, store.upkeep
        self.state = _ProtectedState(store.state, policy)


class _ProtectedState:
    """The `StateStore` port that raises `KeyProtected` for writes and deletions of protected keys."""

    def __init__(self, inner: StateStore, policy: TaskPolicy) -> None:
        self._inner = inner
        self._policy = policy
        self.read_state, self.list_state, self.state_keys = inner.read_state, inner.list_state, inner.state_keys
        self.list_state_locations, self.read_states = inner.list_state_locations, inner.read_states

    async def write_state(
        self, scope: Scope, namespace: str, key: str, value: Json, if_version: int | None = None
    ) -> StateEntry:
        self._check_unprotected(namespace, key)
        return await self._inner.write_state(scope, namespace, key, value, if_version)

    async def delete_state(self, scope: Scope, namespace: str, key: str, if_version: int | None = None) -> bool:
        self._check_unprotected(namespace, key)
        return await self._inner.delete_state(scope, namespace, key, if_version)

    async def change_states(self, scope: Scope, namespace: str, changes: Sequence[StateChange]) -> tuple[int, ...]:
        for change in changes:
            self._check_unprotected(namespace, change.key)
        return await self._inner.change_states(scope, namespace, changes)

    def _check_unprotected(self, namespace: str, key: str) -> None:
        if namespace.startswith(BOARD) and self._policy.protects(key):
            raise KeyProtected(key)
