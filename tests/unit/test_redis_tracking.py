"""What a cache is told: every change, by the time it is acknowledged, and every doubt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from tenuto.stores.redis._ear import DOUBT
from tenuto.stores.redis._link import Link
from tenuto.stores.redis._tracking import Tracking
from tests.servers import RedisCluster, RedisServer, start_redis
from tests.unit.test_redis_link import certificate, tls_front

PREFIX = b"track:"


class Cache:
    """Remembers what it was told to drop."""

    def __init__(self) -> None:
        self.dropped: list[bytes | None] = []

    def drop(self, keys: Iterable[bytes] | None) -> None:
        self.dropped.extend([None] if keys is None else keys)

    def clear(self) -> None:
        self.dropped.clear()


async def until(holds: Callable[[], bool], seconds: float = 20) -> None:
    """Wait for something that sends no event when it comes true."""
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@asynccontextmanager
async def watched(url: str) -> AsyncIterator[tuple[Link, Tracking, Cache]]:
    link, cache = Link(url), Cache()
    tracking = Tracking(link, PREFIX)
    async with tracking.watch(cache.drop):
        await until(tracking.catch_up)
        cache.clear()
        yield link, tracking, cache
    await link.aclose()


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
        redis_server.call("SET", "track:brief", "x", "PX", 1000)
        redis_server.call("DEL", "track:lua")
        assert tracking.catch_up()
        assert cache.dropped == [b"lua", b"brief", b"lua"]
        cache.clear()

        await until(lambda: tracking.catch_up() and bool(cache.dropped))
        assert cache.dropped == [b"brief"]


async def test_other_keys_are_not_told(redis_server: RedisServer) -> None:
    async with watched(redis_server.url) as (_, tracking, cache):
        redis_server.call("SET", "elsewhere", "x")
        assert tracking.catch_up()
        assert cache.dropped == []


async def test_a_flushed_server_drops_everything(redis_server: RedisServer) -> None:
    async with watched(redis_server.url) as (_, tracking, cache):
        redis_server.flush()
        # The server writes its answer and the news one after the other, so they are a moment apart.
        await until(lambda: tracking.catch_up() and cache.dropped == [None])


async def test_an_idle_cache_hears_of_changes_too(redis_server: RedisServer) -> None:
    async with watched(redis_server.url) as (_, _, cache):
        await asyncio.to_thread(redis_server.call, "SET", "track:idle", "x")
        await until(lambda: cache.dropped == [b"idle"])


async def test_nothing_is_vouched_for_before_the_link_stands_and_after_it_closed(redis_server: RedisServer) -> None:
    link, cache = Link(redis_server.url), Cache()
    tracking = Tracking(link, PREFIX)
    assert not tracking.catch_up()
    async with tracking.watch(cache.drop):
        assert not tracking.catch_up()
        assert cache.dropped == [None]
        await until(tracking.catch_up)
    assert not tracking.catch_up()
    await link.aclose()


async def test_a_frozen_server_is_in_doubt_and_trusted_again_later() -> None:
    with start_redis() as server:
        async with watched(server.url) as (_, tracking, cache):
            server.freeze()
            await until(lambda: not tracking.catch_up())
            server.thaw()
            await until(tracking.catch_up)

            server.call("SET", "track:after", "x")
            await until(lambda: tracking.catch_up() and b"after" in cache.dropped)


async def test_a_killed_server_is_noticed_at_once() -> None:
    with start_redis() as server:
        async with watched(server.url) as (_, tracking, cache):
            server.kill()
            # Long before it would be in doubt for its silence.
            await until(lambda: not tracking.catch_up(), seconds=DOUBT - 0.5)
            assert cache.dropped == [None]
            server.restart()
            await until(tracking.catch_up)

            server.call("SET", "track:after", "x")
            assert tracking.catch_up()
            assert cache.dropped[-1] == b"after"


async def test_a_quiet_link_stays_trusted(redis_server: RedisServer) -> None:
    async with watched(redis_server.url) as (_, tracking, cache):
        await asyncio.sleep(2.5)
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
        await asyncio.sleep(2.5)
        assert tracking.catch_up()
        assert cache.dropped == []


async def test_tracking_works_over_tls(redis_server: RedisServer, tmp_path: Path) -> None:
    ca, server_side = certificate(tmp_path)
    async with (
        tls_front(redis_server.port, server_side) as port,
        watched(f"rediss://localhost:{port}?ca={ca}") as (_, tracking, cache),
    ):
        redis_server.call("SET", "track:tls", "x")
        # the TLS door in between is a task of this loop, so here it takes a moment
        await until(lambda: tracking.catch_up() and cache.dropped == [b"tls"])
