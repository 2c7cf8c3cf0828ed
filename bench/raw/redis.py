"""redis-py's asyncio client with its connection pool, as anybody would use it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

from redis.asyncio import Redis

from bench.raw.bodies import Bodies, JsonBodies, PlainBodies
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


Way = Literal["script", "script and load", "multi"]


class RawRedis:
    """A list for each session. A message is stored by one script call or one pipelined MULTI.

    A cycle is three calls, except where the script that stores the question brings the load along.
    """

    def __init__(self, url: str, bodies: Bodies, prefix: str, way: Way) -> None:
        # redis-py's types speak of both its clients at once, the waiting and the asyncio one.
        self._client: Any = Redis.from_url(url)
        self._append: Any = self._client.register_script(_APPEND)
        self._append_and_load: Any = self._client.register_script(_APPEND_AND_LOAD)
        self._bodies = bodies
        self._prefix = prefix
        self._way = way

    async def seed(self, session: str, turns: Sequence[Turn]) -> None:
        await self._client.rpush(self._prefix + session, *(body for turn in turns for body in self._bodies.pair(turn)))

    async def append(self, session: str, turn: Turn) -> None:
        await self._push(self._prefix + session, *self._bodies.pair(turn))

    async def load(self, session: str) -> int:
        return self._bodies.read(await self._client.lrange(self._prefix + session, -WINDOW, -1))

    async def cycle(self, session: str, turn: Turn) -> int:
        question, answer = self._bodies.pair(turn)
        key = self._prefix + session
        if self._way == "script and load":
            found = self._bodies.read(await self._append_and_load([key], [_KEPT_MS, question]))
        else:
            found = await self.load(session)
            await self._push(key, question)
        await self._push(key, answer)
        return found

    async def close(self) -> None:
        await self._client.aclose()

    async def _push(self, key: str, *bodies: bytes) -> None:
        if self._way != "multi":
            await self._append([key], [_KEPT_MS, *bodies])
            return
        async with self._client.pipeline(transaction=True) as pipe:
            pipe.rpush(key, *bodies)
            pipe.pexpire(key, _KEPT_MS)
            await pipe.execute()


async def open_script(url: str) -> RawRedis:
    """Script calls."""
    return RawRedis(url, JsonBodies(), "raw:script:", "script")


async def open_script_of_bytes(url: str) -> RawRedis:
    """Script calls, no JSON."""
    return RawRedis(url, PlainBodies(), "raw:bytes:", "script")


async def open_script_and_load(url: str) -> RawRedis:
    """Script calls, of which the first loads as well."""
    return RawRedis(url, JsonBodies(), "raw:both:", "script and load")


async def open_multi(url: str) -> RawRedis:
    """Pipelined MULTI."""
    return RawRedis(url, JsonBodies(), "raw:multi:", "multi")
