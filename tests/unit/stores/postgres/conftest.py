"""A Postgres store in a database of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tenuto.stores.postgres import PostgresStore
from tests.servers import PostgresDatabase
from tests.shared_stores import postgres_store


@pytest.fixture
async def store(database: PostgresDatabase) -> AsyncIterator[PostgresStore]:
    """A store that the test has to itself."""
    async with postgres_store(database.app_url) as opened:
        yield opened
