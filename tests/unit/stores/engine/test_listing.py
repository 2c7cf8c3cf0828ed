"""Listings: the exact order over an index that lags behind it, and no page reads what another one has read."""

from __future__ import annotations

from datetime import timedelta
from random import Random

import pytest
from msgspec.structs import replace

from tenuto.model import Changes, SessionQuery, Status
from tenuto.model.scope import session_key
from tenuto.model.stored import FoundRecord, IndexQuery
from tenuto.stores.engine import Engine
from tenuto.stores.memory import InMemoryRecords
from tests.clock import FakeClock
from tests.samples import ACME, ANN, BOB, batch


class CountingRecords(InMemoryRecords):
    """Counts the records that listings read."""

    count = 0

    async def list(self, query: IndexQuery) -> tuple[FoundRecord, ...]:
        found = await super().list(query)
        self.count += len(found)
        return found


@pytest.mark.parametrize("seed", range(30))
async def test_pages_of_any_size_are_in_the_exact_order(seed: int, clock: FakeClock) -> None:
    """Those that change between two pages may be missing; of the others each is shown once, in its place."""
    chance, engine = Random(seed), Engine(InMemoryRecords(), clock=clock, chance=Random(seed))
    names = [f"s{number}" for number in range(60)]
    for _ in range(200):
        await engine.sessions.append(ANN, chance.choice(names), batch("hello"))
        clock.advance(chance.choice((timedelta(0), timedelta(milliseconds=10), timedelta(seconds=7))))
    names = sorted({session.id for session in (await engine.sessions.list(ANN, SessionQuery(limit=60))).sessions})
    for name in chance.sample(names, len(names) // 2):
        await engine.sessions.patch(ANN, name, Changes(title="a", status=chance.choice(list(Status))))
    query = chance.choice((SessionQuery(), SessionQuery(title="a"), SessionQuery(status=Status.ACTIVE)))
    sessions = [await engine.sessions.get(ANN, name) for name in names]
    wanted = [one for one in sessions if query.title in (None, one.title) and query.status in (None, one.status)]
    wanted.sort(key=lambda session: (session.updated_at, session_key(ANN, session.id)), reverse=True)

    shown, changed = list[str](), set[str]()
    while True:
        page = await engine.sessions.list(chance.choice((ANN, ACME)), replace(query, limit=chance.randint(1, 9)))
        shown += [session.id for session in page.sessions]
        if page.cursor is None:
            break
        query = replace(query, cursor=page.cursor)
        clock.advance(timedelta(milliseconds=chance.randint(1, 100)))
        changed.add(name := chance.choice(names))
        await engine.sessions.append(ANN, name, batch("again"))

    assert [name for name in shown if name not in changed] == [one.id for one in wanted if one.id not in changed]
    assert len(shown) == len({*shown})


@pytest.mark.parametrize("apart", [0, 1, 60])
async def test_a_page_reads_little_more_than_it_shows(apart: int, clock: FakeClock) -> None:
    """Only the first one reads all that may have changed later than its own."""
    records = CountingRecords()
    engine = Engine(records, clock=clock, chance=Random(1))
    for number in range(1000):
        await engine.sessions.append(ANN, f"s{number}", batch("hello"))
        clock.advance(timedelta(milliseconds=apart))
    page = await engine.sessions.list(ACME, SessionQuery(limit=20))

    counts = list[int]()
    while page.cursor is not None:
        records.count = 0
        page = await engine.sessions.list(ACME, SessionQuery(limit=20, cursor=page.cursor))
        counts.append(records.count)

    assert len(counts) == 49
    assert max(counts) <= 90


async def test_the_cursor_of_another_query_tells_a_place_alone(clock: FakeClock) -> None:
    """How far the one has read says nothing of the sessions that the other finds."""
    engine = Engine(InMemoryRecords(), clock=clock, chance=Random(1))
    await engine.sessions.append(BOB, "late", batch("hello"))
    clock.advance(timedelta(seconds=15))
    for name in ("a", "b", "c"):
        await engine.sessions.append(ANN, name, batch("hello"))
    clock.advance(timedelta(seconds=5))
    await engine.sessions.append(BOB, "late", batch("again"))
    clock.advance(timedelta(seconds=5))
    await engine.sessions.append(ANN, "newest", batch("hello"))

    own = await engine.sessions.list(ANN, SessionQuery(limit=1))
    all_of_site = await engine.sessions.list(ACME, SessionQuery(limit=1, cursor=own.cursor))

    assert [[session.id for session in page.sessions] for page in (own, all_of_site)] == [["newest"], ["late"]]
