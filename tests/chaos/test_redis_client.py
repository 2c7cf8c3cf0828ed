"""The client while servers freeze, die, come back and change places."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tenuto.stores.redis import ConnectionPolicy
from tenuto.stores.redis._client import RedisClient
from tenuto.stores.redis._resp import CallFailed, CallTimeout, RedisConnectionLost
from tests.servers import RedisServer, start_redis, start_sentinel
from tests.timeouts import LONG
from tests.unit.stores.redis.clients import open_client

# For calls that are to end without an answer. What must be answered goes over another client.
QUICK = ConnectionPolicy(connect_timeout=1, call_timeout=1)


@pytest.fixture
def server() -> Iterator[RedisServer]:
    # Without fsync the log is written before the answer; with it, a busy disk has it written later.
    with start_redis(fsync="no") as started:
        yield started


async def answered_again(client: RedisClient) -> None:
    async with asyncio.timeout(LONG):
        while True:
            try:
                await client.call("PING")
            except CallFailed:
                await asyncio.sleep(0.02)
            else:
                return


@pytest.mark.requirement("T7")
async def test_a_frozen_server_costs_the_timeout_and_no_more(server: RedisServer) -> None:
    """No request waits longer than the timeout budget."""
    async with open_client(server.url, QUICK) as client:
        await answered_again(client)
        server.freeze()
        # The server stays frozen: a call without an end of its own would never end.
        async with asyncio.timeout(LONG):
            outcomes = await asyncio.gather(*(client.call("PING") for _ in range(20)), return_exceptions=True)
        server.thaw()

        assert all(isinstance(outcome, CallTimeout | RedisConnectionLost) for outcome in outcomes)
        await answered_again(client)


async def test_a_slow_call_times_out_alone(server: RedisServer) -> None:
    """The connection lives on for the others, and the late reply is dropped."""
    async with open_client(server.url) as client:
        connection = await client.call("CLIENT", "ID")
        with pytest.raises(CallTimeout):
            await client.call("BLPOP", "nothing", "0", timeout=0.1)

        behind = asyncio.gather(*(client.call("ECHO", str(n)) for n in range(10)))
        await asyncio.sleep(0)
        server.call("RPUSH", "nothing", "late")
        assert await behind == [str(n).encode() for n in range(10)]
        assert await client.call("CLIENT", "ID") == connection


async def test_a_killed_server_is_found_again_after_its_restart(server: RedisServer) -> None:
    async with open_client(server.url) as client:
        await client.call("SET", "kept", "yes")
        server.kill()
        with pytest.raises(CallFailed):
            await client.call("GET", "kept")

        server.restart()
        await answered_again(client)
        assert await client.call("GET", "kept") == b"yes"


async def test_a_lost_connection_is_mended_unseen_where_repeating_is_safe(server: RedisServer) -> None:
    async with open_client(server.url) as client:
        await client.call("PING")
        server.call("CLIENT", "KILL", "TYPE", "normal")
        assert await asyncio.gather(*(client.call("ECHO", str(n)) for n in range(5))) == [
            str(n).encode() for n in range(5)
        ]


async def test_a_call_that_must_not_be_repeated_is_not(server: RedisServer) -> None:
    async with open_client(server.url) as client:
        await client.call("PING")
        waiting = asyncio.ensure_future(client.call("BLPOP", "nothing", "0", safe=False))
        # The server sends no event when a client begins to wait.
        while "cmd=blpop" not in server.call("CLIENT", "LIST"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        server.call("CLIENT", "KILL", "TYPE", "normal")

        with pytest.raises(RedisConnectionLost):
            await waiting


async def test_a_server_that_loads_its_data_is_waited_for(server: RedisServer) -> None:
    async with open_client(server.url) as client:
        await client.call("PING")
        server.call("DEBUG", "POPULATE", 20_000)
        # Two milliseconds for each key: it takes its time, until we have seen what we came for.
        server.call("CONFIG", "SET", "key-load-delay", 2000, "loading-process-events-interval-bytes", 1024)
        reload = asyncio.ensure_future(asyncio.to_thread(server.call, "DEBUG", "RELOAD"))
        while not server.info("persistence")["loading"]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

        asked = asyncio.ensure_future(client.call("DBSIZE"))
        while "errorstat_LOADING" not in server.info("errorstats"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert not asked.done()
        server.call("CONFIG", "SET", "key-load-delay", 0)
        assert await asked == 20_000
        await reload


async def test_calls_follow_the_primary_after_a_failover() -> None:
    with start_sentinel() as group:
        async with open_client(group.url) as client:
            await client.call("SET", "kept", "yes")
            group.wait_until_copied()
            before = await client.primaries()
            await asyncio.to_thread(group.fail_over)
            await answered_again(client)

            assert await client.call("GET", "kept") == b"yes"
            await client.call("SET", "kept", "still")
            assert await client.primaries() != before


async def test_a_planned_switch_is_noticed_without_a_lost_call() -> None:
    """The sentinels announce it, and a demoted server refuses writes until we look again."""
    with start_sentinel() as group:
        async with open_client(group.url) as client:
            await client.call("SET", "n", "0")
            before = await client.primaries()
            switching = asyncio.ensure_future(asyncio.to_thread(group.switch))

            async with asyncio.timeout(2 * LONG):
                while await client.primaries() == before:
                    await client.call("SET", "n", "1")
                    await asyncio.sleep(0.02)
            await switching
            await client.call("SET", "n", "2")
