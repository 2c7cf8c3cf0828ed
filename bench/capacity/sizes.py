"""How many bytes a filled store takes, by what they hold."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Final
from urllib.parse import urlsplit

from bench.capacity.sample import SESSIONS_PER_USER, TENANT, session_id, user_scope
from bench.grounds import Ground
from tenuto.model import Scope
from tenuto.model.scope import owner_key, session_key, site_key
from tenuto.stores.factory import sqlite_path
from tenuto.stores.redis._keys import RedisKeys
from tests.servers import PostgresServer, RedisServer

_KINDS: Final = {
    "session": "sessions",
    "sessions": "sessions",
    "profile": "sessions",
    "keyed": "sessions",
    "message": "messages",
    "messages": "messages",
    "trace": "traces",
    "traces": "traces",
    "state": "state",
}
_SAMPLED: Final = 500
_RELATIONS: Final = """
    SELECT relname || ' ' || pg_total_relation_size(oid) FROM pg_class
    WHERE relkind = 'r' AND relnamespace = 'tenuto'::regnamespace
    UNION ALL SELECT 'indexes ' || sum(pg_indexes_size(oid)) FROM pg_class
    WHERE relkind = 'r' AND relnamespace = 'tenuto'::regnamespace
"""
PARTS: Final = ("sessions", "messages", "traces", "state", "rest")
"""What adds up to a store; other figures are beside it or parts of it."""


def store_bytes(up: Ground, url: str, sessions: int) -> dict[str, float]:
    """Bytes of all `PARTS`, on disk, of Redis in memory; and of what limits the backend."""
    if isinstance(up.server, RedisServer):
        return _redis(up.server, sessions)
    found = _postgres(up.server, url) if isinstance(up.server, PostgresServer) else _sqlite(url)
    sizes: dict[str, float] = {}
    for name, size in found:
        kind = name if name == "indexes" else _KINDS.get(name, "rest")
        sizes[kind] = sizes.get(kind, 0) + size
    return sizes


def _sqlite(url: str) -> list[tuple[str, int]]:
    with closing(sqlite3.connect(sqlite_path(url))) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return db.execute(
            "SELECT coalesce(s.tbl_name, d.name), sum(d.pgsize) FROM dbstat AS d "
            "LEFT JOIN sqlite_schema AS s ON s.name = d.name WHERE d.aggregate = 1 GROUP BY 1"
        ).fetchall()


def _postgres(server: PostgresServer, url: str) -> list[tuple[str, int]]:
    lines = server.sql(_RELATIONS, urlsplit(url).path.lstrip("/")).splitlines()
    return [(name, int(size)) for name, size in (line.split() for line in lines)]


def _redis(server: RedisServer, sessions: int) -> dict[str, float]:
    """What the server uses in all; the parts are those of a sample of keys."""
    keys = RedisKeys("tenuto")
    sampled = range(0, sessions, max(1, sessions // _SAMPLED))
    tenant, parts = Scope(tenant=TENANT), [0.0, 0.0, 0.0, 0.0]
    for number in sampled:
        for place, key in enumerate(keys.session(session_key(tenant, session_id(number)))):
            parts[place] += _usage(server, key) * sessions / len(sampled)
    users = sessions // SESSIONS_PER_USER
    some = range(0, users, max(1, users // 50))
    owners = [keys.owner_state_keys(owner_key(user_scope(number)).hex()) for number in some]
    state = sum(_usage(server, key) for owner in owners for key in owner) * users / len(some)
    head, log, values, traces = parts
    sizes = {"sessions": head + values, "messages": log, "traces": traces, "state": state}
    memory = server.info("memory")
    return {
        **sizes,
        "rest": memory["used_memory"] - sum(sizes.values()),
        "resident": memory["used_memory_rss"],
        "append-only file": server.info("persistence")["aof_current_size"],
        "listing of the site": _usage(server, keys.shelf(site_key(tenant).hex())),
        "expiry index": sum(_usage(server, key) for key in keys.expiries),
    }


def _usage(server: RedisServer, key: bytes) -> int:
    return server.call("MEMORY", "USAGE", key.decode(), "SAMPLES", 0) or 0
