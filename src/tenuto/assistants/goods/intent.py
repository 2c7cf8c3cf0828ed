"""What a question asks of the shop, and what the conversation has shown so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias, TypeVar

import msgspec

from tenuto.errors import Invalid
from tenuto.model.values import JsonObject, Value

Sort: TypeAlias = Literal["price", "price_desc", "rating", "sales", "value"]

MAX_SHOWN: Final = 20

_T = TypeVar("_T")


class QueryIntent(Value, frozen=True, kw_only=True):
    """A question to the shop. Every condition given must hold.

    Price bounds are inclusive, in `currency` where one is named; nothing is converted. An attribute has a wanted value
    (`red`) or a bound (`>= 8 GB`). `among_previous` limits the search to the goods shown last; `position` is a place in
    the goods or orders shown last, from 1 or, from the end, from -1. `order` is an order number or its last characters.
    """

    category: str = ""
    brand: str = ""
    text: str = ""
    min_price: float | None = None
    max_price: float | None = None
    currency: str = ""
    attributes: dict[str, str] = {}
    sort: Sort | None = None
    limit: int = 5
    among_previous: bool = False
    position: int | None = None
    order: str = ""


class Shown(Value, frozen=True, kw_only=True, omit_defaults=False):
    """What the next question can point at: ids of the goods shown last, and digests of the orders if those came last.

    Order numbers are personal data and session state is exported with the session, so the state holds digests of them.
    """

    items: tuple[str, ...] = ()
    orders: tuple[str, ...] = ()


def shown_in(state: JsonObject) -> Shown:
    """What the tools left in the session. Clients can write there as well, so unfit state counts as none."""
    try:
        return msgspec.convert(state, Shown)
    except (msgspec.ValidationError, Invalid):
        return Shown()


def at_position(shown: Sequence[_T], position: int) -> tuple[_T, ...]:
    """The element at a place counted from 1 (from -1 backwards); empty when the list is shorter."""
    return (shown[position - (position > 0)],) if 0 < abs(position) <= len(shown) else ()
