"""Row-level security: the wall between tenants that stands even behind a statement that forgets its WHERE."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from tenuto.model import Scope
from tenuto.model.scope import owner_key, site_key
from tenuto.model.stored import IndexOrder, IndexQuery, Kind, ValuePlace
from tenuto.stores.postgres import PostgresRecords
from tests.record_changes import A, B, C, index_columns, message_entries, record_change
from tests.samples import ANN, ANN_ELSEWHERE, EVE
from tests.servers import PostgresDatabase

TABLES = ("records", "entries")


@pytest.fixture
async def connection(records: PostgresRecords, database: PostgresDatabase) -> AsyncIterator[asyncpg.Connection[Any]]:
    """The application's role in a transaction, for statements by hand, and a record of each of two tenants."""
    for key, scope in ((A, ANN), (B, EVE)):
        assert (
            await records.commit([record_change(key, 0, 1, index=index_columns(scope), puts=message_entries(1))])
            is None
        )
    connected: asyncpg.Connection[Any] = await asyncpg.connect(
        database.app_url, server_settings={"search_path": "tenuto"}
    )
    async with connected.transaction():
        yield connected
    await connected.close()


async def _enter(connection: asyncpg.Connection[Any], scope: Scope) -> None:
    await connection.execute("SELECT enter($1)", site_key(scope))


async def _visible(connection: asyncpg.Connection[Any]) -> list[int]:
    """How many rows of each table a statement without a WHERE can read."""
    return [len(await connection.fetch(f"SELECT * FROM {table}")) for table in TABLES]


async def test_a_statement_sees_the_named_space_alone(connection: asyncpg.Connection[Any]) -> None:
    """Without a space, none; of another site of the tenant, none; and no row of another tenant by its key."""
    seen = [await _visible(connection)]
    for scope in (ANN, ANN_ELSEWHERE):
        await _enter(connection, scope)
        seen.append(await _visible(connection))

    assert seen == [[0, 0], [1, 1], [0, 0]]
    await _enter(connection, ANN)
    assert await connection.fetch("SELECT FROM records WHERE key = $1", B) == []
    assert await connection.fetch("SELECT FROM entries JOIN records ON record = id WHERE key = $1", B) == []


async def test_a_statement_changes_the_named_space_alone(connection: asyncpg.Connection[Any]) -> None:
    await _enter(connection, ANN)

    assert await connection.execute("UPDATE records SET title = 'mine'") == "UPDATE 1"
    assert await connection.execute("DELETE FROM entries") == "DELETE 1"
    for write in ("UPDATE records SET space = $1", "INSERT INTO entries VALUES (1, 9, 'm', $1, 'x')"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            async with connection.transaction():
                await connection.execute(write, site_key(EVE))


async def test_a_search_across_tenants_leaves_nothing_open(connection: asyncpg.Connection[Any]) -> None:
    """As of a key that is another tenant's: what follows in the transaction sees no more than before."""
    eve, ann = site_key(EVE), site_key(ANN)
    assert await connection.fetchval("SELECT spaces_of($1)", [B, A, B, C, A]) == [eve, ann, eve, None, ann]
    for search, named in (
        ("SELECT spaces_of(ARRAY[$1::bytea])", B),
        ("SELECT space_of_owner($1)", owner_key(EVE)),
        ("SELECT find_records(NULL, 'true', 'key') WHERE $1::bytea IS NOT NULL", B),
        ("SELECT list_scopes($1, 9)", b""),
    ):
        await _enter(connection, ANN)
        assert len(await connection.fetch(search, named)) in (1, 2)
        assert await connection.fetch("SELECT FROM records WHERE key = $1 OR owner = $2", B, owner_key(EVE)) == []


@pytest.mark.parametrize(
    ("setting", "named", "seen"),
    [
        ("named", B, [B]),
        ("named", owner_key(EVE), [B]),
        ("named", site_key(EVE), []),
        ("named", b"", []),
        ("space", b"lookup", []),
        ("space", b"upkeep", [A, B]),
    ],
    ids=["a key", "an owner", "a space", "nothing", "unknown", "upkeep"],
)
async def test_a_search_reads_the_records_that_it_names(
    connection: asyncpg.Connection[Any], setting: str, named: bytes, seen: list[bytes]
) -> None:
    """No entries, and nothing can be changed or locked by it; upkeep alone reads those of all tenants."""
    text = named.decode() if setting == "space" else f"\\x{named.hex()}"
    await connection.execute("SELECT set_config($1, $2, true)", f"tenuto.{setting}", text)

    rows = await connection.fetch("SELECT key FROM records ORDER BY key")
    locked = await connection.fetch("SELECT FROM records FOR UPDATE")
    changed = [await connection.execute(one) for one in ("UPDATE records SET title = 'x'", "DELETE FROM records")]

    assert [row["key"] for row in rows] == seen
    assert (await _visible(connection))[1] == 0
    assert (locked, changed) == ([], ["UPDATE 0", "DELETE 0"])


async def test_our_connections_see_nothing_between_calls(
    records: PostgresRecords, connection: asyncpg.Connection[Any]
) -> None:
    await records.load(A, 9)
    await records.scan(b"", 9)
    await records.list(IndexQuery(order=IndexOrder.NEWEST, owner=owner_key(EVE)))
    await records.commit([record_change(A, 1, 2)])
    await records.sites(b"", 9)

    assert [await records.pool.fetch(f"SELECT * FROM {table}") for table in TABLES] == [[], []]


async def test_every_table_with_a_space_is_behind_the_wall(records: PostgresRecords) -> None:
    """A table added later must not be forgotten, and the owner of the tables is bound, too."""
    rows = await records.pool.fetch(
        "SELECT relname, relrowsecurity AND relforcerowsecurity AS walled "
        "FROM pg_class WHERE relnamespace = 'tenuto'::regnamespace AND relkind = 'r'"
    )

    assert {row["relname"]: row["walled"] for row in rows} == {
        "records": True,
        "entries": True,
        "words": True,
        "migrations": False,
    }


@pytest.mark.parametrize(
    ("owner", "drawer"),
    [(owner_key(ANN), b"d" * 16), (owner_key(ANN), None), (None, None)],
    ids=["of a drawer", "of an owner", "of a site"],
)
async def test_a_page_of_values_begins_in_its_index(
    records: PostgresRecords,
    connection: asyncpg.Connection[Any],
    owner: bytes | None,
    drawer: bytes | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A condition that might leak what it reads is tried on the rows of the space, one by one, before any index is."""
    asked: list[tuple[Any, ...]] = []

    async def note(values: Any, conditions: str, ordering: str) -> tuple[()]:
        asked.append((values, conditions, ordering))
        return ()

    monkeypatch.setattr(records, "_find", note)
    place = ValuePlace(owner_key(ANN), b"d" * 16, "tea")
    query = IndexQuery(
        order=IndexOrder.PLACE, kind=Kind.VALUE, space=site_key(ANN), owner=owner, drawer=drawer, behind=place
    )
    await records.list(query)

    await _enter(connection, ANN)
    await connection.execute("SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off")
    ((values, conditions, ordering),) = asked
    statement = f"EXPLAIN SELECT * FROM records WHERE {conditions} ORDER BY {ordering}"
    plan = await connection.fetch(statement.replace("($1)", "($1::record_query)"), values)
    condition = next(row[0] for row in plan if "Index Cond" in row[0])
    assert "name_start" in condition, plan
