"""A disk that is full or read-only: a clear error, nothing half-written, and the process lives."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import tenuto
from tenuto.cli import program
from tenuto.cli.checks import check_sqlite_file
from tenuto.errors import StoreFull, StoreReadOnly
from tenuto.model import NewSession, Page, Retention
from tenuto.model.session import Touch
from tenuto.ports import utc_now
from tenuto.settings import Settings
from tenuto.stores.engine import Engine
from tenuto.stores.sqlite import SqliteRecords, records
from tenuto.stores.sqlite._schema import APPLICATION_ID
from tenuto.stores.sqlite._threads import Transaction
from tests.backends import sqlite_engine
from tests.clock import FakeClock
from tests.internals import sqlite_db, sqlite_writer
from tests.samples import ANN, batch, begin, talk, texts
from tests.samples import closing as closed

BIG = "x" * 200_000
NOBODY = 65534


async def limit(store: Engine, pages: int) -> None:
    """Let the file grow by so many pages and no further."""

    def step(txn: Transaction) -> None:
        count = txn.execute("PRAGMA page_count").fetchone()[0]
        txn.execute(f"PRAGMA max_page_count = {count + pages}")

    await sqlite_writer(store).run(step)


async def test_a_full_disk_refuses_whole_calls_and_recovers(tmp_path: Path) -> None:
    async with sqlite_engine(tmp_path / "sessions.db") as store:
        await talk(store, ANN, "s", "before", "yes")
        await limit(store, 8)
        with pytest.raises(StoreFull):
            await begin(store, ANN, "s", BIG)
        with pytest.raises(StoreFull):
            await store.sessions.append(ANN, "new", batch(BIG))

        assert await texts(store, ANN, "s") == ["before", "yes"]
        session = await store.sessions.get(ANN, "s")
        assert (session.messages, session.turns) == (2, 1)

        await limit(store, 10_000)
        turn = await talk(store, ANN, "s", BIG, "room again")

        assert turn.number == 2
        assert await texts(store, ANN, "s") == ["before", "yes", BIG, "room again"]
    with closing(sqlite3.connect(tmp_path / "sessions.db")) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


async def test_a_full_disk_under_load_keeps_each_acknowledged_turn(tmp_path: Path) -> None:
    stored: dict[str, list[str]] = {}

    async def chat(store: Engine, name: str) -> None:
        stored[name] = []
        for n in range(50):
            await store.sessions.append(ANN, name, batch(f"{n} " + "x" * 2000))
            stored[name].append(f"{n} " + "x" * 2000)

    async with sqlite_engine(tmp_path / "sessions.db") as store:
        await limit(store, 60)
        ends = await asyncio.gather(*(chat(store, f"s{place}") for place in range(8)), return_exceptions=True)

        assert {type(end) for end in ends} == {StoreFull}
        for name, said in stored.items():
            if said:
                assert await texts(store, ANN, name) == said
        assert any(stored.values())


async def test_a_full_disk_is_read_where_reads_move_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = NewSession(retention=Retention(idle=timedelta(hours=1), touch=Touch.READ))
    clock = FakeClock()
    async with sqlite_engine(tmp_path / "sessions.db", clock) as store:
        deadline = (await store.sessions.append(ANN, "s", batch("before", create=kept))).session.expires_at
        clock.advance(timedelta(minutes=30))

        def no_room(txn: Transaction, *_: object) -> None:
            txn.execute("CREATE TABLE too_much AS SELECT zeroblob(1000000) AS room")
            raise AssertionError("there was room")

        # Moving a deadline takes no page of the file, only of its log, which has no limit of its own.
        await limit(store, 8)
        monkeypatch.setattr(records, "touch", no_room)

        assert await texts(store, ANN, "s") == ["before"]
        assert (await store.sessions.get(ANN, "s")).expires_at == deadline


async def test_a_file_that_turns_read_only_still_answers_reads(tmp_path: Path) -> None:
    async with sqlite_engine(tmp_path / "sessions.db") as store:
        turn = await begin(store, ANN, "s", "before")
        sqlite_db(store).execute("PRAGMA query_only = ON")

        with pytest.raises(StoreReadOnly):
            await store.sessions.finish_turn(turn, closed("answer"))
        with pytest.raises(StoreReadOnly):
            await store.state.write_state(ANN, "prefs", "k", 1)
        assert (await store.sessions.messages(ANN, "s", Page())).messages[0].text == "before"
        await store.upkeep.ping()

        sqlite_db(store).execute("PRAGMA query_only = OFF")
        await store.sessions.finish_turn(turn, closed("answer"))
        assert await texts(store, ANN, "s") == ["before", "answer"]


@cache
def _load_commands() -> None:
    """Have everything imported that commands import on first use: another user may not read our code."""
    with tempfile.TemporaryDirectory() as live, tempfile.TemporaryDirectory() as folder:
        asyncio.run(_talked(Path(live), Path(folder), ()))
        file = Path(folder, "sessions.db")
        _read_whole(file)
        for command in ("rename x new", "reset x", "fork x"):
            _typed("sessions", *command.split(), store=file)
        _backed_up_and_copied(file, Path(folder))


@contextmanager
def without_privileges() -> Iterator[None]:
    """Root may write anywhere, so file permissions are tried as another user."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


async def test_a_file_without_write_permission_is_read_only() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sessions.db"
        async with sqlite_engine(path) as store:
            await talk(store, ANN, "s", "before", "yes")
        _permit(Path(folder), 0o555)
        _permit(path, 0o444)
        with without_privileges(), pytest.raises(StoreReadOnly):
            await SqliteRecords.open(path)
        _permit(Path(folder), 0o755)

        async with sqlite_engine(path) as store:
            assert await texts(store, ANN, "s") == ["before", "yes"]


async def test_a_read_only_file_in_a_writable_folder_can_be_read() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sessions.db"
        async with sqlite_engine(path) as store:
            await talk(store, ANN, "s", "before", "yes")
        _permit(Path(folder), 0o777)
        _permit(path, 0o444)
        with without_privileges():
            async with sqlite_engine(path) as store:
                assert await texts(store, ANN, "s") == ["before", "yes"]
                with pytest.raises(StoreReadOnly):
                    await begin(store, ANN, "s", "more")
                assert await texts(store, ANN, "s") == ["before", "yes"]


@contextmanager
def out_of_reach(*suffixes: str) -> Iterator[Path]:
    """A file with a talk in it, closed and read-only, in a folder that is read-only.

    Of the files beside it, as they lie while it is open, those with these suffixes are there too.
    """
    _load_commands()
    with tempfile.TemporaryDirectory() as live, tempfile.TemporaryDirectory() as folder:
        asyncio.run(_talked(Path(live), Path(folder), suffixes))
        for name in Path(folder).iterdir():
            _permit(name, 0o444)
        _permit(Path(folder), 0o555)
        try:
            with without_privileges():
                yield Path(folder) / "sessions.db"
        finally:
            _permit(Path(folder), 0o755)


def _minutes_ago() -> datetime:
    return utc_now() - timedelta(minutes=5)


async def _talked(live: Path, folder: Path, suffixes: tuple[str, ...]) -> None:
    # Some minutes ago, and kept by reading: a read now would move its deadline.
    url = f"sqlite:///{live}/sessions.db"
    async with tenuto.open(url, preset="goods_qa", l1=False, clock=_minutes_ago) as app:
        await app.finish(await app.begin(app.scope(user="ann"), "before"), "yes")
        for suffix in suffixes:
            shutil.copy(live / f"sessions.db{suffix}", folder)
        if suffixes:
            shutil.copy(live / "sessions.db", folder)
    if not suffixes:
        shutil.copy(live / "sessions.db", folder)


def _typed(*command: str, store: Path) -> Result:
    return CliRunner().invoke(program, [*command, "--json", "--store", f"sqlite:///{store}"], catch_exceptions=False)


def _backed_up_and_copied(file: Path, folder: Path) -> tuple[Result, Result]:
    saved = CliRunner().invoke(program, ["backup", f"{folder}/b.db", "--store", f"sqlite:///{file}"])
    copied = CliRunner().invoke(program, ["copy", "--json", f"sqlite:///{file}", f"sqlite:///{folder}/c.db"])
    return saved, copied


def _read_whole(file: Path) -> None:
    """List, show, export and count, as a user who may only read."""
    [session] = json.loads(_typed("sessions", "list", store=file).stdout)["sessions"]
    shown = json.loads(_typed("sessions", "show", session["id"], store=file).stdout)
    exported = json.loads(_typed("sessions", "export", session["id"], store=file).stdout)

    assert json.loads(_typed("stats", store=file).stdout)["messages"] == 2
    assert session["message_count"] == 2
    assert [message["text"] for message in shown["messages"]] == ["before", "yes"]
    assert [message["text"] for message in exported["messages"]] == ["before", "yes"]


def _refused(file: Path, *command: str) -> None:
    refused = _typed(*command, store=file)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr == "store_read_only: the session store is read-only\n"


@pytest.mark.parametrize("suffixes", [(), ("-wal", "-shm")], ids=["closed", "left by a process that died"])
def test_a_file_where_nothing_can_be_written_is_listed_shown_and_exported(suffixes: tuple[str, ...]) -> None:
    """Under a preset, too, where reading moves deadlines."""
    with out_of_reach(*suffixes) as file:
        before = sorted(file.parent.iterdir())
        _read_whole(file)

        for command in ("rename", "reset", "fork"):
            words = ("new",) if command == "rename" else ()
            session = json.loads(_typed("sessions", "list", store=file).stdout)["sessions"][0]["id"]
            _refused(file, "sessions", command, session, *words)

        assert sorted(file.parent.iterdir()) == before


def test_a_file_where_nothing_can_be_written_is_backed_up_and_copied() -> None:
    with out_of_reach() as file, tempfile.TemporaryDirectory() as folder:
        saved, copied = _backed_up_and_copied(file, Path(folder))
        assert (saved.exit_code, copied.exit_code) == (0, 0), saved.output + copied.output
        for name in ("b.db", "c.db"):
            _read_whole(Path(folder, name))

    assert json.loads(copied.stdout)["verified"]["different"] == 0


def test_the_doctor_calls_a_sound_file_in_a_read_only_place_sound() -> None:
    with out_of_reach() as file:
        sound = {each.name: each for each in check_sqlite_file(file, Settings())}
    with out_of_reach("-wal") as file:
        unread = {each.name: each for each in check_sqlite_file(file, Settings())}

    assert (sound["integrity"].status, sound["integrity"].message) == ("ok", "SQLite finds no damage")
    assert "the place is read-only" in sound["durability"].message
    assert (unread["integrity"].status, "read-only" in unread["integrity"].message) == ("warning", True)


def test_a_log_that_cannot_be_read_is_named_and_not_passed_over() -> None:
    """Without the shared memory beside it SQLite would show the file as it was before its last changes."""
    with out_of_reach("-wal") as file:
        refused = _typed("sessions", "list", store=file)

    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr.startswith(
        "unavailable: the session store is read-only, and its last changes lie in the -wal"
    )


def test_a_file_without_our_tables_that_cannot_be_written_is_refused() -> None:
    _load_commands()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sessions.db"
        with closing(sqlite3.connect(file)) as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        _permit(file, 0o444)
        _permit(file.parent, 0o555)

        with without_privileges():
            _refused(file, "sessions", "list")
        _permit(file.parent, 0o755)


def _permit(path: Path, mode: int) -> None:
    path.chmod(mode)
