"""Spending per tenant and day, checked against the budgets before a model is requested (A6)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final
from weakref import WeakValueDictionary

from tenuto.errors import TenutoError, VersionConflict
from tenuto.model import Scope, Session, StateEntry, Usage
from tenuto.model.session import Budgets
from tenuto.ports import Clock, StateStore

_NAMESPACE: Final = "spent"
_TRIES: Final = 20
_log = logging.getLogger(__name__)


class Spending:
    """Stores what each tenant spent today apart from the sessions, so that deleting a session changes nothing.

    Usage is added after a turn is stored: a process that dies in between loses the usage of that turn.
    """

    def __init__(self, *, state: StateStore, budgets: Budgets, clock: Clock) -> None:
        self.budgets = budgets
        # Without budgets a turn neither checks nor adds anything.
        self.active = budgets.per_session or budgets.per_tenant
        self._state = state
        self._clock = clock
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

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
            self.budgets.check_tenant(_entry_usage(await self._read_today(scope)))

    async def add(self, scope: Scope, usage: Usage) -> None:
        """Add the usage of a turn to its tenant's day; if the store fails, it is not added."""
        if not self.budgets.per_tenant or usage == Usage():
            return
        lock = self._locks.setdefault(scope.tenant, asyncio.Lock())
        async with lock:
            try:
                await self._add_to_today(scope, usage)
            except TenutoError as failed:
                _log.warning("a turn was not added to its tenant's spending: %s", failed.code)

    async def _add_to_today(self, scope: Scope, usage: Usage) -> None:
        for _ in range(_TRIES):
            entry = await self._read_today(scope)
            spent = _entry_usage(entry)
            value = {"tokens": spent.tokens + usage.tokens, "cost_nanos": spent.cost_nanos + usage.cost_nanos}
            try:
                await self._state.write_state(
                    _tenant_scope(scope), _NAMESPACE, self._day(), value, if_version=entry.version if entry else 0
                )
            except VersionConflict:
                continue
            return
        _log.warning("a turn was not added to its tenant's spending: too many writers")

    async def _read_today(self, scope: Scope) -> StateEntry | None:
        return await self._state.read_state(_tenant_scope(scope), _NAMESPACE, self._day())

    def _day(self) -> str:
        return self._clock().date().isoformat()


def _tenant_scope(scope: Scope) -> Scope:
    return Scope(tenant=scope.tenant)


def _entry_usage(entry: StateEntry | None) -> Usage:
    return Usage(**entry.value) if entry is not None else Usage()
