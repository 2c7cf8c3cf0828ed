"""A folder that the simulated processes of a machine share, with what is in it when they die."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tenuto.stores.engine.journal import Row, Shelf
from tenuto.stores.engine.record import Record

if TYPE_CHECKING:
    from tests.simulation.world import Host


@dataclass
class SimFolder:
    """What is on the disk of the machine, and what its shared memory says."""

    is_down: bool = False
    shelves: dict[bytes, Shelf] = field(default_factory=dict)
    order: list[bytes] = field(default_factory=list)
    revisions: dict[bytes, int] = field(default_factory=dict)
    votes: dict[str, bool] = field(default_factory=dict)
    locks: dict[bytes, str] = field(default_factory=dict)
    views: dict[str, FolderView] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(len(shelf.rows) for shelf in self.shelves.values())

    def leave(self, name: str) -> None:
        """A process died: its locks and its vote go with it."""
        self.views.pop(name, None)
        self.votes.pop(name, None)
        self.locks = {key: holder for key, holder in self.locks.items() if holder != name}
        self.count_votes()

    def count_votes(self) -> None:
        if not self.is_down and self.views and all(self.votes.get(name) for name in self.views):
            self.is_down = True
            for view in self.views.values():
                view.on_down()


class FolderView:
    """The folder as one process sees it."""

    def __init__(self, folder: SimFolder, host: Host) -> None:
        assert host.process is not None
        self._folder = folder
        self._host = host
        self.name = host.process.name
        folder.views[self.name] = self

    @property
    def is_down(self) -> bool:
        return self._folder.is_down

    def is_fenced(self, key: bytes) -> bool:
        shelf = self._folder.shelves.get(key)
        return shelf is not None and bool(shelf.rows)

    def shelf(self, key: bytes) -> Shelf | None:
        shelf = self._folder.shelves.get(key)
        return shelf if shelf is not None and (shelf.rows or self.is_current(key, shelf.base)) else None

    def fenced_keys(self) -> tuple[bytes, ...]:
        return tuple(key for key in self._folder.order if self.is_fenced(key))

    def note(self, key: bytes, revision: int) -> None:
        self._folder.revisions[key] = revision

    def is_current(self, key: bytes, record: Record) -> bool:
        return self._folder.revisions.get(key, record.revision) == record.revision

    def offer(self, key: bytes, record: Record) -> None:
        if not self.is_current(key, record):
            return
        shelf = self._folder.shelves.get(key)
        if shelf is None or shelf.base.revision != record.revision:
            self._folder.shelves[key] = Shelf(base=record, rows=shelf.rows if shelf is not None else ())

    async def append(self, key: bytes, base: Record, row: Row) -> bool:
        await asyncio.sleep(self._host.world.disk_delay())
        folder = self._folder
        shelf = folder.shelves.get(key) or Shelf(base=base)
        newest = shelf.rows[-1].number if shelf.rows else 0
        if not folder.is_down or row.number != newest + 1 or shelf.base.revision != base.revision:
            return False
        folder.shelves[key] = replace(shelf, rows=(*shelf.rows, row))
        if key not in folder.order:
            folder.order.append(key)
        self._host.world.event("row", self._host)
        await asyncio.sleep(self._host.world.disk_delay())
        return True

    async def remove(self, key: bytes, number: int, base: Record) -> None:
        await asyncio.sleep(self._host.world.disk_delay())
        shelf = self._folder.shelves[key]
        left = tuple(row for row in shelf.rows if row.number > number)
        self._host.world.event("replayed", self._host)
        if left:
            self._folder.shelves[key] = Shelf(base=base, rows=left)
        else:
            del self._folder.shelves[key]
            self._folder.order.remove(key)

    def lock(self, key: bytes) -> bool:
        if key in self._folder.locks:
            return False
        self._folder.locks[key] = self.name
        return True

    def unlock(self, key: bytes) -> None:
        if self._folder.locks.get(key) == self.name:
            del self._folder.locks[key]

    def vote(self, is_away: bool) -> None:
        self._folder.votes[self.name] = is_away
        self._folder.count_votes()

    def ask(self) -> None:
        """Votes given before count no more; each process is asked in a moment of its own."""
        self._folder.votes.clear()
        for view in self._folder.views.values():
            if view is not self:
                view.on_asked()

    def is_refuted(self) -> bool:
        return any(vote is False for vote in self._folder.votes.values())

    def reopen(self) -> None:
        self._folder.is_down = False
        self._folder.votes.clear()
        for key in [key for key, shelf in self._folder.shelves.items() if not shelf.rows]:
            del self._folder.shelves[key]

    # What the process hears of

    def on_down(self) -> None:
        self._host.world.tell(self._host.name, "the store is away")
        self._host.run_soon(lambda journal: journal.offer_all())

    def on_asked(self) -> None:
        self._host.run_soon(lambda journal: journal.answer_vote())
