"""The names of state where rows are kept: how older files get them, and that a page costs a page."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tenuto.errors import StateCorrupt
from tenuto.model import Scope, StateLocation
from tenuto.model.scope import owner_key, site_key
from tenuto.ports import Store
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
