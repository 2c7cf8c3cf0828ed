"""Postgres is killed while records are committed: commits are whole, and what was acknowledged stays."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import pytest

from tenuto.errors import Unavailable
from tenuto.model.stored import StoredRecord
from tenuto.stores.postgres import PostgresRecords
from tests.contract.test_records import change, messages
from tests.patience import LONG
from tests.servers import PostgresServer, start_postgres

WORKERS = 16
ROUNDS = 3


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server of this test's own, to be killed."""
    with start_postgres() as own:
        yield own


class Writer:
    """Commits to a record of its own: two messages each time, and every fifth time a profile."""

    def __init__(self, records: PostgresRecords, number: int) -> None:
        self.records = records
        self.key = bytes([number + 1]) * 16
        self.acknowledged = 0
        self.failed = 0

    async def go_on(self, stop: asyncio.Event) -> None:
        """Commit, whatever happens."""
        at: int | None = 0
        while not stop.is_set():
            try:
                if at is None:
                    record = await self.records.load(self.key, 0)
                    at = 0 if record is None else record.revision
                    # What was told is there, and of what was sent without an answer one commit at most.
                    assert at - self.acknowledged in (0, 1)
                profile = b"profile" if at % 5 == 0 else None
                puts = messages(2 * at + 1, 2 * at + 2)
                refused = await self.records.commit([change(self.key, at, at + 1, profile=profile, puts=puts)])
                assert refused is None
                at = self.acknowledged = at + 1
            except Unavailable:
                self.failed += 1
                at = None
                await asyncio.sleep(0.02)

    async def stored(self) -> StoredRecord | None:
        """The record with all its messages."""
        return await self.records.load(self.key, 100_000)


async def _until(writers: list[Writer], name: str, more: int) -> None:
    before = [getattr(writer, name) for writer in writers]
    async with asyncio.timeout(LONG):
        while any(getattr(one, name) < had + more for one, had in zip(writers, before, strict=True)):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_commits_are_whole_and_what_was_acknowledged_stays(server: PostgresServer) -> None:
    records = await PostgresRecords.open(server.app_url, timeout=timedelta(seconds=1))
    writers = [Writer(records, number) for number in range(WORKERS)]
    stop = asyncio.Event()
    async with asyncio.timeout(LONG), asyncio.TaskGroup() as group:
        for writer in writers:
            group.create_task(writer.go_on(stop))
        for _ in range(ROUNDS):
            await _until(writers, "acknowledged", 5)
            await asyncio.to_thread(server.kill)
            await _until(writers, "failed", 1)
            await asyncio.to_thread(server.start)
        await _until(writers, "acknowledged", 5)
        stop.set()

    for writer in writers:
        record = await writer.stored()
        assert record is not None
        assert record.revision == writer.acknowledged
        assert record.head == f"head {record.revision}".encode()
        assert [entry.number for entry in record.messages] == list(range(1, 2 * record.revision + 1))
    await records.close()
