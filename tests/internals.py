"""Where tests reach past the public way, one function per need.

A damaged row has to be planted by another connection, a file has to fail under a running thread, and some promises (a
cache stays small, nothing is held for a session that is gone) show in a private field alone. Each such look or touch
stands here with its reason, so that a test names what it needs and not how the backend keeps it. A unit test imports
the private module that it tests.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import asyncpg

from tenuto.chat import Chat
from tenuto.context import tokens
from tenuto.privacy.crypto.tenant_ciphers import TenantCiphers
from tenuto.stores.engine import Engine
from tenuto.stores.engine.journal import Journal
from tenuto.stores.postgres._feed import PostgresFeed
from tenuto.stores.redis._invalidation import InvalidationListener
from tenuto.stores.redis._tracking import ClientTracking
from tenuto.stores.sqlite import SqliteRecords
from tenuto.stores.sqlite._threads import WriterThread
from tenuto.upkeep import Upkeep

# Postgres


async def postgres_rows(url: str, statement: str, *args: object) -> list[tuple[Any, ...]]:
    """What another connection finds, or does."""
    connection: asyncpg.Connection[Any] = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await connection.fetch(statement, *args)]
    finally:
        await connection.close()


async def ping_postgres(feed: PostgresFeed, connection: Any) -> None:
    """One sign of life of a feed that has seen nothing: its rounds have no end that a test could wait for."""
    await feed._ping_or_confirm(connection, 0)


# SQLite


def sqlite_rows(store: Engine, sql: str) -> list[Any]:
    """What another connection finds, or does."""
    assert isinstance(store.records, SqliteRecords)
    with closing(sqlite3.connect(store.records.path)) as db, db:
        return db.execute(sql).fetchall()


def sqlite_writer(store: Engine | SqliteRecords) -> WriterThread:
    """The thread that writes: what a full disk does to its connection cannot be set from another one."""
    records = store.records if isinstance(store, Engine) else store
    assert isinstance(records, SqliteRecords)
    return records._writer


def sqlite_db(store: Engine) -> sqlite3.Connection:
    """The writer's connection: its pragmas, and the statements that it runs."""
    return sqlite_writer(store)._db


def set_timeout(writer: WriterThread, seconds: float) -> None:
    """Have those who come from now on wait so long: one writer serves patient and impatient callers in no other way."""
    writer._timeout = seconds


def is_writing(writer: WriterThread) -> bool:
    """Whether the thread lives: it is gone when closing has ended, which no answer tells."""
    return writer._thread.is_alive()


# Redis


def redis_listeners(tracking: ClientTracking) -> list[InvalidationListener]:
    """The connections that wait for invalidations."""
    return list(tracking._listeners.values())


def last_heard(listener: InvalidationListener) -> float:
    """When the server gave its last sign of life."""
    return listener._heard


# The journal


def hears_news(journal: Journal) -> bool:
    """Whether the store's feed listens: what was seen before that is not gone on from in an outage."""
    return journal._cache._caught_up()


# Upkeep, encryption, tokens and the relevance gate


def end_after_one_round(upkeep: Upkeep) -> None:
    """Have an application's rounds end where the first pause would begin, which lasts minutes."""

    async def the_end(_seconds: float) -> None:
        raise asyncio.CancelledError

    upkeep._pause = the_end


def patient_gate(chat: Chat) -> None:
    """Have the gate wait for its embedder for a minute: how long a busy machine takes is not what is tested."""
    embedder = chat._deps.embedder
    assert embedder is not None
    embedder._time_limit = 60


def hot_ciphertexts(keys: TenantCiphers) -> tuple[int, Any]:
    """How large the cache of opened texts is, and what is in it."""
    return keys._hot._size, keys._hot._kept


def look_up_key(keys: TenantCiphers, tenant: str) -> bytes | None:
    """A tenant's key for digests, where it is plain."""
    return keys._known[tenant].look_up


def vocabularies() -> tuple[Callable[[str], Callable[[str], int]], ...]:
    """What loads a vocabulary, one for each package that carries them: in use is the first that is installed."""
    return tokens._rs_bpe, tokens._bpe_openai


def clear_token_caches() -> None:
    """As in a new process: which package carries the vocabulary is looked up once."""
    tokens._counting.cache_clear()
    tokens._count_fixed.cache_clear()
    tokens.counter_for.cache_clear()


def cached_content_bytes(chat: Chat) -> int:
    """How many bytes of attachments a chat keeps for its next prompts: an erasure leaves none."""
    return chat._deps.contents.weight
