"""Columns that cannot be decoded: such a record hides no other, and upkeep removes it as any."""

from __future__ import annotations

from datetime import timedelta

import pytest
import pytest_asyncio

from tenuto.errors import SessionNotFound, StoreDamaged
from tenuto.model import NewSession, Retention, SessionQuery
from tenuto.model.scope import session_key
from tenuto.ports import Store
from tenuto.stores.redis import RedisRecords
from tests.backends import (
    MEMORY,
    POSTGRES,
    REDIS,
    REDIS_CLUSTER,
    SQLITE,
    Backend,
    Column,
    damage_column,
    records_behind,
    sealed,
)
from tests.clock import FakeClock
from tests.samples import ACME, ANN, BOB, EVE, batch, listed, texts

pytestmark = pytest.mark.parametrize("column", Column)
BRIEF = NewSession(retention=Retention(idle=timedelta(hours=1)))


@pytest.fixture(params=[MEMORY, SQLITE, sealed(SQLITE), POSTGRES, REDIS, REDIS_CLUSTER], ids=lambda one: one.name)
def backend(request: pytest.FixtureRequest) -> Backend:
    one: Backend = request.param
    return one


@pytest_asyncio.fixture(loop_scope="session")
async def damaged(store: Store, column: Column, clock: FakeClock) -> Store:
    """Four sessions of Ann, of which the second is damaged, one of Bob's and one of another tenant."""
    for n in range(4):
        await store.sessions.append(ANN, f"s{n}", batch("hello", create=BRIEF))
        clock.advance(timedelta(seconds=1))
    for scope, session_id in ((BOB, "b"), (EVE, "e")):
        await store.sessions.append(scope, session_id, batch("hello", create=BRIEF))
    await damage_column(store, ANN, "s1", column)
    return store


async def test_a_listing_leaves_it_out_and_its_pages_are_whole(damaged: Store) -> None:
    first = await damaged.sessions.list(ANN, SessionQuery(limit=2))
    second = await damaged.sessions.list(ANN, SessionQuery(limit=2, cursor=first.cursor))

    assert [[one.id for one in page.sessions] for page in (first, second)] == [["s3", "s2"], ["s0"]]
    assert second.cursor is None


async def test_an_erasure_removes_it(damaged: Store) -> None:
    erased = await damaged.upkeep.erase(ANN)

    assert len(erased.removed_sessions) == 4
    assert (erased.messages, erased.more) == (4, False)
    with pytest.raises(SessionNotFound):
        await damaged.sessions.get(ANN, "s1")
    assert await texts(damaged, BOB, "b") == ["hello"]


async def test_a_sweep_of_all_tenants_removes_it_and_the_others(
    damaged: Store, clock: FakeClock, column: Column
) -> None:
    clock.advance(timedelta(hours=2))

    gone = {item.session_id for item in await damaged.upkeep.sweep()}

    assert gone | {"s1"} == {"s0", "s1", "s2", "s3", "b", "e"}
    assert "s1" in gone or column is Column.SCOPE, "where no column tells whose it is, none can be told"
    clock.advance(timedelta(hours=-2))
    with pytest.raises(SessionNotFound):
        await damaged.sessions.get(ANN, "s1")


async def test_an_eviction_removes_it(damaged: Store, column: Column) -> None:
    await damaged.upkeep.evict(ANN, keep=0)

    assert await listed(damaged, ACME) == []
    if column is not Column.KIND:  # One of an unknown kind is no session, and not counted as one.
        with pytest.raises(SessionNotFound):
            await damaged.sessions.get(ANN, "s1")


async def test_a_walk_over_everything_refuses_it(damaged: Store) -> None:
    with pytest.raises(StoreDamaged):
        await records_behind(damaged).scan(b"", 100)


async def test_columns_that_are_lost_altogether_hide_nothing(store: Store, column: Column, clock: FakeClock) -> None:
    """On Redis they are one field: its places alone tell whose the record is."""
    records = records_behind(store)
    if not isinstance(records, RedisRecords) or column is not Column.KIND:
        return  # Elsewhere each column is decoded by itself.
    for session_id in ("s0", "s1"):
        await store.sessions.append(ANN, session_id, batch("hello", create=BRIEF))
    name = records.keys.record(session_key(ANN, "s1"))
    await records.client.call("HSET", name, "i", b"\xc1", key=name)

    assert await listed(store, ANN) == ["s0"]
    erased = await store.upkeep.erase(ANN)

    assert [item.session_id for item in erased.removed_sessions] == ["s0"]
    assert (erased.messages, erased.quarantined, erased.more) == (2, 1, False)
    with pytest.raises(SessionNotFound):
        await store.sessions.get(ANN, "s1")
