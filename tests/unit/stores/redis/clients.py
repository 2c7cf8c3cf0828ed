"""A client to a server, and scripts run on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from tenuto.stores.redis import ConnectionPolicy
from tenuto.stores.redis._client import RedisClient
from tenuto.stores.redis._resp import Part, Reply, pack
from tenuto.stores.redis._scripts import Script


@asynccontextmanager
async def open_client(url: str, policy: ConnectionPolicy | None = None) -> AsyncIterator[RedisClient]:
    client = RedisClient(url, policy)
    try:
        yield client
    finally:
        await client.aclose()


def run_script(
    client: RedisClient, script: Script, keys: Sequence[bytes], words: Sequence[Part]
) -> asyncio.Future[Reply]:
    """What a script answers."""
    answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
    packed = pack(("EVALSHA", script.sha, len(keys), *keys, *words))
    client.submit(packed, keys[0], answer.set_result, answer.set_exception, script=script)
    return answer
