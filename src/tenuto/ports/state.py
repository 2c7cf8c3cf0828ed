"""The port of small JSON values."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias

from tenuto.model import Scope, StateChange, StateEntry, StateLocation
from tenuto.model.values import Json

OwnersOf: TypeAlias = Callable[[Scope], Awaitable[Sequence[Scope]]]
"""The owner of the state of a scope, then the other identities of the same person."""


async def owner_alone(scope: Scope) -> Sequence[Scope]:
    """The owners of a scope where no identities are linked."""
    return (scope,)


class StateStore(Protocol):
    """Stores small JSON values by scope, namespace and key: API keys, preferences, state of other frameworks.

    A tenant's own state is not its users' state. Keys are ordered by code points.
    """

    async def read_state(self, scope: Scope, namespace: str, key: str) -> StateEntry | None:
        """One value, `None` if there is none."""
        ...

    async def write_state(
        self, scope: Scope, namespace: str, key: str, value: Json, if_version: int | None = None
    ) -> StateEntry:
        """Set a value; versions count from 1, and `if_version=0` requires that there is none yet.

        Raises:
            VersionConflict: `if_version` is not the stored version.
        """
        ...

    async def delete_state(self, scope: Scope, namespace: str, key: str, if_version: int | None = None) -> bool:
        """Remove a value; returns whether there was one.

        Raises:
            VersionConflict: `if_version` is not the stored version.
        """
        ...

    async def read_states(self, scope: Scope, namespace: str, keys: Sequence[str]) -> tuple[StateEntry | None, ...]:
        """The values of these keys at one moment and in their order, `None` for each that is absent."""
        ...

    async def change_states(self, scope: Scope, namespace: str, changes: Sequence[StateChange]) -> tuple[int, ...]:
        """Set and remove values in one atomic step, all or none.

        Returns for each change in order the version of the new value; for a removal 1 if there was a value, else 0.

        Raises:
            VersionConflict: an `if_version` is not the stored version.
            Invalid: two changes are of the same key.
        """
        ...

    async def list_state(
        self, scope: Scope, namespace: str, after: str = "", limit: int = 100
    ) -> tuple[StateEntry, ...]:
        """Values in order of their keys, after the key `after`."""
        ...

    async def state_keys(self, scope: Scope, namespace: str, after: str = "", limit: int = 100) -> tuple[str, ...]:
        """The keys alone, in the same order; also those of values that cannot be decoded."""
        ...

    async def list_state_locations(
        self, scope: Scope, after: StateLocation | None = None, limit: int = 100
    ) -> tuple[StateLocation, ...]:
        """Locations of values of users and chats that the scope reaches, in any namespace and in a stable order.

        Without the tenant's own state and names that cannot be decoded. A page that is not full is the last one.
        """
        ...
