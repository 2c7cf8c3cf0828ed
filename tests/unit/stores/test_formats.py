"""Stores that earlier code has written open with this one: a file in `tests/data/stores` for each format."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tenuto.errors import SequenceGap
from tenuto.model import Producer, Scope, TurnState
from tenuto.model.scope import SYSTEM
from tenuto.ports import Backend
from tenuto.stores.postgres import PostgresStore
from tenuto.stores.postgres._schema import migrations
from tenuto.stores.redis import RedisStore
from tenuto.stores.sqlite import SqliteStore
from tests.data.stores.write import ANN, NOW, TABLES
from tests.samples import batch, begin, fresh, once, texts
from tests.servers import PostgresServer, RedisServer

FOLDER = Path(__file__).parents[2] / "data" / "stores"
FILES = {path.stem: path.read_text() for path in sorted(FOLDER.glob("*-*"))}
Opener = Callable[[str, Any, Path], AbstractAsyncContextManager[Backend]]


def an_hour_later() -> datetime:
    """When the lease of the unfinished turn is over."""
    return NOW + timedelta(hours=1)


@asynccontextmanager
async def _sqlite(written: str, _: Any, folder: Path) -> AsyncIterator[Backend]:
    with closing(sqlite3.connect(folder / "a.db")) as db:
        db.executescript(written)
    async with await SqliteStore.open(folder / "a.db", clock=an_hour_later) as store:
        yield store


@asynccontextmanager
async def _redis(written: str, server: RedisServer, _: Path) -> AsyncIterator[Backend]:
    prefix = fresh("format")
    store = RedisStore(server.url, prefix=prefix, clock=an_hour_later)
    for name, (kind, *flat) in json.loads(written).items():
        key, parts = name.replace("tenuto", prefix, 1), list(map(bytes.fromhex, flat))
        # A hash is set by name and value, a sorted set by score and member.
        pairs = [(a, b) if kind == "hash" else (b, a) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        call = "HSET" if kind == "hash" else "ZADD"
        await store.link.call(call, key, *(part for pair in pairs for part in pair), key=key.encode())
    await store.prepare()
    yield store
    await store.close()


@asynccontextmanager
async def _postgres(written: str, server: PostgresServer, _: Path) -> AsyncIterator[Backend]:
    schema = fresh("format")
    admin = await asyncpg.connect(server.app_url)
    await admin.execute(f'CREATE SCHEMA "{schema}"; SET search_path TO "{schema}"')
    number, *rows = written.splitlines()
    await admin.execute("CREATE TABLE migrations (number int PRIMARY KEY, name text, digest text)")
    for step in migrations()[: int(number)]:
        await admin.execute(step.sql)
        await admin.execute("INSERT INTO migrations VALUES ($1, $2, $3)", step.number, step.name, step.digest)
    for table in TABLES:
        await admin.execute(f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY")
    for table, row in (line.split(" ", 1) for line in rows):
        insert = f"INSERT INTO {table} OVERRIDING SYSTEM VALUE SELECT * FROM jsonb_populate_record(NULL::{table}, $1)"
        await admin.execute(insert, row)
    for table in TABLES:
        await admin.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY")
    await admin.close()
    store = await PostgresStore.open(server.app_url, schema=schema, clock=an_hour_later)
    yield store
    await store.close()


SERVERS: dict[str, tuple[str | None, Opener]] = {
    "sqlite": (None, _sqlite),
    "redis": ("valkey", _redis),
    "postgres": ("postgres", _postgres),
}


@pytest.mark.parametrize(("name", "written"), FILES.items(), ids=FILES)
async def test_a_store_of_an_earlier_format_goes_on(
    name: str, written: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """What it holds is read, retries find their turns, and all of it can be copied (T19)."""
    fixture, opener = SERVERS[name.partition("-")[0]]
    server = None if fixture is None else request.getfixturevalue(fixture)
    async with opener(written, server, tmp_path) as store:
        session = await store.sessions.get(ANN, "s")
        assert (session.title, session.context, session.metadata) == ("Tea", {"x": 1.0}, {"m": {"b": [1, 2.5]}})
        assert (session.tokens, session.turns) == (7, 2)
        assert await texts(store, ANN, "s") == ["question 1 茶", "answer 1", "question 2 茶"]
        assert [trace.turn_id for trace in await store.traces.traces(ANN, "s")] == ["t1"]
        keys = [head.key async for heads in store.bulk.iter_heads() for head in heads]
        assert len(await store.bulk.read_sessions(keys)) == 1
        assert (len([one async for page in store.bulk.iter_state() for one in page]), store.bulk.unreadable) == (3, 0)
        for scope in (ANN, Scope(tenant="acme"), SYSTEM):
            assert (await store.state.write_state(scope, "prefs", "tone", {}, 1)).version == 2

        states = [(await begin(store, ANN, "s", "?", idempotency_key=once(key))).state for key in ("k1", "k2")]
        with pytest.raises(SequenceGap):
            await store.sessions.append(ANN, "s", batch("?", producer=Producer(id="p", seq=4)))

        assert states == [TurnState.FINISHED, TurnState.RESUMED]
        await store.sessions.append(ANN, "s", batch("?", producer=Producer(id="p", seq=3)))
