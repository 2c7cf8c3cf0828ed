"""The schema: migrated once by the first process, refused when it is of a later release."""

from __future__ import annotations

import asyncio
import logging

import pytest

from tenuto.errors import InvalidSetting, Unavailable
from tenuto.stores.postgres import PostgresRecords
from tenuto.stores.postgres._schema import migrations
from tests.internals import postgres_rows
from tests.record_changes import A, record_change
from tests.servers import PostgresDatabase, PostgresServer
from tests.servers.postgres import APP_ROLE


def test_migrations_are_numbered_without_gaps() -> None:
    assert [migration.number for migration in migrations()] == list(range(1, len(migrations()) + 1))


async def test_many_processes_that_start_at_once_migrate_once(database: PostgresDatabase) -> None:
    stores = await asyncio.gather(*(PostgresRecords.open(database.app_url) for _ in range(6)))

    await stores[0].commit([record_change(A, 0, 1)])
    loaded = [await store.load(A, 0) for store in stores]
    for store in stores:
        await store.close()

    assert [record and record.revision for record in loaded] == [1] * 6
    applied = await postgres_rows(database.app_url, "SELECT number, name FROM tenuto.migrations ORDER BY number")
    assert applied == [(step.number, step.name) for step in migrations()]


LATER = r"later release \(schema 9000; this release knows \d+\): upgrade tenuto"
EARLIER = "from before the first release: begin with a new schema"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("INSERT INTO tenuto.migrations (number, name, digest) VALUES (9000, 'of_tomorrow', '')", LATER),
        ("ALTER TABLE tenuto.migrations DROP COLUMN digest", EARLIER),
        ("UPDATE tenuto.migrations SET digest = 'x' WHERE number = 1", EARLIER),
    ],
    ids=["later", "without digests", "by another step"],
)
async def test_a_schema_of_another_release_is_refused_with_a_sentence(
    database: PostgresDatabase, change: str, why: str
) -> None:
    """Its tables may have other columns: it would open, and every write would fail."""
    await (await PostgresRecords.open(database.app_url)).close()
    await postgres_rows(database.app_url, change)

    with pytest.raises(Unavailable, match=why):
        await PostgresRecords.open(database.app_url)


@pytest.mark.parametrize(
    ("part", "why"), [(f"{APP_ROLE}@", "check user and password"), ("/test_", "it has no such database")]
)
async def test_a_refused_login_is_called_one(database: PostgresDatabase, part: str, why: str) -> None:
    """The server does answer."""
    with pytest.raises(Unavailable, match=f"refuses the login: {why}"):
        await PostgresRecords.open(database.app_url.replace(part, part[:1] + "x" + part[1:]))


async def test_two_schemas_of_a_database_do_not_meet(database: PostgresDatabase) -> None:
    one = await PostgresRecords.open(database.app_url, schema="one")
    other = await PostgresRecords.open(database.app_url, schema='the "other"')

    for store, head in ((one, b"one"), (other, b"other")):
        assert await store.commit([record_change(A, 0, 1, head=head)]) is None

    loaded = [await store.load(A, 0) for store in (one, other)]
    assert [record and record.head for record in loaded] == [b"one", b"other"]
    await one.close()
    await other.close()


async def test_a_role_that_no_wall_binds_is_warned_about(
    database: PostgresDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        await (await PostgresRecords.open(database.app_url)).close()
        plain = list(caplog.messages)
        await (await PostgresRecords.open(database.admin_url)).close()

    assert plain == []
    assert "give tenuto a plain role" in caplog.text


async def test_a_database_that_cannot_hold_all_characters_is_refused(postgres: PostgresServer) -> None:
    postgres.sql("CREATE DATABASE ascii OWNER tenuto_app TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'")

    with pytest.raises(InvalidSetting, match="needs UTF8"):
        await PostgresRecords.open(postgres.database("ascii").app_url)


@pytest.mark.parametrize("schema", ["", "x" * 64])
async def test_a_schema_name_that_postgres_would_cut_is_refused(database: PostgresDatabase, schema: str) -> None:
    with pytest.raises(InvalidSetting, match="schema"):
        await PostgresRecords.open(database.app_url, schema=schema)


@pytest.mark.parametrize(("place", "error"), [("nobody@127.0.0.1:1", Unavailable), ("127.0.0.1:port", InvalidSetting)])
async def test_an_address_without_a_server_is_refused(place: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        await PostgresRecords.open(f"postgresql://{place}/none")
