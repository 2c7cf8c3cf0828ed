"""The outbox: turns acknowledged while the store was down, on this machine's disk, in their order.

One thread beside the event loop does all file work. Queued changes are written together and share an fsync.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, Self, TypeVar

from tenuto.errors import Unavailable
from tenuto.stores.codec import to_micros
from tenuto.stores.journaled.files import (
    CLEAR_ATTEMPT,
    DELETE_QUARANTINED,
    DELETE_ROW,
    INSERT_ROW,
    QUARANTINE_ROW,
    RECORD_ATTEMPT,
    RECORD_INCARNATION,
    UPDATE_FINISH,
    JournalCounts,
    RowWrite,
    Slot,
    acquire_file,
    acquire_free_file,
    erase_user_rows,
    file_numbers,
    is_corruption,
    make_folder,
    row_values,
    translate_errors,
)
from tenuto.stores.journaled.rows import JournalRow

_Answer = TypeVar("_Answer")
_log = logging.getLogger(__name__)


class _PendingWrite(NamedTuple):
    """A queued change, and the future its caller awaits."""

    slot: int
    write: RowWrite
    done: asyncio.Future[int]


class Outbox:
    """Rows of this process's slot, and of slots whose processes have died."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._slots: dict[int, Slot] = {}
        self._own: Slot | None = None
        self._last = 0
        # The rows of each session in their order, by slot and number, with the times of their begin.
        self._waiting: dict[bytes, dict[tuple[int, int], int]] = {}
        self._aside = 0
        self._unreadable: set[int] = set()
        self._looked = (0, 0)
        self._taking = asyncio.Lock()
        self._queue: list[_PendingWrite] = []
        self._writing = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tenuto-journal")

    @classmethod
    async def open(cls, folder: str | Path) -> Self:
        """Open the outbox in a folder and adopt the rows of dead processes. Creates no file.

        Logs a warning if the folder cannot be written: then nothing can be journaled.
        """
        outbox = cls(Path(folder))
        try:
            await outbox._run_on_thread(lambda: make_folder(outbox.folder))
            await outbox.adopt()
        except Unavailable:
            _log.warning("the journal's folder cannot be used: while the store does not answer, turns are refused")
        return outbox

    async def close(self) -> None:
        """Release the slots; rows stay."""
        while self._writing:  # noqa: ASYNC110 (a running write ends by itself)
            await asyncio.sleep(0.001)
        try:
            await self._run_on_thread(self._release_files)
        finally:
            self._thread.shutdown()

    @property
    def counts(self) -> JournalCounts:
        """The number of rows in the slots of this process."""
        waiting = sum(map(len, self._waiting.values()))
        return JournalCounts(waiting=waiting, quarantined=self._aside, unreadable=len(self._unreadable))

    @property
    def sessions(self) -> tuple[bytes, ...]:
        """The sessions whose rows wait, the longest first."""
        return tuple(self._waiting)

    @property
    def next_rows(self) -> dict[bytes, int]:
        """When the next row of each session began, in microseconds."""
        return {session: next(iter(rows.values())) for session, rows in self._waiting.items()}

    def has_rows(self, session: bytes) -> bool:
        """Whether rows of this session wait."""
        return session in self._waiting

    async def number(self) -> tuple[int, int]:
        """The slot and number for a new row.

        Raises:
            Unavailable: there is nowhere to write it.
        """
        async with self._taking:
            if self._own is None:
                slot, last = await self._run_on_thread(self._open_own_file)
                self._last = max(self._last, last)
            else:
                slot = self._own
        self._last += 1
        return slot.number, self._last

    async def add(self, raw: JournalRow) -> None:
        """Put a row in; it is on disk when this returns.

        Raises:
            Unavailable: it is not.
        """
        await self._enqueue_write(raw.slot, INSERT_ROW, *row_values(raw))
        self._waiting.setdefault(raw.session, {})[raw.slot, raw.number] = to_micros(raw.begun_at)

    async def close_turn(self, slot: int, number: int, closing: str) -> bool:
        """Add the end of a turn; False if the row is gone, as after an erasure by another process."""
        return bool(await self._enqueue_write(slot, UPDATE_FINISH, closing, number))

    async def rows(self, session: bytes) -> list[JournalRow]:
        """A session's rows: those of a slot by number, several slots merged by the times of their begin."""
        found = await self._on_each_file(lambda slot: slot.rows(session))
        rows = list(heapq.merge(*found, key=lambda raw: raw.begun_at))
        if rows:
            self._waiting[session] = {(raw.slot, raw.number): to_micros(raw.begun_at) for raw in rows}
        else:
            self._waiting.pop(session, None)
        return rows

    async def lacks_some(self, session: bytes) -> bool:
        """Whether rows of a session are gone that this process has not removed.

        Another process erased a user, or the file was given up.
        """
        before = frozenset(self._waiting.get(session, ()))
        found = await self._on_each_file(lambda slot: [(slot.number, number) for number in slot.numbers(session)])
        if before.issubset(place for places in found for place in places):
            return False
        await self.rows(session)
        return True

    async def clear_attempt(self, raw: JournalRow) -> None:
        """Record that the store refused a turn and has nothing of it."""
        await self._enqueue_write(raw.slot, CLEAR_ATTEMPT, raw.number)

    async def record_attempt(self, raw: JournalRow, seq: int) -> bool:
        """Record an attempt to replay a turn after `seq`; False if the row is gone."""
        return bool(await self._enqueue_write(raw.slot, RECORD_ATTEMPT, seq, raw.number))

    async def record_incarnation(self, session: bytes, incarnation: str) -> None:
        """Record that a session that was created here is in the store."""
        for slot in {slot for slot, _ in self._waiting.get(session, ())}:
            await self._enqueue_write(slot, RECORD_INCARNATION, incarnation, session)

    async def next_quarantined(self, limit: int) -> list[JournalRow]:
        """The next quarantined rows, starting over after the last."""
        rows = await self._run_on_thread(lambda: self._read_quarantined(self._looked, limit))
        self._looked = (rows[-1].slot, rows[-1].number) if len(rows) == limit else (0, 0)
        return rows

    async def remove(self, raw: JournalRow) -> None:
        """Delete a row."""
        await self._enqueue_write(raw.slot, DELETE_ROW, raw.number)
        self._remove_pending(raw)

    async def quarantine_row(self, raw: JournalRow, why: str, when: datetime) -> None:
        """Quarantine a row that the store can never take."""
        await self._enqueue_write(raw.slot, QUARANTINE_ROW, why, to_micros(when), raw.number)
        self._remove_pending(raw)
        self._aside += 1

    async def tidy(self, before: datetime | None = None) -> None:
        """Remove files without rows, and rows quarantined `before`."""
        await self._on_each_file(lambda slot: self._tidy_file(slot, before))
        await self._count_quarantined()

    async def adopt(self) -> None:
        """Take over the slots of dead processes."""
        for slot, waiting, counts in await self._run_on_thread(self._adopt_files):
            self._slots[slot.number] = slot
            self._aside += counts.quarantined
            for number, session, begun_at in waiting:
                self._waiting.setdefault(session, {})[slot.number, number] = begun_at

    async def erase(self, tenant: str, site: str, person: str) -> int:
        """Delete a user's rows in every slot of the folder; returns their number."""
        if not self.folder.is_dir():
            return 0
        try:
            return await self._run_on_thread(
                lambda: erase_user_rows(self.folder, tenant, site, person, self._mark_unreadable)
            )
        finally:
            for session in list(self._waiting):
                await self.rows(session)
            await self._count_quarantined()

    # What is inside

    def _remove_pending(self, raw: JournalRow) -> None:
        rest = self._waiting.get(raw.session, {})
        rest.pop((raw.slot, raw.number), None)
        if not rest:
            self._waiting.pop(raw.session, None)

    async def _count_quarantined(self) -> None:
        self._aside = sum(counts.quarantined for counts in await self._on_each_file(Slot.counts))

    async def _on_each_file(self, step: Callable[[Slot], _Answer]) -> list[_Answer]:
        return await self._run_on_thread(lambda: self._for_each_file(step))

    async def _run_on_thread(self, step: Callable[[], _Answer]) -> _Answer:
        def run_step() -> _Answer:
            with translate_errors():
                return step()

        return await asyncio.get_running_loop().run_in_executor(self._thread, run_step)

    async def _enqueue_write(self, slot: int, sql: str, *values: object) -> int:
        job = _PendingWrite(slot, RowWrite(sql, values), asyncio.get_running_loop().create_future())
        self._queue.append(job)
        if not self._writing:
            self._start_writing()
        return await job.done

    def _start_writing(self) -> None:
        jobs, self._queue = self._queue, []
        self._writing = True
        work = asyncio.get_running_loop().run_in_executor(self._thread, self._write_batch, jobs)
        work.add_done_callback(lambda done: self._resolve_writes(jobs, done))

    def _resolve_writes(
        self, jobs: list[_PendingWrite], done: asyncio.Future[dict[int, list[int] | Exception]]
    ) -> None:
        for job in jobs:
            met = done.result()[job.slot]
            said = met if isinstance(met, Exception) else met.pop(0)
            if job.done.done():
                continue  # The caller was cancelled.
            if isinstance(said, Exception):
                job.done.set_exception(said)
            else:
                job.done.set_result(said)
        self._writing = False
        if self._queue:
            self._start_writing()

    # On the thread

    def _write_batch(self, jobs: list[_PendingWrite]) -> dict[int, list[int] | Exception]:
        """Write the changes of each slot; the failure of one slot does not affect the others."""
        met: dict[int, list[int] | Exception] = {}
        for number in {job.slot for job in jobs}:
            try:
                with translate_errors(), self._dropping_if_damaged(number):
                    slot = self._slots.get(number)
                    if slot is None:
                        raise Unavailable("journal", "has given that file up")
                    met[number] = slot.write([job.write for job in jobs if job.slot == number])
            except Exception as failed:
                met[number] = failed  # Raised in the callers.
        return met

    def _for_each_file(self, step: Callable[[Slot], _Answer]) -> list[_Answer]:
        """The results of a step on every slot; a damaged slot is given up and has none."""
        found = list[_Answer]()
        for number, slot in list(self._slots.items()):
            try:
                with self._dropping_if_damaged(number):
                    found.append(step(slot))
            except sqlite3.DatabaseError as failed:
                if not is_corruption(failed):
                    raise
        return found

    @contextmanager
    def _dropping_if_damaged(self, number: int) -> Iterator[None]:
        """Give up a slot whose file is found damaged: the next turns use another."""
        try:
            yield
        except sqlite3.DatabaseError as failed:
            slot = self._slots.get(number)
            if slot is not None and is_corruption(failed):
                del self._slots[number]
                slot.release()
                self._own = None if slot is self._own else self._own
                self._mark_unreadable(number)
            raise

    def _mark_unreadable(self, number: int) -> None:
        """Leave an unreadable file alone: only the turns in it are not replayed."""
        if number not in self._unreadable:
            self._unreadable.add(number)
            _log.warning("file %s.db of the journal cannot be read: turns in it are not replayed", number)

    def _open_own_file(self) -> tuple[Slot, int]:
        make_folder(self.folder)
        slot = next(iter(self._slots.values()), None) or acquire_free_file(self.folder)
        last = slot.last()
        self._own = self._slots[slot.number] = slot
        return slot, last

    def _adopt_files(self) -> list[tuple[Slot, list[tuple[int, bytes, int]], JournalCounts]]:
        found = []
        numbers = file_numbers(self.folder)
        self._unreadable.intersection_update(numbers)
        for number in numbers:
            slot = self._try_adopt(number) if number not in self._slots else None
            if slot is None:
                continue
            self._unreadable.discard(number)
            if slot.tidy():
                slot.release()
            else:
                found.append((slot, slot.waiting(), slot.counts()))
        return found

    def _try_adopt(self, number: int) -> Slot | None:
        """Lock the slot of a dead process, if it is one and readable."""
        try:
            slot = acquire_file(self.folder, number)
        except (sqlite3.Error, OSError):
            self._mark_unreadable(number)
            return None
        if slot is None or slot.readable:
            return slot
        slot.release()
        self._mark_unreadable(number)
        return None

    def _read_quarantined(self, place: tuple[int, int], limit: int) -> list[JournalRow]:
        rows = list[JournalRow]()
        for number in sorted(number for number in self._slots if number >= place[0]):
            after = place[1] if number == place[0] else 0
            with self._dropping_if_damaged(number):
                rows += self._slots[number].quarantined(after, limit - len(rows))
        return rows[:limit]

    def _tidy_file(self, slot: Slot, before: datetime | None) -> None:
        if before is not None and slot.exists:
            slot.write([RowWrite(DELETE_QUARANTINED, (to_micros(before),))])
        if slot.tidy() and slot is not self._own:
            del self._slots[slot.number]
            slot.release()

    def _release_files(self) -> None:
        for slot in self._slots.values():
            with suppress(sqlite3.Error, OSError, Unavailable):
                slot.tidy()
            slot.release()
        self._slots.clear()
