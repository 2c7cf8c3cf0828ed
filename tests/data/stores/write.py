"""Writes a small store of the release that runs it: `python -m tests.data.stores.write sqlite|redis|postgres`.

Run it with the release's own code (`PYTHONPATH=its/src`), and keep what it prints under the name of the format.
`tests/unit/stores/test_formats.py` opens every file that it finds here.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import tempfile
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import asyncpg

from tenuto.model import (
    BeginTurn,
    Changes,
    Draft,
    FinishTurn,
    IdempotencyKey,
    NewSession,
    Producer,
    Retention,
    Role,
    Scope,
    Usage,
    text_part,
)
from tenuto.model.scope import SYSTEM
from tenuto.model.turn import Trace, trace_id
from tenuto.ports import Store

ANN: Final = Scope(tenant="acme", user="ann")
NOW: Final = datetime(2026, 11, 18, 8, tzinfo=UTC)
TABLES: Final = ("sessions", "messages", "keyed", "marks", "traces", "state", "state_spaces")
_PRAGMAS: Final = ("application_id", "user_version")


def _draft(name: str, role: Role, text: str) -> Draft:
    return Draft(id=name, role=role, sent_at=NOW, parts=(text_part(text),), tokens=2)


async def fill(store: Store) -> None:
    """A session with a finished and an unfinished turn, state of a user, of the tenant and of the installation."""
    for number, key in enumerate(("k1", "k2"), 1):
        opening = BeginTurn(
            session_id="s",
            turn_id=f"t{number}",
            user_messages=(_draft(f"q{number}", Role.USER, f"question {number} 茶"),),
            create=NewSession(retention=Retention(idle=None), title="Tea", context={"x": 1.0}),
            idempotency_key=IdempotencyKey(key=key, fingerprint="body"),
            producer=Producer(id="p", seq=number),
            lease=timedelta(minutes=5),
        )
        turn = await store.sessions.begin_turn(ANN, opening)
        if number == 1:
            trace = Trace(
                id=trace_id("s", 1, "t1"), session_id="s", turn_id="t1", number=1, began_at=NOW, assistant="general"
            )
            reply = (_draft("a1", Role.ASSISTANT, "answer 1"),)
            changes = Changes(metadata={"m": {"b": [1, 2.5]}})
            await store.sessions.finish_turn(
                turn, FinishTurn(reply=reply, usage=Usage(tokens=7, cost_nanos=9), trace=trace, changes=changes)
            )
    for scope in (ANN, Scope(tenant="acme"), SYSTEM):
        await store.state.write_state(scope, "prefs", "tone", {"kind": True})


def dump_sqlite(file: Path) -> str:
    """A file as SQL."""
    with closing(sqlite3.connect(file)) as db:
        pragmas = [f"PRAGMA {name} = {db.execute(f'PRAGMA {name}').fetchone()[0]};" for name in _PRAGMAS]
        return "\n".join([*pragmas, *db.iterdump()]) + "\n"


async def _write_sqlite(folder: Path) -> str:
    from tenuto.stores.sqlite import SqliteStore

    async with await SqliteStore.open(folder / "a.db", clock=lambda: NOW) as store:
        await fill(store)
    return dump_sqlite(folder / "a.db")


async def _write_redis(_: Path) -> str:
    from tenuto.stores.redis import RedisStore
    from tests.servers import start_redis

    with start_redis(fsync="no") as server:
        store = await RedisStore.open(server.url, prefix="tenuto", clock=lambda: NOW)
        await fill(store)
        call = store.link.call
        held = {}
        for name in sorted(await call("KEYS", "*")):
            kind = (await call("TYPE", name, key=name)).decode()
            parts = ("HGETALL", name) if kind == "hash" else ("ZRANGE", name, 0, -1, "WITHSCORES")
            flat = await call(*parts, key=name)
            held[name.decode()] = [kind, *(part.hex() for part in flat)]
        await store.close()
    return json.dumps(held, indent=1) + "\n"


async def _write_postgres(_: Path) -> str:
    from tenuto.stores.postgres import PostgresStore
    from tests.servers import start_postgres

    with start_postgres() as server:
        store = await PostgresStore.open(server.app_url, clock=lambda: NOW)
        await fill(store)
        await store.close()
        admin = await asyncpg.connect(server.admin_url, server_settings={"search_path": "tenuto"})
        lines = [str(await admin.fetchval("SELECT max(number) FROM migrations"))]
        for table in TABLES:
            rows = await admin.fetch(f"SELECT to_jsonb(kept)::text AS row FROM {table} AS kept")  # noqa: S608
            lines += [f"{table} {row['row']}" for row in rows]
        await admin.close()
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        write = {"sqlite": _write_sqlite, "redis": _write_redis, "postgres": _write_postgres}[sys.argv[1]]
        sys.stdout.write(asyncio.run(write(Path(scratch))))
