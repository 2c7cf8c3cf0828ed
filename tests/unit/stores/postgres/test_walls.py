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


@pytest.fixture
async def connection(filled: PostgresStore, database: PostgresDatabase) -> AsyncIterator[asyncpg.Connection[Any]]:
    """The application's role, for handwritten statements without a WHERE."""
    connected: asyncpg.Connection[Any] = await asyncpg.connect(database.app_url)
    yield connected
    await connected.close()


async def _counts(connection: asyncpg.Connection[Any]) -> dict[str, int]:
    return {table: len(await connection.fetch(f"SELECT * FROM tenuto.{table}")) for table in KEPT}


async def _enter(connection: asyncpg.Connection[Any], scope: Scope) -> None:
    await connection.execute("SELECT set_config('tenuto.space', $1::bytea::text, true)", site_key(scope))


async def test_only_rows_of_the_space_are_visible(connection: asyncpg.Connection[Any]) -> None:
    """Without a space, none; of another site of the tenant, none."""
    async with connection.transaction():
        assert await _counts(connection) == dict.fromkeys(KEPT, 0)
        await _enter(connection, ANN)
        assert await _counts(connection) == {**dict.fromkeys(KEPT, 1), "messages": 2}
        await _enter(connection, ANN_ELSEWHERE)
        assert await _counts(connection) == dict.fromkeys(KEPT, 0)


async def test_the_stores_own_connections_see_nothing_between_calls(filled: PostgresStore) -> None:
    await filled.sessions.get(ANN, "s")
    await filled.upkeep.sweep()

    assert [await filled.link.fetch(f"SELECT * FROM {table}") for table in KEPT] == [[]] * len(KEPT)


async def test_nothing_can_be_written_into_another_space(
    filled: PostgresStore, connection: asyncpg.Connection[Any]
) -> None:
    insert = "INSERT INTO tenuto.messages (ref, seq, turn, space, body) VALUES (1, 99, 1, $1, 'x')"
    async with connection.transaction():
        await _enter(connection, ANN)
        assert await connection.execute("UPDATE tenuto.sessions SET title = 'mine'") == "UPDATE 1"
        assert await connection.execute("DELETE FROM tenuto.messages") == "DELETE 2"
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            async with connection.transaction():
                await connection.execute(insert, site_key(EVE))

    assert (await filled.sessions.get(EVE, "s")).title == ""
    assert await texts(filled, EVE, "s") == ["secret", "secret"]


async def test_upkeep_across_tenants_sees_heads_and_no_words(connection: asyncpg.Connection[Any]) -> None:
    async with connection.transaction():
        await connection.execute("SELECT set_config('tenuto.upkeep', 'on', true)")
        counts = await _counts(connection)
        changed = await connection.execute("UPDATE tenuto.sessions SET title = 'mine'")

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
