"""Compacting a server's files: what can be done is done, and what cannot is reported."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Mapping
from typing import Any

import psutil
import pytest

from tenuto.model import CompactionResult
from tenuto.stores.redis import _compaction
from tests.backends import redis_engine
from tests.samples import ANN, talk
from tests.servers import RedisServer, start_redis


async def test_a_server_that_denies_it_is_left_as_it_is(valkey: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    """Hosted servers do not let their users renew files."""
    valkey.call("ACL", "SETUSER", "guest", "on", ">secret", "~*", "&*", "+@all", "-bgrewriteaof", "-bgsave")
    try:
        async with redis_engine(valkey.url.replace("://", "://guest:secret@")) as store:
            with caplog.at_level(logging.WARNING):
                told = await store.upkeep.compact()
    finally:
        valkey.call("ACL", "DELUSER", "guest")

    assert told == CompactionResult(cleared=False, remaining_reason="a server refuses to rewrite its files (NOPERM)")
    assert "refuses to rewrite its files (NOPERM)" in caplog.text


async def test_a_server_that_does_not_tell_of_its_snapshots_is_not_taken_for_one_without() -> None:
    with start_redis(fsync="no", appendonly="no") as server:
        server.call("ACL", "SETUSER", "guest", "on", ">secret", "~*", "&*", "+@all", "-config")
        async with redis_engine(server.url.replace("://", "://guest:secret@")) as store:
            told = await store.upkeep.compact()

    assert told == CompactionResult(cleared=False, remaining_reason="a server does not tell whether it keeps snapshots")


async def test_a_server_that_cannot_write_its_files_is_not_said_to_have() -> None:
    with start_redis(fsync="no", save="3600 1") as server:
        (server.folder / "dump.rdb").mkdir()
        async with redis_engine(server.url) as store:
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
        async with redis_engine(server.url) as store:
            await talk(store, ANN, "s", "hello", "hi")
            server.call("BGREWRITEAOF")
            [early] = psutil.Process(server.pid).children()
            server.call("CONFIG", "SET", "rdb-key-save-delay", 0)

            compacting = asyncio.create_task(store.upkeep.compact())
            compacting.add_done_callback(lambda _: waiting.set())
            await waiting.wait()
            early.kill()
            told = await compacting

        assert told == CompactionResult(cleared=True)
        done = server.info("persistence")
        assert (done["aof_rewrites"], done["aof_rewrite_in_progress"]) == (2, 0)


async def test_a_server_that_keeps_no_files_is_given_none() -> None:
    with start_redis(fsync="no", appendonly="no") as server:
        async with redis_engine(server.url) as store:
            await talk(store, ANN, "s", "hello", "hi")
            await store.upkeep.compact()

        assert not list(server.folder.rglob("*.rdb"))
