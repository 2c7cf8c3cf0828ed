"""A disk that is full or read-only: a clear error, nothing half-written, and the process lives."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tenuto.errors import StoreFull, StoreReadOnly
from tenuto.model import Page
from tenuto.stores.sqlite import SqliteStore
from tenuto.stores.sqlite._writer import Transaction
from tests.samples import ANN, batch, begin, talk, texts
from tests.samples import closing as closed

BIG = "x" * 200_000
NOBODY = 65534


async def limit(store: SqliteStore, pages: int) -> None:
    """Let the file grow by so many pages and no further."""

    def step(txn: Transaction) -> None:
        count = txn.execute("PRAGMA page_count").fetchone()[0]
        txn.execute(f"PRAGMA max_page_count = {count + pages}")

    await store._writer.run(step)


async def test_a_full_disk_refuses_whole_calls_and_recovers(tmp_path: Path) -> None:
    async with await SqliteStore.open(tmp_path / "sessions.db") as store:
        await talk(store, ANN, "s", "before", "yes")
        await limit(store, 8)
        with pytest.raises(StoreFull):
            await begin(store, ANN, "s", BIG)
        with pytest.raises(StoreFull):
            await store.append(ANN, "new", batch(BIG))

        assert await texts(store, ANN, "s") == ["before", "yes"]
        session = await store.get(ANN, "s")
        assert (session.messages, session.turns) == (2, 1)

        await limit(store, 10_000)
        turn = await begin(store, ANN, "s", BIG)
        await store.finish_turn(turn, closed("room again"))

        assert turn.number == 2
        assert await texts(store, ANN, "s") == ["before", "yes", BIG, "room again"]
    with closing(sqlite3.connect(tmp_path / "sessions.db")) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


async def test_a_full_disk_under_load_keeps_each_acknowledged_turn(tmp_path: Path) -> None:
    stored: dict[str, list[str]] = {}

    async def chat(store: SqliteStore, name: str) -> None:
        stored[name] = []
        for n in range(50):
            await store.append(ANN, name, batch(f"{n} " + "x" * 2000))
            stored[name].append(f"{n} " + "x" * 2000)

    async with await SqliteStore.open(tmp_path / "sessions.db") as store:
        await limit(store, 60)
        ends = await asyncio.gather(*(chat(store, f"s{place}") for place in range(8)), return_exceptions=True)

        assert {type(end) for end in ends} == {StoreFull}
        for name, said in stored.items():
            if said:
                assert await texts(store, ANN, name) == said
        assert any(stored.values())


async def test_a_file_that_turns_read_only_still_answers_reads(tmp_path: Path) -> None:
    async with await SqliteStore.open(tmp_path / "sessions.db") as store:
        turn = await begin(store, ANN, "s", "before")
        store._writer._db.execute("PRAGMA query_only = ON")

        with pytest.raises(StoreReadOnly):
            await store.finish_turn(turn, closed("answer"))
        with pytest.raises(StoreReadOnly):
            await store.write_state(ANN, "prefs", "k", 1)
        assert (await store.messages(ANN, "s", Page())).messages[0].text == "before"
        await store.ping()

        store._writer._db.execute("PRAGMA query_only = OFF")
        await store.finish_turn(turn, closed("answer"))
        assert await texts(store, ANN, "s") == ["before", "answer"]


@contextmanager
def without_privileges() -> Iterator[None]:
    """Root may write anywhere, so file permissions are tried as somebody else."""
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
        async with await SqliteStore.open(path) as store:
            await talk(store, ANN, "s", "before", "yes")
        _permit(Path(folder), 0o555)
        _permit(path, 0o444)
        with without_privileges(), pytest.raises(StoreReadOnly):
            await SqliteStore.open(path)
        _permit(Path(folder), 0o755)

        async with await SqliteStore.open(path) as store:
            assert await texts(store, ANN, "s") == ["before", "yes"]


async def test_a_read_only_file_in_a_writable_folder_can_be_read() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sessions.db"
        async with await SqliteStore.open(path) as store:
            await talk(store, ANN, "s", "before", "yes")
        _permit(Path(folder), 0o777)
        _permit(path, 0o444)
        with without_privileges():
            async with await SqliteStore.open(path) as store:
                assert await texts(store, ANN, "s") == ["before", "yes"]
                with pytest.raises(StoreReadOnly):
                    await begin(store, ANN, "s", "more")
                assert await texts(store, ANN, "s") == ["before", "yes"]


def _permit(path: Path, mode: int) -> None:
    path.chmod(mode)
