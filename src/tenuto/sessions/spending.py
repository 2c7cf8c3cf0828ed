"""Spending per tenant and day, checked against the budgets before a model is requested (A6)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tenuto.model import Scope, Session, Usage
from tenuto.model.analytics import UsageCounts
from tenuto.model.session import Budgets
from tenuto.sessions.usage import UsageLedger


class Spending:
    """The budgets, and the ledger of usage that they are checked on.

    With a budget per tenant usage is stored after each turn, so that every process checks the same numbers: a process
    that dies in between loses the usage of that turn. Without one it is stored every few seconds.
    """

    def __init__(self, *, ledger: UsageLedger, budgets: Budgets) -> None:
        self.budgets = budgets
        # Without budgets a turn checks nothing.
        self.active = budgets.per_session or budgets.per_tenant
        self._ledger = ledger

    async def check(self, scope: Scope, head: Callable[[], Awaitable[Session | None]]) -> None:
        """Refuse a turn over budget; `head` loads its session, if there is one.

        Raises:
            BudgetExhausted: nothing was stored and no model requested.
        """
        await self.check_tenant(scope)
        if self.budgets.per_session:
            session = await head()
            if session is not None:
                self.budgets.check_session(session)

    async def check_tenant(self, scope: Scope) -> None:
        """Refuse a tenant that has spent its daily budget.

        Raises:
            BudgetExhausted: it has.
        """
        if self.budgets.per_tenant:
            spent = await self._ledger.spent_today(scope)
            self.budgets.check_tenant(Usage(tokens=spent.tokens, cost_nanos=spent.cost_nanos))

    async def add(self, scope: Scope, counts: UsageCounts, assistant: str = "") -> None:
        """Add to the tenant's day, also if the store fails; without a tenant's budget this waits for nothing."""
        self._ledger.count(scope, counts, assistant)
        if self.budgets.per_tenant:
            await self._ledger.flush(scope.tenant)
