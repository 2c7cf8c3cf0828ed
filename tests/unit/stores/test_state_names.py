"""The names of state where rows are kept: how older files get them, and that a page costs a page."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tenuto.errors import StateCorrupt
from tenuto.model import Scope, StateLocation
from tenuto.model.scope import owner_key, site_key, state_key
from tenuto.ports import Store
from tenuto.stores.encoding import digest_id
from tenuto.stores.sqlite import SqliteStore
from tenuto.stores.sqlite._schema import APPLICATION_ID, FORMAT, MIGRATIONS
from tests.peek import postgres_rows
from tests.samples import ACME, ANN, EVE
from tests.servers import PostgresDatabase
from tests.shared_stores import postgres_store

LEFT_OUT = "left out a state value whose name cannot be read"


def file_from_before(path: Path) -> None:
    """A file as it was when state had no names, with a value in it that a later one lends its digests to."""
    with closing(sqlite3.connect(path)) as db, db:
        for migration in MIGRATIONS[:2]:
            for statement in migration.statements:
                db.execute(statement)
        db.execute(f"PRAGMA user_version = {FORMAT - len(MIGRATIONS) + 2}")
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")


async def test_state_of_an_older_file_is_kept_and_named_when_it_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    file_from_before(path)
    async with await SqliteStore.open(tmp_path / "new.db") as new:
        await new.state.write_state(ANN, "prefs", "tone", "warm")
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("ATTACH ? AS new", (str(tmp_path / "new.db"),))
        db.execute("INSERT INTO state SELECT drawer, key, value, version, owner FROM new.state")

    async with await SqliteStore.open(path) as store:
        kept = await store.state.read_state(ANN, "prefs", "tone")
        before = await store.state.list_state_locations(ACME)
        written = await store.state.write_state(ANN, "prefs", "tone", "cool", if_version=1)
        after = await store.state.list_state_locations(ACME)

    assert kept is not None
    assert (kept.value, before, written.version) == ("warm", (), 2)
    assert after == (StateLocation(scope=ANN, namespace="prefs", key="tone"),)


async def five_keep(store: Store) -> tuple[StateLocation, ...]:
    """Names of one space, and a value in another one."""
    for number in range(5):
        await store.state.write_state(Scope(tenant="acme", user=f"u{number}"), "prefs", "tone", "warm")
    await store.state.write_state(EVE, "prefs", "tone", "warm")
    return await store.state.list_state_locations(ACME)


async def passed_over(store: Store, names: tuple[StateLocation, ...], caplog: pytest.LogCaptureFixture) -> None:
    """The first two names cannot be read; pages are full all the same, and the log line holds no names."""
    assert await store.state.list_state_locations(ACME) == names[2:]
    assert [record.getMessage() for record in caplog.records] == [LEFT_OUT] * 2
    assert await store.state.list_state_locations(ACME, limit=1) == names[2:3]
    assert await store.state.list_state_locations(ACME, names[2], limit=2) == names[3:]
    assert set(await store.upkeep.list_sites()) == {ACME, Scope(tenant="evil")}


@pytest.mark.parametrize(
    "scribble",
    [
        "scope = x'7b'",
        "scope = x'ff'",
        "scope = NULL",
        """scope = '{"tenant":""}'""",
        """scope = '{"tenant":"evil","user":"eve"}'""",
        "namespace = CAST(x'ff' AS TEXT)",
    ],
)
async def test_names_that_are_scribbled_over_are_left_out_and_hide_no_others(
    tmp_path: Path, scribble: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with await SqliteStore.open(tmp_path / "state.db") as store:
        names = await five_keep(store)
        with closing(sqlite3.connect(store.path)) as db, db:
            for name in names[:2]:
                db.execute(f"UPDATE state SET {scribble} WHERE owner = ?", (owner_key(name.scope),))

        await passed_over(store, names, caplog)

        with closing(sqlite3.connect(store.path)) as db, db:
            db.execute(f"UPDATE state SET {scribble} WHERE space = ?", (site_key(ACME),))
        assert await store.state.list_state_locations(ACME) == ()
        assert await store.upkeep.list_sites(limit=1) == (Scope(tenant="evil"),)


@pytest.mark.parametrize("scribble", ["{", '{"tenant":""}', None, '{"tenant":"evil","user":"eve"}'])
async def test_names_that_are_scribbled_over_are_left_out_of_tables(
    database: PostgresDatabase, scribble: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    scribbling = "UPDATE tenuto.state SET scope = $1 WHERE owner = ANY($2)"
    async with postgres_store(database.app_url) as store:
        names = await five_keep(store)
        owners = [owner_key(name.scope) for name in names]
        await postgres_rows(database.admin_url, scribbling, scribble, owners[:2])

        await passed_over(store, names, caplog)

        await postgres_rows(database.admin_url, scribbling, scribble, owners)
        assert await store.state.list_state_locations(ACME) == ()
        assert await store.upkeep.list_sites(limit=1) == (Scope(tenant="evil"),)


@asynccontextmanager
async def _connected(database: PostgresDatabase) -> AsyncIterator[asyncpg.Connection[Any]]:
    """Another connection of the application's role."""
    connection: asyncpg.Connection[Any] = await asyncpg.connect(database.app_url)
    try:
        yield connection
    finally:
        await connection.close()


async def test_processes_from_before_there_were_names_go_on_writing(database: PostgresDatabase) -> None:
    place = (site_key(ANN), owner_key(ANN), state_key(ANN, "prefs"), digest_id("tone"), "tone")
    write = "SELECT written FROM write_state($1, $2, $3, $4, $5, $6, $7)"
    async with postgres_store(database.app_url) as store, _connected(database) as connection:
        await connection.execute("SET search_path = tenuto")
        versions = [await connection.fetchval(write, *place, b'"warm"', None) for _ in range(2)]
        unnamed = await store.state.list_state_locations(ACME)
        await store.state.write_state(ANN, "prefs", "tone", "cool", if_version=2)
        named = await store.state.list_state_locations(ACME)
        versions.append(await connection.fetchval(write, *place, b'"warm"', None))

        assert (versions, unnamed) == ([1, 2, 4], ())
        assert (
            named
            == await store.state.list_state_locations(ACME)
            == (StateLocation(scope=ANN, namespace="prefs", key="tone"),)
        )


async def test_a_page_of_names_is_read_from_the_index_alone_as_far_as_it_goes(database: PostgresDatabase) -> None:
    """As the role that stands before the walls: a rule that hid the index would read the whole table."""
    async with postgres_store(database.app_url) as store, _connected(database) as connection:
        for number in range(50):
            await store.state.write_state(Scope(tenant="acme", user=f"u{number}"), "prefs", "tone", "warm")
        async with connection.transaction():
            await connection.execute("SET LOCAL enable_seqscan = off")
            await connection.execute("SELECT set_config('tenuto.space', $1::bytea::text, true)", site_key(ACME))
            plan = await connection.fetch(
                "EXPLAIN SELECT scope, namespace, key FROM tenuto.state WHERE space = $1 "
                "AND (owner, drawer, name) > ($2, $2, $2) AND owner <= $3 AND namespace IS NOT NULL "
                "ORDER BY owner, drawer, name LIMIT 10",
                site_key(ACME),
                b"",
                b"\xff" * 17,
            )

    told = "\n".join(row[0] for row in plan)
    assert "Index Scan using state_of_space" in told
    assert "Index Cond" in told
    assert "ROW(owner, drawer, name) > ROW(" in told.partition("Index Cond")[2].partition("\n")[0]
    assert "Sort" not in told


@pytest.mark.parametrize("scribble", [b"{", b"\xff", b""])
async def test_a_value_that_is_scribbled_over_is_told_as_such(
    tmp_path: Path, database: PostgresDatabase, scribble: bytes
) -> None:
    """Not as a store that is away: a walk over everything goes on."""
    async with await SqliteStore.open(tmp_path / "state.db") as files, postgres_store(database.app_url) as tables:
        for store in (files, tables):
            await store.state.write_state(ANN, "prefs", "tone", "warm")
        with closing(sqlite3.connect(files.path)) as db, db:
            db.execute("UPDATE state SET value = ?", (scribble,))
        await postgres_rows(database.admin_url, "UPDATE tenuto.state SET value = $1", scribble)

        for store in (files, tables):
            with pytest.raises(StateCorrupt):
                await store.state.read_state(ANN, "prefs", "tone")
