"""The tasks of every scope: each is one value of its owner's state. Expired ones do not exist."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Final

from msgspec.structs import replace

from tenuto.errors import DecryptionFailed, StateCorrupt
from tenuto.model import Scope
from tenuto.model.task import TASKS, Task, TaskStatus
from tenuto.model.values import check_id
from tenuto.ports import Clock, StateStore
from tenuto.task_errors import TaskNotFound
from tenuto.tasks._record_store import Drawer, VersionedRecord, check_version
from tenuto.tasks._records import TaskHead, micros, parse_task_id

_log = logging.getLogger(__name__)
# A task that is being removed: expired by every clock, so it cannot be changed.
_RETIRED: Final = TaskHead(type="", status=TaskStatus.FAILED, created_at=0, updated_at=0, expires_at=0)


class TaskTable:
    """The tasks of every scope, without their boards. Outside its owner's scope a task does not exist."""

    def __init__(self, *, state: StateStore, clock: Clock) -> None:
        self._state = state
        self._clock = clock

    async def add(
        self, scope: Scope, place: str, head: TaskHead, over: VersionedRecord[TaskHead] | None = None
    ) -> VersionedRecord[TaskHead]:
        """Store a new task, in the place of an expired one if there is one.

        Raises:
            VersionConflict: another task is there.
        """
        version = 0 if over is None else over.version
        return await self._records_of(scope).put_record(place, head, if_version=version)

    async def at(self, scope: Scope, place: str) -> VersionedRecord[TaskHead] | None:
        """The task at a place, expired or not; a damaged one is removed."""
        try:
            return await self._records_of(scope).read_record(place)
        except StateCorrupt:
            await self._records_of(scope).remove(place)
            return None

    async def get(self, scope: Scope, task_id: str) -> Task:
        """One task.

        Raises:
            TaskNotFound: absent, foreign, expired, deleted and damaged alike.
        """
        return _to_task(await self.find(scope, task_id))

    async def find(self, scope: Scope, task_id: str) -> VersionedRecord[TaskHead]:
        """One task as it is stored, under the rules of `get`."""
        check_id(task_id, "the task id")
        with _corrupt_as_missing(task_id):
            return self._require_live(await self._records_of(scope).read_record(parse_task_id(task_id)[0]), task_id)

    async def stands(self, scope: Scope, task_id: str) -> bool:
        """Whether anything is stored of a task, expired and damaged ones included."""
        place, life = parse_task_id(task_id)
        try:
            row = await self._records_of(scope).read_record(place)
        except (StateCorrupt, DecryptionFailed):
            return True
        return row is not None and row.record.life == life

    async def change(
        self, scope: Scope, task_id: str, change: Callable[[TaskHead], TaskHead], if_version: int | None = None
    ) -> Task:
        """Change a task, again after each conflicting write, unless `if_version` is given.

        Raises:
            TaskNotFound: as in `get`.
            VersionConflict: `if_version` is not the stored version.
        """

        def apply_change(row: VersionedRecord[TaskHead] | None) -> TaskHead:
            live = self._require_live(row, task_id)
            check_version(if_version, live.version)
            return change(live.record)

        check_id(task_id, "the task id")
        with _corrupt_as_missing(task_id):
            result = await self._records_of(scope).update(parse_task_id(task_id)[0], apply_change)
        assert result.after is not None
        return _to_task(result.after)

    async def retire(self, scope: Scope, task_id: str, if_version: int | None = None) -> None:
        """Mark a task as expired before its removal, so that a concurrent change fails.

        Raises:
            TaskNotFound: as in `get`.
            VersionConflict: `if_version` is not the stored version.
        """
        await self.change(scope, task_id, lambda head: replace(_RETIRED, life=head.life), if_version)

    async def retire_expired(self, scope: Scope, task_id: str) -> bool:
        """Mark an expired task likewise; returns whether the task is expired, gone or damaged."""
        place, life = parse_task_id(task_id)

        def retire_if_expired(row: VersionedRecord[TaskHead] | None) -> TaskHead | None:
            if row is None or row.record.life != life or self.lasts(row.record):
                return None
            return replace(_RETIRED, life=row.record.life)

        try:
            row = (await self._records_of(scope).update(place, retire_if_expired)).after
        except StateCorrupt:
            return True
        return row is None or row.record.life != life or not self.lasts(row.record)

    async def remove(self, scope: Scope, task_id: str) -> bool:
        """Remove a retired or damaged task; returns whether it was there."""
        return await self.stands(scope, task_id) and await self._records_of(scope).remove(parse_task_id(task_id)[0])

    def every(self, scope: Scope, after: str) -> AsyncIterator[VersionedRecord[TaskHead]]:
        """The scope's tasks after an id, in order of their ids, expired ones included."""
        return self._records_of(scope).every(parse_task_id(after)[0])

    def lasts(self, head: TaskHead) -> bool:
        """Whether a task has not expired."""
        return head.expires_at > micros(self._clock())

    def _require_live(self, row: VersionedRecord[TaskHead] | None, task_id: str) -> VersionedRecord[TaskHead]:
        if row is None or row.record.life != parse_task_id(task_id)[1] or not self.lasts(row.record):
            raise TaskNotFound(task_id)
        return row

    def _records_of(self, scope: Scope) -> Drawer[TaskHead]:
        return Drawer(self._state, scope, TASKS, TaskHead)


@contextmanager
def _corrupt_as_missing(task_id: str) -> Iterator[None]:
    try:
        yield
    except StateCorrupt:
        _log.error("task %s cannot be read", task_id)
        raise TaskNotFound(task_id) from None


def _to_task(row: VersionedRecord[TaskHead]) -> Task:
    return row.record.task(row.key, row.version)
