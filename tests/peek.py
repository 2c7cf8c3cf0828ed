"""Where tests reach past the public way, one function per need.

A damaged row has to be planted by another connection, a file has to fail under a running thread, and some promises (a
cache stays small, nothing is held for a session that is gone) show in a private field alone. Each such look or touch
stands here with its reason, so that a test names what it needs and not how the backend keeps it. A unit test imports
the private module that it tests.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import asyncpg

from tenuto.chat import Chat
from tenuto.context import tokens
from tenuto.privacy.crypto.tenant_ciphers import TenantCiphers
from tenuto.stores.journaled import JournaledStore, Outbox
from tenuto.stores.postgres import PostgresStore
from tenuto.stores.redis import RedisStore
from tenuto.stores.redis._invalidation import InvalidationListener
from tenuto.stores.redis._tracking import ClientTracking
from tenuto.stores.sqlite import SqliteStore

# Postgres


async def postgres_rows(url: str, statement: str, *args: object) -> list[tuple[Any, ...]]:
    """What another connection finds, or does."""
    connection: asyncpg.Connection[Any] = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await connection.fetch(statement, *args)]
    finally:
        await connection.close()


def appends_under_way(store: PostgresStore) -> int:
    """How many batches are on their way: a caller who gave up leaves no other trace of them."""
    return len(store.sessions._append._under_way)


# SQLite


def sqlite_rows(store: SqliteStore, sql: str) -> list[Any]:
    """What another connection finds, or does."""
    with closing(sqlite3.connect(store.path)) as db, db:
        return db.execute(sql).fetchall()


def sqlite_writer(store: SqliteStore) -> Any:
    """The thread that writes: what a full disk does to its connection cannot be set from another one."""
    return store._database.writer


def sqlite_db(store: SqliteStore) -> sqlite3.Connection:
    """The writer's connection: its pragmas, and the statements that it runs."""
    db: sqlite3.Connection = store._database.writer._db
    return db


def sqlite_hot_heads(store: SqliteStore) -> tuple[int, int, int]:
    """How many heads are cached, how large they are by the cache's count, and how large they are."""
    hot = store._database.writer._hot
    return len(hot._heads), hot._size, sum(size for _, size in hot._heads.values())


# Redis


def redis_runner(store: RedisStore) -> Any:
    """What runs the scripts and tells the time: to count calls, repeat one, or name a quarantined key."""
    return store._asking


def redis_owners(store: RedisStore) -> Any:
    """The list of owners: to let another process come between its steps."""
    return store._owners


def redis_window(store: RedisStore, key: bytes, limit: int | None = None) -> Any:
    """What is cached of a session's window; no answer of the store shows whether it came from there."""
    return store.sessions._windows.get(key) if limit is None else store.sessions._windows.get(key, limit)


async def redis_quarantine(store: RedisStore, key: bytes, why: str) -> None:
    """Set a session aside as a process does whose verdict comes late."""
    await store._sweeping.quarantine(key, why)


async def redis_leave_space(store: RedisStore, space: bytes) -> None:
    """Take a space off the list as a process does that has found it empty a moment ago."""
    await store._spaces._leave(space)


def redis_listeners(tracking: ClientTracking) -> list[InvalidationListener]:
    """The connections that wait for invalidations."""
    return list(tracking._listeners.values())


def last_heard(listener: InvalidationListener) -> float:
    """When the server gave its last sign of life."""
    return listener._heard


# The journal


def last_seen(journal: JournaledStore) -> Any:
    """What the journal takes for known of sessions: shown only while the store is away, which the test is not about."""
    return journal.sessions._known


def hears_news(journal: JournaledStore) -> bool:
    """Whether the store's feed is connected: what was seen before that is not trusted."""
    return journal._feed.listening


def recent_calls(journal: JournaledStore) -> list[bytes]:
    """The sessions whose calls are remembered, to tell their news from those of others."""
    return list(journal.sessions._known._calls._lately)


def held_rows(journal: JournaledStore) -> int:
    """How many turns and sessions the journal holds in memory: none for a session that is gone."""
    return len(journal._journal._local.open) + len(journal._journal._local.view.keys)


def held_turns(journal: JournaledStore) -> int:
    """How many open turns and pauses the journal holds in memory: none for turns that are lost."""
    return len(journal._journal.running) + bool(journal._journal._backoff)


def outbox_files(outbox: Outbox) -> dict[int, Any]:
    """The open files by number: to put one in their place that fails, or to close them under the outbox."""
    return outbox._slots


def outbox_thread(outbox: Outbox) -> Any:
    """The thread that writes: held, so that work for it comes together."""
    return outbox._thread


def outbox_work(outbox: Outbox) -> tuple[bool, int]:
    """Whether the thread writes, and how many calls wait for it."""
    return bool(outbox._writing), len(outbox._queue)


# Encryption, tokens and the relevance gate


def patient_gate(chat: Chat) -> None:
    """Have the gate wait for its embedder for a minute: how long a busy machine takes is not what is tested."""
    gate = chat._opener._gate
    assert gate is not None
    gate._patience = 60


def hot_ciphertexts(keys: TenantCiphers) -> tuple[int, Any]:
    """How large the cache of opened texts is, and what is in it."""
    return keys._hot._size, keys._hot._kept


def clear_token_caches() -> None:
    """As in a new process: which package carries the vocabulary is looked up once."""
    tokens._counting.cache_clear()
    tokens._count_fixed.cache_clear()
