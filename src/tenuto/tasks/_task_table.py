"""Where tasks are kept: each is one value of its owner's state, and what has expired is not there."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Final

from msgspec.structs import replace

from tenuto.errors import DecryptionFailed, StateCorrupt, TaskNotFound
from tenuto.model import Scope
from tenuto.model.task import Task, TaskStatus
from tenuto.model.values import check_id
from tenuto.ports import Clock, StateStore
from tenuto.tasks._record_store import Drawer, VersionedRecord, check_version
from tenuto.tasks._records import Head, micros, parse_task_id

_log = logging.getLogger(__name__)
_NAMESPACE: Final = "tasks"
# Of a task on its way out; it has expired by every clock, so nothing changes it any more.
_RETIRED: Final = Head(type="", status=TaskStatus.FAILED, created_at=0, updated_at=0, expires_at=0)


class TaskTable:
    """The tasks of every scope, without their boards. Outside its owner's scope a task does not exist."""

    def __init__(self, *, state: StateStore, clock: Clock) -> None:
        self._state = state
        self._clock = clock

    async def add(self, scope: Scope, place: str, head: Head, over: VersionedRecord[Head] | None = None) -> Task:
        """Store a new one, in the place of one whose time is over, if that is what stands there.

        Raises:
            VersionConflict: something else stands there.
        """
        return _to_task(
            await self._records_of(scope).put_record(place, head, if_version=0 if over is None else over.version)
        )

    async def at(self, scope: Scope, place: str) -> VersionedRecord[Head] | None:
        """What stands at a place, expired or not; what is damaged is removed."""
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

    async def find(self, scope: Scope, task_id: str) -> VersionedRecord[Head]:
        """One task as it is stored, under the rules of `get`."""
        check_id(task_id, "the task id")
        with _corrupt_as_missing(task_id):
            return self._require_live(await self._records_of(scope).read_record(parse_task_id(task_id)[0]), task_id)

    async def stands(self, scope: Scope, task_id: str) -> bool:
        """Whether anything is stored of a task, expired and damaged ones included."""
        place, life = parse_task_id(task_id)
        try:
            filed = await self._records_of(scope).read_record(place)
        except (StateCorrupt, DecryptionFailed):
            return True
        return filed is not None and filed.record.life == life

    async def change(
        self, scope: Scope, task_id: str, change: Callable[[Head], Head], if_version: int | None = None
    ) -> Task:
        """Change a task, again after each conflicting write, unless it must be of that version.

        Raises:
            TaskNotFound: as in `get`.
            VersionConflict: `if_version` is not the stored version.
        """

        def apply_change(filed: VersionedRecord[Head] | None) -> Head:
            there = self._require_live(filed, task_id)
            check_version(if_version, there.version)
            return change(there.record)

        return _to_task(await self._update(scope, task_id, apply_change))

    async def retire(self, scope: Scope, task_id: str, if_version: int | None = None) -> None:
        """Mark a task as expired before its removal, so that a concurrent change fails.

        Raises:
            TaskNotFound: as in `get`.
            VersionConflict: `if_version` is not the stored version.
        """

        def retire_live(filed: VersionedRecord[Head] | None) -> Head:
            there = self._require_live(filed, task_id)
            check_version(if_version, there.version)
            return _retired_record(there.record)

        await self._update(scope, task_id, retire_live)

    async def retire_expired(self, scope: Scope, task_id: str) -> bool:
        """Do so with a task that has expired; tells whether it is none any more, be it gone or damaged."""

        place, life = parse_task_id(task_id)

        def retire_if_expired(filed: VersionedRecord[Head] | None) -> Head | None:
            if filed is None or filed.record.life != life or self.lasts(filed.record):
                return None
            return _retired_record(filed.record)

        try:
            filed = await self._records_of(scope).swap(place, retire_if_expired)
        except StateCorrupt:
            return True
        return filed is None or filed.record.life != life or not self.lasts(filed.record)

    async def remove(self, scope: Scope, task_id: str) -> bool:
        """Remove one that was retired or is damaged; tells whether it was there."""
        return await self.stands(scope, task_id) and await self._records_of(scope).remove(parse_task_id(task_id)[0])

    def every(self, scope: Scope, after: str) -> AsyncIterator[VersionedRecord[Head]]:
        """The scope's tasks from behind an id on, in order of their ids, with those that have expired."""
        return self._records_of(scope).every(parse_task_id(after)[0])

    def lasts(self, head: Head) -> bool:
        """Whether a task has time left."""
        return head.expires_at > micros(self._clock())

    async def _update(
        self, scope: Scope, task_id: str, change: Callable[[VersionedRecord[Head] | None], Head]
    ) -> VersionedRecord[Head]:
        check_id(task_id, "the task id")
        with _corrupt_as_missing(task_id):
            filed = await self._records_of(scope).swap(parse_task_id(task_id)[0], change)
        assert filed is not None
        return filed

    def _require_live(self, filed: VersionedRecord[Head] | None, task_id: str) -> VersionedRecord[Head]:
        if filed is None or filed.record.life != parse_task_id(task_id)[1] or not self.lasts(filed.record):
            raise TaskNotFound(task_id)
        return filed

    def _records_of(self, scope: Scope) -> Drawer[Head]:
        return Drawer(self._state, scope, _NAMESPACE, Head)


@contextmanager
def _corrupt_as_missing(task_id: str) -> Iterator[None]:
    try:
        yield
    except StateCorrupt:
        _log.error("task %s cannot be read", task_id)
        raise TaskNotFound(task_id) from None


def _retired_record(head: Head) -> Head:
    return replace(_RETIRED, life=head.life)


def _to_task(filed: VersionedRecord[Head]) -> Task:
    return filed.record.task(filed.key, filed.version)
