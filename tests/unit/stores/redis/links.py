"""A link to a server, and scripts run on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from tenuto.stores.redis import ConnectionPolicy
from tenuto.stores.redis._client import Link
from tenuto.stores.redis._resp import Part, Reply, pack
from tenuto.stores.redis._scripts import Script


@asynccontextmanager
async def open_link(url: str, policy: ConnectionPolicy | None = None) -> AsyncIterator[Link]:
    link = Link(url, policy)
    try:
        yield link
    finally:
        await link.aclose()


def run_script(link: Link, script: Script, keys: Sequence[bytes], words: Sequence[Part]) -> asyncio.Future[Reply]:
    """What a script answers."""
    answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
    packed = pack(("EVALSHA", script.sha, len(keys), *keys, *words))
    link.submit(packed, keys[0], answer.set_result, answer.set_exception, script=script)
    return answer
