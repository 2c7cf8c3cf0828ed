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

    def empty_if_expired(filed: VersionedRecord[NoteRecord] | None) -> NoteRecord | None:
        return _empty_note(filed.record) if filed is not None and filed.record.expires_at <= micros(now) else None

    over = [filed.key async for filed in notes.every() if filed.record.value and empty_if_expired(filed)]
    for key in over:
        await notes.update(key, empty_if_expired)


class Notes:
    """The notes of one agent on a task, removed when the task ends.

    Every method raises `TaskNotFound` if the scope has no such task.
    """

    def __init__(self, *, room: TaskWorkspace, policy: TaskPolicy, clock: Clock, agent: str) -> None:
        check_id(agent, "the agent's name")
        self._room = room
        self._policy = policy
        self._clock = clock
        # Of fixed length, so that no name can be read as another name and the beginning of a key.
        self._whose = f"{blake2b(agent.encode(), digest_size=16).hexdigest()}:"

    async def read_entry(self, key: str) -> Note | None:
        """One note, `None` if there is none or it expired."""
        check_id(key, "the key")
        if (await self._room.task()).completed_at is not None:
            return None
        noted = _record_or_empty(await self._room.notes.read_record(self._whose + key))
        return noted.note(key) if self._is_live(noted) else None

    async def list(self) -> tuple[Note, ...]:
        """All notes of this agent, in order of their keys."""
        if (await self._room.task()).completed_at is not None:
            return ()
        kept = [filed async for filed in self._room.notes.every(beginning=self._whose)]
        lasting = [filed for filed in kept if self._is_live(filed.record)]
        return tuple(filed.record.note(filed.key.removeprefix(self._whose)) for filed in lasting)

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

        def write_record(noted: NoteRecord) -> NoteRecord:
            check_version(if_version, noted.version if self._is_live(noted) else 0)
            return NoteRecord(
                value=wrap_value(key, value),
                written_at=micros(self._clock()),
                expires_at=micros(expires),
                version=noted.version + 1,
            )

        await self._room.schedule_sweep(expires)
        return (await self._change(key, write_record)).note(key)

    async def delete(self, key: str, *, if_version: int | None = None) -> bool:
        """Delete a note; returns whether there was one.

        Raises:
            TaskFinished: the task has ended.
            VersionConflict: `if_version` is not the note's version.
        """
        await self._check_open(key)
        there = False

        def empty_record(noted: NoteRecord) -> NoteRecord | None:
            nonlocal there
            there = self._is_live(noted)
            check_version(if_version, noted.version if there else 0)
            return _empty_note(noted) if there else None

        await self._change(key, empty_record)
        return there

    async def _check_open(self, key: str) -> None:
        check_id(self._whose + key if key else key, "the key")
        await self._room.open()

    async def _change(self, key: str, change: Callable[[NoteRecord], NoteRecord | None]) -> NoteRecord:
        made = await self._room.notes.update(
            self._whose + key, lambda filed: change(_record_or_empty(filed)), self._check_capacity
        )
        try:
            await self._room.recheck_open()
        except TaskFinished:
            await self._room.notes.clear()
            raise
        except StepLost:
            await self._room.notes.revert(made, _NOTHING)
            raise
        return _record_or_empty(made.after)

    async def _check_capacity(self, before: VersionedRecord[NoteRecord] | None) -> None:
        """Refuse a new note above the limit. Concurrent calls do not see each other's notes."""
        if before is not None and self._is_live(before.record):
            return
        kept = [filed async for filed in self._room.notes.every(beginning=self._whose) if self._is_live(filed.record)]
        if len(kept) >= self._policy.max_board_keys:
            raise BoardFull(self._policy.max_board_keys)

    def _is_live(self, noted: NoteRecord) -> bool:
        return bool(noted.value) and noted.expires_at > micros(self._clock())


def _empty_note(noted: NoteRecord) -> NoteRecord:
    return replace(noted, value={}, version=noted.version + 1)


def _record_or_empty(filed: VersionedRecord[NoteRecord] | None) -> NoteRecord:
    return _NOTHING if filed is None else filed.record
