"""Stores on servers: opened by URL, awaited after an outage, and named to other processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tenuto.errors import Unavailable
from tenuto.ports import Store
from tests.servers import PostgresDatabase, RedisCluster, RedisServer
from tests.timeouts import LONG


async def until_it_answers(store: Store) -> None:
    """Ping the store until its server answers."""
    async with asyncio.timeout(LONG):
        while True:
            try:
                return await store.upkeep.ping()
            except Unavailable:
                await asyncio.sleep(0.02)


@dataclass(frozen=True)
class SharedStore:
    """How to name a fresh, empty store to another process."""

    name: str
    url: Callable[[Callable[[str], Any], Path], str]


def _redis(server: Callable[[str], Any], folder: Path) -> str:
    valkey: RedisServer = server("valkey")
    valkey.flush()
    return valkey.url


def _cluster(server: Callable[[str], Any], folder: Path) -> str:
    cluster: RedisCluster = server("redis_cluster")
    cluster.flush()
    return cluster.url


def _postgres(server: Callable[[str], Any], folder: Path) -> str:
    database: PostgresDatabase = server("database")
    return database.app_url


SHARED = [
    SharedStore("redis", _redis),
    SharedStore("redis cluster", _cluster),
    SharedStore("postgres", _postgres),
    SharedStore("sqlite", lambda server, folder: f"sqlite:///{folder / 'shared.db'}"),
]
