"""What tools hand on: goods and orders as plain JSON, for models, for clients and for the answer's own words.

They are written out whole: a model that reads `"found": 0` invents less than one that reads nothing.
"""

from __future__ import annotations

from datetime import date

from tenuto.assistants.goods.intent import Bound, Change, Claim, Occasion, QueryIntent
from tenuto.assistants.goods.shop import Brand, Item, Order, OrderStatus, in_language
from tenuto.assistants.goods.words import of_categories
from tenuto.model.prompt import Language
from tenuto.model.values import Value


class Card(Value, frozen=True, kw_only=True, omit_defaults=False):
    """An item with its name in the question's language."""

    id: str
    name: str
    category: str
    brand: str
    price: float
    currency: str
    rating: float
    sales: int
    stock: int
    attributes: dict[str, str]
    tags: tuple[str, ...]


class BrandCard(Value, frozen=True, kw_only=True, omit_defaults=False):
    """A brand with its name in the question's language: how many goods, at what prices, rated how on average."""

    name: str
    goods: int
    lowest: float
    highest: float
    currency: str
    rating: float


class SearchAnswer(Value, frozen=True, kw_only=True, omit_defaults=False):
    """What `search_goods` found. With `near`, nothing fitted, and these came up when that condition was let go.

    `let_go` is what that was, where it can be told. With `even`, all that fitted have as much of what was asked for.
    The averages are over all that fitted. `categories` are there when nothing particular was asked for. `by` decided
    the order; `unnoted` should have, but the catalogue does not tell it of these goods. Prices are in `currency`, and
    bounds named in `foreign` money were left out, not converted; so were those `uncompared`, since the catalogue notes
    nothing of these goods that compares with them. `brand` is the brand asked for in the question's language; with
    `brands` those were asked for, and no goods are there; so many `more_brands` were left out.
    """

    goods: tuple[Card, ...] = ()
    found: int = 0
    query: QueryIntent = QueryIntent()
    near: str | None = None
    let_go: QueryIntent = QueryIntent()
    unknown: tuple[str, ...] = ()
    average_price: float = 0.0
    average_rating: float = 0.0
    categories: tuple[str, ...] = ()
    by: str | None = None
    tied: int = 0
    even: bool = False
    unnoted: str | None = None
    ahead: int = 0
    currency: str = "CNY"
    foreign: str | None = None
    uncompared: tuple[Bound, ...] = ()
    brand: str | None = None
    brands: tuple[BrandCard, ...] = ()
    more_brands: int = 0
    nothing_shown_before: bool = False

    @property
    def fact(self) -> str | None:
        """The attribute that each of the goods is shown with: what decided the order, or what was compared."""
        return self.by or next((bound.of[0] for bound in self.query.amounts), None)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The categories that were asked for."""
        if self.query.category:
            return (self.query.category,)
        return tuple(slug for group in self.query.either if of_categories(group) for slug in group)


class DetailsAnswer(Value, frozen=True, kw_only=True, omit_defaults=False):
    """What `goods_details` found; `which` are goods among which the question does not decide.

    `fact` answers a question that no attribute does ("is it waterproof?"): noted, or not noted. `list_length` is
    there when a place was named that the list shown last does not have. With `cannot_buy` somebody wanted to buy it.
    `more` were meant as well, but are too many to set side by side. `missing` are names that nothing here has.
    `listed` are those of several goods that are noted with what was asked. With `cannot_sum` a reckoning was asked
    for. `claim` answers whether the first has more or less of `about` than the second.
    """

    goods: tuple[Card, ...] = ()
    which: tuple[Card, ...] = ()
    about: str | None = None
    fact: bool | None = None
    best_value: str | None = None
    list_length: int | None = None
    cannot_buy: bool = False
    more: int = 0
    missing: tuple[str, ...] = ()
    listed: tuple[str, ...] = ()
    cannot_sum: bool = False
    claim: Claim | None = None
    nothing_shown_before: bool = False


class OrderCard(Value, frozen=True, kw_only=True):
    """An order with its item's name in the question's language."""

    id: str
    name: str
    quantity: int
    total: float
    currency: str
    status: OrderStatus
    ordered_on: date
    tracking: str | None = None
    expected_on: date | None = None
    delivered_on: date | None = None


class OrdersAnswer(Value, frozen=True, kw_only=True, omit_defaults=False):
    """What `my_orders` found; `shared` says that others in this chat would read the answer.

    `cannot` is what was asked to be done to an order, which nothing here can do. `list_length` is there when a place
    was named that the orders shown last do not have. With `none_such` none is as asked for, and all are there. `spent`
    is what those asked for cost together, without what was cancelled or given back; `counted` is how many they are.
    `others` says that somebody else's orders were asked for.
    """

    orders: tuple[OrderCard, ...] = ()
    more: int = 0
    signed_in: bool = True
    shared: bool = False
    asked_for: bool = False
    complaint: bool = False
    none_such: bool = False
    spent: float | None = None
    currency: str = "CNY"
    cannot: Change | None = None
    list_length: int | None = None
    counted: int | None = None
    others: bool = False


class CourtesyAnswer(Value, frozen=True, kw_only=True, omit_defaults=False):
    """What `shop_help` tells: what can be asked here, by examples."""

    occasion: Occasion
    categories: tuple[str, ...] = ()


def card(item: Item, language: Language) -> Card:
    """The item as shown."""
    return Card(
        id=item.id,
        name=item.called(language),
        category=item.category,
        brand=in_language(language, item.brand, item.brand_zh),
        price=item.price,
        currency=item.currency,
        rating=item.rating,
        sales=item.sales,
        stock=item.stock,
        attributes=item.attributes,
        tags=item.tags,
    )


def brand_card(brand: Brand, language: Language) -> BrandCard:
    """The brand as shown."""
    return BrandCard(
        name=brand.called(language),
        goods=brand.count,
        lowest=brand.lowest,
        highest=brand.highest,
        currency=brand.currency,
        rating=brand.rating,
    )


def order_card(order: Order, language: Language) -> OrderCard:
    """The order as shown."""
    return OrderCard(
        id=order.id,
        name=order.called(language),
        quantity=order.quantity,
        total=order.total,
        currency=order.currency,
        status=order.status,
        ordered_on=order.ordered_on,
        tracking=order.tracking,
        expected_on=order.expected_on,
        delivered_on=order.delivered_on,
    )
