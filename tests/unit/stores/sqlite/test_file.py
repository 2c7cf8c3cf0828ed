"""Opening the file: what is made, what is refused, and what another release or program left there."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tenuto.errors import InvalidSetting, StoreReplaced, Unavailable
from tenuto.model.stored import Part
from tenuto.stores.sqlite import SqliteRecords
from tenuto.stores.sqlite._schema import APPLICATION_ID, FORMAT
from tests.backends import sqlite_engine
from tests.internals import sqlite_db
from tests.samples import ANN, batch, texts
from tests.warm_start import open_program

OPEN = """
import asyncio, sys
from tenuto.stores.sqlite import SqliteRecords
async def main():
    records = await SqliteRecords.open(sys.argv[1])
    await records.ping()
    await records.close()
asyncio.run(main())
"""


def modes(folder: Path) -> dict[str, int]:
    """Names and permissions."""
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}


def pragma(path: Path, name: str) -> int | str:
    with closing(sqlite3.connect(path)) as db:
        value: int | str = db.execute(f"PRAGMA {name}").fetchone()[0]
    return value


async def test_a_new_file_is_its_owners_alone_and_acknowledged_means_fsynced(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    async with sqlite_engine(path) as store:
        await store.sessions.append(ANN, "s", batch("hello"))

        assert sqlite_db(store).execute("PRAGMA synchronous").fetchone() == (2,)
        assert modes(tmp_path) == {"sessions.db": 0o600, "sessions.db-wal": 0o600, "sessions.db-shm": 0o600}

    assert modes(tmp_path) == {"sessions.db": 0o600}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("absent/a.db", "absent does not exist"),
        (".", "is a folder"),
        ("", "memory store"),
        (":memory:", "memory store"),
    ],
)
async def test_a_place_where_no_file_can_be_is_named(tmp_path: Path, name: str, why: str) -> None:
    with pytest.raises(InvalidSetting, match=why):
        await SqliteRecords.open(tmp_path / name if name not in ("", ":memory:") else name)

    assert modes(tmp_path) == {}


OTHERS = {
    "a newer release's": (
        f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT + 1}",
        f"format {FORMAT + 1}, and this release .* {FORMAT}",
    ),
    "from before the first release": (
        f"PRAGMA application_id = {0x746E7574}; PRAGMA user_version = 19",
        "before the first release",
    ),
    "another program's": ("CREATE TABLE theirs (x)", "another program"),
    "another program's with an id": ("PRAGMA application_id = 7", "another program"),
    "no database": (None, "not a SQLite database"),
}


@pytest.mark.parametrize(("statements", "why"), OTHERS.values(), ids=OTHERS.keys())
async def test_a_file_of_others_is_refused_untouched(tmp_path: Path, statements: str | None, why: str) -> None:
    path = tmp_path / "sessions.db"
    if statements is None:
        path.write_text("dear diary " * 100)
    else:
        with closing(sqlite3.connect(path)) as db:
            db.executescript(statements)
    before = path.read_bytes()

    with pytest.raises(InvalidSetting, match=why):
        await SqliteRecords.open(path)

    assert path.read_bytes() == before


async def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    path.touch()

    await (await SqliteRecords.open(path)).close()

    assert (pragma(path, "user_version"), pragma(path, "application_id")) == (FORMAT, APPLICATION_ID)


async def test_a_file_switched_out_of_wal_is_switched_back(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    await (await SqliteRecords.open(path)).close()
    assert pragma(path, "journal_mode = DELETE") == "delete"

    await (await SqliteRecords.open(path)).close()

    assert pragma(path, "journal_mode") == "wal"


def test_many_processes_may_make_the_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    makers = [open_program("-c", OPEN, str(path)) for _ in range(4)]

    assert [maker.wait(60) for maker in makers] == [0, 0, 0, 0]


def test_opening_imports_little(tmp_path: Path) -> None:
    """A worker or a command must not wait for frameworks it does not use."""
    path = tmp_path / "sessions.db"
    program = f"{OPEN}print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)

    heavy = {"starlette", "redis", "asyncpg", "typer", "rich", "uvicorn", "numpy", "jwt", "prometheus_client"}
    assert not heavy & set(done.stdout.split())


async def test_a_closed_store_says_so(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    records = await SqliteRecords.open(path)
    await records.close()
    await records.close()

    for call in (records.load, records.touch):
        with pytest.raises(Unavailable, match="closed"):
            await call(bytes(16), 0)
    assert records.feed is not None
    assert not records.feed.caught_up()


@pytest.mark.parametrize("replaced", [False, True], ids=["deleted", "replaced"])
async def test_a_file_that_is_gone_is_noticed_until_it_is_back(tmp_path: Path, replaced: bool) -> None:
    """What is written to a file without a name is lost with the process, so nothing is acknowledged."""
    path = tmp_path / "sessions.db"
    aside = path.with_name("aside.db")
    async with sqlite_engine(path) as store:
        await store.sessions.append(ANN, "s", batch("hello"))
        path.rename(aside)
        if replaced:
            path.touch()

        for call in (store.sessions.append(ANN, "s", batch("lost")), store.upkeep.ping()):
            with pytest.raises(StoreReplaced):
                await call
        store.cache.clear()
        with pytest.raises(StoreReplaced):
            await store.sessions.get(ANN, "s")

        aside.rename(path)
        await store.sessions.append(ANN, "s", batch("again"))
        assert await texts(store, ANN, "s") == ["hello", "again"]


async def test_calls_that_fail_together_need_not_all_be_awaited(tmp_path: Path) -> None:
    """A caller that gives up with the first of them leaves no traceback of the others behind."""
    path = tmp_path / "sessions.db"
    records = await SqliteRecords.open(path)
    told: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    path.rename(tmp_path / "aside.db")

    load, page = records.load(bytes(16), 0), records.page(bytes(16), Part.TRACES, 0, 1, 1)
    await asyncio.wait([load])
    await asyncio.wait([page])
    del load, page
    gc.collect()

    assert told == []
    await records.close()


async def test_a_log_that_another_process_deleted_is_noticed(tmp_path: Path) -> None:
    """While the file was moved away for a moment, another program began an empty one in its place."""
    path = tmp_path / "sessions.db"
    aside = path.with_name("aside.db")
    async with sqlite_engine(path) as store:
        await store.sessions.append(ANN, "s", batch("hello"))
        path.rename(aside)
        pragma(path, "user_version")
        aside.rename(path)
        assert not path.with_name("sessions.db-wal").exists()

        with pytest.raises(StoreReplaced):
            await store.sessions.append(ANN, "s", batch("lost"))


@pytest.mark.parametrize("emptied", [False, True], ids=["missing", "empty"])
async def test_no_store_begins_beside_the_log_of_one_that_is_gone(tmp_path: Path, emptied: bool) -> None:
    """After a kill the last turns are in the log alone, and SQLite would delete it."""
    path = tmp_path / "sessions.db"
    log = tmp_path / "sessions.db-wal"
    log.write_bytes(b"turns")
    if emptied:
        path.touch()

    with pytest.raises(InvalidSetting, match=r"put the file back, or remove .*sessions\.db-wal"):
        await SqliteRecords.open(path)

    assert (log.read_bytes(), path.exists()) == (b"turns", emptied)
    log.write_bytes(b"")
    await (await SqliteRecords.open(path)).close()


async def test_a_feed_makes_no_file_where_there_is_none(tmp_path: Path) -> None:
    """It would be empty, and SQLite would delete the log that belongs to the file that was moved away."""
    path = tmp_path / "sessions.db"
    records = await SqliteRecords.open(path)
    path.rename(tmp_path / "aside.db")

    assert records.feed is not None
    with pytest.raises(Unavailable):
        async with records.feed.watch(lambda key, revision: None):
            pass

    assert not path.exists()
    await records.close()
