"""Slots of a cluster that move from one node to another."""

from __future__ import annotations

from tests.servers import RedisCluster, RedisServer


def node_id(server: RedisServer) -> str:
    return str(server.call("CLUSTER", "MYID"))


def holder_of(cluster: RedisCluster, slot: int) -> RedisServer:
    """Who holds a slot now: tests may have moved it before."""
    for first, last, (_, port, *_), *_ in cluster.nodes[0].call("CLUSTER", "SLOTS"):
        if first <= slot <= last:
            return next(node for node in cluster.nodes if node.port == port)
    raise AssertionError(f"nobody holds slot {slot}")


def begin_move(cluster: RedisCluster, slot: int) -> tuple[RedisServer, RedisServer]:
    source = holder_of(cluster, slot)
    target = next(node for node in cluster.nodes if node is not source)
    target.call("CLUSTER", "SETSLOT", slot, "IMPORTING", node_id(source))
    source.call("CLUSTER", "SETSLOT", slot, "MIGRATING", node_id(target))
    return source, target


def move_keys(source: RedisServer, target: RedisServer, slot: int, count: int) -> None:
    keys = source.call("CLUSTER", "GETKEYSINSLOT", slot, count)
    source.call("MIGRATE", "127.0.0.1", target.port, "", 0, 60_000, "KEYS", *keys)


def end_move(cluster: RedisCluster, slot: int, target: RedisServer) -> None:
    for node in (target, *(node for node in cluster.nodes if node is not target)):
        node.call("CLUSTER", "SETSLOT", slot, "NODE", node_id(target))
