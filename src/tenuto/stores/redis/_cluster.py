"""A cluster: which server holds which of the 16384 slots, learned by asking and from redirects."""

from __future__ import annotations

import asyncio
import binascii
import random
from collections.abc import Callable, Sequence

from tenuto.stores.redis._auth import Door
from tenuto.stores.redis._node import Node
from tenuto.stores.redis._resp import CallFailed, Reply, check, pack
from tenuto.stores.redis._single_flight import SingleFlight
from tenuto.stores.redis._url import Endpoint

SLOTS = 16384
_CLUSTER_SLOTS = pack(("CLUSTER", "SLOTS"))


def key_slot(key: bytes) -> int:
    """The slot of a key: CRC16 of what stands between the first braces, or of all of it."""
    start = key.find(b"{")
    if start >= 0:
        end = key.find(b"}", start + 1)
        if end > start + 1:
            key = key[start + 1 : end]
    return binascii.crc_hqx(key, 0) % SLOTS


class ClusterTopology:
    """The servers of a cluster and the slots they hold."""

    def __init__(self, seeds: Sequence[Endpoint], door: Door) -> None:
        self._seeds = tuple(seeds)
        self._door = door
        self._nodes: dict[Endpoint, Node] = {}
        self._holders: list[Node | None] = [None] * SLOTS
        self._primaries: tuple[Endpoint, ...] = ()
        self._looking = SingleFlight(self._refresh_slots)
        self._told: list[Callable[[], None]] = []

    def slot(self, key: bytes | None) -> int | None:
        return None if key is None else key_slot(key)

    def node(self, slot: int | None) -> Node | None:
        if slot is not None:
            return self._holders[slot]
        return self._nodes[random.choice(self._primaries)] if self._primaries else None

    def node_at(self, endpoint: Endpoint) -> Node:
        node = self._nodes.get(endpoint)
        if node is None:
            node = self._nodes[endpoint] = Node(endpoint, self._door)
        return node

    def follow_redirect(self, slot: int, endpoint: Endpoint) -> Node:
        node = self._holders[slot] = self.node_at(endpoint)
        if endpoint not in self._primaries:
            self._primaries = (*self._primaries, endpoint)
            self._notify_listeners()
        # the rest of the map is probably old too; this call need not wait for it
        self._looking.start()
        return node

    def primaries(self) -> tuple[Endpoint, ...]:
        return self._primaries

    async def renew(self, deadline: float) -> None:
        await self._looking.join(deadline)

    def look(self) -> None:
        self._looking.start()

    def on_change(self, told: Callable[[], None]) -> None:
        self._told.append(told)

    async def aclose(self) -> None:
        self._looking.close()
        for node in self._nodes.values():
            node.close()

    async def _refresh_slots(self) -> None:
        loop = asyncio.get_running_loop()
        for node in self._refresh_candidates():
            try:
                ranges = check(await node.ask(_CLUSTER_SLOTS, loop.time() + self._door.policy.connect_timeout))
            except CallFailed:
                continue
            if ranges:
                self._apply_slots(node.endpoint, ranges)
                return
        raise CallFailed("no server of the cluster answers")

    def _refresh_candidates(self) -> list[Node]:
        """Whom to ask: connected servers first, in random order, the given addresses always."""
        for endpoint in self._seeds:
            self.node_at(endpoint)
        nodes = list(self._nodes.values())
        random.shuffle(nodes)
        return sorted(nodes, key=lambda node: node.idle_connection is None)

    def _apply_slots(self, informant: Endpoint, ranges: Reply) -> None:
        holders: list[Node | None] = [None] * SLOTS
        for first, last, (host, port, *_), *_ in ranges:
            # a server that does not know its own address leaves it out: it is the one we asked
            name = host.decode() if host not in (None, b"", b"?") else informant.host
            holders[first : last + 1] = [self.node_at(Endpoint(name, port))] * (last + 1 - first)
        primaries = tuple(sorted({node.endpoint for node in holders if node is not None}, key=str))
        changed = primaries != self._primaries or holders != self._holders
        self._holders, self._primaries = holders, primaries
        self._close_unused_nodes()
        if changed:
            self._notify_listeners()

    def _notify_listeners(self) -> None:
        for told in self._told:
            told()

    def _close_unused_nodes(self) -> None:
        for endpoint in self._nodes.keys() - set(self._primaries):
            # an importing server holds no slot yet, but calls may be on their way to it
            if not self._nodes[endpoint].busy:
                self._nodes.pop(endpoint).close()
