"""What the doctor says of servers that keep data more or less safely: asked of real ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from tenuto.cli import program
from tenuto.errors import Unavailable
from tenuto.ports import DurabilityReport
from tenuto.stores.memory import InMemoryRecords
from tenuto.stores.redis import RedisRecords
from tests.samples import fresh
from tests.servers import PostgresServer, RedisCluster, RedisSentinel, RedisServer, start_postgres, start_redis

SETTINGS = ("appendonly", "appendfsync", "save", "maxmemory", "maxmemory-policy")
ROOMY = "1000000000"

Change = Callable[..., str]
Checks = dict[str, dict[str, Any]]


pytestmark = pytest.mark.usefixtures("own_environment")


def examined(url: str) -> tuple[int, Checks]:
    """The doctor's exit code and findings by name."""
    result = CliRunner().invoke(program, ["doctor", "--json", "--store", url], catch_exceptions=False)
    return result.exit_code, {check["name"]: check for check in json.loads(result.stdout)["checks"]}


def finding(url: str, name: str) -> tuple[str, str, str]:
    """How a check came out, what it says and what it advises."""
    check = examined(url)[1][name]
    return check["status"], check["message"], check["advice"] or ""


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """A server whose settings tests may change."""
    with start_redis(fsync="always") as server:
        yield server


@pytest.fixture
def change(server: RedisServer) -> Iterator[Change]:
    """Changes settings of the server, which are as before after the test."""
    before = {name: server.call("CONFIG", "GET", name)[1] for name in SETTINGS}

    def changed(**settings: str) -> str:
        for name, value in settings.items():
            server.call("CONFIG", "SET", name.replace("_", "-"), value)
        return server.url

    yield changed
    for name, value in before.items():
        server.call("CONFIG", "SET", name, value)


def test_a_server_that_writes_before_it_answers_and_evicts_nothing_is_well(change: Change) -> None:
    code, checks = examined(change(maxmemory=ROOMY, maxmemory_policy="noeviction"))

    assert code == 0
    assert (checks["durability"]["status"], checks["eviction"]["status"]) == ("ok", "ok")
    assert "appendfsync always" in checks["durability"]["message"]
    assert "writes are refused" in checks["eviction"]["message"]
    assert "replication" not in checks


@pytest.mark.parametrize(
    ("settings", "says", "advises"),
    [
        ({"appendfsync": "everysec"}, "appendfsync everysec", "appendfsync always"),
        ({"appendfsync": "no"}, "appendfsync no", "everysec"),
        ({"appendonly": "no", "save": "3600 1"}, "snapshots only", "appendonly yes"),
        ({"appendonly": "no", "save": ""}, "no snapshots", "appendonly yes"),
    ],
    ids=["every second", "some time", "snapshots", "nothing"],
)
def test_less_safety_is_a_note_that_says_what_may_be_lost(
    change: Change, settings: dict[str, str], says: str, advises: str
) -> None:
    url = change(**settings)

    code, _ = examined(url)
    state, said, advised = finding(url, "durability")

    assert (code, state) == (0, "warning")
    assert says in said
    assert advises in advised


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_a_server_that_evicts_is_wrong_once_it_has_a_limit(change: Change, policy: str) -> None:
    """Sessions carry an expiry of their own on the server, so both kinds of policy take them."""
    harmless = finding(change(maxmemory_policy=policy), "eviction")
    url = change(maxmemory=ROOMY)

    code, _ = examined(url)
    state, says, advice = finding(url, "eviction")

    assert harmless[0] == "ok"
    assert (code, state) == (1, "error")
    assert policy in says
    assert advice == "set maxmemory-policy noeviction"


@pytest.mark.parametrize(
    ("denied", "appendonly", "says", "advises"),
    [
        ("-config", "yes", "appendfsync cannot be asked (CONFIG is denied)", "make sure"),
        ("-info", "yes", "INFO is denied", "make sure"),
        ("-config", "no", "snapshots cannot be asked", "appendonly yes"),
    ],
)
def test_what_the_server_does_not_tell_is_said(
    server: RedisServer, change: Change, denied: str, appendonly: str, says: str, advises: str
) -> None:
    server.call("ACL", "SETUSER", "plain", "reset", "on", ">pass", "~*", "&*", "+@all", denied)
    url = change(appendonly=appendonly).replace("redis://", "redis://plain:pass@")

    code, _ = examined(url)
    state, said, advice = finding(url, "durability")

    assert (code, state) == (0, "warning")
    assert says in said
    assert advises in advice


def test_one_server_of_a_cluster_that_evicts_is_named(redis_cluster: RedisCluster) -> None:
    url, odd = f"{redis_cluster.url}?prefix={fresh('doctor')}", redis_cluster.nodes[1]
    whole = finding(url, "eviction")
    before = {name: odd.call("CONFIG", "GET", name)[1] for name in ("maxmemory", "maxmemory-policy")}
    try:
        odd.call("CONFIG", "SET", "maxmemory", ROOMY)
        odd.call("CONFIG", "SET", "maxmemory-policy", "allkeys-random")
        result = CliRunner().invoke(program, ["doctor", "--json", "--store", url])
    finally:
        for name, value in before.items():
            odd.call("CONFIG", "SET", name, value)

    evictions = [check for check in json.loads(result.stdout)["checks"] if check["name"] == "eviction"]
    assert whole[0] == "ok"
    assert sorted(check["status"] for check in evictions) == ["error", "ok"]
    wrong = next(check for check in evictions if check["status"] == "error")
    assert wrong["message"].startswith(f"127.0.0.1:{odd.port}: ")


def test_a_primary_that_needs_no_replica_to_write_is_a_note(redis_sentinel: RedisSentinel) -> None:
    state, says, advice = finding(f"{redis_sentinel.url}?prefix={fresh('doctor')}", "replication")

    assert (state, says) == ("warning", "connected replicas: 1, min-replicas-to-write 0")
    assert "min-replicas-to-write 1" in advice


@pytest.fixture(scope="module")
def safe_postgres() -> Iterator[PostgresServer]:
    with start_postgres(fsync=True) as server:
        yield server


def test_postgres_tells_as_well(postgres: PostgresServer, safe_postgres: PostgresServer) -> None:
    safe = finding(safe_postgres.app_url, "durability")
    safe_postgres.sql("ALTER DATABASE main SET synchronous_commit = off")
    late = finding(safe_postgres.app_url, "durability")
    unsafe = finding(postgres.app_url, "durability")

    assert safe[:2] == ("ok", "fsync on, synchronous_commit on: every acknowledged turn is on disk")
    assert (late[0], "synchronous_commit on" in late[2]) == ("warning", True)
    assert (unsafe[0], "set fsync on" in unsafe[2]) == ("warning", True)


async def test_a_server_that_is_away_cannot_be_asked() -> None:
    with start_redis() as server:
        records = await RedisRecords.open(server.url)
        server.kill()

        with pytest.raises(Unavailable):
            await records.durability_findings()
        await records.close()


def test_only_stores_on_a_server_have_settings_to_tell() -> None:
    assert not isinstance(InMemoryRecords(), DurabilityReport)
