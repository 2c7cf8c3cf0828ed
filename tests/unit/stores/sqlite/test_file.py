"""Opening the file: what is made, what is refused, and what another release or program left there."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tenuto.errors import InvalidSetting, StoreReplaced
from tenuto.model import Page
from tenuto.stores.sqlite import SqliteStore
from tenuto.stores.sqlite._schema import APPLICATION_ID, FORMAT, UNRELEASED
from tests.peek import sqlite_db
from tests.samples import ANN, batch, texts
from tests.warm_start import open_program


def files_in(folder: Path) -> dict[str, int]:
    """Names and permissions."""
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}


async def test_a_new_file_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    async with await SqliteStore.open(path) as store:
        await store.sessions.append(ANN, "s", batch("hello"))

        modes = files_in(tmp_path)

    assert modes == {"sessions.db": 0o600, "sessions.db-wal": 0o600, "sessions.db-shm": 0o600}


async def test_a_closed_store_leaves_one_file_that_opens_again(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    async with await SqliteStore.open(path) as store:
        await store.sessions.append(ANN, "s", batch("hello"))

    assert list(files_in(tmp_path)) == ["sessions.db"]
    async with await SqliteStore.open(str(path)) as store:
        assert await texts(store, ANN, "s") == ["hello"]


async def test_acknowledged_means_fsynced_unless_relaxed(tmp_path: Path) -> None:
    async with await SqliteStore.open(tmp_path / "a.db") as full:
        assert sqlite_db(full).execute("PRAGMA synchronous").fetchone() == (2,)
        assert sqlite_db(full).execute("PRAGMA journal_mode").fetchone() == ("wal",)
    async with await SqliteStore.open(tmp_path / "b.db", synchronous="normal") as relaxed:
        assert sqlite_db(relaxed).execute("PRAGMA synchronous").fetchone() == (1,)


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match=r"no-such-folder does not exist"):
        await SqliteStore.open(tmp_path / "no-such-folder" / "sessions.db")


@pytest.mark.parametrize("path", ["", ":memory:"])
async def test_memory_is_another_store(path: str) -> None:
    with pytest.raises(InvalidSetting, match="memory store"):
        await SqliteStore.open(path)


async def test_settings_out_of_range_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="folder"):
        await SqliteStore.open(tmp_path)
    with pytest.raises(InvalidSetting, match="readers"):
        await SqliteStore.open(tmp_path / "sessions.db", readers=0)
    with pytest.raises(InvalidSetting, match="synchronous"):
        # The point of the test: a value the type forbids, as a settings file may hold it.
        await SqliteStore.open(tmp_path / "sessions.db", synchronous="off")  # type: ignore[arg-type]
    assert files_in(tmp_path) == {}


@pytest.mark.parametrize(
    ("version", "why"),
    [
        (FORMAT + 1, f"format {FORMAT + 1}, and this release .* {FORMAT}"),
        *((old, f"format {old}, from before the first release") for old in range(1, UNRELEASED + 1)),
        (None, "another program"),
    ],
)
async def test_a_database_of_another_release_is_refused_untouched(
    tmp_path: Path, version: int | None, why: str
) -> None:
    """Its tables may have other columns: it would open, and every write of state would fail."""
    path = tmp_path / "sessions.db"
    if version is not None:
        await (await SqliteStore.open(path)).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE theirs (x)" if version is None else f"PRAGMA user_version = {version}")
    before = path.read_bytes()

    with pytest.raises(InvalidSetting, match=why):
        await SqliteStore.open(path)

    assert path.read_bytes() == before


async def test_what_is_no_database_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("dear diary " * 100)

    with pytest.raises(InvalidSetting, match="not a SQLite database"):
        await SqliteStore.open(path)

    assert path.read_text() == "dear diary " * 100


async def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    path.touch()

    async with await SqliteStore.open(path) as store:
        await store.sessions.append(ANN, "s", batch("hello"))

    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (FORMAT,)
        assert db.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)


async def test_a_file_switched_out_of_wal_is_switched_back(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    await (await SqliteStore.open(path)).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = DELETE")

    async with await SqliteStore.open(path) as store:
        assert sqlite_db(store).execute("PRAGMA journal_mode").fetchone() == ("wal",)


PING = """
import asyncio, sys
from tenuto.stores.sqlite import SqliteStore
async def main():
    async with await SqliteStore.open(sys.argv[1]) as store:
        await store.upkeep.ping()
asyncio.run(main())
"""


def test_many_processes_may_make_the_file_at_once(tmp_path: Path) -> None:
    makers = [open_program("-c", PING, str(tmp_path / "sessions.db")) for _ in range(4)]

    assert [maker.wait(60) for maker in makers] == [0, 0, 0, 0]


def test_opening_imports_little(tmp_path: Path) -> None:
    """A worker or a command must not wait for frameworks it does not use."""
    program = f"{PING}print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "s.db")], capture_output=True, text=True, check=True
    )

    heavy = {"starlette", "redis", "asyncpg", "typer", "rich", "uvicorn", "numpy", "jwt", "prometheus_client"}
    assert not heavy & set(done.stdout.split())


async def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "sessions.db")
    await store.close()
    await store.close()

    with pytest.raises(Exception, match="closed"):
        await store.sessions.messages(ANN, "s", Page())
    assert not store.feed.drain_invalidations()


@pytest.mark.parametrize("replaced", [False, True], ids=["deleted", "replaced"])
async def test_a_file_that_is_gone_is_noticed_until_it_is_back(tmp_path: Path, replaced: bool) -> None:
    """What is written to a file without a name is lost with the process, so nothing is acknowledged."""
    path, aside = tmp_path / "sessions.db", tmp_path / "aside.db"
    async with await SqliteStore.open(path) as store:
        await store.sessions.append(ANN, "s", batch("hello"))
        path.rename(aside)
        if replaced:
            path.touch()

        for call in (store.sessions.append(ANN, "s", batch("lost")), store.sessions.get(ANN, "s"), store.upkeep.ping()):
            with pytest.raises(StoreReplaced):
                await call

        aside.rename(path)
        await store.sessions.append(ANN, "s", batch("again"))
        assert await texts(store, ANN, "s") == ["hello", "again"]
