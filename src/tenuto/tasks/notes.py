"""An agent's notes on a task: private values that expire after an hour, or when the task ends."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from hashlib import blake2b
from typing import Final

from msgspec.structs import replace

from tenuto.model.policy import TaskPolicy
from tenuto.model.task import Note
from tenuto.model.values import Json, check_id
from tenuto.ports import Clock
from tenuto.task_errors import BoardFull, StepLost, TaskFinished
from tenuto.tasks._record_store import Drawer, VersionedRecord, check_version
from tenuto.tasks._records import NoteRecord, micros, wrap_value
from tenuto.tasks._workspace import TaskWorkspace
from tenuto.tasks.board import check_value

_NOTHING: Final = NoteRecord()


async def drop_expired_notes(notes: Drawer[NoteRecord], now: datetime) -> None:
    """Empty the expired notes of a running task."""

    def empty_if_expired(row: VersionedRecord[NoteRecord] | None) -> NoteRecord | None:
        return _empty_note(row.record) if row is not None and row.record.expires_at <= micros(now) else None

    over = [row.key async for row in notes.every() if row.record.value and empty_if_expired(row)]
    for key in over:
        await notes.update(key, empty_if_expired)


class Notes:
    """The notes of one agent on a task, removed when the task ends.

    Every method raises `TaskNotFound` if the scope has no such task.
    """

    def __init__(self, *, workspace: TaskWorkspace, policy: TaskPolicy, clock: Clock, agent: str) -> None:
        check_id(agent, "the agent's name")
        self._workspace = workspace
        self._policy = policy
        self._clock = clock
        # Of fixed length, so that no name can be read as another name and the beginning of a key.
        self._whose = f"{blake2b(agent.encode(), digest_size=16).hexdigest()}:"

    async def read_entry(self, key: str) -> Note | None:
        """One note, `None` if there is none or it expired."""
        check_id(key, "the key")
        if (await self._workspace.task()).completed_at is not None:
            return None
        record = _record_or_empty(await self._workspace.notes.read_record(self._whose + key))
        return record.note(key) if self._is_live(record) else None

    async def list(self) -> tuple[Note, ...]:
        """All notes of this agent, in order of their keys."""
        if (await self._workspace.task()).completed_at is not None:
            return ()
        rows = [row async for row in self._workspace.notes.every(beginning=self._whose)]
        lasting = [row for row in rows if self._is_live(row.record)]
        return tuple(row.record.note(row.key.removeprefix(self._whose)) for row in lasting)

    async def write(self, key: str, value: Json, *, if_version: int | None = None) -> Note:
        """Set a note and renew its expiry.

        Raises:
            TaskFinished: the task has ended.
            VersionConflict: `if_version` is not the note's version; 0 demands that there is none.
            BoardFull: there are too many others.
            TooLarge: the value is above the limit.
        """
        check_value(value, self._policy)
        await self._check_open(key)
        expires = self._clock() + self._policy.agent_retention

        def write_record(record: NoteRecord) -> NoteRecord:
            check_version(if_version, record.version if self._is_live(record) else 0)
            return NoteRecord(
                value=wrap_value(key, value),
                written_at=micros(self._clock()),
                expires_at=micros(expires),
                version=record.version + 1,
            )

        await self._workspace.schedule_sweep(expires)
        return (await self._change(key, write_record)).note(key)

    async def delete(self, key: str, *, if_version: int | None = None) -> bool:
        """Delete a note; returns whether there was one.

        Raises:
            TaskFinished: the task has ended.
            VersionConflict: `if_version` is not the note's version.
        """
        await self._check_open(key)
        there = False

        def empty_record(record: NoteRecord) -> NoteRecord | None:
            nonlocal there
            there = self._is_live(record)
            check_version(if_version, record.version if there else 0)
            return _empty_note(record) if there else None

        await self._change(key, empty_record)
        return there

    async def _check_open(self, key: str) -> None:
        check_id(self._whose + key if key else key, "the key")
        await self._workspace.open()

    async def _change(self, key: str, change: Callable[[NoteRecord], NoteRecord | None]) -> NoteRecord:
        result = await self._workspace.notes.update(
            self._whose + key, lambda row: change(_record_or_empty(row)), self._check_capacity
        )
        try:
            await self._workspace.recheck_open()
        except TaskFinished:
            await self._workspace.notes.clear()
            raise
        except StepLost:
            await self._workspace.notes.revert(result, _NOTHING)
            raise
        return _record_or_empty(result.after)

    async def _check_capacity(self, before: VersionedRecord[NoteRecord] | None) -> None:
        """Refuse a new note above the limit. Concurrent calls do not see each other's notes."""
        if before is not None and self._is_live(before.record):
            return
        rows = [row async for row in self._workspace.notes.every(beginning=self._whose) if self._is_live(row.record)]
        if len(rows) >= self._policy.max_board_keys:
            raise BoardFull(self._policy.max_board_keys)

    def _is_live(self, record: NoteRecord) -> bool:
        return bool(record.value) and record.expires_at > micros(self._clock())


def _empty_note(record: NoteRecord) -> NoteRecord:
    return replace(record, value={}, version=record.version + 1)


def _record_or_empty(row: VersionedRecord[NoteRecord] | None) -> NoteRecord:
    return _NOTHING if row is None else row.record
