"""Commits that a SQLite file takes together: what one of them meets, the others do not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tenuto.errors import StoreFull, Unavailable
from tenuto.model.scope import owner_key, site_key
from tenuto.model.stored import Action, Entry, IndexColumns, Part, RecordChange, Totals
from tenuto.stores.sqlite import SqliteRecords
from tests.internals import sqlite_writer
from tests.samples import ANN

KEYS = [bytes([n]) * 16 for n in range(1, 5)]


@pytest.fixture
async def records(tmp_path: Path) -> AsyncIterator[SqliteRecords]:
    store = await SqliteRecords.open(tmp_path / "records.db")
    for key in KEYS:
        assert await store.commit([change(key, 0, 10, 1)]) is None
    yield store
    await store.close()


def change(key: bytes, at: int, to: int, number: int, **fields: Any) -> RecordChange:
    """One that appends a message."""
    puts = (Entry(part=Part.MESSAGES, number=number, body=b"m%d" % number),)
    index = None if at else IndexColumns(space=site_key(ANN), owner=owner_key(ANN), scope=ANN, name="s")
    return RecordChange(key=key, if_revision=at, revision=to, head=b"h%d" % to, index=index, puts=puts, **fields)


@pytest.mark.parametrize(
    ("fields", "failure"),
    [({"totals": Totals(tokens=2**63)}, OverflowError), ({"profile": bytes(1_000_000)}, StoreFull)],
    ids=["a number that is too large", "no room"],
)
async def test_a_commit_that_cannot_be_stored_fails_alone(
    records: SqliteRecords, fields: dict[str, Any], failure: type[Exception]
) -> None:
    await sqlite_writer(records).run(lambda txn: txn.execute("PRAGMA max_page_count = 100").fetchone())
    changes = [change(key, 10, 11, 2) for key in KEYS[:3]]
    changes[1] = replace(changes[1], **fields)

    ends = await asyncio.gather(*(records.commit([one]) for one in changes), return_exceptions=True)

    assert [type(end) for end in ends] == [type(None), failure, type(None)]
    assert [one and one.revision for one in await records.load_all(KEYS[:3])] == [11, 10, 11]


async def test_later_commits_of_a_batch_see_earlier_ones(records: SqliteRecords) -> None:
    first, second = records.commit([change(KEYS[0], 10, 11, 2)]), records.commit([change(KEYS[0], 10, 12, 3, tail=9)])

    assert await first is None
    refused = await second
    assert refused is not None
    standing = refused.standing[0]
    assert standing is not None
    assert (standing.revision, [entry.number for entry in standing.messages]) == (11, [1, 2])


async def test_a_row_id_of_a_removed_record_is_not_written_to(records: SqliteRecords) -> None:
    """Another process removes the last record, whose row id the next new one gets, even at the same revision."""
    other = await SqliteRecords.open(records.path)
    await other.commit([RecordChange(key=KEYS[3], if_revision=10, action=Action.REMOVE)])
    await other.commit([change(b"n" * 16, 0, 10, 1)])

    refused = await records.commit([change(KEYS[3], 10, 11, 2)])

    assert refused is not None
    assert refused.standing == (None,)
    new = await records.load(b"n" * 16, 9)
    assert new is not None
    assert (new.revision, len(new.messages)) == (10, 1)
    await other.close()


async def test_closing_carries_out_what_was_called_before_and_nothing_after(records: SqliteRecords) -> None:
    commit, load = records.commit([change(KEYS[0], 10, 11, 2)]), records.load(KEYS[1], 1)
    await records.close()
    ends = await asyncio.gather(records.load(KEYS[0], 1), records.commit([]), return_exceptions=True)

    assert await commit is None
    assert await load is not None
    assert [type(end) for end in ends] == [Unavailable, Unavailable]
