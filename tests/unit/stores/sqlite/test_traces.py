"""Traces in the SQLite file: they cost nothing where there are none, leave no row behind, and harm no session (C9)."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing as closed
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tenuto.model import OpenTurn
from tenuto.stores.sqlite import SqliteStore
from tenuto.stores.sqlite._schema import APPLICATION_ID, MIGRATIONS, UNRELEASED
from tests.clock import FakeClock
from tests.peek import sqlite_db, sqlite_rows
from tests.samples import ANN, batch, begin, closing, talk, texts, trace_of


async def told(store: SqliteStore, session_id: str, **fields: Any) -> OpenTurn:
    """One whole turn with a trace."""
    turn = await begin(store, ANN, session_id, "hello")
    await store.sessions.finish_turn(turn, closing("hi", trace=trace_of(turn, **fields)))
    return turn


async def test_no_row_of_a_trace_outlives_its_session(store: SqliteStore, clock: FakeClock) -> None:
    for name in ("deleted", "evicted", "swept", "anew"):
        await told(store, name)
        clock.advance(timedelta(seconds=1))

    await store.sessions.delete(ANN, "deleted")
    gone = await store.upkeep.evict(ANN, keep=2)
    clock.advance(timedelta(days=400))
    await store.sessions.append(ANN, "anew", batch("hello"))
    await store.upkeep.sweep()

    assert [item.session_id for item in gone] == ["evicted"]
    assert sqlite_rows(store, "SELECT count(*) FROM session") == [(1,)]
    assert sqlite_rows(store, "SELECT count(*) FROM trace") == [(0,)]


async def test_a_turn_without_a_trace_never_looks_at_traces(store: SqliteStore) -> None:
    statements: list[str] = []
    sqlite_db(store).set_trace_callback(statements.append)

    await talk(store, ANN, "s", "hello", "hi")
    assert not [statement for statement in statements if "trace" in statement]
    await told(store, "s")

    assert len([statement for statement in statements if "trace" in statement]) == 1


@pytest.mark.parametrize("body", ["x''", "x'7b'", "CAST('{}' AS BLOB)", "7", "x'ff'"])
async def test_a_damaged_trace_is_as_good_as_none_and_its_session_stays(
    store: SqliteStore, body: str, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = await told(store, "s", request="my secret"), await told(store, "s")
    sqlite_rows(store, f"UPDATE trace SET body = {body} WHERE place % 1024 = {first.number}")

    with caplog.at_level(logging.WARNING):
        assert await store.traces.trace(ANN, "s", first.number) is None
        assert await store.traces.traces(ANN, "s") == (trace_of(second),)

    assert await texts(store, ANN, "s") == ["hello", "hi"] * 2
    assert "a trace of session s" in caplog.text
    assert "secret" not in caplog.text


async def test_a_number_that_no_turn_can_have_has_no_trace(store: SqliteStore) -> None:
    """Neighbouring sessions' rows lie next to each other: no number reaches over."""
    mine, other = await told(store, "mine"), await told(store, "other")
    far = 2**30

    assert [await store.traces.trace(ANN, "mine", number) for number in (0, -1, far, far + other.number, 2**80)] == [
        None
    ] * 5
    assert await store.traces.traces(ANN, "mine", limit=2**80, before=2**80) == (trace_of(mine),)
    assert await store.traces.traces(ANN, "other", before=0) == await store.traces.traces(ANN, "other", limit=-1) == ()


async def test_a_file_from_before_traces_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with closed(sqlite3.connect(path)) as db, db:
        for statement in MIGRATIONS[0].statements:
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {UNRELEASED + 1}")
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")

    async with await SqliteStore.open(path) as store:
        turn = await told(store, "s")

        assert await store.traces.traces(ANN, "s") == (trace_of(turn),)
