"""Encryption at rest, seen from below: no word of a message lies in the backend's bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import redis

from tenuto.model import Changes, NewSession, OpenTurn, Page, text_part
from tenuto.model.turn import ToolRun, Trace
from tenuto.ports import Store
from tenuto.privacy.crypto.tenant_ciphers import TenantCiphers
from tenuto.stores.encrypted import EncryptedStore
from tenuto.stores.factory import open_store
from tenuto.stores.memory import MemoryStore
from tests.backends import RING
from tests.samples import ANN, begin, closing, says, texts, trace_of
from tests.servers import PostgresDatabase, RedisServer
from tests.shared_stores import SHARED, SharedStore

# One marked word for each thing that is sealed. With its dots, none can stand in base64 by chance.
WORDS = [
    f".{animal}." for animal in (
        "quokka", "numbat", "bilby", "dibbler", "potoroo", "bettong", "wallaroo", "cuscus", "glider", "dunnart",
        "kowari", "antechinus", "pademelon", "袋熊",
    )
]  # fmt: skip


def traced(turn: OpenTurn, words: list[str]) -> Trace:
    tools = (ToolRun(name="search", arguments={"q": words[2]}, output=[words[3]]),)
    return trace_of(turn, request=words[0], answer=words[1], tools=tools, data={"found": words[4]})


async def say_everything(store: Store) -> None:
    """Write every marked word into a place of its own."""
    (part, title, context, attribute, head, metadata, extra, state, reply, *rest) = WORDS
    draft = says("", parts=(text_part(part),), metadata={"k": metadata}, extra={"k": extra})
    new = NewSession(context={"k": context}, attributes={"k": [attribute]}, metadata={"k": {"deep": head}})
    turn = await begin(store, ANN, "s", user_messages=(draft,), create=new)
    await store.sessions.finish_turn(turn, closing(reply, changes=Changes(title=title), trace=traced(turn, rest)))
    await store.state.write_state(ANN, "prefs", "k", {"v": state})


def _encrypted(backend: Store) -> EncryptedStore:
    return EncryptedStore(store=backend, ciphers=TenantCiphers(store=backend.state, ring=RING))


@asynccontextmanager
async def opened(url: str, *, sealed: bool) -> AsyncIterator[Store]:
    backend = await open_store(url)
    try:
        yield _encrypted(backend) if sealed else backend
    finally:
        await backend.close()


Server = Callable[[str], Any]


async def _sqlite_bytes(server: Server, folder: Path) -> AsyncIterator[bytes]:
    for content in _contents(folder):
        yield content


def _contents(folder: Path) -> list[bytes]:
    return [file.read_bytes() for file in folder.iterdir()]


async def _redis_bytes(server: Server, folder: Path) -> AsyncIterator[bytes]:
    valkey: RedisServer = server("valkey")
    read = {b"string": "GET", b"hash": "HGETALL", b"zset": "ZRANGE", b"list": "LRANGE", b"set": "SMEMBERS"}
    with redis.Redis(port=valkey.port, protocol=2) as client:
        for key in client.scan_iter():
            kind = client.type(key)
            assert isinstance(kind, bytes)
            bounds = (0, -1) if kind in (b"zset", b"list") else ()
            for item in _flat([key, client.execute_command(read[kind], key, *bounds)]):
                yield item


def _flat(value: Any) -> Iterable[bytes]:
    if isinstance(value, bytes):
        yield value
    elif isinstance(value, dict):
        yield from _flat([*value.keys(), *value.values()])
    elif isinstance(value, list | tuple | set):
        for item in value:
            yield from _flat(item)


async def _postgres_bytes(server: Server, folder: Path) -> AsyncIterator[bytes]:
    database: PostgresDatabase = server("database")
    connection = await asyncpg.connect(database.admin_url)
    tables = await connection.fetch("SELECT schemaname, tablename FROM pg_tables WHERE schemaname = 'tenuto'")
    assert tables
    for schema, table in tables:
        for row in await connection.fetch(f'SELECT * FROM "{schema}"."{table}"'):
            for value in row.values():
                yield value if isinstance(value, bytes) else str(value).encode()
    await connection.close()


READ = {"redis": _redis_bytes, "postgres": _postgres_bytes, "sqlite": _sqlite_bytes}


@pytest.mark.parametrize("sealed", [True, False], ids=["encrypted", "plain"])
@pytest.mark.parametrize("shared", [each for each in SHARED if each.name in READ], ids=lambda shared: shared.name)
async def test_no_word_that_anybody_said_lies_in_the_backend(
    shared: SharedStore, sealed: bool, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Without encryption every marked word is found there, so that not finding any means something."""
    server = request.getfixturevalue
    async with opened(shared.url(server, tmp_path), sealed=sealed) as store:
        await say_everything(store)
        lies_there = b"\n".join([piece async for piece in READ[shared.name](server, tmp_path)])
        kept = await texts(store, ANN, "s")

    found = {word for word in WORDS if word.encode() in lies_there}
    assert found == (set() if sealed else set(WORDS))
    assert kept == [WORDS[0], WORDS[8]]
    assert (b"tnt1." in lies_there) is sealed


async def test_ids_roles_and_counts_stay_readable() -> None:
    backend = MemoryStore()
    await say_everything(_encrypted(backend))

    head = await backend.sessions.get(ANN, "s")
    first, second = (await backend.sessions.messages(ANN, "s", Page())).messages

    assert (head.id, head.turns, head.messages) == ("s", 1, 2)
    assert (first.role, second.role) == ("user", "assistant")
    assert set(head.context) == {"k"}
    assert first.text == second.text == ""
