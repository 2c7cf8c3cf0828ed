"""How many bytes a filled store takes, by what they hold.

Tables and hashes hold several of the parts; what they take is shared out by the lengths of the bodies in them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from typing import Final, cast
from urllib.parse import urlsplit

import redis

from bench.capacity.sample import TENANT, session_id
from bench.grounds import Ground
from tenuto.model import Scope
from tenuto.model.scope import KEY_BYTES, session_key, site_key
from tenuto.model.stored import Kind, Part
from tenuto.stores.factory import sqlite_path
from tenuto.stores.redis._keys import RecordKeys
from tests.servers import PostgresServer, RedisServer

PARTS: Final = ("sessions", "messages", "traces", "state", "rest")
"""What adds up to a store; other figures are beside it or parts of it."""
_PARTS: Final[Mapping[str, str]] = {Part.MESSAGES: "messages", Part.TRACES: "traces", Kind.VALUE: "state"}
# What is no body in a row of a record or an entry: keys, columns, and places in indexes.
_RECORD_BYTES: Final = 300
_ENTRY_BYTES: Final = 50
_SAMPLED: Final = 500
_PAGES: Final = """
    SELECT coalesce(s.tbl_name, d.name), sum(d.pgsize) FROM dbstat AS d
    LEFT JOIN sqlite_schema AS s ON s.name = d.name WHERE d.aggregate = 1 GROUP BY 1
"""
_OF_SQLITE: Final = f"""
    SELECT 'records', kind, sum(length(profile) + length(head) + {_RECORD_BYTES}) FROM whole GROUP BY 2
    UNION ALL SELECT 'entries', part, sum(length(body) + {_ENTRY_BYTES}) FROM entry GROUP BY 2
"""
_RELATIONS: Final = """
    SELECT relname || ' ' || pg_total_relation_size(oid) FROM pg_class
    WHERE relkind = 'r' AND relnamespace = 'tenuto'::regnamespace
    UNION ALL SELECT 'indexes ' || sum(pg_indexes_size(oid)) FROM pg_class
    WHERE relkind = 'r' AND relnamespace = 'tenuto'::regnamespace
"""
_OF_POSTGRES: Final = f"""
    SELECT 'records ' || kind || ' ' || sum(pg_column_size(profile) + pg_column_size(head) + {_RECORD_BYTES})
    FROM tenuto.records GROUP BY kind
    UNION ALL SELECT 'entries ' || part::text || ' ' || sum(pg_column_size(body) + {_ENTRY_BYTES})
    FROM tenuto.entries GROUP BY part
"""


def store_bytes(up: Ground, url: str, sessions: int) -> dict[str, float]:
    """Bytes of all `PARTS`, on disk, of Redis in memory; and of what limits the backend."""
    if isinstance(up.server, RedisServer):
        return _redis(up.server, url, sessions)
    return _postgres(up.server, url) if isinstance(up.server, PostgresServer) else _sqlite(url)


def _sqlite(url: str) -> dict[str, float]:
    with closing(sqlite3.connect(sqlite_path(url))) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        pages = dict(db.execute(_PAGES).fetchall())
        bodies = db.execute(_OF_SQLITE).fetchall()
    tables = {"records": pages.pop("record") + pages.pop("head"), "entries": pages.pop("entry")}
    return {**_share(tables, bodies), "rest": sum(pages.values())}


def _postgres(server: PostgresServer, url: str) -> dict[str, float]:
    database = urlsplit(url).path.lstrip("/")
    relations = {name: int(size) for name, size in _rows(server.sql(_RELATIONS, database))}
    bodies = [(table, part, int(size)) for table, part, size in _rows(server.sql(_OF_POSTGRES, database))]
    tables = {table: relations.pop(table) for table in ("records", "entries")}
    indexes = relations.pop("indexes")
    return {**_share(tables, bodies), "rest": sum(relations.values()), "indexes": indexes}


def _rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def _share(tables: Mapping[str, float], bodies: list[tuple[str, str, int]]) -> dict[str, float]:
    """What each part takes of the tables, by the lengths of bodies."""
    sizes = dict.fromkeys(("sessions", "messages", "traces", "state"), 0.0)
    for table, size in tables.items():
        lengths = {part: length for name, part, length in bodies if name == table}
        for part, length in lengths.items():
            sizes[_PARTS.get(part, "sessions")] += size * length / sum(lengths.values())
    return sizes


def _redis(server: RedisServer, url: str, sessions: int) -> dict[str, float]:
    """What the server uses in all; the parts are those of a sample of records."""
    keys, tenant = RecordKeys("tenuto"), Scope(tenant=TENANT)
    sizes = dict.fromkeys(("sessions", "messages", "traces", "state"), 0.0)
    with redis.Redis.from_url(url, protocol=2) as client:

        def usage(*names: bytes) -> int:
            return sum(client.memory_usage(name, samples=0) or 0 for name in names)

        numbers = range(0, sessions, max(1, sessions // _SAMPLED))
        for number in numbers:
            name = keys.record(session_key(tenant, session_id(number)))
            for part, size in _share({"records": usage(name)}, _fields(client, name)).items():
                sizes[part] += size * sessions / len(numbers)
        drawers = client.zrange(keys.drawers(site_key(tenant)), 0, -1)
        some = drawers[:: max(1, len(drawers) // 50)]
        for drawer in some:
            names = client.zrange(keys.drawer(drawer[KEY_BYTES:]), 0, -1)
            size = usage(*(keys.record(name[-KEY_BYTES:]) for name in names))
            sizes["state"] += size * len(drawers) / len(some)
        listing, expiries = usage(keys.site(site_key(tenant))), usage(*keys.due)
    memory = server.info("memory")
    return {
        **sizes,
        "rest": memory["used_memory"] - sum(sizes.values()),
        "resident": memory["used_memory_rss"],
        "append-only file": server.info("persistence")["aof_current_size"],
        "listing of the site": listing,
        "expiry index": expiries,
    }


def _fields(client: redis.Redis, name: bytes) -> list[tuple[str, str, int]]:
    """The fields of a record: entries by part and number, all others belong to the session."""
    # redis-py's types speak of decoded answers as well.
    fields = cast(dict[bytes, bytes], client.hgetall(name))
    parts = [(field[:1].decode() if field[1:].isdigit() else "", len(field + body)) for field, body in fields.items()]
    return [("records", part, sum(size for other, size in parts if other == part)) for part in {p for p, _ in parts}]
