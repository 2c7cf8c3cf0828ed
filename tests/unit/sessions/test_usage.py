"""Usage: counted without waiting, and stored once whatever the store does meanwhile."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tenuto.model import Scope
from tenuto.model.analytics import UsageCounts
from tenuto.sessions.usage import UsageLedger
from tests.clock import FakeClock
from tests.cut_wires import Fate, Wire
from tests.doubles import MemoryStore
from tests.samples import ACME, ANN, ANN_ELSEWHERE, EVE

pytestmark = pytest.mark.requirement("C14")


ONE = UsageCounts(turns=1, input_tokens=10, output_tokens=2, cost_nanos=5)


def ledger(store: object, clock: FakeClock | None = None) -> UsageLedger:
    # A Wire has the ports of the store behind it.
    state = store if isinstance(store, Wire) else store.state  # type: ignore[attr-defined]
    return UsageLedger(state=state, clock=clock or FakeClock(), every=timedelta(milliseconds=1))


async def totals(book: UsageLedger, scope: Scope = ACME, days: int = 1) -> list[tuple[str | None, int]]:
    """The assistants and their turns, newest day first."""
    today = FakeClock()().date()
    rows = await book.usage(scope, today - timedelta(days=days - 1), today)
    return [(row.assistant, row.counts.turns) for row in rows]


async def test_what_is_counted_is_read_at_once_and_stored_later() -> None:
    store = MemoryStore()
    book = ledger(store)

    book.count(ANN, ONE, "general")
    book.count(ANN, UsageCounts(input_tokens=3))

    assert await totals(book) == [(None, 0), ("general", 1)]
    assert await totals(ledger(store)) == []
    await book.flush()
    assert await totals(book) == await totals(ledger(store)) == [(None, 0), ("general", 1)]


async def test_sites_and_tenants_have_rows_of_their_own() -> None:
    book = ledger(MemoryStore())
    for scope in (ANN, ANN_ELSEWHERE, ANN_ELSEWHERE, EVE):
        book.count(scope, ONE, "general")
    await book.flush()

    assert await totals(book, ACME) == [("general", 1)]
    assert await totals(book, Scope(tenant="acme", site="museum")) == [("general", 2)]
    assert await totals(book, Scope(tenant="evil")) == [("general", 1)]
    assert (await book.spent_today(ACME)).turns == 3


async def test_a_turn_counts_for_the_day_on_which_it_ended() -> None:
    clock = FakeClock()
    book, today = ledger(MemoryStore(clock=clock), clock), clock().date()
    book.count(ANN, ONE, "general")
    clock.advance(timedelta(days=1))
    book.count(ANN, ONE + ONE, "general")
    await book.flush()

    rows = await book.usage(ACME, today, today + timedelta(days=1))

    assert [(row.day, row.counts.turns) for row in rows] == [(today + timedelta(days=1), 2), (today, 1)]
    assert (await book.spent_today(ACME)).turns == 2


@pytest.mark.parametrize("fate", [Fate.REFUSED, Fate.UNANSWERED])
@pytest.mark.parametrize("at", range(3))
async def test_a_write_without_an_answer_is_repeated_and_counts_once(at: int, fate: Fate) -> None:
    """Read, index, write; another process writes before the repetition."""
    wire = Wire(MemoryStore())
    book, other = ledger(wire), ledger(wire.store)
    book.count(ANN, ONE, "general")
    wire.strike(at, fate)

    await book.flush()
    book.count(ANN, ONE, "general")
    other.count(ANN, ONE, "general")
    await other.flush()
    seen = await totals(book)
    await book.flush()
    await book.flush()

    assert seen == await totals(book) == await totals(ledger(wire.store)) == [("general", 3)]


async def test_an_outage_keeps_what_was_counted_and_fails_nothing(caplog: pytest.LogCaptureFixture) -> None:
    wire = Wire(MemoryStore())
    book = ledger(wire)
    wire.cut = True
    for _ in range(3):
        book.count(ANN, ONE, "general")
        await book.flush()
    wire.cut = False

    await book.flush()

    assert await totals(ledger(wire.store)) == [("general", 3)]
    assert "usage is not stored yet" in caplog.text


async def test_it_is_stored_by_itself_after_a_while_and_at_the_end() -> None:
    store = MemoryStore()
    book = ledger(store)
    running = asyncio.create_task(book.run())
    book.count(ANN, ONE, "general")
    async with asyncio.timeout(60):
        while not await totals(ledger(store)):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    running.cancel()
    book.count(ANN, ONE, "general")

    await book.close()

    assert await totals(ledger(store)) == [("general", 2)]


async def test_what_cannot_be_stored_at_the_end_is_told(caplog: pytest.LogCaptureFixture) -> None:
    wire = Wire(MemoryStore())
    book = ledger(wire)
    book.count(ANN, ONE, "general")
    wire.cut = True

    await book.close()

    assert "the last usage of 1 sites was not stored" in caplog.text


async def test_a_row_goes_after_400_days_with_its_place_in_the_index() -> None:
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    book, first = ledger(store, clock), clock().date()
    book.count(ANN, ONE, "general")
    book.count(EVE, ONE, "general")
    await book.flush()
    clock.advance(timedelta(days=400))
    book.count(ANN, ONE, "general")
    await book.flush()

    early = await book.prune()
    clock.advance(timedelta(days=1))
    late = await book.prune()

    assert (early, late, await book.prune()) == (0, 2, 0)
    assert await book.usage(ACME, first, first) == []
    assert len(await store.state.state_keys(ACME, "usage")) == 1
    assert len(await store.state.state_keys(Scope(tenant="~tenuto"), "usage-rows")) == 1
