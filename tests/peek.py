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
from tenuto.ports import StateStore
from tenuto.privacy.crypto.tenant_ciphers import TenantCiphers
from tenuto.stores.engine import Engine
from tenuto.stores.engine.journal import Journal
from tenuto.stores.journaled import JournaledStore, Outbox
from tenuto.stores.postgres import PostgresStore
from tenuto.stores.postgres._feed import PostgresFeed
from tenuto.stores.redis import RedisStore
from tenuto.stores.redis._invalidation import InvalidationListener
from tenuto.stores.redis._tracking import ClientTracking
from tenuto.stores.redis._window_cache import WindowCache
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


def appends_under_way(store: PostgresStore) -> int:
    """How many batches are on their way: a caller who gave up leaves no other trace of them."""
    return len(store.sessions._append._under_way)


async def ping_postgres(feed: PostgresFeed[Any], connection: Any) -> None:
    """One sign of life of a feed that has seen nothing: its rounds have no end that a test could wait for."""
    await feed._ping_or_acknowledge(connection, 0)


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


def set_patience(writer: WriterThread, seconds: float) -> None:
    """Have those who come from now on wait so long: one writer serves patient and impatient callers in no other way."""
    writer._patience = seconds


def is_writing(writer: WriterThread) -> bool:
    """Whether the thread lives: it is gone when closing has ended, which no answer tells."""
    return writer._thread.is_alive()


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


def cached_bytes(windows: WindowCache) -> int:
    """How large the cached windows are by the cache's count, which only its limit of many megabytes shows."""
    return windows._size


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
    return journal._journal.cache


def journal_peers(journal: JournaledStore) -> Any:
    """The other processes on its store; tests renew entries when they say so."""
    return journal._journal.peers


def hears_news(journal: Journal) -> bool:
    """Whether the store's feed listens: what was seen before that is not gone on from in an outage."""
    return journal._cache._caught_up()


def recent_calls(journal: JournaledStore) -> list[bytes]:
    """The sessions whose calls are remembered, to tell their news from those of others."""
    return list(journal._journal.cache._activity)


def held_rows(journal: JournaledStore) -> int:
    """How many turns and sessions the journal holds in memory: none for a session that is gone."""
    return len(journal._journal._local.open) + len(journal._journal._local.view.keys)


def held_turns(journal: JournaledStore) -> int:
    """How many open turns and pauses the journal holds in memory: none for turns that are lost."""
    return len(journal._journal.running) + bool(journal._journal._backoff)


def outbox_files(outbox: Outbox) -> dict[int, Any]:
    """The open files by number: to put one in their place that fails."""
    return outbox._slots


def close_outbox_files(outbox: Outbox) -> None:
    """Close the files under the outbox, which looks at them anew."""
    for slot in outbox._slots.values():
        slot._close()


def tidy_behind_a_new_file(outbox: Outbox) -> None:
    """Have files tidied as the thread's next work after one was opened, before the loop has the result of that."""
    open_one = outbox._open_own_file

    def both() -> Any:
        opened = open_one()
        outbox._for_each_file(lambda slot: outbox._tidy_file(slot, None))
        return opened

    outbox._open_own_file = both  # type: ignore[method-assign]


def outbox_thread(outbox: Outbox) -> Any:
    """The thread that writes: held, so that work for it comes together."""
    return outbox._thread


def outbox_work(outbox: Outbox) -> tuple[bool, int]:
    """Whether the thread writes, and how many calls wait for it."""
    return bool(outbox._writing), len(outbox._queue)


# Upkeep, encryption, tokens and the relevance gate


def end_after_one_round(upkeep: Upkeep) -> None:
    """Have an application's rounds end where the first pause would begin, which lasts minutes."""

    async def the_end(_seconds: float) -> None:
        raise asyncio.CancelledError

    upkeep._pause = the_end


def patient_gate(chat: Chat) -> None:
    """Have the gate wait for its embedder for a minute: how long a busy machine takes is not what is tested."""
    embedder = chat._opener._embedder
    assert embedder is not None
    embedder._patience = 60


def hot_ciphertexts(keys: TenantCiphers) -> tuple[int, Any]:
    """How large the cache of opened texts is, and what is in it."""
    return keys._hot._size, keys._hot._kept


def keep_keys_in(keys: TenantCiphers, state: StateStore) -> None:
    """Wire the ciphers to the very store that they seal, which needs them to be made."""
    keys._store = state


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
