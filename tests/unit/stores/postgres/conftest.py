"""Records in a Postgres database of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from tenuto.stores.postgres import PostgresRecords, _feed
from tests.servers import PostgresDatabase
from tests.timeouts import LONG


@pytest.fixture
async def pair(
    database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[PostgresRecords, PostgresRecords]]:
    """The records of two processes in one schema.

    A machine that stands still for two seconds hears nothing for as long, and every feed would be in doubt.
    """
    assert _feed.PULSE < _feed.DOUBT < _feed.PATIENCE
    monkeypatch.setattr(_feed, "DOUBT", 10 * LONG)
    monkeypatch.setattr(_feed, "PATIENCE", 11 * LONG)
    async with AsyncExitStack() as stack:
        opened = [await PostgresRecords.open(database.app_url) for _ in range(2)]
        for records in opened:
            stack.push_async_callback(records.close)
        yield opened[0], opened[1]


@pytest.fixture
def records(pair: tuple[PostgresRecords, PostgresRecords]) -> PostgresRecords:
    return pair[0]
