"""The catalogue and the orders that come with the package: all goods, brands and buyers in them are invented."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import Final

import msgspec

from tenuto.assistants.goods.shop.item import Item, Order

# Grows with every change of the shipped items; a tenant that still has an older edition gets the new one.
EDITION: Final = 1


class _Line(Order, frozen=True, kw_only=True):
    user: str


@lru_cache(maxsize=1)
def shipped_items() -> tuple[Item, ...]:
    """Every shipped item."""
    return tuple(msgspec.json.decode(line, type=Item) for line in _lines("items.jsonl"))


@lru_cache(maxsize=1)
def shipped_orders() -> dict[str, tuple[Order, ...]]:
    """The shipped orders by user id, oldest first."""
    orders: dict[str, list[Order]] = {}
    for line in (msgspec.json.decode(line, type=_Line) for line in _lines("orders.jsonl")):
        order = msgspec.convert(line, Order, from_attributes=True)
        orders.setdefault(line.user, []).append(order)
    return {user: tuple(own) for user, own in orders.items()}


def _lines(name: str) -> list[bytes]:
    return files(__name__).joinpath(name).read_bytes().splitlines()
