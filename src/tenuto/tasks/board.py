"""The board of a task: values that its agents share, one record per key, so that different keys never conflict.

Whether an agent may write is checked against the stored record, in the same compare-and-set that writes it. A lock is
part of the record of its key, so a lock that was lost before the write is noticed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from tenuto.compare_and_set import Update
from tenuto.errors import Invalid, TooLarge
from tenuto.model.policy import TaskPolicy
from tenuto.model.task import BoardChange, BoardEntry, BoardLock, BoardView
from tenuto.model.turn import IdempotencyKey
from tenuto.model.values import MAX_DEPTH, Json, check_id, check_int, check_json, is_number
from tenuto.ports import Clock
from tenuto.task_errors import BoardFull, KeyLocked, KeyProtected, LockLost, StepLost, TaskFinished, ValueMismatch
from tenuto.tasks._record_store import VersionedRecord, check_version
from tenuto.tasks._records import (
    BoardRecord,
    LockRecord,
    NameRef,
    WriteRecord,
    instant,
    is_applied,
    micros,
    name_ref,
    unwrap_value,
    wrap_value,
    write_mark,
)
from tenuto.tasks._workspace import TaskWorkspace

_log = logging.getLogger(__name__)
_EMPTY: Final = BoardRecord()
# The record around a value takes two of the levels that JSON may have.
_DEPTH: Final = MAX_DEPTH - 2
_NAME_IN_LOG: Final = 64
# The number of writes, and of idempotency keys, that a key remembers.
_MOST_MARKS: Final = 20


def check_value(value: Json, policy: TaskPolicy) -> Json:
    """Return a value if it can be stored on a board or as a note.

    Raises:
        InvalidJson: it is not JSON that every store can hold.
        TooLarge: it is above the limit.
    """
    check_json(value, "the value", _DEPTH)
    if len(msgspec.json.encode(value)) > policy.max_board_value_bytes:
        raise TooLarge("value", policy.max_board_value_bytes)
    return value


class Board:
    """The board of one task.

    Every method raises `TaskNotFound` if the scope has no such task, and those that change something raise
    `TaskFinished` if it has ended. Agents are distinguished by their names, which the caller must verify.
    """

    def __init__(self, *, workspace: TaskWorkspace, policy: TaskPolicy, clock: Clock) -> None:
        self._workspace = workspace
        self._policy = policy
        self._clock = clock

    async def read_entry(self, key: str) -> BoardEntry | None:
        """The entry of a key, `None` if there is none."""
        check_id(key, "the key")
        await self._workspace.task()
        row = await self._workspace.board.read_record(key)
        return row.record.entry(key) if row is not None else None

    async def view(self) -> BoardView:
        """All entries and locks."""
        await self._workspace.task()
        now = micros(self._clock())
        rows = [(row.key, row.record) async for row in self._workspace.board.every()]
        return BoardView(
            entries=tuple(entry for key, one in rows if (entry := one.entry(key)) is not None),
            locks=tuple(lock for key, one in rows if _is_locked(one, now) and (lock := one.to_lock(key)) is not None),
        )

    async def history(self, key: str | None = None) -> tuple[BoardChange, ...]:
        """The last writes and deletions of a key, or of every key, oldest first; a key knows its last twenty."""
        if key is not None:
            check_id(key, "the key")
        await self._workspace.task()
        if key is not None:
            row = await self._workspace.board.read_record(key)
            return () if row is None else row.record.history(key)
        changes = [change async for each in self._workspace.board.every() for change in each.record.history(each.key)]
        return tuple(sorted(changes, key=lambda change: change.at))

    async def write(
        self,
        key: str,
        value: Json,
        *,
        agent: str,
        if_version: int | None = None,
        token: int | None = None,
        idempotency_key: IdempotencyKey | str | None = None,
    ) -> BoardEntry:
        """Set the value of a key. `if_version=0` requires that it has none.

        A repeated `idempotency_key` changes nothing and returns the entry as it is, also when another agent has written
        it since; an entry knows the last twenty such keys. With a fingerprint beside it, the key is for that request
        alone.

        The holder of a lock writes with its token. An expired lock stays valid until another agent locks or writes the
        key.

        Raises:
            KeyProtected: only another agent may write the key.
            KeyLocked: it is locked, and the call has no token.
            LockLost: the token is not that of the lock.
            VersionConflict: `if_version` is not the entry's version.
            IdempotencyKeyReused: the key was given with another fingerprint.
            BoardFull: the key is new, and there are too many.
            TooLarge: the value is above the limit.
        """
        check_value(value, self._policy)
        return await self._write(key, lambda _: value, agent, if_version, token, idempotency_key)

    async def append(
        self,
        key: str,
        item: Json,
        *,
        agent: str,
        token: int | None = None,
        idempotency_key: IdempotencyKey | str | None = None,
    ) -> BoardEntry:
        """Add an item to the end of a key's list, under the rules of `write`; a key without a value begins one.

        Raises:
            ValueMismatch: the value is no list.
        """

        def add_item(before: Json) -> Json:
            if before is not None and not isinstance(before, list):
                raise ValueMismatch(key, "list")
            return check_value([*(before or ()), item], self._policy)

        check_value(item, self._policy)
        return await self._write(key, add_item, agent, None, token, idempotency_key)

    async def increment(
        self,
        key: str,
        by: float = 1,
        *,
        agent: str,
        token: int | None = None,
        idempotency_key: IdempotencyKey | str | None = None,
    ) -> BoardEntry:
        """Add to the number of a key, under the rules of `write`; a key without a value is 0.

        Raises:
            ValueMismatch: the value is no number.
            InvalidJson: the sum is above the numbers that every store holds.
        """

        def add(before: Json) -> Json:
            if before is not None and not is_number(before):
                raise ValueMismatch(key, "number")
            return check_value((before or 0) + by, self._policy)

        if not is_number(by):
            raise Invalid(f"by must be a number, not a {type(by).__name__}")
        return await self._write(key, add, agent, None, token, idempotency_key)

    async def _write(
        self,
        key: str,
        change_value: Callable[[Json], Json],
        agent: str,
        if_version: int | None,
        token: int | None,
        idempotency_key: IdempotencyKey | str | None,
    ) -> BoardEntry:
        """Store the changed value of a key, which is `None` before if there is none."""
        writer = await self._authorize(key, agent)
        if isinstance(idempotency_key, str):
            check_id(idempotency_key, "the idempotency key")
        mark = None if idempotency_key is None else write_mark(idempotency_key)

        def write_record(record: BoardRecord) -> BoardRecord | None:
            if mark is not None and record.value and is_applied(mark, record.applied):
                return None
            self._check_writable(record, key, writer, if_version, token)
            # An agent that overwrites its own value keeps the name of the previous agent.
            own = record.by is not None and record.by.same(writer)
            return replace(
                self._count_write(record, writer, token),
                value=wrap_value(key, change_value(unwrap_value(record.value))),
                by=writer,
                before=record.before if own else record.by,
                applied=record.applied if mark is None else (*record.applied, mark)[-_MOST_MARKS:],
            )

        result = await self._change(key, write_record, repeatable=mark is not None)
        entry = result.after.entry(key)
        assert entry is not None
        if result.changed:
            self._log_overwriting(key, result.before, writer, entry.writer, "overwritten")
        return entry

    async def delete(self, key: str, *, agent: str, if_version: int | None = None, token: int | None = None) -> bool:
        """Delete the value of a key, under the rules of `write`; returns whether there was one."""
        writer = await self._authorize(key, agent)

        def empty_record(record: BoardRecord) -> BoardRecord | None:
            self._check_writable(record, key, writer, if_version, token)
            if record.value:
                return replace(self._count_write(record, writer, token, deleted=True), value={})
            return replace(record, lock=None) if token is None and record.lock is not None else None

        before = (await self._change(key, empty_record)).before
        if before.value:
            self._log_overwriting(key, before, writer, writer.name, "deleted")
        return bool(before.value)

    async def lock(
        self, key: str, *, agent: str, lease: timedelta | None = None, token: int | None = None
    ) -> BoardLock:
        """Lock a key until the lease ends; it need not have a value.

        With the token of a lock that was not lost, the lease is renewed. Without one the lock is new: an agent that
        restarts takes over its own lock, and writes of its former run are refused.

        Raises:
            KeyProtected: only another agent may write the key.
            KeyLocked: another agent has locked it.
            LockLost: the token is not that of the lock.
            BoardFull: the key is new, and there are too many.
        """
        lease = self._policy.lock_lease if lease is None else lease
        if not _is_valid_lease(lease, self._policy.task_retention):
            raise Invalid("a lock is held for a timedelta greater than zero and no longer than a task lives")
        holder = await self._authorize(key, agent)

        def lock_record(record: BoardRecord) -> BoardRecord:
            if token is not None or record.lock is None or not record.lock.by.same(holder):
                self._check_lock(record, key, holder, token)
            number = record.token + 1 if token is None else token
            new_lock = LockRecord(by=holder, token=number, until_at=micros(self._clock() + lease))
            return replace(record, token=max(record.token, number), lock=new_lock)

        lock = (await self._change(key, lock_record)).after.to_lock(key)
        assert lock is not None
        return lock

    async def unlock(self, key: str, *, agent: str, token: int) -> None:
        """Release a lock.

        Raises:
            LockLost: the lock of this token is gone, or another agent's.
        """
        holder = await self._authorize(key, agent)

        def unlock_record(record: BoardRecord) -> BoardRecord:
            self._check_lock(record, key, holder, token)
            return replace(record, lock=None)

        await self._change(key, unlock_record)

    def _count_write(
        self, record: BoardRecord, writer: NameRef, token: int | None, *, deleted: bool = False
    ) -> BoardRecord:
        """The record after one more write; without its token, an expired lock is gone."""
        now = micros(self._clock())
        write = WriteRecord(writer=writer.name, written_at=now, deleted=deleted)
        return replace(
            record,
            written_at=record.written_at if deleted else now,
            version=record.version + 1,
            lock=record.lock if token is not None else None,
            writes=(*record.writes, write)[-_MOST_MARKS:],
        )

    def _log_overwriting(self, key: str, before: BoardRecord, writer: NameRef, label: str, how: str) -> None:
        if before.by is not None and not before.by.same(writer):
            key, other, by = (_printable_name(name) for name in (key, before.by.name, label))
            message = "task %s: the value of %s by agent %s was %s by agent %s"
            _log.warning(message, self._workspace.task_id, key, other, how, by)

    async def _authorize(self, key: str, agent: str) -> NameRef:
        """The agent, if it may change this key at all."""
        check_id(key, "the key")
        check_id(agent, "the agent's name")
        writer, task = name_ref(agent), await self._workspace.open()
        if self._policy.protects(key) and writer.mark != task.owner:
            raise KeyProtected(key)
        return writer

    async def _change(
        self, key: str, change: Callable[[BoardRecord], BoardRecord | None], *, repeatable: bool = False
    ) -> Update[BoardRecord]:
        """Change the record of a key; undone if the task ended, or its step was lost, meanwhile.

        A `repeatable` change stays: another worker may have made it again, found it there, and gone on from it.
        """
        result = await self._workspace.board.update(
            key, lambda row: change(_record_or_empty(row)), self._check_capacity
        )
        if result.changed:
            try:
                await self._workspace.recheck_open()
            except (TaskFinished, StepLost):
                if not repeatable:
                    # A later writer sees the end of the task as well.
                    await self._workspace.board.revert(result, _EMPTY)
                raise
        return Update(_record_or_empty(result.before), _record_or_empty(result.after), result.changed)

    async def _check_capacity(self, before: VersionedRecord[BoardRecord] | None) -> None:
        """Refuse a new key on a full board. Concurrent calls do not see each other's keys."""
        limit = self._policy.max_board_keys
        if before is None and len([key async for key in self._workspace.board.keys(limit)]) >= limit:
            raise BoardFull(limit)

    def _check_writable(
        self, record: BoardRecord, key: str, agent: NameRef, if_version: int | None, token: int | None
    ) -> None:
        self._check_lock(record, key, agent, token)
        check_version(if_version, record.version if record.value else 0)

    def _check_lock(self, record: BoardRecord, key: str, agent: NameRef, token: int | None) -> None:
        if token is not None:
            check_int(token, 1, 2**53, "the token")
            if record.lock is None or record.lock.token != token or not record.lock.by.same(agent):
                raise LockLost(key, token)
        elif _is_locked(record, micros(self._clock())):
            assert record.lock is not None
            raise KeyLocked(key, instant(record.lock.until_at) - self._clock())


def _record_or_empty(row: VersionedRecord[BoardRecord] | None) -> BoardRecord:
    return _EMPTY if row is None else row.record


def _is_valid_lease(lease: object, longest: timedelta) -> bool:
    return isinstance(lease, timedelta) and timedelta(0) < lease <= longest


def _printable_name(name: str) -> str:
    """A name for one line of a log."""
    return "".join(sign if sign.isprintable() else "?" for sign in name[:_NAME_IN_LOG])


def _is_locked(record: BoardRecord, now: int) -> bool:
    return record.lock is not None and record.lock.until_at > now
