"""What a shop deals in: items and orders."""

from __future__ import annotations

import math
from datetime import date
from enum import StrEnum

from tenuto.errors import Invalid
from tenuto.model.prompt import Language
from tenuto.model.values import Value, checked_id


class Item(Value, frozen=True, kw_only=True):
    """Something for sale.

    `name` and `brand` are English, their `_zh` fellows Chinese; one of two is enough. Tags are words people may ask by,
    in any language. Attributes are facts such as `{"color": "red", "storage": "256 GB"}`.
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
        checked_id(self.id, "the item id")
        if not (math.isfinite(self.price) and self.price >= 0):
            raise Invalid("the price of an item must be a number from 0 on")
        if not 0 <= self.rating <= 5:
            raise Invalid("the rating of an item must lie between 0 and 5")

    def called(self, language: Language) -> str:
        """Its name in that language, or in the one it has."""
        return in_language(language, self.name, self.name_zh)


class OrderStatus(StrEnum):
    """Where an order stands."""

    PAID = "paid"
    SHIPPED = "shipped"
    DELIVERED = "delivered"
    CANCELLED = "cancelled"
    REFUNDING = "refunding"
    RETURNED = "returned"


class Order(Value, frozen=True, kw_only=True):
    """What somebody bought. It names the item itself, since the catalogue may drop it. There is no address in it."""

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

    def called(self, language: Language) -> str:
        """The name of what was bought, in that language or the one there is."""
        return in_language(language, self.name, self.name_zh)


def in_language(language: Language, english: str, chinese: str) -> str:
    """What something is called in that language, or in the one it has a name in."""
    return chinese or english if language is Language.CHINESE else english or chinese
