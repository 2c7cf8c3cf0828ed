"""A cluster through the client: every slot is reached, and what moves is followed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from tenuto.model.scope import session_key
from tenuto.stores.engine.breaker_records import ShardedRecords
from tenuto.stores.redis import RedisRecords
from tenuto.stores.redis._client import RedisClient
from tenuto.stores.redis._cluster import key_slot
from tenuto.stores.redis._scripts import Script
from tests.samples import ANN
from tests.servers import RedisCluster, start_cluster
from tests.servers.slot_moves import begin_move, end_move, move_keys
from tests.unit.stores.redis.clients import run_script

COUNT = Script("redis.call('INCR', KEYS[2]) return redis.call('INCR', KEYS[1])")


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    """Its own cluster: these tests move slots about."""
    with start_cluster() as started:
        yield started


@pytest.fixture
async def client(cluster: RedisCluster) -> AsyncIterator[RedisClient]:
    cluster.flush()
    opened = RedisClient(cluster.url)
    yield opened
    await opened.aclose()


async def test_every_key_reaches_its_server(client: RedisClient) -> None:
    keys = [b"key:%d" % number for number in range(300)]
    await asyncio.gather(*(client.call("SET", key, key, key=key) for key in keys))

    assert await asyncio.gather(*(client.call("GET", key, key=key) for key in keys)) == keys
    assert len(await client.primaries()) == 3


async def test_a_call_without_a_key_is_answered_by_somebody(client: RedisClient) -> None:
    assert await client.call("PING") == b"PONG"


async def test_a_moved_slot_is_followed(cluster: RedisCluster, client: RedisClient) -> None:
    key = b"{moved}:count"
    slot = key_slot(key)
    await run_script(client, COUNT, [key, b"{moved}:other"], [])
    source, target = begin_move(cluster, slot)
    move_keys(source, target, slot, 10)
    end_move(cluster, slot, target)

    counts = await asyncio.gather(*(run_script(client, COUNT, [key, b"{moved}:other"], []) for _ in range(20)))

    assert sorted(counts) == list(range(2, 22))
    assert source is not target
    assert target.call("GET", key.decode()) == "21"


async def test_a_slot_on_the_move_is_asked_for_at_both_ends(cluster: RedisCluster, client: RedisClient) -> None:
    slot = key_slot(b"{asked}")
    old, new = b"{asked}:old", b"{asked}:new"
    await client.call("SET", old, "1", key=old)
    source, target = begin_move(cluster, slot)

    # `new` is not at the source, so the importing server takes it; it does not know the script yet
    target.call("SCRIPT", "FLUSH")
    assert await run_script(client, COUNT, [new, new], []) == 2
    assert await client.call("GET", old, key=old) == b"1"

    move_keys(source, target, slot, 10)
    assert await client.call("GET", old, key=old) == b"1"
    end_move(cluster, slot, target)
    assert await client.call("GET", new, key=new) == b"2"


async def test_keys_torn_between_two_servers_are_waited_for(cluster: RedisCluster, client: RedisClient) -> None:
    """TRYAGAIN: a script on two keys, one of which has moved already."""
    first, second = b"{torn}:1", b"{torn}:2"
    slot = key_slot(first)
    await run_script(client, COUNT, [first, second], [])
    source, target = begin_move(cluster, slot)
    move_keys(source, target, slot, 1)

    waiting = asyncio.ensure_future(run_script(client, COUNT, [first, second], []))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    move_keys(source, target, slot, 1)

    assert await waiting == 2
    end_move(cluster, slot, target)


async def test_a_record_lies_on_one_of_the_shards_by_name(cluster: RedisCluster) -> None:
    """By these names each server has a breaker of its own."""
    records = await RedisRecords.open(cluster.url, prepare=False)
    assert isinstance(records, ShardedRecords)
    unknown = records.shards
    await records.ping()

    assert unknown == {""}
    assert len(records.shards) == 3
    assert {records.shard_of(session_key(ANN, f"s{number}")) for number in range(50)} == records.shards
    await records.close()
