"""Calls to the servers, each sent before it returns, with the port's errors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from tenuto.errors import StoreFull, StoreReadOnly, StoreRejected, StoreUnavailable, Unavailable
from tenuto.stores.redis._client import RedisClient
from tenuto.stores.redis._cluster import key_slot
from tenuto.stores.redis._resp import CallFailed, Part, Reply, ResponseError, pack
from tenuto.stores.redis._scripts import Script, script
from tenuto.stores.redis._url import DeploymentMode

_Answer = TypeVar("_Answer")
WHAT: Final = "session store"
_AT_ONCE: Final = 1000


def port_error(exc: CallFailed) -> Exception:
    """The port's error for a failed call."""
    if not isinstance(exc, ResponseError):
        return StoreUnavailable(WHAT)
    match exc.code:
        case "WRONGTYPE":
            return Unavailable(WHAT, "holds a key of another type")
        case "NOPERM":
            return StoreRejected(WHAT, "denies a command to its user (NOPERM): see the rules of the server's ACL")
        case "OOM":
            return StoreFull()
        case "MISCONF" if exc.full:
            return StoreFull()
        # A replica; a primary that cannot write its files; one that has too few replicas to be allowed to.
        case "READONLY" | "MISCONF" | "NOREPLICAS":
            return StoreReadOnly()
        # It was not ready before the deadline of the call.
        case "LOADING" | "BUSY" | "TRYAGAIN" | "CLUSTERDOWN" | "MASTERDOWN":
            return StoreUnavailable(WHAT)
        case "WRONGPASS" | "NOAUTH":
            return Unavailable(WHAT, "refuses the login: check user and password")
        case "NOPERM":
            return Unavailable(WHAT, "refuses the request: the user lacks a right")
        case _:
            return Unavailable(WHAT, f"refuses the request ({exc.code})")


class Servers:
    """Plain calls and scripts, with the port's errors. Each is sent before it returns."""

    def __init__(self, client: RedisClient) -> None:
        self.client = client
        self.sharded = client.address.shape is DeploymentMode.CLUSTER

    def call(self, *words: Part) -> asyncio.Future[Reply]:
        """A command, whose second word is its key."""
        key = words[1]
        assert isinstance(key, bytes)
        return self.send(pack(words), key, _as_it_is)

    def run(self, name: str, keys: Sequence[bytes], *words: Part) -> asyncio.Future[Reply]:
        """A script that may run twice."""
        return self.run_for(name, keys, words, _as_it_is)

    def run_for(
        self, name: str, keys: Sequence[bytes], words: Sequence[Part], decode: Callable[[Reply], _Answer]
    ) -> asyncio.Future[_Answer]:
        """A script that may run twice; the future gets what `decode` makes of its reply."""
        what = script(name)
        packed = pack(("EVALSHA", what.sha, len(keys), *keys, *words))
        return self.send(packed, keys[0], decode, what)

    def send(
        self, packed: bytes, key: bytes, decode: Callable[[Reply], _Answer], what: Script | None = None
    ) -> asyncio.Future[_Answer]:
        """A packed call that may run twice."""
        future: asyncio.Future[_Answer] = asyncio.get_running_loop().create_future()

        def on_reply(reply: Reply) -> None:
            if future.done():
                return
            try:
                future.set_result(decode(reply))
            except Exception as error:
                future.set_exception(error)

        def on_failure(failed: CallFailed) -> None:
            if not future.done():
                future.set_exception(port_error(failed))

        self.client.submit(packed, key, on_reply, on_failure, script=what)
        return future

    async def fields(self, records: Sequence[bytes], names: Sequence[str]) -> list[Sequence[bytes | None]]:
        """Some fields of records, by the names of their hashes."""
        return await self.run_on_each("fields", records, *names)

    async def run_on_each(self, name: str, records: Sequence[bytes], *words: Part) -> list[Any]:
        """A script that answers for each of several records, in one call to each slot."""
        groups = dict[int, list[int]]()
        for at, record in enumerate(records):
            groups.setdefault(key_slot(record) if self.sharded else at // _AT_ONCE, []).append(at)
        calls = [self.run(name, [records[at] for at in group], *words) for group in groups.values()]
        found: list[Any] = [None] * len(records)
        for group, rows in zip(groups.values(), await asyncio.gather(*calls), strict=True):
            for at, row in zip(group, rows, strict=True):
                found[at] = row
        return found


def _as_it_is(reply: Reply) -> Reply:
    return reply
