"""Row-level security: the wall between tenants that stands even behind a forgotten WHERE."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from tenuto.model import FinishTurn, Producer, Scope
from tenuto.model.scope import site_key
from tenuto.stores.postgres import PostgresStore
from tests.samples import ANN, ANN_ELSEWHERE, EVE, batch, begin, once, texts, trace_of
from tests.servers import PostgresDatabase

KEPT = ["sessions", "messages", "keyed", "marks", "state", "state_spaces", "traces"]


@pytest.fixture
async def filled(database: PostgresDatabase) -> AsyncIterator[PostgresStore]:
    """A store with a row of each of two tenants in every table."""
    store = await PostgresStore.open(database.app_url)
    for scope in (ANN, EVE):
        await store.sessions.append(scope, "s", batch("secret", idempotency_key=once("k")))
        await store.sessions.append(scope, "s", batch("secret", producer=Producer(id="p", seq=1)))
        await store.state.write_state(scope, "prefs", "k", "secret")
        turn = await begin(store, scope, "s")
        await store.sessions.finish_turn(turn, FinishTurn(trace=trace_of(turn)))
    yield store
    await store.close()


async def _counts(url: str, scope: Scope | None) -> dict[str, int]:
    """What handwritten statements without a WHERE find, as the application's role."""
    connection: asyncpg.Connection[Any] = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            if scope is not None:
                await connection.execute("SELECT set_config('tenuto.space', $1::bytea::text, true)", site_key(scope))
            return {table: len(await connection.fetch(f"SELECT * FROM tenuto.{table}")) for table in KEPT}
    finally:
        await connection.close()


async def test_without_a_space_no_row_is_visible(filled: PostgresStore, database: PostgresDatabase) -> None:
    assert await _counts(database.app_url, None) == dict.fromkeys(KEPT, 0)


async def test_with_one_tenants_space_only_its_rows_are_visible(
    filled: PostgresStore, database: PostgresDatabase
) -> None:
    counts = await _counts(database.app_url, ANN)

    assert counts == {**dict.fromkeys(KEPT, 1), "messages": 2}


async def test_another_site_of_the_tenant_sees_nothing(filled: PostgresStore, database: PostgresDatabase) -> None:
    assert await _counts(database.app_url, ANN_ELSEWHERE) == dict.fromkeys(KEPT, 0)


async def test_the_stores_own_connections_see_nothing_between_calls(filled: PostgresStore) -> None:
    await filled.sessions.get(ANN, "s")
    await filled.upkeep.sweep()

    assert [await filled.link.fetch(f"SELECT * FROM {table}") for table in KEPT] == [[]] * len(KEPT)


async def test_nothing_can_be_written_into_another_space(filled: PostgresStore, database: PostgresDatabase) -> None:
    connection: asyncpg.Connection[Any] = await asyncpg.connect(database.app_url)
    try:
        async with connection.transaction():
            await connection.execute("SELECT set_config('tenuto.space', $1::bytea::text, true)", site_key(ANN))
            assert await connection.execute("UPDATE tenuto.sessions SET title = 'mine'") == "UPDATE 1"
            assert await connection.execute("DELETE FROM tenuto.messages") == "DELETE 2"
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                async with connection.transaction():
                    await connection.execute(
                        "INSERT INTO tenuto.messages (ref, seq, turn, space, body) VALUES (1, 99, 1, $1, 'x')",
                        site_key(EVE),
                    )
    finally:
        await connection.close()

    assert (await filled.sessions.get(EVE, "s")).title == ""
    assert await texts(filled, EVE, "s") == ["secret", "secret"]


async def test_upkeep_across_tenants_sees_heads_and_no_words(filled: PostgresStore, database: PostgresDatabase) -> None:
    connection: asyncpg.Connection[Any] = await asyncpg.connect(database.app_url)
    try:
        async with connection.transaction():
            await connection.execute("SELECT set_config('tenuto.upkeep', 'on', true)")
            counts = {table: len(await connection.fetch(f"SELECT * FROM tenuto.{table}")) for table in KEPT}
            changed = await connection.execute("UPDATE tenuto.sessions SET title = 'mine'")
    finally:
        await connection.close()

    assert counts == {**dict.fromkeys(KEPT, 0), "sessions": 2, "state_spaces": 2}
    assert changed == "UPDATE 0"


async def test_every_table_with_a_space_is_behind_the_wall(filled: PostgresStore, database: PostgresDatabase) -> None:
    """A table added later must not be forgotten, and the owner of the tables is bound, too."""
    rows = await filled.link.fetch(
        "SELECT relname, relrowsecurity AND relforcerowsecurity AS walled, "
        "EXISTS (SELECT FROM pg_attribute WHERE attrelid = c.oid AND attname = 'space') AS spaced "
        "FROM pg_class c WHERE relnamespace = 'tenuto'::regnamespace AND relkind = 'r'"
    )

    assert {row["relname"] for row in rows if row["spaced"]} == set(KEPT)
    assert {row["relname"] for row in rows if not row["walled"]} == {"migrations"}
