"""Stores that several processes can open at once, by URL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.servers import PostgresDatabase, RedisCluster, RedisServer


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
