"""The usage of tenants by site, day and assistant, gathered in this process and stored every few seconds (C14); and
the budgets that are checked on it (A6).

A row holds one site's day. It is state of the tenant, so that deleting sessions or erasing users changes nothing in it,
and holds numbers only. Rows of one day lie side by side, so that the tenant's spending today is one listing.

Counts reach their row in batches with ids, and a row remembers its last ones. A write that got no answer may have been
applied, so the same batch is sent again until the row is known to hold it: no count is lost or doubled by an outage.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from itertools import chain
from secrets import token_hex
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

import msgspec

from tenuto.compare_and_set import retry_on_conflict
from tenuto.errors import StateCorrupt, TenutoError
from tenuto.model import Scope, Session, StateEntry, Usage
from tenuto.model.analytics import USAGE_DAYS, UsageCounts, UsageRow, sum_counts
from tenuto.model.scope import SYSTEM, site_key
from tenuto.model.session import Budgets
from tenuto.ports import Clock, StateStore
from tenuto.sessions.lease import complete_despite_cancel

FLUSH_EVERY: Final = timedelta(seconds=3)
"""What a killed process may lose."""
_LAST_FLUSH_SECONDS: Final = 5.0
_LEAST_FLUSH_SECONDS: Final = 0.5
_ROWS: Final = "usage"
# The rows of all tenants, in order of days, so that old ones are found without a list of tenants.
_INDEX: Final = "usage-rows"
_PAGE: Final = 100
# More than there are processes that write between two attempts of one.
_REMEMBERED: Final = 16
_log = logging.getLogger(__name__)


class _Place(NamedTuple):
    """A row: the tenant, and the key in its state."""

    tenant: str
    key: str


@dataclass(slots=True)
class _Batch:
    """Counts by assistant that reach their row together; titles and summaries count under an empty name."""

    id: str = field(default_factory=lambda: token_hex(6))
    counts: dict[str, UsageCounts] = field(default_factory=dict)

    def add(self, assistant: str, counts: UsageCounts) -> None:
        self.counts[assistant] = self.counts.get(assistant, UsageCounts()) + counts


class _Row(msgspec.Struct, frozen=True):
    """A row as it is stored, with the ids of the last batches in it."""

    assistants: dict[str, UsageCounts] = {}
    batches: list[str] = []

    def with_batch(self, batch: _Batch) -> _Row:
        merged = _Batch(counts=dict(self.assistants))
        for assistant, counts in batch.counts.items():
            merged.add(assistant, counts)
        return _Row(merged.counts, [*self.batches, batch.id][-_REMEMBERED:])


class UsageLedger:
    """Counts usage without waiting. What is read includes what this process has not stored yet."""

    def __init__(self, *, state: StateStore, clock: Clock, every: timedelta = FLUSH_EVERY) -> None:
        self._state = state
        self._clock = clock
        self._every = every
        # A sealed batch was sent, or is about to be; the open one of the same row takes what comes meanwhile.
        self._sealed: dict[_Place, _Batch] = {}
        self._open: dict[_Place, _Batch] = {}
        self._locks: WeakValueDictionary[_Place, asyncio.Lock] = WeakValueDictionary()
        self._gathered = asyncio.Event()
        # A moment of the event loop's clock.
        self.ends_at: float | None = None

    # Count

    def count(self, scope: Scope, counts: UsageCounts, assistant: str = "") -> None:
        """Add to today's usage of the scope's site; without an assistant, as work on titles and summaries."""
        if counts != UsageCounts():
            place = _Place(scope.tenant, _row_key(self._today(), scope))
            self._open.setdefault(place, _Batch()).add(assistant, counts)
            self._gathered.set()

    async def run(self) -> None:
        """Store what was gathered every few seconds, until cancelled."""
        while True:
            await self._gathered.wait()
            await asyncio.sleep(self._every.total_seconds())
            self._gathered.clear()
            try:
                await self.flush()
            except Exception:
                # The next rounds are needed whatever fails in one.
                _log.exception("usage was not stored")
            if self._sealed or self._open:
                self._gathered.set()

    async def flush(self, tenant: str | None = None) -> None:
        """Store what was gathered, of one tenant or of all; what the store does not take waits for the next time."""
        for place in dict.fromkeys((*self._sealed, *self._open)):
            if tenant in (None, place.tenant):
                try:
                    await self._flush_row(place)
                except TenutoError as error:
                    _log.warning("usage is not stored yet: %s", error.code)

    async def close(self) -> None:
        """Store what is left, for a few seconds at most, and not much beyond `ends_at`."""
        until = asyncio.get_running_loop().time() + _LAST_FLUSH_SECONDS
        if self.ends_at is not None:
            until = min(until, max(self.ends_at, until - _LAST_FLUSH_SECONDS + _LEAST_FLUSH_SECONDS))
        try:
            async with asyncio.timeout_at(until):
                await self.flush()
        except TimeoutError:
            pass
        if lost := {*self._sealed, *self._open}:
            _log.warning("the last usage of %d sites was not stored", len(lost))

    async def _flush_row(self, place: _Place) -> None:
        async with self._locks.setdefault(place, asyncio.Lock()):
            if place in self._sealed:
                await self._store_sealed(place)
            if place in self._open:
                self._sealed[place] = self._open.pop(place)
                await self._store_sealed(place)

    async def _store_sealed(self, place: _Place) -> None:
        batch, scope = self._sealed[place], Scope(tenant=place.tenant)

        async def attempt() -> None:
            entry = await self._state.read_state(scope, _ROWS, place.key)
            row = _decode(entry)
            if batch.id in row.batches:
                return
            if entry is None:
                # First: a row that is not in the index would stay for ever.
                await self._state.write_state(SYSTEM, _INDEX, place.key, place.tenant)
            version, value = entry.version if entry is not None else 0, msgspec.to_builtins(row.with_batch(batch))
            await self._state.write_state(scope, _ROWS, place.key, value, if_version=version)

        await retry_on_conflict(attempt)
        del self._sealed[place]

    # Read

    async def spent_today(self, scope: Scope) -> UsageCounts:
        """What the scope's tenant used today, on all of its sites."""
        day, after = self._today().isoformat(), self._today().isoformat()
        # Taken first, and told apart by their ids: a batch that is stored meanwhile counts once.
        waiting = {
            batch.id: sum_counts(batch.counts.values())
            for place, batch in self._waiting()
            if place.tenant == scope.tenant and place.key.startswith(day)
        }
        total = UsageCounts()
        while True:
            page = await self._state.list_state(Scope(tenant=scope.tenant), _ROWS, after, _PAGE)
            rows = [_decode(entry) for entry in page if entry.key.startswith(day)]
            for row in rows:
                total += sum_counts(row.assistants.values())
                for batch_id in row.batches:
                    waiting.pop(batch_id, None)
            if len(rows) < _PAGE:
                return total + sum_counts(waiting.values())
            after = page[-1].key

    async def usage(self, scope: Scope, first_day: date, last_day: date) -> list[UsageRow]:
        """The usage of the scope's site on these days, newest day first, then by assistant."""
        found: list[UsageRow] = []
        for age in range((last_day - first_day).days + 1):
            day = last_day - timedelta(days=age)
            place = _Place(scope.tenant, _row_key(day, scope))
            waiting = [_Batch(batch.id, dict(batch.counts)) for where, batch in self._waiting() if where == place]
            row = _decode(await self._state.read_state(Scope(tenant=scope.tenant), _ROWS, place.key))
            for batch in waiting:
                row = row if batch.id in row.batches else row.with_batch(batch)
            found += [
                UsageRow(day=day, assistant=name or None, counts=row.assistants[name])
                for name in sorted(row.assistants)
            ]
        return found

    async def prune(self) -> int:
        """Remove rows that are older than `USAGE_DAYS`, of all tenants; returns how many."""
        oldest, gone = (self._today() - timedelta(days=USAGE_DAYS)).isoformat(), 0
        while True:
            keys = await self._state.state_keys(SYSTEM, _INDEX, limit=_PAGE)
            due = [key for key in keys if key < oldest]
            for key in due:
                gone += await self._remove_row(key)
            if len(due) < _PAGE:
                return gone

    async def _remove_row(self, key: str) -> bool:
        removed = False
        try:
            entry = await self._state.read_state(SYSTEM, _INDEX, key)
            if entry is not None:
                removed = await self._state.delete_state(Scope(tenant=entry.value), _ROWS, key)
        except StateCorrupt:
            _log.error("dropped an entry of the index of usage that cannot be read")
        await self._state.delete_state(SYSTEM, _INDEX, key)
        return removed

    def _waiting(self) -> Iterator[tuple[_Place, _Batch]]:
        return chain(self._sealed.items(), self._open.items())

    def _today(self) -> date:
        return self._clock().date()


class Spending:
    """The budgets, and the ledger of usage that they are checked on.

    With a budget per tenant usage is stored after each turn, so that every process checks the same numbers: a process
    that dies in between loses the usage of that turn. Without one it is stored every few seconds.
    """

    def __init__(self, *, ledger: UsageLedger, budgets: Budgets) -> None:
        self.budgets = budgets
        # Without budgets a turn checks nothing.
        self._limits_tenants = budgets.per_tenant
        self.active = budgets.per_session or self._limits_tenants
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
        if self._limits_tenants:
            spent = await self._ledger.spent_today(scope)
            self.budgets.check_tenant(Usage(tokens=spent.tokens, cost_nanos=spent.cost_nanos))

    async def add(self, scope: Scope, counts: UsageCounts, assistant: str = "") -> None:
        """Add to the tenant's day, also if the store fails or the caller is cancelled; without a tenant's budget this
        waits for nothing."""
        self._ledger.count(scope, counts, assistant)
        if self._limits_tenants:
            await complete_despite_cancel(self._ledger.flush(scope.tenant))


def _row_key(day: date, scope: Scope) -> str:
    # A digest, since a site's id may be as long as a key may be.
    return f"{day.isoformat()}:{site_key(scope).hex()}"


def _decode(entry: StateEntry | None) -> _Row:
    if entry is None:
        return _Row()
    try:
        return msgspec.convert(entry.value, _Row)
    except msgspec.ValidationError:
        raise StateCorrupt("state value", "is no row of usage") from None
