"""The deadlines of all tasks, so that expired ones are found without reading every task.

The list is state of the installation, since tasks of tenants are in no list of owners. It holds ids, of users too, so
that an erasure must cover it. Its keys hold a digest of the owner, so that an unreadable entry does not hide others.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from tenuto.errors import StateCorrupt
from tenuto.model import Scope
from tenuto.model.scope import SYSTEM, owner_key, owner_scope
from tenuto.ports import StateStore
from tenuto.tasks._record_store import Drawer
from tenuto.tasks._records import micros

_log = logging.getLogger(__name__)
_NAMESPACE: Final = "task-deadlines"
# Deadlines of one task that lie this close together are one entry.
_STEP: Final = timedelta(minutes=10) // timedelta(microseconds=1)


class TaskDeadline(NamedTuple):
    """A due entry."""

    key: str
    scope: Scope
    task_id: str


class Deadlines:
    """Entries in order of time, each due ten to twenty minutes after its instant: by then it is over by every clock."""

    def __init__(self, state: StateStore) -> None:
        self._entries = Drawer(state, SYSTEM, _NAMESPACE, Scope)

    async def add(self, scope: Scope, task_id: str, at: datetime) -> None:
        """Schedule a task for upkeep after an instant. To be called before storing what then expires."""
        await self._entries.put_record(_key(scope, task_id, at), owner_scope(scope))

    async def restore(self, scope: Scope, task_id: str, at: datetime) -> None:
        """Add an entry again if it was removed."""
        await self._entries.update(_key(scope, task_id, at), lambda row: owner_scope(scope) if row is None else None)

    async def due(self, now: datetime, limit: int) -> tuple[list[TaskDeadline], bool]:
        """Those of the oldest `limit` entries that are due, and whether there may be more."""
        first_to_come = f"{_time_step(now) + 1:012d}"
        come = [key async for key in self._entries.keys(limit) if key < first_to_come]
        entries = [await self._read_entry(key) for key in come]
        return [due for due in entries if due is not None], len(come) == limit

    async def drop(self, due: TaskDeadline) -> None:
        """Remove an entry."""
        await self._entries.remove(due.key)

    async def drop_removed_tasks(self, scope: Scope, stands: Callable[[str], Awaitable[bool]]) -> int:
        """Remove an owner's entries whose tasks do not exist any more; returns their number."""
        whose, count = owner_key(scope).hex(), 0
        async for key in self._entries.keys():
            _, owner, task_id = _parts(key)
            if owner == whose and not await stands(task_id):
                count += await self._entries.remove(key)
        return count

    async def _read_entry(self, key: str) -> TaskDeadline | None:
        """Read an entry; a damaged one is removed."""
        task_id = _parts(key)[2]
        try:
            row = await self._entries.read_record(key)
        except StateCorrupt:
            row = None
        if row is None or not task_id:
            _log.error("dropped a task's deadline that cannot be read")
            await self._entries.remove(key)
            return None
        return TaskDeadline(key, row.record, task_id)


def _key(scope: Scope, task_id: str, at: datetime) -> str:
    return f"{_time_step(at) + 2:012d}:{owner_key(scope).hex()}:{task_id}"


def _parts(key: str) -> tuple[str, str, str]:
    step, _, rest = key.partition(":")
    owner, _, task_id = rest.partition(":")
    return step, owner, task_id


def _time_step(at: datetime) -> int:
    return micros(at) // _STEP
