"""The link while servers freeze, die, come back and change places."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from tenuto.stores.redis._door import LinkPolicy
from tenuto.stores.redis._faults import CallTimeout, ConnectionLost, LinkDown
from tenuto.stores.redis._link import Link
from tests.servers import RedisServer, start_redis, start_sentinel

QUICK = LinkPolicy(connect_timeout=1, call_timeout=1)


@asynccontextmanager
async def linked(url: str, policy: LinkPolicy | None = None) -> AsyncIterator[Link]:
    link = Link(url, policy)
    try:
        yield link
    finally:
        await link.aclose()


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with start_redis() as started:
        yield started


async def answered_again(link: Link, within: float) -> None:
    async with asyncio.timeout(within):
        while True:
            try:
                await link.call("PING")
            except LinkDown:
                await asyncio.sleep(0.02)
            else:
                return


async def test_a_frozen_server_costs_the_timeout_and_no_more(server: RedisServer) -> None:
    """T7: no request waits longer than the timeout budget."""
    loop = asyncio.get_running_loop()
    async with linked(server.url, QUICK) as link:
        await link.call("PING")
        server.freeze()
        started = loop.time()
        outcomes = await asyncio.gather(*(link.call("PING") for _ in range(20)), return_exceptions=True)
        took = loop.time() - started
        server.thaw()

        assert all(isinstance(outcome, CallTimeout | ConnectionLost) for outcome in outcomes)
        # Twice the time, and room for a busy machine; without an end of its own a call would wait for the thaw.
        assert took < 15
        await answered_again(link, within=20)


async def test_a_slow_call_times_out_alone(server: RedisServer) -> None:
    """The connection lives on for the others, and the late reply is given to nobody."""
    async with linked(server.url) as link:
        await link.call("PING")
        blocked = asyncio.ensure_future(link.call("BLPOP", "nothing", "0.4", timeout=0.1))
        with pytest.raises(CallTimeout):
            await blocked

        assert await asyncio.gather(*(link.call("ECHO", str(n)) for n in range(10))) == [
            str(n).encode() for n in range(10)
        ]
        clients = (await link.call("CLIENT", "LIST")).decode()
        assert clients.count(" name=tenuto") == 1


async def test_a_killed_server_is_found_again_after_its_restart(server: RedisServer) -> None:
    async with linked(server.url) as link:
        await link.call("SET", "kept", "yes")
        server.kill()
        with pytest.raises(LinkDown):
            await link.call("GET", "kept")

        server.restart()
        await answered_again(link, within=20)
        assert await link.call("GET", "kept") == b"yes"


async def test_a_lost_connection_is_mended_unseen_where_repeating_is_safe(server: RedisServer) -> None:
    async with linked(server.url) as link:
        await link.call("PING")
        server.call("CLIENT", "KILL", "TYPE", "normal")
        assert await asyncio.gather(*(link.call("ECHO", str(n)) for n in range(5))) == [
            str(n).encode() for n in range(5)
        ]


async def test_a_call_that_must_not_be_repeated_is_not(server: RedisServer) -> None:
    async with linked(server.url) as link:
        await link.call("PING")
        waiting = asyncio.ensure_future(link.call("BLPOP", "nothing", "5", safe=False, timeout=5))
        # The server tells nobody when a client begins to wait.
        while "cmd=blpop" not in server.call("CLIENT", "LIST"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        server.call("CLIENT", "KILL", "TYPE", "normal")

        with pytest.raises(ConnectionLost):
            await waiting


async def test_a_server_that_loads_its_data_is_waited_for(server: RedisServer) -> None:
    async with linked(server.url) as link:
        server.call("DEBUG", "POPULATE", 2000)
        server.call("CONFIG", "SET", "key-load-delay", 100, "loading-process-events-interval-bytes", 1024)
        reload = asyncio.ensure_future(asyncio.to_thread(server.call, "DEBUG", "RELOAD"))
        await asyncio.sleep(0.05)

        assert await link.call("DBSIZE", timeout=5) == 2000
        await reload


async def test_calls_follow_the_primary_after_a_failover() -> None:
    with start_sentinel() as group:
        async with linked(group.url) as link:
            await link.call("SET", "kept", "yes")
            group.wait_until_copied()
            before = await link.primaries()
            await asyncio.to_thread(group.fail_over)
            await answered_again(link, within=20)

            assert await link.call("GET", "kept") == b"yes"
            await link.call("SET", "kept", "still")
            assert await link.primaries() != before


async def test_a_planned_switch_is_noticed_without_a_lost_call() -> None:
    """The sentinels announce it, and a demoted server refuses writes until we look again."""
    with start_sentinel() as group:
        async with linked(group.url, LinkPolicy(call_timeout=20)) as link:
            await link.call("SET", "n", "0")
            before = await link.primaries()
            group.sentinels[0].call("SENTINEL", "FAILOVER", group.service)

            async with asyncio.timeout(40):
                while await link.primaries() == before:
                    await link.call("SET", "n", "1")
                    await asyncio.sleep(0.02)
            await link.call("SET", "n", "2")
