"""redis-py's asyncio client with its connection pool, as anybody would use it; and one connection shared by hand."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from hashlib import sha1
from typing import Any, Final, cast
from urllib.parse import urlsplit

import hiredis
from redis.asyncio import Redis

from bench.raw.bodies import decode_bodies, encode_turn
from bench.workload import WINDOW, Turn

_KEPT_MS: Final = 30 * 24 * 3600 * 1000
_APPEND: Final = """
redis.call('RPUSH', KEYS[1], unpack(ARGV, 2))
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1
"""
_APPEND_AND_LOAD: Final = f"""
redis.call('RPUSH', KEYS[1], unpack(ARGV, 2))
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return redis.call('LRANGE', KEYS[1], -{WINDOW}, -1)
"""


class RawRedis:
    """A list for each session; a message is stored by one script call or one pipelined MULTI."""

    def __init__(self, url: str, *, scripts: bool) -> None:
        # redis-py's types speak of both its clients at once, the waiting and the asyncio one.
        self._client: Any = Redis.from_url(url)
        self._append: Any = self._client.register_script(_APPEND)
        self._scripts = scripts

    async def seed(self, session: str, turns: Sequence[Turn]) -> None:
        await self._client.rpush(session, *(body for turn in turns for body in encode_turn(turn)))

    async def append(self, session: str, turn: Turn) -> None:
        await self._push(session, *encode_turn(turn))

    async def load(self, session: str) -> int:
        return decode_bodies(await self._client.lrange(session, -WINDOW, -1))

    async def cycle(self, session: str, turn: Turn) -> int:
        question, answer = encode_turn(turn)
        found = await self.load(session)
        await self._push(session, question)
        await self._push(session, answer)
        return found

    async def close(self) -> None:
        await self._client.aclose()

    async def _push(self, key: str, *bodies: bytes) -> None:
        if self._scripts:
            await self._append([key], [_KEPT_MS, *bodies])
            return
        async with self._client.pipeline(transaction=True) as pipe:
            pipe.rpush(key, *bodies)
            pipe.pexpire(key, _KEPT_MS)
            await pipe.execute()


async def open_script(url: str) -> RawRedis:
    """Script calls."""
    return RawRedis(url, scripts=True)


async def open_multi(url: str) -> RawRedis:
    """Pipelined MULTI."""
    return RawRedis(url, scripts=False)


class _Multiplexed(asyncio.Protocol):
    """One connection: calls of one iteration of the loop are written together, replies come in order."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self._reader = hiredis.Reader()
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._unsent: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not False:
            self._waiting.popleft().set_result(reply)

    def call(self, *words: bytes | str | int) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        if not self._unsent:
            loop.call_soon(self._flush)
        self._unsent.append(hiredis.pack_command(cast(Any, words)))
        future: asyncio.Future[Any] = loop.create_future()
        self._waiting.append(future)
        return future

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        self.transport.write(b"".join(unsent))


class RawMultiplexed:
    """The same list and scripts over such a connection: two calls a cycle, of which the first loads as well."""

    def __init__(self, connection: _Multiplexed) -> None:
        self._connection = connection

    async def seed(self, session: str, turns: Sequence[Turn]) -> None:
        bodies = [body for turn in turns for body in encode_turn(turn)]
        await self._connection.call("RPUSH", session, *bodies)

    async def append(self, session: str, turn: Turn) -> None:
        await self._run(_APPEND, session, *encode_turn(turn))

    async def load(self, session: str) -> int:
        return decode_bodies(await self._connection.call("LRANGE", session, -WINDOW, -1))

    async def cycle(self, session: str, turn: Turn) -> int:
        question, answer = encode_turn(turn)
        found = decode_bodies(await self._run(_APPEND_AND_LOAD, session, question))
        await self._run(_APPEND, session, answer)
        return found

    async def close(self) -> None:
        self._connection.transport.abort()

    def _run(self, script: str, session: str, *bodies: bytes) -> asyncio.Future[Any]:
        return self._connection.call("EVALSHA", _DIGESTS[script], 1, session, _KEPT_MS, *bodies)


_DIGESTS: Final = {
    script: sha1(script.encode(), usedforsecurity=False).hexdigest() for script in (_APPEND, _APPEND_AND_LOAD)
}


async def open_multiplexed(url: str) -> RawMultiplexed:
    """Script calls over one shared connection."""
    place = urlsplit(url)
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(_Multiplexed, place.hostname or "localhost", place.port or 6379)
    await connection.call("SELECT", place.path.strip("/") or "0")
    for script in _DIGESTS:
        await connection.call("SCRIPT", "LOAD", script)
    return RawMultiplexed(connection)
