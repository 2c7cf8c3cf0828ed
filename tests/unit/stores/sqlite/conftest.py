"""A SQLite store in a file of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tenuto.stores.sqlite import SqliteStore
from tests.clock import FakeClock


@pytest.fixture
async def store(tmp_path: Path, clock: FakeClock) -> AsyncIterator[SqliteStore]:
    """A store whose time the test moves."""
    async with await SqliteStore.open(tmp_path / "sessions.db", clock=clock) as store:
        yield store
