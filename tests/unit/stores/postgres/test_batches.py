"""Calls that wait go together in one statement; each gets its own answer, and none fails for another."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import asyncpg
import pytest

from tenuto.errors import StoreFull, StoreReadOnly, StoreRejected, Unavailable
from tenuto.model import Scope
from tenuto.stores.postgres import PostgresRecords
from tenuto.stores.postgres._batches import MOST, MOST_BYTES, Batches
from tenuto.stores.postgres._errors import STORE, InDoubt, Unsent, fault, telling
from tests.record_changes import A, index_columns, message_entries, record_change
from tests.servers import PostgresDatabase
from tests.timeouts import LONG

Pair = tuple[PostgresRecords, PostgresRecords]


class Server:
    """Answers batches while it is `open`; `failures` are raised for the first ones, and a poisoned one is refused."""

    def __init__(self, *failures: Exception) -> None:
        self.sent: list[list[int]] = []
        self.failures = list(failures)
        self.open = asyncio.Event()
        self.open.set()

    async def send(self, items: Sequence[int]) -> Sequence[int]:
        self.sent.append(list(items))
        await self.open.wait()
        if self.failures:
            raise self.failures.pop(0)
        if POISON in items:
            raise StoreRejected(STORE)
        return items


POISON = -1


def _batches(server: Server, **options: Any) -> Batches[int, int]:
    return Batches(server.send, width=1, **{"timeout": LONG, **options})


async def test_a_batch_ends_with_its_count_or_its_bytes() -> None:
    server = Server()
    batches = _batches(server, weigh=lambda size: size)

    await asyncio.gather(*[batches.add(1) for _ in range(MOST + 1)])
    await asyncio.gather(*[batches.add(MOST_BYTES // 2) for _ in range(5)])
    await batches.close()

    assert [len(sent) for sent in server.sent] == [MOST, 1, 2, 2, 1]


async def test_a_call_that_spoils_its_batch_fails_alone() -> None:
    server = Server()
    batches = _batches(server)

    ends = await asyncio.gather(*[batches.add(item) for item in (1, POISON, 3)], return_exceptions=True)

    assert [ends[0], type(ends[1]), ends[2]] == [1, StoreRejected, 3]
    assert server.sent == [[1, POISON, 3], [1], [POISON], [3]]


def _late() -> InDoubt:
    late = InDoubt(STORE)
    late.__cause__ = TimeoutError()
    return late


@pytest.mark.parametrize(
    ("failures", "is_read", "sent", "end"),
    [
        ([Unsent(STORE)], False, 2, 1),
        ([InDoubt(STORE)], True, 2, 1),
        ([InDoubt(STORE)], False, 1, InDoubt),
        ([_late()], True, 1, InDoubt),
        ([Unsent(STORE), InDoubt(STORE)], True, 2, InDoubt),
    ],
    ids=["not sent", "a lost read", "a lost write", "one that had its time", "twice"],
)
async def test_a_call_is_repeated_once_where_that_is_safe(
    failures: list[Exception], is_read: bool, sent: int, end: object
) -> None:
    server = Server(*failures)

    (ended,) = await asyncio.gather(_batches(server, is_read=is_read).add(1), return_exceptions=True)

    assert ended == 1 if end == 1 else type(ended) is end
    assert len(server.sent) == sent


async def test_a_cancelled_caller_changes_nothing_for_others() -> None:
    server = Server()
    server.open.clear()
    batches = _batches(server)
    first = batches.add(1)
    await asyncio.sleep(0)
    waiting = [batches.add(item) for item in (2, 3)]

    first.cancel()
    waiting[0].cancel()
    server.open.set()

    assert await waiting[1] == 3
    assert server.sent == [[1], [2, 3]]


async def test_a_call_behind_a_batch_without_an_answer_ends_in_time() -> None:
    server = Server()
    server.open.clear()
    batches = _batches(server, timeout=0.05)
    first = batches.add(1)
    await asyncio.sleep(0)

    ends = await asyncio.gather(first, batches.add(2), return_exceptions=True)
    server.open.set()
    await batches.close()

    assert [type(end) for end in ends] == [InDoubt, Unsent]
    assert server.sent == [[1]]
    with pytest.raises(Unavailable, match="is closed"):
        await batches.add(3)


async def test_calls_of_many_sites_at_once_come_out_each_for_itself(records: PostgresRecords) -> None:
    count = MOST + 20
    keys = [bytes([255 - n]) * 16 for n in range(count)]
    scopes = [Scope(tenant=f"t{n % 5}", user="ann") for n in range(count)]
    made = [
        records.commit([record_change(key, 0, 1, index=index_columns(scope))])
        for key, scope in zip(keys, scopes, strict=True)
    ]
    assert await asyncio.gather(*made) == [None] * count

    # Every third is late, some have no record, and one is out of every column's range.
    late = [records.commit([record_change(key, 9 if n % 3 == 0 else 1, 2)]) for n, key in enumerate(keys)]
    absent = records.commit([record_change(b"absent" + bytes(10), 4, 5)])
    absurd = records.commit([record_change(b"absurd" + bytes(10), 4, 2**63)])
    refused = await asyncio.gather(*late)

    with pytest.raises(StoreRejected):
        await absurd
    gone = await absent
    assert gone is not None
    assert gone.standing == (None,)
    assert [one is None for one in refused] == [n % 3 != 0 for n in range(count)]
    loaded = await asyncio.gather(*(records.load(key, 0) for key in keys))
    assert [one and one.revision for one in loaded] == [1 if n % 3 == 0 else 2 for n in range(count)]


async def test_commits_that_make_the_same_records_in_other_orders_do_not_block_each_other(pair: Pair) -> None:
    """One of two is made; a deadlock would take a second to be found."""
    for number in range(8):
        made = [record_change(bytes([number, n]) * 8, 0, 1) for n in range(12)]
        refused = await asyncio.gather(pair[0].commit(made), pair[1].commit(made[::-1]))
        assert [one is None for one in refused].count(True) == 1

    (row,) = await pair[0].pool.fetch("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    assert row["deadlocks"] == 0


async def test_a_batch_is_one_transaction_that_finds_its_rows_by_index_alone(database: PostgresDatabase) -> None:
    """Also where the server takes the tables for small; and a head is replaced in its page, without an index."""
    records = await PostgresRecords.open(database.app_url, connections=1)
    keys = [bytes([n]) * 16 for n in range(64)]
    await records.commit([record_change(A, 0, 1)])
    await records.pool.run_long("VACUUM ANALYZE records, entries")
    made = [records.commit([record_change(key, 0, 1, puts=message_entries(*range(1, 101)))]) for key in keys]
    assert await asyncio.gather(*made) == [None] * 64
    before = await _counters(records)

    await asyncio.gather(*(records.load(key, 20) for key in keys))
    await asyncio.gather(*(records.commit([record_change(key, 1, 2, puts=message_entries(101))]) for key in keys))

    after = await _counters(records)
    transactions, scanned, fetched, changed, in_place = (new - old for new, old in zip(after, before, strict=True))
    await records.close()
    assert transactions <= 4
    assert scanned == 0
    assert fetched <= 64 * (20 + 6)
    assert (changed, in_place >= 48) == (64, True)


async def _counters(records: PostgresRecords) -> tuple[int, ...]:
    await records.pool.fetch("SELECT pg_stat_force_next_flush()")
    (row,) = await records.pool.fetch(
        "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint, sum(seq_tup_read)::bigint, "
        "sum(idx_tup_fetch)::bigint, sum(n_tup_upd)::bigint, sum(n_tup_hot_upd)::bigint FROM pg_stat_user_tables"
    )
    return tuple(row)


@pytest.mark.parametrize(
    ("cause", "error"),
    [
        (asyncpg.DiskFullError("no space left"), StoreFull),
        (asyncpg.ReadOnlySQLTransactionError("cannot execute"), StoreReadOnly),
        (asyncpg.DeadlockDetectedError("deadlock"), StoreRejected),
        (asyncpg.QueryCanceledError("statement timeout"), StoreRejected),
        (asyncpg.AdminShutdownError("terminating"), InDoubt),
        (asyncpg.ConnectionDoesNotExistError("closed"), InDoubt),
        (ConnectionResetError("reset"), InDoubt),
        (TimeoutError(), InDoubt),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else type(value).__name__,
)
def test_an_error_of_the_driver_becomes_one_of_ours(cause: Exception, error: type[Unavailable]) -> None:
    assert isinstance(fault(cause, sent=True), error)
    # Where there is no room, a connection may be refused for that alone.
    assert isinstance(fault(cause, sent=False), StoreFull if error is StoreFull else Unsent)


def test_a_message_of_the_server_that_may_quote_a_user_is_not_passed_on() -> None:
    assert telling(asyncpg.InvalidTextRepresentationError("secret words")) is None
    assert telling(asyncpg.UniqueViolationError("secret words")) is None
    assert telling(OSError("no route")) is not None
