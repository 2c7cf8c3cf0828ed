"""What a language has to say for the shop; each has its own module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tenuto.assistants.goods.intent import Claim
from tenuto.assistants.goods.telling.cards import (
    BrandCard,
    Card,
    CourtesyAnswer,
    OrderCard,
    OrdersAnswer,
    SearchAnswer,
)
from tenuto.model.values import Value


class Sentences(Value, frozen=True, kw_only=True):
    """What is always said in the same words."""

    no_goods_shown: str
    no_list_shown: str
    not_found: str
    which: str
    hint: str
    cannot_buy: str
    cannot_sum: str
    sign_in: str
    not_here: str
    orders: str
    sorry: str
    no_complaints: str
    hello: str
    welcome: str
    bye: str
    about: str
    no_policies: str
    no_such_order: str
    others_orders: str
    nothing_wanted: str
    unclear: str


class Voice(Protocol):
    """A language: what the shop says in it. The modules `english` and `chinese` are such voices."""

    @property
    def SENTENCES(self) -> Sentences:  # noqa: N802 - a constant of those modules
        """What is always said in the same words."""
        ...

    @property
    def CLAIMS(self) -> Mapping[Claim, str]:  # noqa: N802 - a constant of those modules
        """Whether it is so that one has more or less of something than another."""
        ...

    def of_brands(self, answer: SearchAnswer) -> str:
        """Of how many brands the goods are."""
        ...

    def brand_line(self, brand: BrandCard) -> str:
        """A brand in a list."""
        ...

    def cut(self, length: int) -> str:
        """That only so many characters of the question were read."""
        ...

    def foreign_money(self, answer: SearchAnswer) -> str:
        """That prices in another currency were left out, and which one the shop has."""
        ...

    def can(self, answer: CourtesyAnswer) -> str:
        """What can be asked here, by examples."""
        ...

    def uncompared(self, answer: SearchAnswer) -> str:
        """That bounds were left out, since the catalogue notes nothing that compares with them."""
        ...

    def unread(self, answer: SearchAnswer) -> str:
        """That words of the question were left out, since the catalogue does not know them."""
        ...

    def unnoted(self, answer: SearchAnswer) -> str:
        """That the catalogue does not tell what should decide."""
        ...

    def nothing(self, answer: SearchAnswer) -> str:
        """That there are no such goods."""
        ...

    def nearest(self, answer: SearchAnswer) -> str:
        """That there are no such goods, but others."""
        ...

    def single(self, answer: SearchAnswer) -> str:
        """The one that was asked for, and why it is the one."""
        ...

    def heading(self, answer: SearchAnswer) -> str:
        """What the list is of."""
        ...

    def line(self, good: Card, by: str | None = None) -> str:
        """An item in a list."""
        ...

    def too_far(self, length: int) -> str:
        """That the list is shorter than that."""
        ...

    def point(self, good: Card, about: str | None, noted: bool | None = None) -> str:
        """The very thing that was asked; what is no attribute may be noted otherwise."""
        ...

    def portrait(self, good: Card) -> str:
        """Everything about an item."""
        ...

    def fact(self, good: Card, about: str, listed: bool = False) -> str:
        """An item in a list, with the one thing that was asked about all of them; or that it is listed with it."""
        ...

    def too_many(self, shown: int, more: int) -> str:
        """That not all of them were looked at."""
        ...

    def missing(self, names: Sequence[str]) -> str:
        """That nothing here has such a name."""
        ...

    def even(self, answer: SearchAnswer) -> str:
        """That none of them is ahead of the others."""
        ...

    def verdict(
        self, cheapest: Sequence[Card], best_rated: Sequence[Card], best_value: Card | None, compared: int
    ) -> str:
        """How so many compare; those that cost as little or are rated as high share the place."""
        ...

    def no_orders(self, asked_for: bool) -> str:
        """That there are no orders, or none of that number."""
        ...

    def too_few_orders(self, length: int) -> str:
        """That fewer orders were shown than that."""
        ...

    def one_order(self, order: OrderCard) -> str:
        """An order by itself."""
        ...

    def order_line(self, order: OrderCard) -> str:
        """An order in a list."""
        ...

    def counted(self, count: int) -> str:
        """How many orders are as asked for."""
        ...

    def more_orders(self, count: int) -> str:
        """That there are more."""
        ...

    def spent(self, total: float, currency: str) -> str:
        """What the orders cost together."""
        ...

    def cannot(self, answer: OrdersAnswer) -> str:
        """That nothing here can do that to an order, and who can."""
        ...


def figure(amount: float) -> str:
    """A sum of money without its currency."""
    return f"{amount:,.0f}" if amount == int(amount) else f"{amount:,.2f}"


def against(price: float, average: float) -> int:
    """How many per cent a price lies above the average, or below."""
    return round(100 * (price - average) / average) if average else 0
