"""A cluster: the servers of its 16384 slots, from `CLUSTER SLOTS` and from redirects."""

from __future__ import annotations

import asyncio
import binascii
import random
from collections.abc import Callable, Sequence

from tenuto.stores.redis._auth import ConnectOptions
from tenuto.stores.redis._node import Node
from tenuto.stores.redis._resp import CallFailed, Reply, check, pack
from tenuto.stores.redis._single_flight import SingleFlight
from tenuto.stores.redis._url import Endpoint

SLOTS = 16384
_CLUSTER_SLOTS = pack(("CLUSTER", "SLOTS"))


def key_slot(key: bytes) -> int:
    """The slot of a key: CRC16 of its hash tag, or of all of it."""
    start = key.find(b"{")
    if start >= 0:
        end = key.find(b"}", start + 1)
        if end > start + 1:
            key = key[start + 1 : end]
    return binascii.crc_hqx(key, 0) % SLOTS


class ClusterTopology:
    """The servers of a cluster and the slots they hold."""

    def __init__(self, seeds: Sequence[Endpoint], options: ConnectOptions) -> None:
        self._seeds = tuple(seeds)
        self._options = options
        self._nodes: dict[Endpoint, Node] = {}
        self._holders: list[Node | None] = [None] * SLOTS
        self._primaries: tuple[Endpoint, ...] = ()
        self._looking = SingleFlight(self._refresh_slots)
        self._listeners: list[Callable[[], None]] = []

    def slot(self, key: bytes | None) -> int | None:
        return None if key is None else key_slot(key)

    def node(self, slot: int | None) -> Node | None:
        if slot is not None:
            return self._holders[slot]
        return self._nodes[random.choice(self._primaries)] if self._primaries else None

    def node_at(self, endpoint: Endpoint) -> Node:
        node = self._nodes.get(endpoint)
        if node is None:
            node = self._nodes[endpoint] = Node(endpoint, self._options)
        return node

    def follow_redirect(self, slot: int, endpoint: Endpoint) -> Node:
        node = self._holders[slot] = self.node_at(endpoint)
        if endpoint not in self._primaries:
            self._primaries = (*self._primaries, endpoint)
            self._notify_listeners()
        # The rest of the map is probably outdated, too; this call does not wait for it.
        self._looking.start()
        return node

    def primaries(self) -> tuple[Endpoint, ...]:
        return self._primaries

    async def renew(self, deadline: float) -> None:
        await self._looking.join(deadline)

    def look(self) -> None:
        self._looking.start()

    def on_change(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    async def aclose(self) -> None:
        self._looking.close()
        for node in self._nodes.values():
            node.close()

    async def _refresh_slots(self) -> None:
        loop = asyncio.get_running_loop()
        for node in self._refresh_candidates():
            try:
                ranges = check(await node.ask(_CLUSTER_SLOTS, loop.time() + self._options.policy.connect_timeout))
            except CallFailed:
                continue
            if ranges:
                self._apply_slots(node.endpoint, ranges)
                return
        raise CallFailed("no server of the cluster answers")

    def _refresh_candidates(self) -> list[Node]:
        """The servers to ask: connected ones first, in random order, with the configured addresses."""
        for endpoint in self._seeds:
            self.node_at(endpoint)
        nodes = list(self._nodes.values())
        random.shuffle(nodes)
        return sorted(nodes, key=lambda node: node.idle_connection is None)

    def _apply_slots(self, informant: Endpoint, ranges: Reply) -> None:
        holders: list[Node | None] = [None] * SLOTS
        for first, last, (host, port, *_), *_ in ranges:
            # A server that does not know its own address leaves it out: it is the one that was asked.
            name = host.decode() if host not in (None, b"", b"?") else informant.host
            holders[first : last + 1] = [self.node_at(Endpoint(name, port))] * (last + 1 - first)
        primaries = tuple(sorted({node.endpoint for node in holders if node is not None}, key=str))
        changed = primaries != self._primaries or holders != self._holders
        self._holders, self._primaries = holders, primaries
        for endpoint in self._nodes.keys() - set(primaries):
            # An importing server holds no slot yet, but may have pending calls.
            if not self._nodes[endpoint].busy:
                self._nodes.pop(endpoint).close()
        if changed:
            self._notify_listeners()

    def _notify_listeners(self) -> None:
        for listener in self._listeners:
            listener()
