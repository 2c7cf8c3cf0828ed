"""Compacting a file beside other connections: what can be done is done, and what cannot is reported."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from tenuto.errors import Unavailable
from tenuto.stores.engine import Engine
from tenuto.stores.sqlite import SqliteRecords
from tests.backends import engine_over
from tests.samples import ANN, batch, talk, texts


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Engine]:
    """One that soon stops waiting for locks."""
    records = await SqliteRecords.open(tmp_path / "sessions.db", lock_timeout=timedelta(milliseconds=50))
    async with engine_over(records) as store:
        yield store


async def test_a_reader_of_an_older_state_keeps_the_log_from_being_emptied(store: Engine, tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    await store.sessions.append(ANN, "s", batch(*["my secret"] * 100))
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM entry").fetchone()
        await store.sessions.delete(ANN, "s")
        with pytest.raises(Unavailable, match="compacted again"):
            await store.upkeep.compact()
        await talk(store, ANN, "t", "life", "goes on")
        reader.execute("ROLLBACK")

        await store.upkeep.compact()

    assert path.with_name("sessions.db-wal").stat().st_size == 0
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA freelist_count").fetchone() == (0,)
    assert b"my secret" not in path.read_bytes()
    assert await texts(store, ANN, "t") == ["life", "goes on"]


async def test_a_writer_that_takes_long_is_waited_for_as_anywhere(store: Engine, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "sessions.db", isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable):
            await store.upkeep.compact()
        writer.execute("ROLLBACK")

    await store.upkeep.compact()


async def test_turns_before_and_behind_a_compaction_are_all_kept(store: Engine) -> None:
    await asyncio.gather(
        *(store.sessions.append(ANN, f"a{n}", batch("before")) for n in range(20)),
        store.upkeep.compact(),
        *(store.sessions.append(ANN, f"b{n}", batch("behind")) for n in range(20)),
    )

    assert [await texts(store, ANN, f"{name}{n}") for name in "ab" for n in range(20)] == [["before"]] * 20 + [
        ["behind"]
    ] * 20
