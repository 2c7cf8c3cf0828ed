"""The outbox: what was acknowledged while the store was away, on this machine's disk, in the order it was said.

All work with files happens on one thread beside the event loop. Changes that wait at the same time are written together
and share their way to the disk.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, Self, TypeVar

from tenuto.errors import Unavailable
from tenuto.stores.journaled.files import (
    JournalCounts,
    RowWrite,
    Slot,
    acquire_file,
    acquire_free_file,
    delete_quarantined,
    delete_row,
    erase_user_rows,
    file_numbers,
    insert_row,
    is_corruption,
    make_folder,
    reset_attempt,
    standing,
    translate_errors,
    update_attempt,
    update_finish,
    update_quarantined,
)
from tenuto.stores.journaled.rows import JournalRow

_Answer = TypeVar("_Answer")
_log = logging.getLogger(__name__)


class _PendingWrite(NamedTuple):
    """A change that waits to be written, and who waits for it."""

    slot: int
    write: RowWrite
    done: asyncio.Future[int]


class Outbox:
    """Rows of this process's slot, and of slots whose processes have died.

    What it knows without a look at the files, it knows by session key.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._slots: dict[int, Slot] = {}
        self._own: Slot | None = None
        self._last = 0
        self._waiting: dict[bytes, set[tuple[int, int]]] = {}
        self._aside = 0
        self._unreadable: set[int] = set()
        self._looked = (0, 0)
        self._taking = asyncio.Lock()
        self._queue: list[_PendingWrite] = []
        self._writing = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tenuto-journal")

    @classmethod
    async def open(cls, folder: str | Path) -> Self:
        """Have the outbox in that folder, with the rows of processes that have died. Makes no file.

        A folder that cannot be written is told in a warning: nothing can be journaled then.
        """
        outbox = cls(Path(folder))
        try:
            await outbox._run_on_thread(lambda: make_folder(outbox.folder))
            await outbox.adopt()
        except Unavailable:
            _log.warning("the journal's folder cannot be used: while the store is away, turns are refused")
        return outbox

    async def close(self) -> None:
        """Let go of the slots; rows stay where they are."""
        while self._writing:  # noqa: ASYNC110 (a write that is under way ends by itself)
            await asyncio.sleep(0.001)
        try:
            await self._run_on_thread(self._release_files)
        finally:
            self._thread.shutdown()

    @property
    def counts(self) -> JournalCounts:
        """How many rows there are in the slots that this process holds."""
        waiting = sum(map(len, self._waiting.values()))
        return JournalCounts(waiting=waiting, aside=self._aside, unreadable=len(self._unreadable))

    @property
    def sessions(self) -> tuple[bytes, ...]:
        """Whose rows wait, the longest first."""
        return tuple(self._waiting)

    def has_rows(self, session: bytes) -> bool:
        """Whether rows of this session wait."""
        return session in self._waiting

    async def number(self) -> tuple[int, int]:
        """The slot and number for a new row.

        Raises:
            Unavailable: there is nowhere to write it.
        """
        async with self._taking:
            own = self._own or await self._acquire_own_file()
        self._last += 1
        return own.number, self._last

    async def add(self, raw: JournalRow) -> None:
        """Put a row in; it is on disk when this returns.

        Raises:
            Unavailable: it is not.
        """
        await self._enqueue_write(raw.slot, insert_row(raw))
        self._waiting.setdefault(raw.session, set()).add((raw.slot, raw.number))

    async def close_turn(self, slot: int, number: int, closing: str) -> bool:
        """Add how a turn ended; False when the row is gone, as an erasure by another process takes it."""
        return bool(await self._enqueue_write(slot, update_finish(number, closing)))

    async def rows(self, session: bytes) -> list[JournalRow]:
        """A session's rows: each slot's in their order, slots in the order in which they were begun."""
        found = [rows for rows in await self._run_on_thread(lambda: self._rows(session)) if rows]
        found.sort(key=lambda rows: rows[0].begun_at)
        rows = [raw for each in found for raw in each]
        if rows:
            self._waiting[session] = {(raw.slot, raw.number) for raw in rows}
        else:
            self._waiting.pop(session, None)
        return rows

    async def row(self, slot: int, number: int) -> JournalRow | None:
        """A row that waits, as it is now; `None` when it is gone."""
        return await self._run_on_thread(lambda: self._read_row(slot, number))

    async def lacks_some(self, session: bytes) -> bool:
        """Whether rows of a session are gone that nobody here has taken out.

        Another process has erased somebody then, or their file was given up.
        """
        before = frozenset(self._waiting.get(session, ()))
        now = {
            place for places in await self._run_on_thread(lambda: self._read_row_places(session)) for place in places
        }
        if before <= now:
            return False
        await self.rows(session)
        return True

    async def clear_attempt(self, raw: JournalRow) -> None:
        """Note that the store has nothing of a turn that it was asked for."""
        await self._enqueue_write(raw.slot, reset_attempt(raw.number))

    async def record_attempt(self, raw: JournalRow, seq: int) -> bool:
        """Note that the store is asked for a turn now; False when the row is gone."""
        return bool(await self._enqueue_write(raw.slot, update_attempt(raw.number, seq)))

    async def record_incarnation(self, session: bytes, incarnation: str) -> None:
        """Note that a session which was opened here has come to the store."""
        for slot in {slot for slot, _ in self._waiting.get(session, ())}:
            await self._enqueue_write(slot, standing(session, incarnation))

    async def next_quarantined(self, limit: int) -> list[JournalRow]:
        """The next few rows that were set aside, round and round."""
        rows = await self._run_on_thread(lambda: self._read_quarantined(self._looked, limit))
        self._looked = (rows[-1].slot, rows[-1].number) if len(rows) == limit else (0, 0)
        return rows

    async def remove(self, raw: JournalRow) -> None:
        """Take a row out."""
        await self._enqueue_write(raw.slot, delete_row(raw.number))
        self._remove_pending(raw)

    async def quarantine_row(self, raw: JournalRow, why: str, when: datetime) -> None:
        """Keep a row that the store can never take, out of the way of the others."""
        await self._enqueue_write(raw.slot, update_quarantined(raw.number, why, when))
        self._remove_pending(raw)
        self._aside += 1

    async def tidy(self, before: datetime | None = None) -> None:
        """Let files go that hold nothing, and what was set aside `before`."""
        self._aside = await self._run_on_thread(lambda: self._tidy_files(before))

    async def adopt(self) -> None:
        """Take over the slots of processes that have died."""
        for slot, waiting, counts in await self._run_on_thread(self._adopt_files):
            self._slots[slot.number] = slot
            self._aside += counts.aside
            for number, session in waiting:
                self._waiting.setdefault(session, set()).add((slot.number, number))

    async def erase(self, tenant: str, site: str, person: str) -> int:
        """Delete a person's rows in every slot of the folder; tells how many there were."""
        if not self.folder.is_dir():
            return 0
        try:
            return await self._run_on_thread(
                lambda: erase_user_rows(self.folder, tenant, site, person, self._mark_unreadable)
            )
        finally:
            for session in list(self._waiting):
                await self.rows(session)
            self._aside = await self._run_on_thread(self._count_quarantined)

    # What is inside

    async def _acquire_own_file(self) -> Slot:
        slot, last = await self._run_on_thread(self._open_own_file)
        self._last = max(self._last, last)
        return slot

    def _remove_pending(self, raw: JournalRow) -> None:
        rest = self._waiting.get(raw.session, set())
        rest.discard((raw.slot, raw.number))
        if not rest:
            self._waiting.pop(raw.session, None)

    async def _run_on_thread(self, step: Callable[[], _Answer]) -> _Answer:
        """Run a step on the thread."""

        def run_step() -> _Answer:
            with translate_errors():
                return step()

        return await asyncio.get_running_loop().run_in_executor(self._thread, run_step)

    async def _enqueue_write(self, slot: int, write: RowWrite) -> int:
        job = _PendingWrite(slot, write, asyncio.get_running_loop().create_future())
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
                continue  # Nobody waits any more.
            if isinstance(said, Exception):
                job.done.set_exception(said)
            else:
                job.done.set_result(said)
        self._writing = False
        if self._queue:
            self._start_writing()

    # On the thread

    def _write_batch(self, jobs: list[_PendingWrite]) -> dict[int, list[int] | Exception]:
        """What each slot says to its changes: one that fails takes no other's along."""
        met: dict[int, list[int] | Exception] = {}
        for number in {job.slot for job in jobs}:
            try:
                with translate_errors(), self._dropping_if_damaged(number):
                    met[number] = self._require_file(number).write([job.write for job in jobs if job.slot == number])
            except Exception as failed:
                met[number] = failed  # Whoever waits is told.
        return met

    def _require_file(self, number: int) -> Slot:
        slot = self._slots.get(number)
        if slot is None:
            raise Unavailable("journal", "has given that file up")
        return slot

    def _for_each_file(self, step: Callable[[Slot], _Answer]) -> list[_Answer]:
        """What a step brings of every slot; one that is damaged is given up, and brings nothing."""
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
        """Go on without a slot whose file is found damaged: the next turns find another."""
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
        """Leave a file alone that cannot be read: it stops nobody's turns but those in it."""
        if number not in self._unreadable:
            self._unreadable.add(number)
            _log.warning("file %s.db of the journal cannot be read: turns in it are not replayed", number)

    def _rows(self, session: bytes) -> list[list[JournalRow]]:
        return self._for_each_file(lambda slot: slot.rows(session))

    def _read_row_places(self, session: bytes) -> list[list[tuple[int, int]]]:
        return self._for_each_file(lambda slot: [(slot.number, number) for number in slot.numbers(session)])

    def _read_row(self, slot: int, number: int) -> JournalRow | None:
        with self._dropping_if_damaged(slot):
            return self._slots[slot].row(number) if slot in self._slots else None

    def _open_own_file(self) -> tuple[Slot, int]:
        make_folder(self.folder)
        slot = next(iter(self._slots.values()), None) or acquire_free_file(self.folder)
        last = slot.last()
        self._own = self._slots[slot.number] = slot
        return slot, last

    def _adopt_files(self) -> list[tuple[Slot, list[tuple[int, bytes]], JournalCounts]]:
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
        """A slot that nobody holds any more; it is held from now on."""
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
                rows += self._slots[number].aside(after, limit - len(rows))
        return rows[:limit]

    def _tidy_files(self, before: datetime | None) -> int:
        self._for_each_file(lambda slot: self._tidy_file(slot, before))
        return self._count_quarantined()

    def _tidy_file(self, slot: Slot, before: datetime | None) -> None:
        if before is not None and slot.exists:
            slot.write([delete_quarantined(before)])
        if slot.tidy() and slot is not self._own:
            del self._slots[slot.number]
            slot.release()

    def _count_quarantined(self) -> int:
        return sum(counts.aside for counts in self._for_each_file(Slot.counts))

    def _release_files(self) -> None:
        for slot in self._slots.values():
            with suppress(sqlite3.Error, OSError, Unavailable):
                slot.tidy()
            slot.release()
        self._slots.clear()
