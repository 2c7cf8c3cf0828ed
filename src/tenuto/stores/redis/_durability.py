"""The durability of the servers' acknowledged writes.

`INFO` has most of it and is seldom denied; hosted servers commonly deny `CONFIG`, which is reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tenuto.model.store_reports import DurabilityFinding
from tenuto.stores.redis._client import RedisClient
from tenuto.stores.redis._resp import Reply, ResponseError
from tenuto.stores.redis._url import Endpoint

_ASKED: Final = ("appendfsync", "save", "min-replicas-to-write")
_FSYNCS: Final = {
    "always": ("each write has reached the disk before it is acknowledged", None),
    "everysec": (
        "the disk has each write within a second",
        "a power failure may lose the last second; set appendfsync always to keep it, which makes every write wait",
    ),
    "no": (
        "the operating system decides when writes reach the disk",
        "a power failure may lose the last half minute; set everysec",
    ),
}


async def assurances(client: RedisClient) -> tuple[DurabilityFinding, ...]:
    """The findings of all primaries; where they differ, with the server's name. Raises `CallFailed`."""
    servers = await client.primaries()
    found: dict[DurabilityFinding, list[Endpoint]] = {}
    for server in servers:
        for assurance in await _server_findings(client, server):
            found.setdefault(assurance, []).append(server)
    return tuple(_with_servers(assurance, holding, servers) for assurance, holding in found.items())


async def product_version(client: RedisClient) -> str:
    """Name and version of a primary. Raises `CallFailed`."""
    servers = await client.primaries()
    try:
        facts = parse_info(await client.call_node(servers[0], "INFO", "server"))
    except ResponseError:
        return "Redis"
    valkey = facts.get("valkey_version")
    return f"Valkey {valkey}" if valkey else f"Redis {facts.get('redis_version', '')}".rstrip()


def _with_servers(
    assurance: DurabilityFinding, holding: list[Endpoint], servers: tuple[Endpoint, ...]
) -> DurabilityFinding:
    if len(holding) == len(servers):
        return assurance
    named = ", ".join(map(str, holding))
    return DurabilityFinding(
        name=assurance.name,
        message=f"{named}: {assurance.message}",
        advice=assurance.advice,
        loses_acknowledged=assurance.loses_acknowledged,
    )


async def _server_findings(client: RedisClient, server: Endpoint) -> list[DurabilityFinding]:
    try:
        facts = parse_info(await client.call_node(server, "INFO"))
    except ResponseError:
        return [
            DurabilityFinding(
                name="durability",
                message="cannot be checked: INFO is denied",
                advice="make sure that the server has appendonly yes and maxmemory-policy noeviction",
            )
        ]
    settings = {name: await read_setting(client, server, name) for name in _ASKED}
    found = [_persistence(facts, settings), _eviction_finding(facts)]
    if int(facts.get("connected_slaves", "0")):
        found.append(_replication_finding(facts["connected_slaves"], settings["min-replicas-to-write"]))
    return found


def parse_info(info: Reply) -> Mapping[str, str]:
    """The fields of `INFO`."""
    pairs = (line.partition(":") for line in info.decode(errors="replace").splitlines())
    return {name: value for name, colon, value in pairs if colon}


async def read_setting(client: RedisClient, server: Endpoint, name: str) -> str | None:
    """A setting of the server; `None` if `CONFIG` is denied."""
    try:
        # One by one: servers before Redis 7 take a single name.
        reply = await client.call_node(server, "CONFIG", "GET", name)
    except ResponseError:
        return None
    return reply[1].decode(errors="replace") if reply else None


def _persistence(facts: Mapping[str, str], settings: Mapping[str, str | None]) -> DurabilityFinding:
    if facts.get("aof_enabled") != "1":
        return _snapshot_finding(settings["save"])
    if facts.get("aof_last_write_status", "ok") != "ok":
        return DurabilityFinding(
            name="durability",
            message="appendonly yes, but the last write to the file failed",
            advice="look at the server's log and at its disk",
            loses_acknowledged=True,
        )
    policy = settings["appendfsync"]
    if policy is None:
        return DurabilityFinding(
            name="durability",
            message="appendonly yes; appendfsync cannot be asked (CONFIG is denied)",
            advice="make sure that appendfsync is everysec or always",
        )
    meaning, advice = _FSYNCS.get(policy, ("which tenuto does not know", None))
    return DurabilityFinding(
        name="durability", message=f"appendonly yes, appendfsync {policy}: {meaning}", advice=advice
    )


def _snapshot_finding(snapshots: str | None) -> DurabilityFinding:
    if snapshots == "":
        says, lost = "appendonly no, and no snapshots", "everything is lost when the server stops"
    elif snapshots is None:
        says, lost = "appendonly no; snapshots cannot be asked (CONFIG is denied)", "much may be lost when it stops"
    else:
        says, lost = "appendonly no, snapshots only", "writes after the last one are lost when the server dies"
    return DurabilityFinding(name="durability", message=says, advice=f"{lost}; set appendonly yes")


def _eviction_finding(facts: Mapping[str, str]) -> DurabilityFinding:
    policy, limit = facts.get("maxmemory_policy", "unknown"), int(facts.get("maxmemory", "0"))
    if not limit:
        return DurabilityFinding(name="eviction", message=f"maxmemory-policy {policy}, and no limit on memory")
    if policy == "noeviction":
        return DurabilityFinding(
            name="eviction", message="maxmemory-policy noeviction: when memory is full, writes are refused"
        )
    return DurabilityFinding(
        name="eviction",
        message=f"maxmemory-policy {policy}: when memory is full, parts of sessions are deleted",
        advice="set maxmemory-policy noeviction",
        loses_acknowledged=True,
    )


def _replication_finding(replicas: str, needed: str | None) -> DurabilityFinding:
    says = f"connected replicas: {replicas}"
    if needed is None:
        return DurabilityFinding(
            name="replication",
            message=f"{says}; min-replicas-to-write cannot be asked (CONFIG is denied)",
            advice="make sure that it is 1 or more: a primary cut off from its replicas takes writes that are lost",
        )
    if needed == "0":
        return DurabilityFinding(
            name="replication",
            message=f"{says}, min-replicas-to-write 0",
            advice="a primary cut off from its replicas takes writes that are lost; set min-replicas-to-write 1",
        )
    return DurabilityFinding(name="replication", message=f"{says}, min-replicas-to-write {needed}")
