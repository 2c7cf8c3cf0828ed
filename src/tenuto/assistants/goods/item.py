"""What a shop deals in (items, orders, complaint cases), and the invented ones that come with the package."""

from __future__ import annotations

import math
from datetime import date
from enum import StrEnum
from functools import lru_cache
from importlib.resources import files
from typing import Final

import msgspec

from tenuto.errors import Invalid
from tenuto.model.prompt import Language
from tenuto.model.values import Value, check_id

# Grows with every change of the shipped items; a tenant that has an older edition gets the new one.
EDITION: Final = 1


class Item(Value, frozen=True, kw_only=True):
    """Something for sale.

    `name` and `brand` are English, their `_zh` fellows Chinese; one of two is enough. Tags are search words in any
    language. Attributes are facts such as `{"color": "red", "storage": "256 GB"}`.
    """

    id: str
    name: str
    category: str
    price: float
    name_zh: str = ""
    brand: str = ""
    brand_zh: str = ""
    currency: str = "CNY"
    rating: float = 0.0
    sales: int = 0
    stock: int = 0
    attributes: dict[str, str] = {}
    tags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_id(self.id, "the item id")
        if not (math.isfinite(self.price) and self.price >= 0):
            raise Invalid("the price of an item must be a number from 0 on")
        if not 0 <= self.rating <= 5:
            raise Invalid("the rating of an item must lie between 0 and 5")


class OrderStatus(StrEnum):
    """The state of an order."""

    PAID = "paid"
    SHIPPED = "shipped"
    DELIVERED = "delivered"
    CANCELLED = "cancelled"
    REFUNDING = "refunding"
    RETURNED = "returned"


class Order(Value, frozen=True, kw_only=True):
    """A purchase. It names the item itself, since the catalogue may drop it. There is no address in it."""

    id: str
    item: str
    name: str
    status: OrderStatus
    ordered_on: date
    name_zh: str = ""
    quantity: int = 1
    total: float = 0.0
    currency: str = "CNY"
    tracking: str | None = None
    expected_on: date | None = None
    delivered_on: date | None = None


class CaseStatus(StrEnum):
    """The state of a complaint case."""

    OPEN = "open"
    CLOSED = "closed"


class Case(Value, frozen=True, kw_only=True):
    """A complaint, about one order or none in particular. The user's words are in the session, not here."""

    id: str
    opened_on: date
    order: str | None = None
    status: CaseStatus = CaseStatus.OPEN


class _ShippedOrder(Order, frozen=True, kw_only=True):
    user: str


def in_language(language: Language, english: str, chinese: str) -> str:
    """The name in that language, or in the one there is."""
    return chinese or english if language is Language.CHINESE else english or chinese


@lru_cache(maxsize=1)
def shipped_items() -> tuple[Item, ...]:
    """Every shipped item."""
    return tuple(msgspec.json.decode(line, type=Item) for line in _shipped_lines("items.jsonl"))


@lru_cache(maxsize=1)
def shipped_orders() -> dict[str, tuple[Order, ...]]:
    """The shipped orders by user id, oldest first."""
    orders: dict[str, tuple[Order, ...]] = {}
    for line in (msgspec.json.decode(line, type=_ShippedOrder) for line in _shipped_lines("orders.jsonl")):
        order = msgspec.convert(line, Order, from_attributes=True)
        orders[line.user] = (*orders.get(line.user, ()), order)
    return orders


def _shipped_lines(name: str) -> list[bytes]:
    return files("tenuto.assistants.goods").joinpath("shipped", name).read_bytes().splitlines()
