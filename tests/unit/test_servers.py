"""The servers that the other tests stand on: they come up, survive a kill with their data, and go away."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import psutil
import pytest
import redis
from redis.asyncio import Redis, RedisCluster, Sentinel
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests import servers
from tests.servers.process import accepts, ended, wait_until

LAST_WORDS = """
import signal, sys
from tests.servers import start_postgres, start_redis
redis, postgres = start_redis(), start_postgres()
for server in redis, postgres:
    print(server.pid, server.folder, flush=True)
signal.pause()
"""


@pytest.fixture(params=sorted(servers.redis_programs()))
def flavour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def own_redis(flavour: str) -> Iterator[servers.RedisServer]:
    with servers.start_redis(flavour) as server:
        yield server


@pytest.fixture
def own_postgres() -> Iterator[servers.PostgresServer]:
    with servers.start_postgres() as server:
        yield server


async def test_a_redis_server_answers_under_its_url(redis_server: servers.RedisServer) -> None:
    async with Redis.from_url(redis_server.url) as client:
        assert await client.ping()
        assert await client.eval("return redis.call('SET', KEYS[1], ARGV[1])", 1, "greeting", "hello")

    redis_server.flush()

    assert redis_server.call("DBSIZE") == 0


def test_a_killed_redis_server_comes_back_with_its_data(own_redis: servers.RedisServer) -> None:
    own_redis.call("SET", "note", "held")
    port, first_pid = own_redis.port, own_redis.pid

    own_redis.kill()
    assert not accepts(port)
    own_redis.restart()

    assert own_redis.call("GET", "note") == "held"
    assert (own_redis.port, own_redis.pid != first_pid) == (port, True)


def test_a_frozen_redis_server_is_silent_until_thawed(own_redis: servers.RedisServer) -> None:
    impatient = redis.Redis(port=own_redis.port, socket_timeout=0.2, retry=Retry(NoBackoff(), 0))

    own_redis.freeze()
    with impatient, pytest.raises(redis.TimeoutError):
        impatient.ping()
    own_redis.thaw()

    assert own_redis.call("PING")


async def test_a_cluster_serves_every_slot(redis_cluster: servers.RedisCluster) -> None:
    async with RedisCluster.from_url(redis_cluster.urls[0]) as client:
        for number in range(50):
            await client.set(f"key-{number}", number)

        assert [await client.get(f"key-{number}") for number in range(50)] == [b"%d" % n for n in range(50)]
    assert all(node.call("DBSIZE") > 0 for node in redis_cluster.nodes)
    assert redis_cluster.owner_of("key-1").call("GET", "key-1") == "1"


def test_a_killed_cluster_node_comes_back_with_its_slots(flavour: str) -> None:
    with servers.start_cluster(flavour) as cluster:
        owner = cluster.owner_of("note")
        owner.call("SET", "note", "held")

        owner.kill()
        owner.restart()
        cluster.wait_until_whole()

        assert owner.call("GET", "note") == "held"


async def test_sentinels_know_the_primary(redis_sentinel: servers.RedisSentinel) -> None:
    # redis-py has not annotated this constructor.
    sentinel = Sentinel(redis_sentinel.hosts)  # type: ignore[no-untyped-call]
    async with sentinel.master_for(redis_sentinel.service) as client:
        await client.set("note", "held")

        assert await client.get("note") == b"held"
    assert await sentinel.discover_master(redis_sentinel.service) == ("127.0.0.1", redis_sentinel.primary.port)
    for watcher in sentinel.sentinels:
        await watcher.aclose()


def test_a_replica_takes_over_and_the_old_primary_follows_it(flavour: str) -> None:
    with servers.start_sentinel(flavour) as group:
        first = group.primary
        first.call("SET", "note", "held")
        # WAIT is answered for a replica that is still fetching its first copy; the replica itself knows.
        wait_until(lambda: group.replica.call("GET", "note") == "held", "the replica has the note")

        killed = group.fail_over()
        killed.restart()
        group.wait_until_whole()

        assert killed is first
        assert group.replica is first
        assert group.primary.call("GET", "note") == "held"


async def test_each_test_has_a_postgres_database_of_its_own(
    postgres: servers.PostgresServer, database: servers.PostgresDatabase
) -> None:
    connection = await asyncpg.connect(database.app_url)
    await connection.execute("CREATE TABLE note (text text); INSERT INTO note VALUES ('held')")
    await connection.close()
    copy = postgres.new_database(template=database)

    assert postgres.sql("SELECT text FROM note", copy.name) == "held"
    assert postgres.sql("SELECT count(*) FROM pg_class WHERE relname = 'note'", "main") == "0"
    postgres.drop_database(copy)


async def test_row_level_security_binds_the_app_role(database: servers.PostgresDatabase) -> None:
    owner = await asyncpg.connect(database.app_url)
    await owner.execute("CREATE TABLE note (tenant text); INSERT INTO note VALUES ('a'), ('b')")
    await owner.execute("ALTER TABLE note ENABLE ROW LEVEL SECURITY; ALTER TABLE note FORCE ROW LEVEL SECURITY")
    await owner.execute("CREATE POLICY one ON note USING (tenant = 'a')")
    admin = await asyncpg.connect(database.admin_url)

    assert await owner.fetchval("SELECT count(*) FROM note") == 1
    assert await admin.fetchval("SELECT count(*) FROM note") == 2
    await owner.close()
    await admin.close()


def test_a_killed_postgres_comes_back_with_its_data(own_postgres: servers.PostgresServer) -> None:
    own_postgres.sql("CREATE TABLE note AS SELECT 'held' AS text", "main")
    port = own_postgres.port

    own_postgres.kill()
    assert not accepts(port)
    own_postgres.restart()

    assert own_postgres.sql("SELECT text FROM note", "main") == "held"


async def test_a_frozen_postgres_is_silent_until_thawed(own_postgres: servers.PostgresServer) -> None:
    connection = await asyncpg.connect(own_postgres.app_url)

    own_postgres.freeze()
    with pytest.raises(TimeoutError):
        await connection.fetchval("SELECT 1", timeout=0.2)
    own_postgres.thaw()

    assert own_postgres.sql("SELECT 1") == "1"
    connection.terminate()


def test_postgres_can_be_told_to_reach_the_disk() -> None:
    with servers.start_postgres(fsync=True) as server:
        assert server.sql("SHOW fsync") == "on"


def test_closing_leaves_neither_process_nor_folder(own_redis: servers.RedisServer) -> None:
    pid = own_redis.pid

    own_redis.close()

    assert not psutil.pid_exists(pid)
    assert not own_redis.folder.exists()


def test_servers_die_with_a_process_that_gets_sigkill() -> None:
    starter = subprocess.Popen([sys.executable, "-c", LAST_WORDS], stdout=subprocess.PIPE, text=True)
    assert starter.stdout is not None
    started = [starter.stdout.readline().split() for _ in range(2)]
    orphans = [psutil.Process(int(pid)) for pid, _ in started]

    starter.kill()
    starter.communicate()

    wait_until(lambda: all(map(ended, orphans)), "the servers are gone")
    wait_until(lambda: not any(Path(folder).exists() for _, folder in started), "their folders are gone")


def test_a_server_that_cannot_start_says_why() -> None:
    with pytest.raises(servers.ServerFailed, match="no-such-option"):
        servers.start_redis(no_such_option="1")
