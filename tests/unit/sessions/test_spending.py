"""Budgets: checked before a model is asked, added to after a turn is stored."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tenuto.errors import BudgetExhausted, InvalidSetting
from tenuto.model import Scope, Session
from tenuto.model.analytics import UsageCounts
from tenuto.model.session import Budgets
from tenuto.sessions.usage import Spending, UsageLedger
from tenuto.settings import Settings
from tests.clock import FakeClock
from tests.cut_wires import Wire
from tests.doubles import MemoryStore
from tests.samples import ANN, BOB, EVE

pytestmark = pytest.mark.requirement("A6")


async def _no_session() -> Session | None:
    return None


def spending(clock: FakeClock, store: MemoryStore | None = None, **budgets: int) -> Spending:
    ledger = UsageLedger(state=(store or MemoryStore(clock=clock)).state, clock=clock)
    return Spending(ledger=ledger, budgets=Budgets(**budgets))


def tokens(count: int) -> UsageCounts:
    return UsageCounts(input_tokens=count)


async def test_a_tenant_is_refused_when_its_day_is_spent_and_served_again_tomorrow() -> None:
    clock = FakeClock()
    today = spending(clock, tenant_tokens_per_day=100)
    await today.add(ANN, tokens(60))
    await today.check(BOB, _no_session)
    await today.add(BOB, tokens(40))

    with pytest.raises(BudgetExhausted, match="100 tokens"):
        await today.check(ANN, _no_session)
    await today.check(EVE, _no_session)
    clock.advance(timedelta(days=1))
    await today.check(ANN, _no_session)


async def test_sites_of_one_tenant_share_its_budget() -> None:
    both = spending(FakeClock(), tenant_cost_nanos_per_day=10)
    await both.add(Scope(tenant="acme", site="museum"), UsageCounts(cost_nanos=10))

    with pytest.raises(BudgetExhausted):
        await both.check(ANN, _no_session)


async def test_turns_that_end_together_are_all_counted() -> None:
    clock, store = FakeClock(), MemoryStore()
    counters = [spending(clock, store, tenant_tokens_per_day=1000) for _ in range(2)]

    await asyncio.gather(*(counters[n % 2].add(ANN, tokens(10)) for n in range(100)))

    with pytest.raises(BudgetExhausted):
        await counters[0].check(ANN, _no_session)
    assert (await UsageLedger(state=store.state, clock=clock).spent_today(ANN)).tokens == 1000


async def test_what_the_store_did_not_take_counts_in_this_process_all_the_same() -> None:
    clock, wire = FakeClock(), Wire(MemoryStore())
    today = Spending(ledger=UsageLedger(state=wire, clock=clock), budgets=Budgets(tenant_tokens_per_day=10))
    wire.cut = True
    await today.add(ANN, tokens(10))
    wire.cut = False

    with pytest.raises(BudgetExhausted):
        await today.check(ANN, _no_session)


async def test_without_a_tenant_budget_a_turn_waits_for_no_store() -> None:
    wire = Wire(MemoryStore())
    ledger = UsageLedger(state=wire, clock=FakeClock())

    await Spending(ledger=ledger, budgets=Budgets()).add(ANN, tokens(10))

    assert wire.calls == []
    assert (await ledger.spent_today(ANN)).tokens == 10


@pytest.mark.requirement("T20")
def test_budgets_come_from_the_settings_and_0_is_off() -> None:
    """Stated settings change behaviour, contradictory ones are refused."""
    assert Settings(session_budget_usd=0.5, tenant_daily_tokens=7).budgets() == Budgets(
        session_cost_nanos=500_000_000, tenant_tokens_per_day=7
    )
    assert Settings(session_budget_tokens=0, session_budget_usd=0.0).budgets() == Budgets()
    for wrong in (
        {"session_budget_tokens": -1},
        {"tenant_daily_usd": -0.1},
        {"prompt_tokens": 8192, "reply_tokens": 9000},
    ):
        with pytest.raises(InvalidSetting):
            Settings(**wrong)
