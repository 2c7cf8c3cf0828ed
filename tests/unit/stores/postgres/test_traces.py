"""Traces in Postgres: kept in the step that ends their turn, at no cost for turns without one (C9)."""

from __future__ import annotations

import asyncio
import logging

import pytest

from tenuto.model import Changes, FinishTurn, OpenTurn
from tenuto.model.turn import TRACES_KEPT
from tenuto.stores.postgres import PostgresStore
from tests.peek import postgres_rows
from tests.samples import ANN, begin, closing, once, talk, texts, trace_of
from tests.servers import PostgresDatabase


async def test_endings_of_one_batch_keep_each_its_own_trace(store: PostgresStore) -> None:
    """Plain, keyed, changing and abandoned ones, and those that have nothing to tell."""
    sessions = [f"s{n}" for n in range(12)]
    turns = [
        await begin(store, ANN, session, "q", idempotency_key=once("k") if n % 2 else None)
        for n, session in enumerate(sessions)
    ]

    def ending(n: int, turn: OpenTurn) -> FinishTurn:
        trace = trace_of(turn, request=turn.session.id) if n % 3 else None
        if n == 4:
            return FinishTurn(abandoned=True, trace=trace)
        return closing("a", trace=trace, changes=Changes(title="T") if n == 5 else None)

    await asyncio.gather(*(store.sessions.finish_turn(turn, ending(n, turn)) for n, turn in enumerate(turns)))

    kept = [[trace.request for trace in await store.traces.traces(ANN, session)] for session in sessions]
    assert kept == [[session] if n % 3 else [] for n, session in enumerate(sessions)]


async def test_a_damaged_trace_is_as_good_as_none_and_its_session_stays(
    store: PostgresStore, database: PostgresDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    for request in ("one", "two"):
        turn = await begin(store, ANN, "s", "q")
        await store.sessions.finish_turn(turn, closing("a", trace=trace_of(turn, request=request)))
    await postgres_rows(database.admin_url, 'UPDATE tenuto.traces SET body = \'{"request":"secret\' WHERE number = 1')

    with caplog.at_level(logging.WARNING):
        assert await store.traces.trace(ANN, "s", 1) is None
        assert [trace.request for trace in await store.traces.traces(ANN, "s")] == ["two"]

    assert "a trace" in caplog.text
    assert "secret" not in caplog.text
    assert await texts(store, ANN, "s") == ["q", "a", "q", "a"]


async def test_old_traces_go_also_where_turns_between_had_none(
    store: PostgresStore, database: PostgresDatabase
) -> None:
    turn = await begin(store, ANN, "s", "q")
    await store.sessions.finish_turn(turn, closing("a", trace=trace_of(turn)))
    await postgres_rows(database.admin_url, "UPDATE tenuto.sessions SET turns = $1", TRACES_KEPT)
    last = await begin(store, ANN, "s", "q")

    await store.sessions.finish_turn(last, closing("a", trace=trace_of(last)))

    assert await postgres_rows(database.admin_url, "SELECT number FROM tenuto.traces") == [(TRACES_KEPT + 1,)]


async def test_no_row_outlives_its_session(store: PostgresStore, database: PostgresDatabase) -> None:
    for session in ("deleted", "evicted"):
        turn = await begin(store, ANN, session, "q")
        await store.sessions.finish_turn(turn, closing("a", trace=trace_of(turn)))

    await store.sessions.delete(ANN, "deleted")
    await store.upkeep.evict(ANN, 0)

    assert await postgres_rows(database.admin_url, "SELECT * FROM tenuto.traces") == []


async def test_a_turn_without_a_trace_does_not_touch_the_traces(database: PostgresDatabase) -> None:
    store = await PostgresStore.open(database.app_url, connections=1)
    for guard in (None, once("k")):
        await talk(store, ANN, "s", "q", "a", idempotency_key=guard)

    # The one connection hands in what it has counted.
    await store.link.fetch("SELECT pg_stat_force_next_flush()")
    counted = "SELECT relname, idx_scan > 0 AS read, n_tup_ins > 0 AS written FROM pg_stat_user_tables"
    touched = {row["relname"]: (row["read"], row["written"]) for row in await store.link.fetch(counted)}
    await store.close()

    assert touched["traces"] == (False, False)
    assert touched["keyed"] == touched["sessions"] == (True, True)
