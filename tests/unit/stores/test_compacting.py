"""Compacting beside other connections: what can be done is done, and what cannot is reported."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Mapping
from typing import Any

import psutil
import pytest

from tenuto.model import CompactionResult
from tenuto.stores.postgres import PostgresStore
from tenuto.stores.redis import RedisStore, _compaction
from tests.samples import ANN, talk
from tests.servers import PostgresDatabase, PostgresServer, RedisServer, start_redis
from tests.shared_stores import postgres_store, redis_store


async def test_a_server_that_denies_it_is_left_as_it_is(valkey: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    """Hosted servers do not let their users renew files."""
    valkey.call("ACL", "SETUSER", "guest", "on", ">secret", "~*", "&*", "+@all", "-bgrewriteaof", "-bgsave")
    try:
        async with redis_store(valkey.url.replace("://", "://guest:secret@")) as store:
            with caplog.at_level(logging.WARNING):
                told = await store.upkeep.compact()
    finally:
        valkey.call("ACL", "DELUSER", "guest")

    assert told == CompactionResult(cleared=False, remaining_reason="a server refuses to rewrite its files (NOPERM)")
    assert "refuses to rewrite its files (NOPERM)" in caplog.text


async def test_a_server_that_does_not_tell_of_its_snapshots_is_not_taken_for_one_without() -> None:
    with start_redis(fsync="no", appendonly="no") as server:
        server.call("ACL", "SETUSER", "guest", "on", ">secret", "~*", "&*", "+@all", "-config")
        async with redis_store(server.url.replace("://", "://guest:secret@")) as store:
            told = await store.upkeep.compact()

    assert told == CompactionResult(cleared=False, remaining_reason="a server does not tell whether it keeps snapshots")


async def test_a_server_that_cannot_write_its_files_is_not_said_to_have() -> None:
    with start_redis(fsync="no", save="3600 1") as server:
        (server.folder / "dump.rdb").mkdir()
        async with redis_store(server.url) as store:
            await talk(store, ANN, "s", "hello", "hi")
            told = await store.upkeep.compact()

    assert told == CompactionResult(cleared=False, remaining_reason="a server could not renew its files (BGSAVE)")


async def test_work_that_began_too_early_is_waited_for_and_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rewriting under way has copied the words before they were deleted."""
    waiting, looks = asyncio.Event(), itertools.count(1)
    ask = _compaction._persistence

    async def noted(*place: Any) -> Mapping[str, str]:
        facts = await ask(*place)
        if facts["aof_rewrite_in_progress"] == "1" and next(looks) == 3:
            waiting.set()
        return facts

    monkeypatch.setattr(_compaction, "_persistence", noted)
    # Far longer than the test takes: it ends when the test says so.
    with start_redis(fsync="no", rdb_key_save_delay=10_000_000) as server:
        store = await RedisStore.open(server.url)
        await talk(store, ANN, "s", "hello", "hi")
        server.call("BGREWRITEAOF")
        [early] = psutil.Process(server.pid).children()
        server.call("CONFIG", "SET", "rdb-key-save-delay", 0)

        compacting = asyncio.create_task(store.upkeep.compact())
        compacting.add_done_callback(lambda _: waiting.set())
        await waiting.wait()
        early.kill()
        told = await compacting
        await store.close()

        assert told == CompactionResult(cleared=True)
        done = server.info("persistence")
        assert (done["aof_rewrites"], done["aof_rewrite_in_progress"]) == (2, 0)


async def test_a_server_that_keeps_no_files_is_given_none() -> None:
    with start_redis(fsync="no", appendonly="no") as server:
        async with redis_store(server.url) as store:
            await talk(store, ANN, "s", "hello", "hi")
            await store.upkeep.compact()

        assert not list(server.folder.rglob("*.rdb"))


async def test_tables_of_another_role_are_passed_over_and_said(
    postgres: PostgresServer, database: PostgresDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    await (await PostgresStore.open(database.app_url)).close()
    postgres.sql("DROP ROLE IF EXISTS guest")
    postgres.sql("CREATE ROLE guest LOGIN")
    postgres.sql(
        "GRANT USAGE ON SCHEMA tenuto TO guest; GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA tenuto TO guest;"
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA tenuto TO guest",
        database.name,
    )
    try:
        async with postgres_store(database.app_url.replace("tenuto_app@", "guest@")) as store:
            await talk(store, ANN, "s", "hello", "hi")
            with caplog.at_level(logging.WARNING):
                told = await store.upkeep.compact()
    finally:
        postgres.sql("DROP OWNED BY guest", database.name)
        postgres.sql("DROP ROLE guest")

    assert told == CompactionResult(
        cleared=False, remaining_reason="tables of another role were passed over: their owner has to vacuum them"
    )
    assert "permission denied to vacuum" in caplog.text
    assert "messages" in caplog.text


async def test_postgres_does_not_claim_more_than_its_vacuum_does(database: PostgresDatabase) -> None:
    async with postgres_store(database.app_url) as store:
        await talk(store, ANN, "s", "hello", "hi")
        await store.sessions.delete(ANN, "s")
        told = await store.upkeep.compact()

    assert not told.cleared
    assert "VACUUM FULL" in told.remaining_reason
