"""The contract of a journal's folder: on a disk, and in the simulator, which else would simulate what nobody has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from tenuto.model import Scope
from tenuto.stores.engine.journal_files import DiskFolder
from tenuto.stores.engine.journal_folder import ALWAYS, JournalCounts, JournalFolder, Offer, StoredBase, StoredRow
from tests.simulation.disk import FolderView, SimFolder
from tests.timeouts import LONG

KEY, OTHER = b"k" * 16, b"o" * 16
SITE = Scope(tenant="acme")
BASE = StoredBase(revision=7, incarnation="first", body=b"base")
LATER = StoredBase(revision=9, incarnation="first", body=b"later")


class Machine(Protocol):
    """Where processes of one folder live."""

    async def join(self) -> Any:
        """Another process."""
        ...

    async def kill(self, folder: Any) -> None:
        """The end of one, as it is seen by the others."""
        ...


class DiskMachine:
    """Each folder is that of a process: locks exclude each other inside one, too."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.folders = list[DiskFolder]()

    async def join(self) -> DiskFolder:
        folder = await DiskFolder.open(self._path)
        self.folders.append(folder)
        return folder

    async def kill(self, folder: DiskFolder) -> None:
        self.folders.remove(folder)
        await folder.close()


class SimMachine:
    def __init__(self) -> None:
        self._folder = SimFolder()
        self._count = 0

    async def join(self) -> FolderView:
        self._count += 1
        return FolderView(self._folder, f"process{self._count}")

    async def kill(self, folder: FolderView) -> None:
        self._folder.leave(folder.name)


@pytest.fixture(params=["disk", "simulated"])
async def machine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Machine]:
    if request.param == "simulated":
        yield SimMachine()
        return
    disk = DiskMachine(tmp_path / "journal")
    yield disk
    for folder in tuple(disk.folders):
        await disk.kill(folder)


def row(
    number: int, *, at: int = 0, turn: str = "t", users: tuple[str, ...] = ("ann",), body: bytes = b"row"
) -> StoredRow:
    return StoredRow(number=number, session_id="s", turn=turn, at=at, users=users, body=body)


def offer(key: bytes, base: StoredBase = BASE, site: Scope = SITE) -> Offer:
    return Offer(key=key, site=site, base=base)


async def go_down(*folders: JournalFolder) -> None:
    """All processes say that the store is away."""
    folders[0].ask()
    for folder in folders:
        folder.vote(True)
    assert await folders[0].is_agreed()


async def test_rows_are_added_in_turn_and_only_in_an_outage(machine: Machine) -> None:
    first, second = await machine.join(), await machine.join()

    early = await first.append(KEY, SITE, BASE, row(1))
    await go_down(first, second)
    added = [await folder.append(KEY, SITE, BASE, row(number)) for folder, number in ((first, 1), (second, 2))]
    refused = [
        await first.append(KEY, SITE, BASE, row(2)),
        await first.append(KEY, SITE, BASE, row(4)),
        await first.append(KEY, SITE, LATER, row(3)),
    ]
    session, newest = await second.read_session(KEY), await second.read_session(KEY, 2)
    await second.reopen()

    assert (early, added, refused) == (False, [True, True], [False, False, False])
    assert session is not None
    assert newest is not None
    assert (session.site, session.base, session.rows, newest.rows) == (SITE, BASE, (row(1), row(2)), (row(2),))
    assert not await first.append(KEY, SITE, BASE, row(3))
    assert (first.is_down, first.may_have_rows, await first.fenced_keys()) == (False, True, (KEY,))


async def test_rows_that_are_stored_are_removed_and_the_others_go_on(machine: Machine) -> None:
    first, second = await machine.join(), await machine.join()
    await go_down(first, second)
    for key, number in ((OTHER, 1), (KEY, 1), (OTHER, 2), (KEY, 2)):
        await first.append(key, SITE, BASE, row(number))

    fenced = await second.fenced_keys()
    await second.remove(OTHER, 2, LATER)
    await second.remove(KEY, 1, LATER)
    session = await first.read_session(KEY)

    assert fenced == (OTHER, KEY)
    assert session is not None
    assert (session.base, session.rows) == (LATER, (row(2),))
    assert (await first.read_session(OTHER), await first.fenced_keys()) == (None, (KEY,))


async def test_a_record_is_left_for_the_others_as_long_as_it_is_current(machine: Machine) -> None:
    first, second = await machine.join(), await machine.join()
    first.note(KEY, 7, "first")
    first.note(OTHER, 9, "first")
    await go_down(first, second)

    pending = second.are_offers_complete
    await first.offer([offer(KEY), offer(OTHER)])
    first.mark_offered()
    left, stale = await second.read_session(KEY), await second.read_session(OTHER)
    second.note(KEY, 8, "first")
    outdated = await first.read_session(KEY)
    await second.append(OTHER, SITE, LATER, row(1))
    await first.offer([offer(OTHER, LATER)])
    await first.reopen()

    assert left is not None
    assert (pending, second.are_offers_complete) == (False, True)
    assert (left.base, left.rows, stale, outdated) == (BASE, (), None, None)
    kept = await first.read_session(OTHER)
    assert kept is not None
    assert (kept.base, kept.rows) == (LATER, (row(1),))


@pytest.mark.parametrize(
    ("notes", "current"),
    [
        ([], (7, "first")),
        ([(7, "first")], (7, "first")),
        ([(7, "first"), (9, "first"), (8, "first")], (9, "first")),
        ([(9, "first"), (3, "second")], (3, "second")),
        ([(9, "first"), (0, ""), (5, "second")], (5, "second")),
    ],
)
async def test_the_latest_noted_revision_is_current(
    machine: Machine, notes: list[tuple[int, str]], current: tuple[int, str]
) -> None:
    first, second = await machine.join(), await machine.join()

    for revision, incarnation in notes:
        first.note(KEY, revision, incarnation)

    assert second.is_current(KEY, *current)
    assert (second.is_noted(KEY), second.is_noted(OTHER)) == (bool(notes), False)
    assert [second.is_current(KEY, *other) for other in notes if other != current] == [False] * max(0, len(notes) - 1)


async def test_all_living_processes_must_agree(machine: Machine) -> None:
    first, second, third = [await machine.join() for _ in range(3)]
    seen = list[bool | None]()

    second.vote(True)
    first.ask()
    for folder in (first, third):
        folder.vote(True)
    seen.append(await first.is_agreed())  # What the second said was said before.
    second.vote(False)
    seen.append(await first.is_agreed())
    first.ask()
    first.vote(True)
    third.vote(True)
    seen.append(await third.is_agreed())
    await machine.kill(second)
    seen.append(await third.is_agreed())

    assert seen == [None, False, None, True]
    assert (first.is_down, third.is_down) == (True, True)


async def test_a_session_is_replayed_by_one_living_process(machine: Machine) -> None:
    first, second = await machine.join(), await machine.join()
    await go_down(first, second)
    await first.append(KEY, SITE, BASE, row(1))

    locked = [await first.lock(KEY), await first.lock(KEY), await second.lock(KEY)]
    await first.unlock(KEY)
    locked += [await second.lock(KEY), await first.lock(KEY)]
    await machine.kill(second)
    locked += [await first.lock(KEY)]

    assert locked == [True, False, False, True, False, True]


async def test_what_can_never_be_stored_is_set_aside_and_counted(machine: Machine) -> None:
    folder = await machine.join()
    await go_down(folder)
    for number, turn in ((1, "one"), (2, "two"), (3, "two")):
        await folder.append(KEY, SITE, BASE, row(number, at=number, turn=turn))

    await folder.set_aside(KEY, row(1, at=1, turn="one"), "torn", 100)
    session = await folder.read_session(KEY)
    await folder.reopen()
    counts = folder.counts
    for number in (2, 3):
        await folder.set_aside(KEY, row(number, at=number, turn="two"), "torn", 200)
    empty = await folder.read_session(KEY), await folder.fenced_keys()
    users = await folder.users_aside()
    await folder.purge(150)
    await folder.reopen()

    assert session is not None
    assert (session.base, [one.number for one in session.rows], empty) == (BASE, [2, 3], (None, ()))
    assert (counts, users) == (JournalCounts(waiting=1, oldest=2, quarantined=1), ((SITE, "ann"),))
    assert folder.counts == JournalCounts(quarantined=1)


async def test_a_row_with_the_number_of_one_that_was_set_aside_stays(machine: Machine) -> None:
    """Two processes read the same torn row, and the second one sets it aside after a turn has taken its number."""
    first, second = await machine.join(), await machine.join()
    await go_down(first, second)
    torn, later = row(1, at=1, turn="one"), row(1, at=2, turn="two")
    await first.append(KEY, SITE, BASE, torn)

    await first.set_aside(KEY, torn, "torn", 100)
    await first.append(KEY, SITE, BASE, later)
    await second.set_aside(KEY, torn, "torn", 101)

    session = await second.read_session(KEY)
    assert session is not None
    assert [one.turn for one in session.rows] == ["two"]


async def test_an_erasure_removes_what_is_left_of_a_user(machine: Machine) -> None:
    folder = await machine.join()
    await go_down(folder)
    elsewhere = Scope(tenant="other")
    await folder.append(KEY, SITE, BASE, row(1, at=1, users=("ann", "bob")))
    await folder.append(KEY, SITE, BASE, row(2, at=2, users=("bob",)))
    await folder.append(KEY, SITE, BASE, row(3, at=9, users=("ann",)))
    await folder.append(OTHER, elsewhere, BASE, row(1, users=("ann",)))
    await folder.offer([offer(b"s" * 16), offer(b"e" * 16, site=elsewhere)])

    keys = await folder.keys_of_user(SITE, "ann")
    early = await folder.erase(SITE, "ann", 5)
    await folder.set_aside(KEY, row(3, at=9), "torn", 100)
    rest = await folder.erase(SITE, "ann", ALWAYS)
    session = await folder.read_session(KEY)

    assert (keys, early, rest) == ((KEY,), 1, 1)
    assert session is not None
    assert [one.number for one in session.rows] == [2]
    assert await folder.read_session(b"s" * 16) is None
    assert await folder.read_session(b"e" * 16) is not None
    assert await folder.read_session(OTHER) is not None


async def test_with_the_last_process_goes_all_but_rows(machine: Machine) -> None:
    first, second = await machine.join(), await machine.join()
    first.note(KEY, 7, "first")
    await go_down(first, second)
    await first.append(KEY, SITE, BASE, row(1))
    await first.offer([offer(OTHER)])
    await machine.kill(first)
    down = second.is_down, await second.read_session(OTHER) is not None
    await machine.kill(second)

    third = await machine.join()
    session = await third.read_session(KEY)

    assert down == (True, True)
    assert (third.is_down, third.may_have_rows, third.is_noted(KEY), third.is_shared) == (False, True, False, False)
    assert session is not None
    assert (session.rows, await third.read_session(OTHER)) == ((row(1),), None)


async def test_processes_hear_of_each_other(machine: Machine) -> None:
    first, second = await machine.join(), await machine.join()
    heard, told = list[str](), asyncio.Event()

    async def hear(what: str) -> None:
        heard.append(what)
        told.set()

    async def next_news() -> None:
        async with asyncio.timeout(LONG):
            await told.wait()
        told.clear()

    watching = asyncio.create_task(first.watch(lambda: hear("asked"), lambda: hear("changed")))
    await asyncio.sleep(0)
    second.ask()
    await next_news()
    await _vote_down(first, second)
    await next_news()
    third = await machine.join()
    await next_news()
    await third.reopen()
    await next_news()
    watching.cancel()

    assert heard == ["asked", "changed", "changed", "changed"]


async def _vote_down(*folders: Any) -> None:
    for folder in folders:
        folder.vote(True)
    assert await folders[0].is_agreed()
