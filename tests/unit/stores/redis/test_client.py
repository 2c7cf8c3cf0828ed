"""The shared connection: everybody gets their own reply, whatever the others do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tenuto.stores.redis import ConnectionPolicy
from tenuto.stores.redis._client import RedisClient
from tenuto.stores.redis._resp import CallFailed, ResponseError
from tenuto.stores.redis._scripts import Script
from tests.servers import RedisServer, start_redis
from tests.timeouts import LONG
from tests.unit.stores.redis.clients import open_client, run_script
from tests.unit.stores.redis.tls_proxy import certificate, tls_proxy

ECHO = Script("return {KEYS[1], ARGV[1]}")
_PATIENT = ConnectionPolicy(connect_timeout=10 * LONG, call_timeout=10 * LONG)


@pytest.fixture
async def client(redis_server: RedisServer) -> AsyncIterator[RedisClient]:
    async with open_client(redis_server.url) as opened:
        yield opened


async def test_interleaved_calls_get_their_own_replies(client: RedisClient) -> None:
    async def talk(task: int) -> None:
        for number in range(32):
            word = f"{task}:{number}"
            assert await client.call("ECHO", word) == word.encode()
            assert await run_script(client, ECHO, [b"k"], [word]) == [b"k", word.encode()]

    async with asyncio.TaskGroup() as tasks:
        for task in range(32):
            tasks.create_task(talk(task))


async def test_all_tasks_share_a_connection(redis_server: RedisServer) -> None:
    async with open_client(redis_server.url, ConnectionPolicy(client_name="shared")) as client:
        await asyncio.gather(*(client.call("PING") for _ in range(50)))

        assert (await client.call("CLIENT", "LIST")).decode().count("name=shared") == 1


async def test_a_cancelled_call_does_not_disturb_the_others(client: RedisClient) -> None:
    await client.call("PING")
    asked = [asyncio.ensure_future(client.call("ECHO", str(number))) for number in range(100)]
    await asyncio.sleep(0)
    for number in range(0, 100, 3):
        asked[number].cancel()

    replies = await asyncio.gather(*asked, return_exceptions=True)

    for number, reply in enumerate(replies):
        if number % 3:
            assert reply == str(number).encode()
        else:
            assert isinstance(reply, asyncio.CancelledError)
    assert await client.call("ECHO", "after") == b"after"


async def test_a_script_unknown_to_the_server_is_loaded_and_run(client: RedisClient) -> None:
    count = Script("return redis.call('INCR', KEYS[1])")
    await client.call("DEL", "noscript-count")
    await client.call("SCRIPT", "FLUSH")

    replies = await asyncio.gather(*(run_script(client, count, [b"noscript-count"], []) for _ in range(50)))

    assert sorted(replies) == list(range(1, 51))
    await client.call("SCRIPT", "FLUSH")
    assert await run_script(client, count, [b"noscript-count"], []) == 51


async def test_a_big_value_goes_through(client: RedisClient) -> None:
    big = b"x" * (8 * 1024 * 1024)
    first, second = await asyncio.gather(
        run_script(client, ECHO, [b"k"], [big]), run_script(client, ECHO, [b"k"], [b"small"])
    )

    assert (first, second) == ([b"k", big], [b"k", b"small"])


async def test_callers_wait_while_the_server_takes_no_more_bytes(client: RedisClient) -> None:
    big = b"x" * (1024 * 1024)

    replies = await asyncio.gather(*(client.call("ECHO", big) for _ in range(40)))

    assert all(reply == big for reply in replies)


async def test_an_error_reply_is_refused_without_the_arguments(client: RedisClient) -> None:
    with pytest.raises(ResponseError) as excinfo:
        await client.call("NONSENSE", "what the user said")

    assert excinfo.value.code == "ERR"
    assert "user said" not in str(excinfo.value)


async def test_nobody_listening_is_told_soon() -> None:
    async with (
        open_client(
            "redis://127.0.0.1:1", ConnectionPolicy(connect_timeout=10 * LONG, call_timeout=10 * LONG)
        ) as client,
        asyncio.timeout(LONG),
    ):
        with pytest.raises(CallFailed):
            await client.call("PING")


async def test_a_peer_that_accepts_and_closes_is_asked_no_more_often_than_a_refused_port() -> None:
    accepted = 0

    async def close_at_once(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal accepted
        accepted += 1
        writer.close()

    async with await asyncio.start_server(close_at_once, "127.0.0.1", 0) as peer:
        address = f"redis://127.0.0.1:{peer.sockets[0].getsockname()[1]}"
        async with open_client(address, ConnectionPolicy(connect_timeout=LONG, call_timeout=0.2)) as client:
            for _ in range(20):
                with pytest.raises(CallFailed):
                    await client.call("PING")

    assert accepted < 20, "each attempt doubles the pause before the next"


async def test_password_user_and_database_are_used(redis_server: RedisServer) -> None:
    with start_redis(redis_server.flavour) as server:
        server.call("CONFIG", "SET", "requirepass", "p@ss word")
        async with open_client(f"redis://:p%40ss%20word@127.0.0.1:{server.port}/2") as client:
            await client.call("SET", "where", "two")
            await client.call("ACL", "SETUSER", "ann", "on", ">secret", "~*", "+@all")
        async with open_client(f"redis://ann:secret@127.0.0.1:{server.port}/2") as client:
            assert await client.call("GET", "where") == b"two"
            assert await client.call("ACL", "WHOAMI") == b"ann"
        async with open_client(f"redis://:wrong@127.0.0.1:{server.port}") as client:
            with pytest.raises(ResponseError, match="WRONGPASS"):
                await client.call("PING")


async def test_tls_is_spoken_and_verified(redis_server: RedisServer, tmp_path: Path) -> None:
    ca, server_side = certificate(tmp_path)
    async with tls_proxy(redis_server.port, server_side) as port:
        async with open_client(f"rediss://localhost:{port}?ca={ca}") as client:
            assert await asyncio.gather(*(client.call("ECHO", str(n)) for n in range(20))) == [
                str(n).encode() for n in range(20)
            ]
        async with open_client(f"rediss://localhost:{port}") as client:
            with pytest.raises(CallFailed):
                await client.call("PING")
        async with open_client(f"rediss://localhost:{port}?verify=no") as client:
            assert await client.call("PING") == b"PONG"
