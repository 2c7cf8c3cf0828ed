"""What a cache is told: every change, by the time it is acknowledged, and every doubt."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import hiredis
import pytest

from tenuto.stores.redis import ConnectionPolicy, _invalidation
from tenuto.stores.redis._client import RedisClient
from tenuto.stores.redis._invalidation import InvalidationListener
from tenuto.stores.redis._socket import NOTHING, _exchange
from tenuto.stores.redis._tracking import ClientTracking
from tests.internals import last_heard, redis_listeners
from tests.servers import RedisCluster, RedisServer, start_redis
from tests.timeouts import LONG, wait_until
from tests.unit.stores.redis.tls_proxy import certificate, tls_proxy

PREFIX = b"track:"


@pytest.fixture(autouse=True)
def trustful(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that stands still for two seconds is silent for as long, and every ear would be in doubt."""
    assert _invalidation.BEAT < _invalidation.DOUBT
    monkeypatch.setattr(_invalidation, "BEAT", 0.05)
    monkeypatch.setattr(_invalidation, "DOUBT", 10 * LONG)


class Cache:
    """Remembers what it was told to drop."""

    def __init__(self) -> None:
        self.dropped: list[bytes | None] = []

    def drop(self, keys: list[bytes] | None) -> None:
        self.dropped.extend([None] if keys is None else [key.removeprefix(PREFIX) for key in keys])

    def clear(self) -> None:
        self.dropped.clear()


@asynccontextmanager
async def watched(url: str) -> AsyncIterator[tuple[RedisClient, ClientTracking, Cache]]:
    client, cache = RedisClient(url), Cache()
    tracking = ClientTracking(client, PREFIX)
    async with tracking.watch(cache.drop):
        await wait_until(tracking.catch_up)
        cache.clear()
        yield client, tracking, cache
    await client.aclose()


async def test_a_change_is_known_as_soon_as_it_is_acknowledged(redis_server: RedisServer) -> None:
    """The listener is asked synchronously: the event loop gets no chance to hear of it by itself."""
    async with watched(redis_server.url) as (_, tracking, cache):
        for number in range(300):
            redis_server.call("SET", f"track:{number}", "x")
            assert tracking.catch_up()
            assert cache.dropped == [str(number).encode()]
            cache.clear()


async def test_changes_by_scripts_expiry_and_deletion_are_told(redis_server: RedisServer) -> None:
    async with watched(redis_server.url) as (_, tracking, cache):
        redis_server.call("EVAL", "return redis.call('HSET', KEYS[1], 'a', 1)", 1, "track:lua")
        redis_server.call("SET", "track:brief", "x")
        redis_server.call("DEL", "track:lua")
        assert tracking.catch_up()
        assert cache.dropped == [b"lua", b"brief", b"lua"]
        cache.clear()

        redis_server.call("PEXPIRE", "track:brief", 1000)
        await wait_until(lambda: tracking.catch_up() and len(cache.dropped) == 2)
        assert cache.dropped == [b"brief", b"brief"]


async def test_other_keys_are_not_told(redis_server: RedisServer) -> None:
    async with watched(redis_server.url) as (_, tracking, cache):
        redis_server.call("SET", "elsewhere", "x")
        assert tracking.catch_up()
        assert cache.dropped == []


async def test_a_flushed_server_drops_everything(redis_server: RedisServer) -> None:
    async with watched(redis_server.url) as (_, tracking, cache):
        redis_server.flush()
        # The server writes its answer and the news one after the other, so they are a moment apart.
        await wait_until(lambda: tracking.catch_up() and cache.dropped == [None])


async def test_an_idle_cache_hears_of_changes_too(redis_server: RedisServer) -> None:
    async with watched(redis_server.url) as (_, _, cache):
        await asyncio.to_thread(redis_server.call, "SET", "track:idle", "x")
        await wait_until(lambda: cache.dropped == [b"idle"])


async def test_a_watch_begins_when_the_server_is_listened_to(redis_server: RedisServer) -> None:
    """Nothing is vouched for before and after."""
    client, cache = RedisClient(redis_server.url, ConnectionPolicy(connect_timeout=LONG, call_timeout=LONG)), Cache()
    tracking = ClientTracking(client, PREFIX)
    assert not tracking.catch_up()
    async with tracking.watch(cache.drop):
        assert tracking.catch_up()
        assert set(cache.dropped) == {None}
    assert not tracking.catch_up()
    await client.aclose()


async def test_a_watch_begins_though_its_server_is_replaced_meanwhile() -> None:
    """A process that starts in the middle of a failover does not wait for the one that is gone."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client, cache = RedisClient(f"redis://127.0.0.1:{silent.getsockname()[1]}/0"), Cache()
        tracking = ClientTracking(client, PREFIX)
        beginning = tracking.watch(cache.drop)
        begun = asyncio.create_task(beginning.__aenter__())
        await wait_until(lambda: bool(redis_listeners(tracking)))

        for ear in redis_listeners(tracking):
            ear.close()

        async with asyncio.timeout(LONG):
            await begun
        await beginning.__aexit__(None, None, None)
        await client.aclose()


async def test_a_frozen_server_is_in_doubt_and_trusted_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    with start_redis(fsync="no") as server:
        async with watched(server.url) as (_, tracking, cache):
            server.freeze()
            monkeypatch.setattr(_invalidation, "DOUBT", 0.2)
            await wait_until(lambda: not tracking.catch_up())
            server.thaw()
            monkeypatch.setattr(_invalidation, "DOUBT", 10 * LONG)
            await wait_until(tracking.catch_up)

            server.call("SET", "track:after", "x")
            await wait_until(lambda: tracking.catch_up() and b"after" in cache.dropped)


async def test_a_killed_server_is_noticed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with start_redis(fsync="no") as server:
        async with watched(server.url) as (_, tracking, cache):
            monkeypatch.setattr(_invalidation, "BEAT", 10 * LONG)
            await hears_signs_of_life(tracking, 1)
            server.kill()
            # Long before it would be asked for a sign of life, or in doubt for its silence.
            await wait_until(lambda: not tracking.catch_up())
            monkeypatch.setattr(_invalidation, "BEAT", 0.05)
            assert cache.dropped == [None]
            server.restart()
            await wait_until(tracking.catch_up)

            server.call("SET", "track:after", "x")
            assert tracking.catch_up()
            assert cache.dropped[-1] == b"after"


async def hears_signs_of_life(tracking: ClientTracking, count: int = 3) -> None:
    """Wait until every server has answered so often, although nothing has changed."""
    for ear in redis_listeners(tracking):
        for _ in range(count):
            await wait_until(partial(_heard_since, ear, last_heard(ear)))


def _heard_since(ear: InvalidationListener, before: float) -> bool:
    return last_heard(ear) > before


async def test_a_quiet_link_stays_trusted(redis_server: RedisServer) -> None:
    async with watched(redis_server.url) as (_, tracking, cache):
        await hears_signs_of_life(tracking)
        assert tracking.catch_up()
        assert cache.dropped == []


async def test_every_primary_of_a_cluster_is_heard(redis_cluster: RedisCluster) -> None:
    async with watched(redis_cluster.url) as (_, tracking, cache):
        for number in range(60):
            key = f"track:{number}"
            redis_cluster.owner_of(key).call("SET", key, "x")
            assert tracking.catch_up()
            assert cache.dropped == [str(number).encode()]
            cache.clear()
        await hears_signs_of_life(tracking)
        assert tracking.catch_up()
        assert cache.dropped == []


async def test_tracking_works_over_tls(redis_server: RedisServer, tmp_path: Path) -> None:
    ca, server_side = certificate(tmp_path)
    async with (
        tls_proxy(redis_server.port, server_side) as port,
        watched(f"rediss://localhost:{port}?ca={ca}") as (_, tracking, cache),
    ):
        redis_server.call("SET", "track:tls", "x")
        # the TLS door in between is a task of this loop, so here it takes a moment
        await wait_until(lambda: tracking.catch_up() and cache.dropped == [b"tls"])


async def test_an_answer_that_came_along_with_news_is_not_waited_for() -> None:
    """A server that has begun to tell us may do so before it answers our next call, all in one piece."""
    ours, servers = socket.socketpair()
    with ours, servers:
        ours.setblocking(False)
        servers.sendall(b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n" * 2 + b"+OK\r\n")
        servers.shutdown(socket.SHUT_WR)

        assert await _exchange(ours, hiredis.Reader(notEnoughData=NOTHING), b"PING") == b"OK"
