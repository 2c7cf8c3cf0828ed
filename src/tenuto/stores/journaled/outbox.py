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
from tenuto.stores.journaled.rows import Raw
from tenuto.stores.journaled.slots import (
    JournalCounts,
    Slot,
    Write,
    added,
    closed,
    erased,
    is_damage,
    make_folder,
    numbers_in,
    outdated,
    put_aside,
    removed,
    standing,
    take,
    take_slot,
    translated,
    tried,
    untried,
)

_Answer = TypeVar("_Answer")
_log = logging.getLogger(__name__)


class _Job(NamedTuple):
    """A change that waits to be written, and who waits for it."""

    slot: int
    write: Write
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
        self._queue: list[_Job] = []
        self._writing = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tenuto-journal")

    @classmethod
    async def open(cls, folder: str | Path) -> Self:
        """Have the outbox in that folder, with the rows of processes that have died. Makes no file.

        A folder that cannot be written is told in a warning: nothing can be journaled then.
        """
        outbox = cls(Path(folder))
        try:
            await outbox._do(lambda: make_folder(outbox.folder))
            await outbox.adopt()
        except Unavailable:
            _log.warning("the journal's folder cannot be used: while the store is away, turns are refused")
        return outbox

    async def close(self) -> None:
        """Let go of the slots; rows stay where they are."""
        while self._writing:  # noqa: ASYNC110 (a write that is under way ends by itself)
            await asyncio.sleep(0.001)
        try:
            await self._do(self._release)
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

    def holds(self, session: bytes) -> bool:
        """Whether rows of this session wait."""
        return session in self._waiting

    async def number(self) -> tuple[int, int]:
        """The slot and number for a new row.

        Raises:
            Unavailable: there is nowhere to write it.
        """
        async with self._taking:
            own = self._own or await self._taken()
        self._last += 1
        return own.number, self._last

    async def add(self, raw: Raw) -> None:
        """Put a row in; it is on disk when this returns.

        Raises:
            Unavailable: it is not.
        """
        await self._write(raw.slot, added(raw))
        self._waiting.setdefault(raw.session, set()).add((raw.slot, raw.number))

    async def close_turn(self, slot: int, number: int, closing: str) -> bool:
        """Add how a turn ended; False when the row is gone, as an erasure by another process takes it."""
        return bool(await self._write(slot, closed(number, closing)))

    async def rows(self, session: bytes) -> list[Raw]:
        """A session's rows: each slot's in their order, slots in the order in which they were begun."""
        found = [rows for rows in await self._do(lambda: self._rows(session)) if rows]
        found.sort(key=lambda rows: rows[0].begun_at)
        rows = [raw for each in found for raw in each]
        if rows:
            self._waiting[session] = {(raw.slot, raw.number) for raw in rows}
        else:
            self._waiting.pop(session, None)
        return rows

    async def row(self, slot: int, number: int) -> Raw | None:
        """A row that waits, as it is now; `None` when it is gone."""
        return await self._do(lambda: self._row(slot, number))

    async def lacks_some(self, session: bytes) -> bool:
        """Whether rows of a session are gone that nobody here has taken out.

        Another process has erased somebody then, or their file was given up.
        """
        before = frozenset(self._waiting.get(session, ()))
        now = {place for places in await self._do(lambda: self._places(session)) for place in places}
        if before <= now:
            return False
        await self.rows(session)
        return True

    async def note_refused(self, raw: Raw) -> None:
        """Note that the store has nothing of a turn that it was asked for."""
        await self._write(raw.slot, untried(raw.number))

    async def note_tried(self, raw: Raw, seq: int) -> bool:
        """Note that the store is asked for a turn now; False when the row is gone."""
        return bool(await self._write(raw.slot, tried(raw.number, seq)))

    async def note_standing(self, session: bytes, incarnation: str) -> None:
        """Note that a session which was opened here has come to the store."""
        for slot in {slot for slot, _ in self._waiting.get(session, ())}:
            await self._write(slot, standing(session, incarnation))

    async def set_aside_next(self, limit: int) -> list[Raw]:
        """The next few rows that were set aside, round and round."""
        rows = await self._do(lambda: self._set_aside_behind(self._looked, limit))
        self._looked = (rows[-1].slot, rows[-1].number) if len(rows) == limit else (0, 0)
        return rows

    async def remove(self, raw: Raw) -> None:
        """Take a row out."""
        await self._write(raw.slot, removed(raw.number))
        self._no_longer_waits(raw)

    async def set_aside(self, raw: Raw, why: str, when: datetime) -> None:
        """Keep a row that the store can never take, out of the way of the others."""
        await self._write(raw.slot, put_aside(raw.number, why, when))
        self._no_longer_waits(raw)
        self._aside += 1

    async def tidy(self, before: datetime | None = None) -> None:
        """Let files go that hold nothing, and what was set aside `before`."""
        self._aside = await self._do(lambda: self._tidied(before))

    async def adopt(self) -> None:
        """Take over the slots of processes that have died."""
        for slot, waiting, counts in await self._do(self._adopted):
            self._slots[slot.number] = slot
            self._aside += counts.aside
            for number, session in waiting:
                self._waiting.setdefault(session, set()).add((slot.number, number))

    async def erase(self, tenant: str, site: str, person: str) -> int:
        """Delete a person's rows in every slot of the folder; tells how many there were."""
        if not self.folder.is_dir():
            return 0
        try:
            return await self._do(lambda: erased(self.folder, tenant, site, person, self._cannot_read))
        finally:
            for session in list(self._waiting):
                await self.rows(session)
            self._aside = await self._do(self._counted_aside)

    # What is inside

    async def _taken(self) -> Slot:
        slot, last = await self._do(self._take)
        self._last = max(self._last, last)
        return slot

    def _no_longer_waits(self, raw: Raw) -> None:
        rest = self._waiting.get(raw.session, set())
        rest.discard((raw.slot, raw.number))
        if not rest:
            self._waiting.pop(raw.session, None)

    async def _do(self, step: Callable[[], _Answer]) -> _Answer:
        """Run a step on the thread."""

        def told() -> _Answer:
            with translated():
                return step()

        return await asyncio.get_running_loop().run_in_executor(self._thread, told)

    async def _write(self, slot: int, write: Write) -> int:
        job = _Job(slot, write, asyncio.get_running_loop().create_future())
        self._queue.append(job)
        if not self._writing:
            self._start()
        return await job.done

    def _start(self) -> None:
        jobs, self._queue = self._queue, []
        self._writing = True
        work = asyncio.get_running_loop().run_in_executor(self._thread, self._written, jobs)
        work.add_done_callback(lambda done: self._told(jobs, done))

    def _told(self, jobs: list[_Job], done: asyncio.Future[dict[int, list[int] | Exception]]) -> None:
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
            self._start()

    # On the thread

    def _written(self, jobs: list[_Job]) -> dict[int, list[int] | Exception]:
        """What each slot says to its changes: one that fails takes no other's along."""
        met: dict[int, list[int] | Exception] = {}
        for number in {job.slot for job in jobs}:
            try:
                with translated(), self._giving_up(number):
                    met[number] = self._held(number).write([job.write for job in jobs if job.slot == number])
            except Exception as failed:
                met[number] = failed  # Whoever waits is told.
        return met

    def _held(self, number: int) -> Slot:
        slot = self._slots.get(number)
        if slot is None:
            raise Unavailable("journal", "has given that file up")
        return slot

    def _each(self, step: Callable[[Slot], _Answer]) -> list[_Answer]:
        """What a step brings of every slot; one that is damaged is given up, and brings nothing."""
        found = list[_Answer]()
        for number, slot in list(self._slots.items()):
            try:
                with self._giving_up(number):
                    found.append(step(slot))
            except sqlite3.DatabaseError as failed:
                if not is_damage(failed):
                    raise
        return found

    @contextmanager
    def _giving_up(self, number: int) -> Iterator[None]:
        """Go on without a slot whose file is found damaged: the next turns find another."""
        try:
            yield
        except sqlite3.DatabaseError as failed:
            slot = self._slots.get(number)
            if slot is not None and is_damage(failed):
                del self._slots[number]
                slot.release()
                self._own = None if slot is self._own else self._own
                self._cannot_read(number)
            raise

    def _cannot_read(self, number: int) -> None:
        """Leave a file alone that cannot be read: it stops nobody's turns but those in it."""
        if number not in self._unreadable:
            self._unreadable.add(number)
            _log.warning("file %s.db of the journal cannot be read: turns in it are not replayed", number)

    def _rows(self, session: bytes) -> list[list[Raw]]:
        return self._each(lambda slot: slot.rows(session))

    def _places(self, session: bytes) -> list[list[tuple[int, int]]]:
        return self._each(lambda slot: [(slot.number, number) for number in slot.numbers(session)])

    def _row(self, slot: int, number: int) -> Raw | None:
        with self._giving_up(slot):
            return self._slots[slot].row(number) if slot in self._slots else None

    def _take(self) -> tuple[Slot, int]:
        make_folder(self.folder)
        slot = next(iter(self._slots.values()), None) or take_slot(self.folder)
        last = slot.last()
        self._own = self._slots[slot.number] = slot
        return slot, last

    def _adopted(self) -> list[tuple[Slot, list[tuple[int, bytes]], JournalCounts]]:
        found = []
        numbers = numbers_in(self.folder)
        self._unreadable.intersection_update(numbers)
        for number in numbers:
            slot = self._abandoned(number) if number not in self._slots else None
            if slot is None:
                continue
            self._unreadable.discard(number)
            if slot.tidy():
                slot.release()
            else:
                found.append((slot, slot.waiting(), slot.counts()))
        return found

    def _abandoned(self, number: int) -> Slot | None:
        """A slot that nobody holds any more; it is held from now on."""
        try:
            slot = take(self.folder, number)
        except (sqlite3.Error, OSError):
            self._cannot_read(number)
            return None
        if slot is None or slot.readable:
            return slot
        slot.release()
        self._cannot_read(number)
        return None

    def _set_aside_behind(self, place: tuple[int, int], limit: int) -> list[Raw]:
        rows = list[Raw]()
        for number in sorted(number for number in self._slots if number >= place[0]):
            after = place[1] if number == place[0] else 0
            with self._giving_up(number):
                rows += self._slots[number].aside(after, limit - len(rows))
        return rows[:limit]

    def _tidied(self, before: datetime | None) -> int:
        self._each(lambda slot: self._tidy(slot, before))
        return self._counted_aside()

    def _tidy(self, slot: Slot, before: datetime | None) -> None:
        if before is not None and slot.exists:
            slot.write([outdated(before)])
        if slot.tidy() and slot is not self._own:
            del self._slots[slot.number]
            slot.release()

    def _counted_aside(self) -> int:
        return sum(counts.aside for counts in self._each(Slot.counts))

    def _release(self) -> None:
        for slot in self._slots.values():
            with suppress(sqlite3.Error, OSError, Unavailable):
                slot.tidy()
            slot.release()
        self._slots.clear()
