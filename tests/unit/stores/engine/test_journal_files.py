"""The files of a journal's folder: what is refused, left as it is, overwritten, and forgotten."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from tenuto.errors import Unavailable
from tenuto.model import Scope
from tenuto.stores.engine.journal_files import DiskFolder, count_journal, files
from tenuto.stores.engine.journal_files.shared import SharedMemory
from tenuto.stores.engine.journal_folder import JournalCounts, StoredBase, StoredRow

SITE = Scope(tenant="acme")
BASE = StoredBase(revision=7, incarnation="first", body=b"base")


def row(number: int, body: bytes = b"row") -> StoredRow:
    return StoredRow(number=number, session_id="s", turn=str(number), at=number, users=("ann",), body=body)


async def down(path: Path) -> DiskFolder:
    folder = await DiskFolder.open(path)
    folder.ask()
    folder.vote(True)
    assert await folder.is_agreed()
    return folder


def _set_version(path: Path) -> None:
    with closing(sqlite3.connect(path / "journal.db")) as db:
        db.execute("PRAGMA user_version = 99")


def _damage(path: Path) -> None:
    (path / "journal.db").write_bytes(b"no database" * 100)


@pytest.mark.parametrize(("spoil", "why"), [(_set_version, "newer release"), (_damage, "damaged")])
async def test_a_file_that_cannot_be_read_is_left_as_it_is(tmp_path: Path, spoil: object, why: str) -> None:
    folder = await down(tmp_path)
    await folder.append(b"k", SITE, BASE, row(1))
    await folder.close()
    assert callable(spoil)
    spoil(tmp_path)
    before = (tmp_path / "journal.db").read_bytes()

    with pytest.raises(Unavailable, match=why):
        await DiskFolder.open(tmp_path)

    assert count_journal(tmp_path) == JournalCounts(unreadable=1)
    assert (tmp_path / "journal.db").read_bytes() == before


async def test_processes_of_two_releases_do_not_share_memory(tmp_path: Path) -> None:
    folder = await DiskFolder.open(tmp_path)
    (tmp_path / "shared").write_bytes(b"another format")

    with pytest.raises(Unavailable, match="another release"):
        await DiskFolder.open(tmp_path)

    await folder.close()
    await (await DiskFolder.open(tmp_path)).close()


async def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(Unavailable, match="journal"):
        await DiskFolder.open(tmp_path / "file" / "journal")


async def test_a_full_disk_refuses_a_row_and_keeps_those_before(tmp_path: Path) -> None:
    folder = await down(tmp_path)
    await folder.append(b"k", SITE, BASE, row(1))

    def limit(db: sqlite3.Connection, more: int) -> None:
        (pages,) = db.execute("PRAGMA page_count").fetchone()
        db.execute(f"PRAGMA max_page_count = {pages + more}")

    await folder._thread.run(lambda db: limit(db, 0))
    with pytest.raises(Unavailable, match="no space left"):
        await folder.append(b"k", SITE, BASE, row(2, b"x" * 100_000))
    session = await folder.read_session(b"k")
    await folder._thread.run(lambda db: limit(db, 100))
    added = await folder.append(b"k", SITE, BASE, row(2, b"x" * 100_000))
    await folder.close()

    assert session is not None
    assert (len(session.rows), added, count_journal(tmp_path)) == (1, True, JournalCounts(waiting=2, oldest=1))


async def test_only_the_owner_reads_it_and_nothing_remains(tmp_path: Path) -> None:
    path = tmp_path / "new" / "journal"
    folder = await down(path)
    await folder.append(b"k", SITE, StoredBase(revision=7, body=b"secret base"), row(1, b"secret row"))
    modes = {file.name: oct(file.stat().st_mode & 0o777) for file in (path, *path.iterdir())}
    stored = (path / "journal.db").read_bytes()
    await folder.remove(b"k", 1, BASE)
    await folder.close()
    left = b"".join(file.read_bytes() for file in path.iterdir())

    assert modes.pop("journal") == "0o700"
    assert set(modes.values()) == {"0o600"}
    assert b"secret" in stored
    assert b"secret" not in left


async def test_a_row_whose_users_cannot_be_read_goes_with_the_first_user(tmp_path: Path) -> None:
    folder = await down(tmp_path)
    await folder.append(b"k", SITE, BASE, row(1))
    await folder._thread.run(lambda db: db.execute("UPDATE row SET users = '['").rowcount)

    session = await folder.read_session(b"k")
    erased = await folder.erase(SITE, "bob", 5)
    await folder.close()

    assert session is not None
    assert (session.rows[0].users, erased) == ((), 1)


async def test_the_counts_are_those_of_the_rows_whatever_becomes_of_them(tmp_path: Path) -> None:
    folder, chance, now = await down(tmp_path), Random(1), 0

    def count(db: sqlite3.Connection) -> tuple[JournalCounts, JournalCounts]:
        waiting, oldest, aside = db.execute(
            "SELECT count(DISTINCT turn) FILTER (WHERE aside IS NULL), min(at) FILTER (WHERE aside IS NULL), "
            "count(DISTINCT turn) FILTER (WHERE aside IS NOT NULL) FROM row"
        ).fetchone()
        return files.count_rows(db), JournalCounts(waiting=waiting, quarantined=aside, oldest=oldest)

    for now in range(400):
        key = chance.choice((b"k", b"l", b"m"))
        session = await folder.read_session(key)
        numbers = [0, *(one.number for one in session.rows)] if session is not None else [0]
        match chance.choices(("append", "aside", "remove", "erase", "purge"), (60, 15, 10, 5, 5))[0]:
            case "append":
                number = max(numbers) + 1
                one = replace(row(number), turn=f"{key!r}{now // 20}", at=now, users=(chance.choice("ab"),))
                assert await folder.append(key, SITE, BASE if session is None else session.base, one)
            case "aside":
                rows = session.rows if session is not None else ()
                await folder.set_aside(key, chance.choice([row(0), *rows]), "torn", now)
            case "remove":
                await folder.remove(key, chance.choice(numbers), BASE)
            case "erase":
                await folder.erase(SITE, chance.choice("ab"), now - chance.randint(0, 20))
            case _:
                await folder.purge(now - chance.randint(0, 50))
        kept, counted = await folder._thread.run(count)
        assert kept == counted
    await folder.close()


def test_what_memory_has_forgotten_is_not_current(tmp_path: Path) -> None:
    memory = SharedMemory(tmp_path / "shared", buckets=1)
    memory.reset()
    memory.map()
    keys = [bytes([number]) * 16 for number in range(1, 10)]

    for key in keys[:7]:
        memory.note(key, 5, "first")
    full = [memory.is_current(key, 5, "first") for key in keys]
    memory.note(keys[7], 5, "first")
    lossy = [memory.is_current(key, 5, "first") for key in keys]
    noted = [memory.is_noted(key) for key in keys]
    memory.close()

    assert full == [True] * 7 + [False] * 2
    assert (sum(lossy), lossy[7:], noted) == (7, [True, False], [True] * 9)


def test_a_torn_note_is_not_current_and_can_be_written_again(tmp_path: Path) -> None:
    memory = SharedMemory(tmp_path / "shared", buckets=1)
    memory.reset()
    memory.map()
    memory.note(b"k" * 16, 5, "first")
    place = memory._memory.find(b"k" * 16) + 16
    memory._memory[place] ^= 1

    torn = [memory.is_current(b"k" * 16, revision, "first") for revision in (4, 5)]
    memory.note(b"k" * 16, 5, "first")
    again = memory.is_current(b"k" * 16, 5, "first")
    memory.close()

    assert (torn, again) == ([False, False], True)
