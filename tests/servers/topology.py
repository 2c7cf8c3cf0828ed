"""Several Redis or Valkey servers that act as one: a Cluster, and a primary watched by Sentinels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import redis

from tests.servers.process import LOOPBACK, free_port, wait_until
from tests.servers.redis import RedisServer, redis_process

SLOTS = 16384
SERVICE = "tenuto"
"""The name under which the Sentinels know the primary."""


@dataclass(kw_only=True)
class RedisCluster:
    """Three primaries that share the slots. While one is away the others go on serving theirs."""

    nodes: tuple[RedisServer, ...]

    @property
    def url(self) -> str:
        """The store address, with every node."""
        return f"redis+cluster://{_hosts(self.nodes)}"

    @property
    def urls(self) -> tuple[str, ...]:
        """One plain address per node."""
        return tuple(node.url for node in self.nodes)

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the nodes, in order."""
        return tuple(node.pid for node in self.nodes)

    def flush(self) -> None:
        """Forget every key on every node."""
        for node in self.nodes:
            node.flush()

    def owner_of(self, key: str) -> RedisServer:
        """The node that holds this key."""
        slot = int(self.nodes[0].call("CLUSTER", "KEYSLOT", key))
        return next(
            node for node, (first, last) in zip(self.nodes, _shares(self.nodes), strict=True) if first <= slot <= last
        )

    def start_replica(self, of: RedisServer) -> RedisServer:
        """Start a replica of a node, to be closed by the caller."""
        replica = _cluster_node(of.flavour).start()
        for node in self.nodes:
            _, bus = node.call("CONFIG", "GET", "cluster-port")
            replica.call("CLUSTER", "MEET", LOOPBACK, node.port, bus)
        ids = {str(node.call("CLUSTER", "MYID")) for node in self.nodes}
        # Until they have shaken hands, a node has a name by chance.
        wait_until(lambda: ids <= {peer.split()[0] for peer in _peers(replica)}, "the replica knows every node")
        replica.call("CLUSTER", "REPLICATE", str(of.call("CLUSTER", "MYID")))
        wait_until(lambda: _copied(replica) >= of.info("replication")["master_repl_offset"], "the replica has a copy")
        return replica

    def take_over(self, replica: RedisServer) -> None:
        """Have a replica take the place of its primary, which is dead; return once every node knows."""
        replica.call("CLUSTER", "FAILOVER", "TAKEOVER")
        running = [node for node in self.nodes if node.running]
        place = f" {LOOPBACK}:{replica.port}@"
        wait_until(
            lambda: all(any(place in peer and "master" in peer for peer in _peers(node)) for node in running),
            "the replica took over",
        )

    def wait_until_whole(self) -> None:
        """Return once every node sees every other one and all slots."""
        wait_until(lambda: all(_sees(node, len(self.nodes)) for node in self.nodes), "the cluster is whole")

    def stop(self) -> None:
        """Stop every node; the data stays for `restart`."""
        _each(self.nodes, RedisServer.stop)

    def kill(self) -> None:
        """SIGKILL for every node."""
        _each(self.nodes, RedisServer.kill)

    def freeze(self) -> None:
        """SIGSTOP for every node."""
        _each(self.nodes, RedisServer.freeze)

    def thaw(self) -> None:
        """SIGCONT for every node."""
        _each(self.nodes, RedisServer.thaw)

    def restart(self) -> None:
        """Stop what runs, start every node again, wait until the cluster is whole."""
        _each(self.nodes, RedisServer.restart)
        self.wait_until_whole()

    def close(self) -> None:
        """Kill every node and remove the data."""
        _each(self.nodes, RedisServer.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(kw_only=True)
class RedisSentinel:
    """A primary, a replica and three Sentinels that promote the replica when `switch` or `fail_over` tell them to.

    By themselves they would, too, after a minute: a machine that stands still for seconds must not look like a dead
    primary to them.

    After a failover the roles have changed hands while the two servers keep their places in
    `servers`; ask `primary` and `replica` who is who.
    """

    servers: tuple[RedisServer, RedisServer]
    sentinels: tuple[RedisServer, ...]

    service = SERVICE

    @property
    def url(self) -> str:
        """The store address, with every Sentinel and the service name."""
        return f"redis+sentinel://{_hosts(self.sentinels)}/{SERVICE}"

    @property
    def hosts(self) -> list[tuple[str, int]]:
        """The Sentinels as redis-py's `Sentinel` takes them."""
        return [(LOOPBACK, sentinel.port) for sentinel in self.sentinels]

    @property
    def primary(self) -> RedisServer:
        """Who is primary, as the Sentinels that run see it."""
        sentinel = next(sentinel for sentinel in self.sentinels if sentinel.running)
        _, port = sentinel.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
        return next(server for server in self.servers if server.port == int(port))

    @property
    def replica(self) -> RedisServer:
        """The server that is not the primary."""
        primary = self.primary
        return next(server for server in self.servers if server is not primary)

    def flush(self) -> None:
        """Forget every key."""
        self.primary.flush()

    def wait_until_whole(self) -> None:
        """Return once the replica follows and every Sentinel knows everybody: only then a failover works."""
        wait_until(self._whole, "the sentinels know everybody")

    def wait_until_copied(self) -> None:
        """Return once the replica holds all that the primary holds now.

        WAIT does not tell: it is answered as well for a replica that is still fetching its first copy.
        """
        primary, replica = self.primary, self.replica
        written = primary.info("replication")["master_repl_offset"]
        wait_until(lambda: _copied(replica) >= written, "the replica holds everything")

    def fail_over(self) -> RedisServer:
        """Kill the primary, have the other server take over, and return the one killed."""
        old, new = self.primary, self.replica
        old.kill()
        self._promote(new)
        return old

    def switch(self) -> None:
        """Have the two servers change roles, as an operator does."""
        self._promote(self.replica)

    def _promote(self, new: RedisServer) -> None:
        """Tell a Sentinel, and again when it gave up: after standing still it knows no replica to promote."""

        def promoted() -> bool:
            state = _facts(self.sentinels[0].call("SENTINEL", "MASTER", SERVICE))
            if int(state["port"]) == new.port:
                return _role(new) == "master"
            if "failover_in_progress" not in state["flags"]:
                with suppress(redis.ResponseError):
                    self.sentinels[0].call("SENTINEL", "FAILOVER", SERVICE)
            return False

        wait_until(promoted, "the replica took over")

    def stop(self) -> None:
        """Stop the Sentinels first, so that none fails over; the data stays for `restart`."""
        _each(self.sentinels, RedisServer.stop)
        _each(self.servers, RedisServer.stop)

    def restart(self) -> None:
        """Start everything again with the roles that were last agreed."""
        self.stop()
        _each(self.servers, RedisServer.start)
        _each(self.sentinels, _start_watching)
        self.wait_until_whole()

    def close(self) -> None:
        """Kill everything and remove the data."""
        _each((*self.sentinels, *self.servers), RedisServer.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _whole(self) -> bool:
        # Sentinels close a server's connections when they change its role, ours too.
        try:
            link = self.replica.info("replication").get("master_link_status")
            known = all(_knows(sentinel, len(self.sentinels)) for sentinel in self.sentinels)
        except redis.RedisError:
            return False
        return known and link == "up" and _role(self.primary) == "master"


def start_cluster(flavour: str | None = None, *, nodes: int = 3) -> RedisCluster:
    """Start a cluster of primaries and return once every node serves."""
    cluster = RedisCluster(nodes=tuple(_cluster_node(flavour) for _ in range(nodes)))
    try:
        _each(cluster.nodes, RedisServer.start)
        _introduce(cluster.nodes)
        cluster.wait_until_whole()
    except BaseException:
        cluster.close()
        raise
    return cluster


def start_sentinel(flavour: str | None = None) -> RedisSentinel:
    """Start a watched pair."""
    ports = free_port(), free_port()
    primary = redis_process(flavour, ports[0], {"port": ports[0]})
    replica = redis_process(flavour, ports[1], {"port": ports[1], "replicaof": f"{LOOPBACK} {ports[0]}"})
    sentinels = tuple(_sentinel(flavour, ports[0]) for _ in range(3))
    group = RedisSentinel(servers=(primary, replica), sentinels=sentinels)
    try:
        _each(group.servers, RedisServer.start)
        _each(group.sentinels, _start_watching)
        group.wait_until_whole()
    except BaseException:
        group.close()
        raise
    return group


def _cluster_node(flavour: str | None) -> RedisServer:
    port = free_port()
    lines: dict[str, str | int] = {
        "port": port,
        "cluster-enabled": "yes",
        "cluster-port": free_port(),
        "cluster-node-timeout": 60_000,
        "cluster-require-full-coverage": "no",
    }
    return redis_process(flavour, port, lines)


def _introduce(nodes: Sequence[RedisServer]) -> None:
    for epoch, (node, (first, last)) in enumerate(zip(nodes, _shares(nodes), strict=True), start=1):
        node.call("CLUSTER", "ADDSLOTSRANGE", first, last)
        node.call("CLUSTER", "SET-CONFIG-EPOCH", epoch)
    for node in nodes[1:]:
        _, bus = node.call("CONFIG", "GET", "cluster-port")
        nodes[0].call("CLUSTER", "MEET", LOOPBACK, node.port, bus)


def _shares(nodes: Sequence[RedisServer]) -> list[tuple[int, int]]:
    edges = [SLOTS * place // len(nodes) for place in range(len(nodes) + 1)]
    return [(first, last - 1) for first, last in pairwise(edges)]


def _sees(node: RedisServer, count: int) -> bool:
    state = str(node.call("CLUSTER", "INFO")).split()
    linked = [peer for peer in _peers(node) if " connected " in peer and "fail" not in peer]
    return {"cluster_state:ok", f"cluster_slots_ok:{SLOTS}"} <= set(state) and len(linked) == count


def _peers(node: RedisServer) -> list[str]:
    return str(node.call("CLUSTER", "NODES")).splitlines()


def _sentinel(flavour: str | None, primary: int) -> RedisServer:
    port = free_port()
    lines: dict[str, str | int] = {
        "port": port,
        f"sentinel monitor {SERVICE}": f"{LOOPBACK} {primary} 2",
        f"sentinel down-after-milliseconds {SERVICE}": 60_000,
        f"sentinel failover-timeout {SERVICE}": 20_000,
        f"sentinel parallel-syncs {SERVICE}": 1,
    }
    sentinel = redis_process(flavour, port, lines)
    sentinel.command = [*sentinel.command, "--sentinel"]
    return sentinel


def _start_watching(sentinel: RedisServer) -> None:
    sentinel.start()
    # At the usual pace a returning primary keeps its old role for ten seconds, and the first ping to a new
    # one may leave so late that it is taken for dead at once. Pings more often than this would spoil the
    # failover: a replica counts as known for five pings, and is asked about itself once a second.
    pace = ("PING-PERIOD", 400, "PUBLISH-PERIOD", 500, "INFO-PERIOD", 500)
    # One whose clock jumped by two seconds would do nothing for the next thirty.
    calm = ("TILT-TRIGGER", 60_000, "TILT-PERIOD", 1000)
    sentinel.call("SENTINEL", "DEBUG", *pace, *calm)


def _knows(sentinel: RedisServer, count: int) -> bool:
    state = _facts(sentinel.call("SENTINEL", "MASTER", SERVICE))
    replicas = [_facts(told) for told in sentinel.call("SENTINEL", "REPLICAS", SERVICE)]
    # A Sentinel promotes no replica that it has not yet asked about itself.
    following = [(replica["flags"], replica["master-link-status"]) for replica in replicas]
    return (state["num-other-sentinels"], following) == (str(count - 1), [("slave", "ok")])


def _facts(flat: Sequence[str]) -> dict[str, str]:
    names = iter(flat)
    return dict(zip(names, names, strict=True))


def _copied(replica: RedisServer) -> int:
    """How far a replica has come; nowhere while it fetches its first copy."""
    told = replica.info("replication")
    return int(told["slave_repl_offset"]) if told.get("master_link_status") == "up" else -1


def _role(server: RedisServer) -> str | None:
    try:
        return str(server.info("replication")["role"])
    except redis.RedisError:
        return None


def _hosts(servers: Sequence[RedisServer]) -> str:
    return ",".join(f"{LOOPBACK}:{server.port}" for server in servers)


def _each(servers: Sequence[RedisServer], act: Callable[[RedisServer], object]) -> None:
    with ThreadPoolExecutor(len(servers)) as pool:
        list(pool.map(act, servers))
