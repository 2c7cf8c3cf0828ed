"""Where tasks are kept: each is one value of its owner's state, and what has expired is not there."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Final

from tenuto.errors import Sealed, StateCorrupt, TaskNotFound
from tenuto.model import Scope
from tenuto.model.task import Task, TaskStatus
from tenuto.model.values import checked_id
from tenuto.ports import Clock, StateStore
from tenuto.tasks._drawer import Drawer, Filed, refuse_other_version
from tenuto.tasks._records import Head, micros

_log = logging.getLogger(__name__)
_NAMESPACE: Final = "tasks"
# Of a task on its way out; it has expired by every clock, so nobody changes it any more.
_RETIRED: Final = Head(type="", status=TaskStatus.FAILED, created_at=0, updated_at=0, expires_at=0)


class Heads:
    """The tasks of every scope, without their boards. Outside its owner's scope a task does not exist."""

    def __init__(self, *, state: StateStore, clock: Clock) -> None:
        self._state = state
        self._clock = clock

    async def add(self, scope: Scope, task_id: str, head: Head) -> Task:
        """Store a new one.

        Raises:
            VersionConflict: there is one of this id, expired or not.
        """
        return _task(await self._of(scope).put(task_id, head, if_version=0))

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
            return self._lasting(await self._of(scope).read(task_id), task_id)

    async def stands(self, scope: Scope, task_id: str) -> bool:
        """Whether anything is stored of a task, expired and damaged ones included."""
        try:
            return await self._of(scope).read(task_id) is not None
        except (StateCorrupt, Sealed):
            return True

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
            refuse_other_version(if_version, self._lasting(filed, task_id).version)
            return _RETIRED

        await self._swapped(scope, task_id, retired)

    async def retire_expired(self, scope: Scope, task_id: str) -> bool:
        """Do so with a task that has expired; tells whether it is none any more, be it gone or damaged."""

        def retired(filed: Filed[Head] | None) -> Head | None:
            return _RETIRED if filed is not None and not self.lasts(filed.record) else None

        try:
            filed = await self._of(scope).swap(task_id, retired)
        except StateCorrupt:
            return True
        return filed is None or not self.lasts(filed.record)

    async def remove(self, scope: Scope, task_id: str) -> bool:
        """Remove one that was retired or is damaged; tells whether it was there."""
        return await self._of(scope).remove(task_id)

    def every(self, scope: Scope, after: str) -> AsyncIterator[Filed[Head]]:
        """The scope's tasks from behind an id on, in order of their ids, with those that have expired."""
        return self._of(scope).every(after)

    def lasts(self, head: Head) -> bool:
        """Whether a task has time left."""
        return head.expires_at > micros(self._clock())

    async def _swapped(self, scope: Scope, task_id: str, change: Callable[[Filed[Head] | None], Head]) -> Filed[Head]:
        checked_id(task_id, "the task id")
        with _damaged_is_absent(task_id):
            filed = await self._of(scope).swap(task_id, change)
        assert filed is not None
        return filed

    def _lasting(self, filed: Filed[Head] | None, task_id: str) -> Filed[Head]:
        if filed is None or not self.lasts(filed.record):
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


def _task(filed: Filed[Head]) -> Task:
    return filed.record.task(filed.key, filed.version)
