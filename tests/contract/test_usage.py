"""Usage on every backend that stores state: nothing lost between writers, nothing seen across tenants."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tenuto.model import Scope
from tenuto.model.analytics import USAGE_DAYS, UsageCounts
from tenuto.ports import Store
from tenuto.sessions.usage import UsageLedger
from tests.backends import KEEPING_STATE
from tests.clock import FakeClock
from tests.samples import ACME, ANN, ANN_ELSEWHERE, EVE

pytestmark = [
    pytest.mark.requirement("C14"),
    pytest.mark.parametrize("backend", KEEPING_STATE, ids=lambda backend: backend.name),
]
ONE = UsageCounts(turns=1, input_tokens=10, output_tokens=2, cost_nanos=5)


async def test_ledgers_that_write_the_same_day_lose_nothing(store: Store, clock: FakeClock) -> None:
    books = [UsageLedger(state=store.state, clock=clock) for _ in range(3)]

    async def work(book: UsageLedger, assistant: str) -> None:
        for _ in range(8):
            book.count(ANN, ONE, assistant)
            await book.flush()

    await asyncio.gather(*(work(book, name) for book in books for name in ("general", "goods")))
    for book in books:
        await book.close()
    today = clock().date()
    rows = await UsageLedger(state=store.state, clock=clock).usage(ACME, today, today)

    assert [(row.assistant, row.counts.turns, row.counts.cost_nanos) for row in rows] == [
        ("general", 24, 120), ("goods", 24, 120)
    ]  # fmt: skip


async def test_spending_is_the_sum_of_a_tenants_sites_and_no_other(store: Store, clock: FakeClock) -> None:
    book = UsageLedger(state=store.state, clock=clock)
    for site in range(120):
        book.count(Scope(tenant="acme", site=f"site {site}"), ONE, "general")
    for scope in (ANN, ANN_ELSEWHERE, EVE):
        book.count(scope, ONE, "general")
    await book.flush()
    clock.advance(timedelta(minutes=1))

    fresh = UsageLedger(state=store.state, clock=clock)

    assert (await fresh.spent_today(ACME)).tokens == 122 * 12
    assert (await fresh.spent_today(EVE)).tokens == 12
    clock.advance(timedelta(days=1))
    assert await fresh.spent_today(ACME) == UsageCounts()


async def test_old_usage_of_every_tenant_is_pruned(store: Store, clock: FakeClock) -> None:
    book, today = UsageLedger(state=store.state, clock=clock), clock().date()
    for scope in (ANN, ANN_ELSEWHERE, EVE):
        book.count(scope, ONE, "general")
    await book.flush()
    clock.advance(timedelta(days=USAGE_DAYS + 1))
    book.count(ANN, ONE, "general")
    await book.flush()

    gone = await book.prune()

    assert gone == 3
    assert await book.usage(ACME, today, today) == []
    assert (await book.spent_today(ACME)).turns == 1
