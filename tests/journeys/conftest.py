"""Where journeys take place: those that a store could spoil run on every kind of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.backends import POSTGRES, REDIS, SQLITE, Backend
from tests.journeys.http_service import HttpService, http_service
from tests.journeys.terminal import Shell
from tests.samples import fresh
from tests.servers import PostgresDatabase, PostgresServer, RedisServer

Server = Callable[[str], Any]


@dataclass(frozen=True)
class Ground:
    """An empty store to open by its URL, as an operator does; `backend` is what then stands behind the door."""

    name: str
    url: Callable[[Server, Path], Awaitable[str]]
    backend: Backend | None = None


async def _memory(server: Server, folder: Path) -> str:
    return "memory://"


async def _sqlite(server: Server, folder: Path) -> str:
    return f"sqlite:///{folder / 'sessions.db'}"


async def _redis(server: Server, folder: Path) -> str:
    """The server is shared by the whole suite, so each test has a key prefix of its own."""
    valkey: RedisServer = server("valkey")
    return f"{valkey.url}?prefix={fresh('journey')}"


async def _postgres(server: Server, folder: Path) -> str:
    """One database for all journeys, emptied for each: migrating anew would cost ten times as much."""
    database: PostgresDatabase = server("journeys_database")
    connection = await asyncpg.connect(database.app_url)
    try:
        tables = await connection.fetchval(
            "SELECT string_agg(format('tenuto.%I', tablename), ', ') FROM pg_tables "
            "WHERE schemaname = 'tenuto' AND tablename <> 'migrations'"
        )
        if tables is not None:
            await connection.execute(f"TRUNCATE {tables}")
    finally:
        await connection.close()
    return database.app_url


GROUNDS = [
    Ground("memory", _memory),
    Ground("sqlite", _sqlite, SQLITE),
    Ground("redis", _redis, REDIS),
    Ground("postgres", _postgres, POSTGRES),
]


@pytest.fixture(scope="session")
def journeys_database(postgres: PostgresServer) -> PostgresDatabase:
    """A database that only journeys use."""
    return postgres.new_database()


@pytest.fixture(params=GROUNDS, ids=lambda ground: ground.name)
def ground(request: pytest.FixtureRequest) -> Ground:
    assert isinstance(request.param, Ground)
    return request.param


@pytest.fixture
async def store_url(ground: Ground, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store of each kind: the test runs once on each."""
    return await ground.url(request.getfixturevalue, tmp_path)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
async def service() -> AsyncIterator[HttpService]:
    """A server on a store in memory that asks for no key."""
    async with http_service() as service:
        yield service


@pytest.fixture
async def locked() -> AsyncIterator[HttpService]:
    """The same, where requests need a key."""
    async with http_service(locked=True) as service:
        yield service
