"""Which server holds what, for the three ways servers are arranged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tenuto.stores.redis._auth import Door
from tenuto.stores.redis._cluster import ClusterTopology
from tenuto.stores.redis._node import Node
from tenuto.stores.redis._sentinel import SentinelTopology
from tenuto.stores.redis._url import DeploymentMode, Endpoint, RedisAddress


class Topology(Protocol):
    """What the link must know about the servers behind an address."""

    def slot(self, key: bytes | None) -> int | None:
        """The part of the deployment that holds `key`."""
        ...

    def node(self, slot: int | None) -> Node | None:
        """The server that takes calls for `slot`, or None when nobody knows yet."""
        ...

    def node_at(self, endpoint: Endpoint) -> Node:
        """The server at an endpoint, known before or not."""
        ...

    def follow_redirect(self, slot: int, endpoint: Endpoint) -> Node:
        """Learn from a redirect that `slot` lives at `endpoint` now."""
        ...

    def primaries(self) -> tuple[Endpoint, ...]:
        """Every server that takes writes; empty when nothing is known yet."""
        ...

    async def renew(self, deadline: float) -> None:
        """Look again; callers at the same time share one look. Raises `CallFailed`."""
        ...

    def look(self) -> None:
        """Begin to look again, without waiting for what comes of it."""
        ...

    def on_change(self, told: Callable[[], None]) -> None:
        """Call `told` whenever the primaries may have changed."""
        ...

    async def aclose(self) -> None: ...


def make_topology(address: RedisAddress, door: Door) -> Topology:
    """The topology that fits an address."""
    match address.shape:
        case DeploymentMode.CLUSTER:
            return ClusterTopology(address.endpoints, door)
        case DeploymentMode.SENTINEL:
            return SentinelTopology(address, door)
        case DeploymentMode.STANDALONE:
            return StandaloneTopology(address.endpoints[0], door)


class StandaloneTopology:
    """One server for everything."""

    def __init__(self, endpoint: Endpoint, door: Door) -> None:
        self._door = door
        self._node = Node(endpoint, door)

    def slot(self, key: bytes | None) -> int | None:
        return None

    def node(self, slot: int | None) -> Node | None:
        return self._node

    def node_at(self, endpoint: Endpoint) -> Node:
        return self._node

    def follow_redirect(self, slot: int, endpoint: Endpoint) -> Node:
        return self._node

    def primaries(self) -> tuple[Endpoint, ...]:
        return (self._node.endpoint,)

    async def renew(self, deadline: float) -> None:
        """There is nowhere else to look."""

    def look(self) -> None:
        """There is nowhere else to look."""

    def on_change(self, told: Callable[[], None]) -> None:
        """One server does not change."""

    async def aclose(self) -> None:
        self._node.close()
