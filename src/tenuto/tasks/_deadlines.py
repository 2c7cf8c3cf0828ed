"""When to look after which task again, so that what has expired is found without a look at everything.

The installation keeps the list itself, since a tenant's own tasks stand in no list of owners. It holds ids alone, whose
they are among them: a person who is erased has to be taken out of it. Its keys tell by a digest whose an entry is, so
that an entry which cannot be read does not hide the others.
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


class Due(NamedTuple):
    """An entry whose time has come."""

    key: str
    scope: Scope
    task_id: str


class Deadlines:
    """Entries in order of time; one comes due ten to twenty minutes behind the instant it was made for.

    That is no hurry, and by then it is over by the clock of every machine.
    """

    def __init__(self, state: StateStore) -> None:
        self._entries = Drawer(state, SYSTEM, _NAMESPACE, Scope)

    async def add(self, scope: Scope, task_id: str, at: datetime) -> None:
        """Have the task looked after when that instant is over. To be stored before what then expires."""
        await self._entries.put_record(_key(scope, task_id, at), owner_scope(scope))

    async def keep(self, scope: Scope, task_id: str, at: datetime) -> None:
        """Add an entry again that was taken off the list."""
        await self._entries.swap(_key(scope, task_id, at), lambda filed: owner_scope(scope) if filed is None else None)

    async def due(self, now: datetime, limit: int) -> tuple[list[Due], bool]:
        """Those of the oldest `limit` entries whose time has come, and whether there may be more of them."""
        first_to_come = f"{_time_step(now) + 1:012d}"
        come = [key async for key in self._entries.keys(limit) if key < first_to_come]
        found = [await self._read_entry(key) for key in come]
        return [due for due in found if due is not None], len(come) == limit

    async def drop(self, due: Due) -> None:
        """Take an entry off the list."""
        await self._entries.remove(due.key)

    async def drop_removed_tasks(self, scope: Scope, stands: Callable[[str], Awaitable[bool]]) -> int:
        """Take those of an owner off the list whose tasks do not stand any more, and tell how many that were."""
        whose, gone = owner_key(scope).hex(), 0
        async for key in self._entries.keys():
            _, owner, task_id = _parts(key)
            if owner == whose and not await stands(task_id):
                gone += await self._entries.remove(key)
        return gone

    async def _read_entry(self, key: str) -> Due | None:
        """An entry, which one that is damaged is no longer."""
        task_id = _parts(key)[2]
        try:
            filed = await self._entries.read_record(key)
        except StateCorrupt:
            filed = None
        if filed is None or not task_id:
            _log.error("dropped a task's deadline that cannot be read")
            await self._entries.remove(key)
            return None
        return Due(key, filed.record, task_id)


def _key(scope: Scope, task_id: str, at: datetime) -> str:
    return f"{_time_step(at) + 2:012d}:{owner_key(scope).hex()}:{task_id}"


def _parts(key: str) -> tuple[str, str, str]:
    step, _, rest = key.partition(":")
    owner, _, task_id = rest.partition(":")
    return step, owner, task_id


def _time_step(at: datetime) -> int:
    return micros(at) // _STEP
