"""Real Redis, Valkey and Postgres servers on loopback, for tests and for the benchmark.

Nothing here needs pytest: `with start_redis() as server: ...` works in any script. A server keeps
its port and its data over `kill` and `restart`, and dies with the process that started it, even
when that process gets SIGKILL.

Servers are expensive and shared by a whole test session, so tests keep apart like this:

- Redis and Valkey: `server.flush()` empties a server in a millisecond; a test that wants company
  takes a key prefix of its own instead.
- Postgres: `server.new_database()` gives an empty database owned by a role that is no superuser.
  With `template=` it copies one that was migrated before, which is cheaper than migrating again.
- A test that kills or freezes a server starts its own: killing a shared one harms the neighbours.
"""

from tests.servers.postgres import PostgresDatabase, PostgresServer, start_postgres
from tests.servers.process import ServerFailed, ServerProcess
from tests.servers.redis import RedisServer, redis_programs, start_redis
from tests.servers.topology import RedisCluster, RedisSentinel, start_cluster, start_sentinel

__all__ = [
    "PostgresDatabase",
    "PostgresServer",
    "RedisCluster",
    "RedisSentinel",
    "RedisServer",
    "ServerFailed",
    "ServerProcess",
    "redis_programs",
    "start_cluster",
    "start_postgres",
    "start_redis",
    "start_sentinel",
]
