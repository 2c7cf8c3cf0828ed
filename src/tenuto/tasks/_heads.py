"""Where tasks are kept: each is one value of its owner's state, and what has expired is not there."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Final

from msgspec.structs import replace

from tenuto.errors import Sealed, StateCorrupt, TaskNotFound
from tenuto.model import Scope
from tenuto.model.task import Task, TaskStatus
from tenuto.model.values import checked_id
from tenuto.ports import Clock, StateStore
from tenuto.tasks._drawer import Drawer, Filed, refuse_other_version
from tenuto.tasks._records import Head, micros, placed

_log = logging.getLogger(__name__)
_NAMESPACE: Final = "tasks"
# Of a task on its way out; it has expired by every clock, so nobody changes it any more.
_RETIRED: Final = Head(type="", status=TaskStatus.FAILED, created_at=0, updated_at=0, expires_at=0)


class Heads:
    """The tasks of every scope, without their boards. Outside its owner's scope a task does not exist."""

    def __init__(self, *, state: StateStore, clock: Clock) -> None:
        self._state = state
        self._clock = clock

    async def add(self, scope: Scope, place: str, head: Head, over: Filed[Head] | None = None) -> Task:
        """Store a new one, in the place of one whose time is over, if that is what stands there.

        Raises:
            VersionConflict: something else stands there.
        """
        return _task(await self._of(scope).put(place, head, if_version=0 if over is None else over.version))

    async def at(self, scope: Scope, place: str) -> Filed[Head] | None:
        """What stands at a place, expired or not; what is damaged is removed."""
        try:
            return await self._of(scope).read(place)
        except StateCorrupt:
            await self._of(scope).remove(place)
            return None

    async def get(self, scope: Scope, task_id: str) -> Task:
        """One task.

        Raises:
            TaskNotFound: absent, foreign, expired, deleted and damaged alike.
        """
        return _task(await self.find(scope, task_id))

    async def find(self, scope: Scope, task_id: str) -> Filed[Head]:
        """One task as it is stored, under the rules of `get`."""
        checked_id(task_id, "the task id")
        with _damaged_is_absent(task_id):
            return self._lasting(await self._of(scope).read(placed(task_id)[0]), task_id)

    async def stands(self, scope: Scope, task_id: str) -> bool:
        """Whether anything is stored of a task, expired and damaged ones included."""
        place, life = placed(task_id)
        try:
            filed = await self._of(scope).read(place)
        except (StateCorrupt, Sealed):
            return True
        return filed is not None and filed.record.life == life

    async def change(
        self, scope: Scope, task_id: str, change: Callable[[Head], Head], if_version: int | None = None
    ) -> Task:
        """Change a task, looking again when somebody else was faster, unless it must be of that version.

        Raises:
            TaskNotFound: as in `get`.
            VersionConflict: `if_version` is not the stored version.
        """

        def changed(filed: Filed[Head] | None) -> Head:
            there = self._lasting(filed, task_id)
            refuse_other_version(if_version, there.version)
            return change(there.record)

        return _task(await self._swapped(scope, task_id, changed))

    async def retire(self, scope: Scope, task_id: str, if_version: int | None = None) -> None:
        """Have a task be expired for everybody, before it is removed: of those who change it now, one comes too late.

        Raises:
            TaskNotFound: as in `get`.
            VersionConflict: `if_version` is not the stored version.
        """

        def retired(filed: Filed[Head] | None) -> Head:
            there = self._lasting(filed, task_id)
            refuse_other_version(if_version, there.version)
            return _retired(there.record)

        await self._swapped(scope, task_id, retired)

    async def retire_expired(self, scope: Scope, task_id: str) -> bool:
        """Do so with a task that has expired; tells whether it is none any more, be it gone or damaged."""

        place, life = placed(task_id)

        def retired(filed: Filed[Head] | None) -> Head | None:
            if filed is None or filed.record.life != life or self.lasts(filed.record):
                return None
            return _retired(filed.record)

        try:
            filed = await self._of(scope).swap(place, retired)
        except StateCorrupt:
            return True
        return filed is None or filed.record.life != life or not self.lasts(filed.record)

    async def remove(self, scope: Scope, task_id: str) -> bool:
        """Remove one that was retired or is damaged; tells whether it was there."""
        return await self.stands(scope, task_id) and await self._of(scope).remove(placed(task_id)[0])

    def every(self, scope: Scope, after: str) -> AsyncIterator[Filed[Head]]:
        """The scope's tasks from behind an id on, in order of their ids, with those that have expired."""
        return self._of(scope).every(placed(after)[0])

    def lasts(self, head: Head) -> bool:
        """Whether a task has time left."""
        return head.expires_at > micros(self._clock())

    async def _swapped(self, scope: Scope, task_id: str, change: Callable[[Filed[Head] | None], Head]) -> Filed[Head]:
        checked_id(task_id, "the task id")
        with _damaged_is_absent(task_id):
            filed = await self._of(scope).swap(placed(task_id)[0], change)
        assert filed is not None
        return filed

    def _lasting(self, filed: Filed[Head] | None, task_id: str) -> Filed[Head]:
        if filed is None or filed.record.life != placed(task_id)[1] or not self.lasts(filed.record):
            raise TaskNotFound(task_id)
        return filed

    def _of(self, scope: Scope) -> Drawer[Head]:
        return Drawer(self._state, scope, _NAMESPACE, Head)


@contextmanager
def _damaged_is_absent(task_id: str) -> Iterator[None]:
    try:
        yield
    except StateCorrupt:
        _log.error("task %s cannot be read", task_id)
        raise TaskNotFound(task_id) from None


def _retired(head: Head) -> Head:
    return replace(_RETIRED, life=head.life)


def _task(filed: Filed[Head]) -> Task:
    return filed.record.task(filed.key, filed.version)
