"""Maintenance of a schema: damaged names hide no others, and compacting claims no more than VACUUM does."""

from __future__ import annotations

import logging

import pytest

from tenuto.model import CompactionResult, Scope
from tenuto.model.scope import owner_key
from tenuto.stores.postgres import PostgresRecords
from tests.backends import postgres_engine
from tests.internals import postgres_rows
from tests.samples import ACME, ANN, BOB, EVE, talk
from tests.servers import PostgresDatabase, PostgresServer


@pytest.mark.parametrize("scribble", [b"{", b"", b"\x81\xa6tenant\xa0"], ids=["torn", "empty", "of no tenant"])
async def test_a_damaged_name_is_left_out_and_hides_no_other(database: PostgresDatabase, scribble: bytes) -> None:
    damage = "UPDATE tenuto.records SET scope = $1 WHERE owner = ANY($2)"
    async with postgres_engine(database.app_url) as store:
        for scope in (ANN, BOB, EVE):
            await store.state.write_state(scope, "prefs", "tone", "warm")

        await postgres_rows(database.admin_url, damage, scribble, [owner_key(ANN)])
        (location,) = await store.state.list_state_locations(ACME)
        await postgres_rows(database.admin_url, damage, scribble, [owner_key(ANN), owner_key(BOB)])

        assert location.scope == BOB
        assert await store.state.list_state_locations(ACME) == ()
        assert await store.upkeep.list_sites(limit=1) == (Scope(tenant="evil"),)


async def test_tables_of_another_role_are_passed_over_and_reported(
    postgres: PostgresServer, database: PostgresDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    await (await PostgresRecords.open(database.app_url)).close()
    postgres.sql("DROP ROLE IF EXISTS guest")
    postgres.sql("CREATE ROLE guest LOGIN")
    postgres.sql(
        "GRANT USAGE ON SCHEMA tenuto TO guest; GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA tenuto TO guest;"
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA tenuto TO guest",
        database.name,
    )
    try:
        async with postgres_engine(database.app_url.replace("tenuto_app@", "guest@")) as store:
            await talk(store, ANN, "s", "hello", "hi")
            with caplog.at_level(logging.WARNING):
                result = await store.upkeep.compact()
    finally:
        postgres.sql("DROP OWNED BY guest", database.name)
        postgres.sql("DROP ROLE guest")

    reason = "tables of another role were passed over: their owner has to vacuum them"
    assert result == CompactionResult(cleared=False, remaining_reason=reason)
    assert "permission denied to vacuum" in caplog.text
    assert "entries" in caplog.text


async def test_compacting_claims_no_more_than_its_vacuum_does(database: PostgresDatabase) -> None:
    async with postgres_engine(database.app_url) as store:
        await talk(store, ANN, "s", "hello", "hi")
        await store.sessions.delete(ANN, "s")
        result = await store.upkeep.compact()

    assert not result.cleared
    assert "VACUUM FULL" in result.remaining_reason
