"""Puts places back that a server of a cluster has lost, while the records they lead to are on another one.

A server that fails over to a replica, or restarts, may lose what it acknowledged last. Then its process is another one.
A mark in the cluster names the processes of the primaries since which nothing was lost: where it names others, all
records are walked once, by one process of ours, and the mark is set.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from tenuto.stores.columns import split_words
from tenuto.stores.redis._durability import parse_info
from tenuto.stores.redis._index import Call, Places, readable_columns
from tenuto.stores.redis._keys import RecordKeys
from tenuto.stores.redis._resp import CallFailed, ResponseError
from tenuto.stores.redis._servers import Servers, port_error
from tenuto.stores.redis._single_flight import SingleFlight
from tenuto.stores.redis._url import Endpoint

_log = logging.getLogger(__name__)
_CHUNK: Final = 1000
_TURN_MS: Final = 5_000
_PAUSE: Final = 0.2


class IndexRepair:
    """The walk, and what tells whether it is needed. It begins by itself when the servers of the cluster change."""

    def __init__(self, servers: Servers, keys: RecordKeys, places: Places) -> None:
        self._servers = servers
        self._client = servers.client
        self._keys = keys
        self._places = places
        self._background = SingleFlight(self.ensure)
        self._client.topology.on_change(self._begin)

    def _begin(self) -> None:
        self._background.start()

    def close(self) -> None:
        self._background.close()

    async def ensure(self) -> None:
        """Return when every record has its places again that had them once.

        Raises:
            Unavailable: a primary does not answer.
        """
        try:
            await self._repair_if_needed()
        except ResponseError as error:
            _log.warning("places that a server has lost cannot be put back: %s", error)
        except CallFailed as error:
            raise port_error(error) from error

    async def _repair_if_needed(self) -> None:
        mark, turn = self._keys.repaired, self._keys.repairing
        servers = await self._client.primaries(fresh=True)
        names = b" ".join(sorted(await asyncio.gather(*map(self._process_of, servers))))
        while await self._servers.call("GET", mark) != names:
            if await self._servers.call("SET", turn, self._client.name, "NX", "PX", _TURN_MS) is None:
                await asyncio.sleep(_PAUSE)
                continue
            # Where this ends early, the turn ends by itself.
            for server in servers:
                await self._walk(server)
            await self._servers.call("SET", mark, names)
            await self._servers.call("DEL", turn)

    async def _process_of(self, server: Endpoint) -> bytes:
        """What tells a server's process from the one before it."""
        facts = parse_info(await self._client.call_node(server, "INFO", "server"))
        return facts["run_id"].encode()

    async def _walk(self, server: Endpoint) -> None:
        cursor, pattern = b"0", self._keys.pattern
        while True:
            cursor, names = await self._client.call_node(server, "SCAN", cursor, "MATCH", pattern, "COUNT", _CHUNK)
            await self._put_back(names)
            await self._servers.call("PEXPIRE", self._keys.repairing, _TURN_MS)
            if cursor == b"0":
                return

    async def _put_back(self, names: Sequence[bytes]) -> None:
        """Add the places of some records; those that are there stay as they are."""
        records, asides = (
            [name for name in names if name.startswith(start)]
            for start in (self._keys.records, self._keys.aside_records)
        )
        places = list[tuple[Sequence[Call], Sequence[Call]]]()
        for name, (columns, deadline, words) in zip(
            records, await self._servers.fields(records, ("i", "d", "w")), strict=True
        ):
            index = readable_columns(columns)
            if index is not None:
                key, due = self._keys.parse_record(name), int(deadline) if deadline else None
                places.append(self._places.of_record(key, index, due))
                places.append((self._places.of_words(key, index, split_words(words)), ()))
        for name, (columns,) in zip(asides, await self._servers.fields(asides, ("i",)), strict=True):
            places.append(([self._places.of_aside(name, columns)], []))
        await self._places.add(places)
