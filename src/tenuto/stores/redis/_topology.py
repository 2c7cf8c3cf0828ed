"""The server of each key, for the three deployment modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tenuto.stores.redis._auth import ConnectOptions
from tenuto.stores.redis._cluster import ClusterTopology
from tenuto.stores.redis._node import Node
from tenuto.stores.redis._sentinel import SentinelTopology
from tenuto.stores.redis._url import DeploymentMode, Endpoint, RedisAddress


class StandaloneTopology:
    """One server for everything; its methods say what every topology does."""

    def __init__(self, endpoint: Endpoint, options: ConnectOptions) -> None:
        self._options = options
        self._node = Node(endpoint, options)

    def slot(self, key: bytes | None) -> int | None:
        """The part of the deployment that holds `key`."""
        return None

    def node(self, slot: int | None) -> Node | None:
        """The server that takes calls for `slot`, or None if unknown."""
        return self._node

    def node_at(self, endpoint: Endpoint) -> Node:
        """The server at an endpoint, a new one if needed."""
        return self._node

    def follow_redirect(self, slot: int, endpoint: Endpoint) -> Node:
        """Record that `slot` is at `endpoint` now."""
        return self._node

    def primaries(self) -> tuple[Endpoint, ...]:
        """Every server that takes writes; empty when nothing is known yet."""
        return (self._node.endpoint,)

    async def renew(self, deadline: float) -> None:
        """Refresh; concurrent callers share one refresh. Raises `CallFailed`."""

    def look(self) -> None:
        """Start a refresh without waiting for it."""

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever the primaries may have changed."""

    async def aclose(self) -> None:
        self._node.close()


Topology: TypeAlias = StandaloneTopology | SentinelTopology | ClusterTopology


def make_topology(address: RedisAddress, options: ConnectOptions) -> Topology:
    """The topology that fits an address."""
    match address.shape:
        case DeploymentMode.CLUSTER:
            return ClusterTopology(address.endpoints, options)
        case DeploymentMode.SENTINEL:
            return SentinelTopology(address, options)
        case DeploymentMode.STANDALONE:
            return StandaloneTopology(address.endpoints[0], options)
