"""Budgets: what a session may spend in its life, and a tenant in a day (A6)."""

from __future__ import annotations

from decimal import Decimal

from tenuto.errors import BudgetExhausted, InvalidSetting
from tenuto.model.session import NANOS_PER_USD, Session, Usage
from tenuto.model.values import Value


class Budgets(Value, frozen=True, kw_only=True):
    """Bounds on spending; `None` is none. Money is in whole billionths of a US dollar."""

    session_tokens: int | None = None
    session_cost_nanos: int | None = None
    tenant_tokens_per_day: int | None = None
    tenant_cost_nanos_per_day: int | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidSetting(name, "must be above nothing, or off")

    @property
    def per_session(self) -> bool:
        """Whether a session's spending is bounded."""
        return self.session_tokens is not None or self.session_cost_nanos is not None

    @property
    def per_tenant(self) -> bool:
        """Whether a tenant's spending is bounded."""
        return self.tenant_tokens_per_day is not None or self.tenant_cost_nanos_per_day is not None

    def check_session(self, session: Session) -> None:
        """Refuse a session that has spent what it may.

        Raises:
            BudgetExhausted: it has.
        """
        if self.per_session:
            _check_spent("session", Usage(tokens=session.tokens, cost_nanos=session.cost_nanos), *self._session_bounds)

    def check_tenant(self, spent: Usage) -> None:
        """Refuse a tenant that has spent what it may today.

        Raises:
            BudgetExhausted: it has.
        """
        _check_spent("tenant", spent, self.tenant_tokens_per_day, self.tenant_cost_nanos_per_day)

    @property
    def _session_bounds(self) -> tuple[int | None, int | None]:
        return self.session_tokens, self.session_cost_nanos


def _check_spent(whose: str, spent: Usage, tokens: int | None, cost_nanos: int | None) -> None:
    if tokens is not None and spent.tokens >= tokens:
        raise BudgetExhausted(whose, f"{tokens} tokens")
    if cost_nanos is not None and spent.cost_nanos >= cost_nanos:
        raise BudgetExhausted(whose, f"{(Decimal(cost_nanos) / NANOS_PER_USD).normalize():f} US dollars")
