"""Records in Postgres beyond their port: walls between tenants, batches, turns of processes, the feed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from tenuto.errors import Unavailable
from tenuto.model import Scope
from tenuto.model.scope import site_key
from tenuto.model.stored import Action, Drop, Part, RecordChange
from tenuto.stores.postgres import PostgresRecords, PostgresStore, _database, _feed, turns
from tenuto.stores.postgres._batches import MOST, MOST_BYTES, Batches
from tenuto.stores.postgres.records import parse_changes
from tests.contract.test_records import A, B, change, columns, messages
from tests.patience import LONG
from tests.samples import ANN, ANN_ELSEWHERE, EVE
from tests.servers import PostgresDatabase

TABLES = ("records", "entries")


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that stands still for two seconds hears nothing for as long, and every feed would be in doubt."""
    monkeypatch.setattr(_feed, "DOUBT", 10 * LONG)
    monkeypatch.setattr(_database, "PATIENCE", 11 * LONG)


@pytest.fixture
async def pair(database: PostgresDatabase) -> AsyncIterator[tuple[PostgresRecords, PostgresRecords]]:
    """Two processes' records of one schema."""
    async with AsyncExitStack() as stack:
        opened = [await PostgresRecords.open(database.app_url) for _ in range(2)]
        for records in opened:
            stack.push_async_callback(records.close)
        yield opened[0], opened[1]


@pytest.fixture
async def connection(
    pair: tuple[PostgresRecords, PostgresRecords], database: PostgresDatabase
) -> AsyncIterator[asyncpg.Connection[Any]]:
    """The application's role, for statements by hand, and a record of each of two tenants."""
    for key, scope in ((A, ANN), (B, EVE)):
        assert await pair[0].commit([change(key, 0, 1, index=columns(scope), puts=messages(1))]) is None
    connected: asyncpg.Connection[Any] = await asyncpg.connect(
        database.app_url, server_settings={"search_path": "tenuto"}
    )
    yield connected
    await connected.close()


# Walls


async def _keys(connection: asyncpg.Connection[Any], scope: Scope | None) -> list[int]:
    if scope is not None:
        await connection.execute("SELECT set_config('tenuto.space', $1::bytea::text, true)", site_key(scope))
    return [len(await connection.fetch(f"SELECT * FROM {table}")) for table in TABLES]


async def test_a_statement_by_hand_sees_the_named_space_alone(connection: asyncpg.Connection[Any]) -> None:
    """Of another site of the tenant, none; the lookup shows no entries."""
    async with connection.transaction():
        assert await _keys(connection, None) == [0, 0]
        assert await _keys(connection, ANN) == [1, 1]
        assert await _keys(connection, ANN_ELSEWHERE) == [0, 0]
        await connection.execute("SELECT set_config('tenuto.space', 'lookup', true)")
        assert await _keys(connection, None) == [2, 0]
        assert await connection.execute("UPDATE records SET title = 'x'") == "UPDATE 0"


async def test_a_statement_by_hand_changes_the_named_space_alone(connection: asyncpg.Connection[Any]) -> None:
    async with connection.transaction():
        await _keys(connection, ANN)
        assert await connection.execute("UPDATE records SET title = 'mine'") == "UPDATE 1"
        assert await connection.execute("DELETE FROM entries") == "DELETE 1"
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            async with connection.transaction():
                await connection.execute("UPDATE records SET space = $1", site_key(EVE))


async def test_our_connections_see_nothing_between_calls(
    pair: tuple[PostgresRecords, PostgresRecords], connection: asyncpg.Connection[Any]
) -> None:
    records = pair[0]
    await records.load(A, 9)
    await records.scan(b"", 9)
    await records.commit([change(A, 1, 2)])
    await records.sites(b"", 9)

    assert [await records.link.fetch(f"SELECT * FROM {table}") for table in TABLES] == [[], []]


# Batches


async def test_calls_of_many_sites_at_once_come_out_each_for_itself(
    pair: tuple[PostgresRecords, PostgresRecords],
) -> None:
    records, count = pair[0], MOST + 20
    keys = [bytes([255 - n]) * 16 for n in range(count)]
    scopes = [Scope(tenant=f"t{n % 5}", user="ann") for n in range(count)]
    made = [records.commit([change(key, 0, 1, index=columns(scope))]) for key, scope in zip(keys, scopes, strict=True)]
    assert await asyncio.gather(*made) == [None] * count

    # Every third is late, some have no record, and one is out of every column's range.
    late = [records.commit([change(key, 9 if n % 3 == 0 else 1, 2)]) for n, key in enumerate(keys)]
    absent = records.commit([change(b"absent" + bytes(10), 4, 5)])
    absurd = records.commit([change(b"absurd" + bytes(10), 4, 2**63)])
    refused = await asyncio.gather(*late)

    with pytest.raises(Unavailable):
        await absurd
    gone = await absent
    assert gone is not None
    assert gone.standing == (None,)
    assert [one is None for one in refused] == [n % 3 != 0 for n in range(count)]
    loaded = await asyncio.gather(*(records.load(key, 0) for key in keys))
    assert [one and one.revision for one in loaded] == [1 if n % 3 == 0 else 2 for n in range(count)]


async def test_commits_that_make_the_same_records_in_other_orders_do_not_block_each_other(
    pair: tuple[PostgresRecords, PostgresRecords],
) -> None:
    """One of two is made; a deadlock would take a second to be found."""
    for number in range(8):
        made = [change(bytes([number, n]) * 8, 0, 1) for n in range(12)]
        refused = await asyncio.gather(pair[0].commit(made), pair[1].commit(made[::-1]))
        assert [one is None for one in refused].count(True) == 1

    (row,) = await pair[0].link.fetch("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    assert row["deadlocks"] == 0


async def test_a_batch_ends_with_its_count_or_its_bytes() -> None:
    sent: list[int] = []

    async def send(items: Sequence[int]) -> Sequence[int]:
        sent.append(len(items))
        return items

    batches = Batches(send, width=1, patience=LONG, weigh=lambda size: size)
    small = [batches.add(1) for _ in range(MOST + 1)]
    await asyncio.gather(*small)
    large = [batches.add(MOST_BYTES // 2) for _ in range(5)]
    await asyncio.gather(*large)
    await batches.close()

    assert sent == [MOST, 1, 2, 2, 1]


async def test_a_call_behind_batches_without_an_answer_ends_in_time(database: PostgresDatabase) -> None:
    records = await PostgresRecords.open(database.app_url, batches=1)
    await records.commit([change(A, 0, 1)])
    async with records.link.transaction() as other:
        await other.execute("SELECT enter($1)", site_key(ANN))
        await other.execute("SELECT FROM records FOR UPDATE")
        records._heads._patience = 0.2
        first = records.commit([change(A, 1, 2)])
        await asyncio.sleep(0.05)
        second = records.commit([change(A, 1, 2)])
        with pytest.raises(Unavailable, match="does not answer"):
            await first
        with pytest.raises(Unavailable, match="overloaded"):
            await second
    await records.close()
    with pytest.raises(Unavailable, match="is closed"):
        await records.commit([change(A, 1, 2)])


# Turns


async def _count_up(records: PostgresRecords, times: int) -> None:
    """Raise the revision so many times, whatever others do meanwhile."""
    record = await records.load(A, 0)
    for _ in range(times):
        while True:
            at = record.revision if record else 0
            refused = await records.commit([change(A, at, at + 1, puts=messages(at + 1))])
            if refused is None:
                record = replace(record, revision=at + 1) if record else None
                break
            record = refused.standing[0]


async def test_no_commit_of_contending_processes_is_lost(pair: tuple[PostgresRecords, PostgresRecords]) -> None:
    await pair[0].commit([change(A, 0, 1)])

    await asyncio.gather(*(_count_up(records, 10) for records in pair for _ in range(4)))

    record = await pair[0].load(A, 999)
    assert record is not None
    assert record.revision == 81
    assert [entry.number for entry in record.messages] == list(range(2, 82))


async def test_a_process_that_was_refused_goes_first(
    pair: tuple[PostgresRecords, PostgresRecords], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "_CONTENDED", LONG)
    monkeypatch.setattr(turns, "_AWAITED", LONG)
    monkeypatch.setattr(turns, "_IN_A_ROW", 1)
    await pair[0].commit([change(A, 0, 1)])
    for records in pair:
        assert await records.commit([change(A, 7, 8)]) is not None  # Both are told that others change it, too.

    assert await pair[0].commit([change(A, 7, 8)]) is not None
    other = pair[1].commit([change(A, 1, 2, head=b"other")])
    assert await pair[0].commit([change(A, 1, 2, head=b"first")]) is None

    refused = await other
    assert refused is not None
    assert refused.standing[0] is not None
    assert refused.standing[0].head == b"first"


async def test_a_lock_that_is_kept_too_long_is_not_waited_for(
    pair: tuple[PostgresRecords, PostgresRecords], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a process that stands still: it delays others, and stops none."""
    monkeypatch.setattr(turns, "_CONTENDED", LONG)
    monkeypatch.setattr(turns, "_AWAITED", LONG)
    await pair[0].commit([change(A, 0, 1)])
    for records in (pair[1], pair[0], pair[0]):
        assert await records.commit([change(A, 7, 8)]) is not None

    assert await pair[1].commit([change(A, 1, 2)]) is None


async def test_a_lock_that_is_not_used_is_given_up(
    pair: tuple[PostgresRecords, PostgresRecords], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "_CONTENDED", LONG)
    monkeypatch.setattr(turns, "_AWAITED", 0.01)
    await pair[0].commit([change(A, 0, 1)])
    for _ in range(2):
        assert await pair[0].commit([change(A, 7, 8)]) is not None

    async with asyncio.timeout(LONG):
        while await pair[1].link.fetch("SELECT FROM pg_locks WHERE locktype = 'advisory'"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


# The feed


async def test_a_feed_tells_what_others_did_and_removals_before_they_are_acknowledged(
    pair: tuple[PostgresRecords, PostgresRecords],
) -> None:
    records, other = pair
    told: list[tuple[bytes | None, int]] = []
    assert not other.feed.caught_up()
    async with other.feed.watch(lambda key, revision: told.append((key, revision))):
        assert other.feed.caught_up()
        assert told == [(None, 0)]
        await records.commit([change(A, 0, 5, puts=messages(1, 2, 3)), change(B, 0, 6)])
        await records.commit([change(A, 5, 6)])
        rewritten = replace(change(A, 6, 7, puts=messages(2)), known=replace(change(A, 0, 1).known, message=3))
        for strict in (
            rewritten,
            change(A, 7, 8, drops=(Drop(part=Part.MESSAGES, first=2),)),
            change(A, 8, 9, replaces=True, index=columns()),
            RecordChange(key=A, if_revision=9, action=Action.REMOVE),
        ):
            assert await records.commit([strict]) is None
            assert told[-1] == (A, strict.revision)

    assert told[1:] == [(A, 5), (B, 6), (A, 6), (A, 7), (A, 8), (A, 0), (A, 9), (A, 0)]
    assert not other.feed.caught_up()


async def test_many_changes_of_one_commit_are_all_told(pair: tuple[PostgresRecords, PostgresRecords]) -> None:
    """They do not fit into one notification."""
    records, other = pair
    keys = [n.to_bytes(16, "big") for n in range(500)]
    told = dict[bytes | None, int]()
    async with other.feed.watch(lambda key, revision: told.update({key: revision})):
        assert await records.commit([change(key, 0, n + 1) for n, key in enumerate(keys)]) is None
        assert await records.commit([RecordChange(key=keys[0], if_revision=1, action=Action.REMOVE)]) is None

    assert told == {None: 0, keys[0]: 0} | {key: n + 1 for n, key in enumerate(keys) if n}


async def test_a_lost_connection_may_have_missed_anything(pair: tuple[PostgresRecords, PostgresRecords]) -> None:
    records, other = pair
    lost = asyncio.Event()
    async with other.feed.watch(lambda key, _: lost.set() if key is None else None):
        lost.clear()
        await records.link.fetch(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tenuto listener'"
        )
        async with asyncio.timeout(LONG):
            await lost.wait()


def test_a_notification_of_another_program_is_none_of_ours() -> None:
    key = bytes(range(16))
    assert parse_changes("!AAECAwQFBgcICQoLDA0ODwAAAAAAAAAH") == (None, [(key, 7)])
    assert parse_changes("ff!AAECAwQFBgcICQoLDA0ODwAAAAAAAAAH\n") == (255, [(key, 7)])
    for payload in ("", "hello", "hello!", "!AAAA", "zz!AAECAwQFBgcICQoLDA0ODwAAAAAAAAAH"):
        with pytest.raises(ValueError, match=r"."):
            parse_changes(payload)


async def test_a_schema_from_before_the_first_release_is_refused(database: PostgresDatabase) -> None:
    """Though it has more migrations than we know, it is not called a later one."""
    await (await PostgresStore.open(database.app_url)).close()

    with pytest.raises(Unavailable, match="from before the first release: begin with a new schema"):
        await PostgresRecords.open(database.app_url)
