"""Commits of a record that several processes change: none is lost, and the one that was refused goes first."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from tenuto.stores.postgres import PostgresRecords, _turns
from tests.record_changes import A, message_entries, record_change
from tests.timeouts import LONG

Pair = tuple[PostgresRecords, PostgresRecords]


async def _count_up(records: PostgresRecords, times: int) -> None:
    """Raise the revision so many times, whatever others do meanwhile."""
    record = await records.load(A, 0)
    for _ in range(times):
        while True:
            at = record.revision if record else 0
            refused = await records.commit([record_change(A, at, at + 1, puts=message_entries(at + 1))])
            if refused is None:
                record = replace(record, revision=at + 1) if record else None
                break
            record = refused.standing[0]


async def test_no_commit_of_contending_processes_is_lost(pair: Pair) -> None:
    await pair[0].commit([record_change(A, 0, 1)])

    await asyncio.gather(*(_count_up(records, 10) for records in pair for _ in range(4)))

    record = await pair[0].load(A, 999)
    assert record is not None
    assert record.revision == 81
    assert [entry.number for entry in record.messages] == list(range(2, 82))


async def test_a_process_that_was_refused_goes_first(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_turns, "_CONTENDED", LONG)
    monkeypatch.setattr(_turns, "_AWAITED", LONG)
    monkeypatch.setattr(_turns, "_IN_A_ROW", 1)
    await pair[0].commit([record_change(A, 0, 1)])
    for records in pair:
        assert await records.commit([record_change(A, 7, 8)]) is not None  # Both learn that others change it, too.

    assert await pair[0].commit([record_change(A, 7, 8)]) is not None
    other = pair[1].commit([record_change(A, 1, 2, head=b"other")])
    assert await pair[0].commit([record_change(A, 1, 2, head=b"first")]) is None

    refused = await other
    assert refused is not None
    assert refused.standing[0] is not None
    assert refused.standing[0].head == b"first"


async def test_a_lock_that_is_kept_too_long_is_not_waited_for(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a process that stands still: it delays others, and stops none."""
    monkeypatch.setattr(_turns, "_CONTENDED", LONG)
    monkeypatch.setattr(_turns, "_AWAITED", LONG)
    await pair[0].commit([record_change(A, 0, 1)])
    for records in (pair[1], pair[0], pair[0]):
        assert await records.commit([record_change(A, 7, 8)]) is not None

    assert await pair[1].commit([record_change(A, 1, 2)]) is None


async def test_a_lock_that_is_not_used_is_given_up(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_turns, "_CONTENDED", LONG)
    monkeypatch.setattr(_turns, "_AWAITED", 0.01)
    await pair[0].commit([record_change(A, 0, 1)])
    for _ in range(2):
        assert await pair[0].commit([record_change(A, 7, 8)]) is not None

    async with asyncio.timeout(LONG):
        while await pair[1].pool.fetch("SELECT FROM pg_locks WHERE locktype = 'advisory'"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
