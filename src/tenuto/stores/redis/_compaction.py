"""Rewrites the servers' files, so that deleted data is in none of them.

An append-only file holds everything ever written until it is rewritten; a snapshot holds the data of its time. Hosted
servers commonly deny these calls. Refusals are reported without the server's name, which is only logged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from tenuto.model import CompactionResult
from tenuto.stores.redis._client import RedisClient
from tenuto.stores.redis._durability import parse_info, read_setting
from tenuto.stores.redis._resp import ResponseError
from tenuto.stores.redis._url import Endpoint

log = logging.getLogger(__name__)

_PAUSE: Final = 0.05
_LOOKS: Final = 12_000
"""About ten minutes; a server that takes longer goes on by itself."""
_ATTEMPTS: Final = 3
_BUSY: Final = ("aof_rewrite_in_progress", "aof_rewrite_scheduled", "rdb_bgsave_in_progress")


class _NotRewritten(Exception):
    """A server did not rewrite its files; the message gives the reason without its name."""


async def compact(client: RedisClient) -> CompactionResult:
    """Have every primary rewrite its files.

    Raises:
        CallFailed: a server does not answer.
    """
    left: dict[str, None] = {}
    for server in await client.primaries():
        try:
            await _compact_server(client, server)
        except (_NotRewritten, ResponseError) as error:
            denied = f"refuses to rewrite its files ({error.code})" if isinstance(error, ResponseError) else str(error)
            log.warning("%s %s: deleted data stays there", server, denied)
            left[f"a server {denied}"] = None
    return CompactionResult(cleared=not left, remaining_reason="; ".join(left))


async def _compact_server(client: RedisClient, server: Endpoint) -> None:
    facts = await _persistence(client, server)
    if facts.get("aof_enabled") == "1":
        await _rewrite_file(client, server, "BGREWRITEAOF", "aof_last_bgrewrite_status")
    if await _makes_snapshots(client, server, facts):
        await _rewrite_file(client, server, "BGSAVE", "rdb_last_bgsave_status")


async def _persistence(client: RedisClient, server: Endpoint) -> Mapping[str, str]:
    return parse_info(await client.call_node(server, "INFO", "persistence"))


async def _makes_snapshots(client: RedisClient, server: Endpoint, facts: Mapping[str, str]) -> bool:
    """Whether there is a snapshot to rewrite; a new one would be one more file."""
    if facts.get("rdb_saves", "0") != "0":
        return True
    intended = await read_setting(client, server, "save")
    if intended is None:
        raise _NotRewritten("does not tell whether it keeps snapshots")
    return bool(intended)


async def _rewrite_file(client: RedisClient, server: Endpoint, command: str, status: str) -> None:
    """Start a rewrite once no other is under way, which may have begun too early, and wait for its end."""
    for attempt in range(_ATTEMPTS):
        await _wait_until_idle(client, server)
        try:
            await client.call_node(server, command)
        except ResponseError as error:
            if error.code != "ERR" or attempt == _ATTEMPTS - 1:
                raise
            continue  # Another client's rewrite was faster, and may have begun before the deletion.
        facts = await _wait_until_idle(client, server)
        if facts.get(status, "ok") != "ok":
            raise _NotRewritten(f"could not renew its files ({command})")
        return


async def _wait_until_idle(client: RedisClient, server: Endpoint) -> Mapping[str, str]:
    for _ in range(_LOOKS):
        facts = await _persistence(client, server)
        if all(facts.get(flag, "0") == "0" for flag in _BUSY):
            return facts
        await asyncio.sleep(_PAUSE)
    raise _NotRewritten("is still writing its files anew")
