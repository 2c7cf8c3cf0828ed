"""The tool for the asker's own orders."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from hashlib import blake2b
from typing import Final, assert_never

from msgspec.structs import replace

from tenuto.assistants.goods.intent import (
    OrderQuestion,
    Period,
    Pick,
    Talk,
    as_json,
    read_arguments,
    schema_of,
    state_of,
    talk_in,
)
from tenuto.assistants.goods.reading import guessed
from tenuto.assistants.goods.shop import Catalogue, Order, OrderStatus, Shelf
from tenuto.assistants.goods.telling import OrdersAnswer, order_card, tell_orders, told
from tenuto.assistants.goods.words import fold, special
from tenuto.model.talk import ToolContext, ToolOutput, ToolSpec
from tenuto.model.values import Json, JsonObject

_ORDERS_SHOWN: Final = 5
# The end of a number is enough to name an order; a shorter one would fit too many.
_SHORTEST_END: Final = 3
_YEAR: Final = 12
_WEEK: Final = 7
_MAX_NAME: Final = 400
_PAID_FOR: Final = (OrderStatus.PAID, OrderStatus.SHIPPED, OrderStatus.DELIVERED)


class MyOrders:
    """Shows the asker's own orders. Whose they are comes from the credential; no argument can name another user."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self.spec = ToolSpec(
            name="my_orders",
            description=(
                "The orders of the user who is asking, with status and delivery; one order, where its number or its "
                "place in the orders shown last is given. Other people's orders cannot be seen. Use it also when "
                "the user complains about an order, or wants it cancelled or changed, which cannot be done here."
            ),
            parameters=schema_of(OrderQuestion),
        )

    def plan(self, turn: ToolContext) -> JsonObject | None:
        """Whether it is about orders, and which."""
        return guessed(turn, OrderQuestion)

    async def run(self, arguments: JsonObject, turn: ToolContext) -> ToolOutput:
        """Look the orders up. Without a user, or where others read along, the answer is a polite no."""
        asked = read_arguments(arguments, OrderQuestion)
        talk = talk_in(turn.state)
        shelf = await self._catalogue.shelf(turn.scope)
        asked = asked if _is_known(asked.bought, shelf) else replace(asked, bought="")
        if (refusal := _refusal(asked, turn)) is not None:
            plain = as_json(refusal)
            return ToolOutput(output=plain, reply=self.render(plain, turn))
        found = await self._catalogue.orders(turn.scope)
        fitting = tuple(order for order in _asked_for(found, asked, talk) if _fits(order, asked, shelf, turn.now))
        orders = _picked(fitting, asked.pick) or (found if _narrows(asked) else ())
        answer = OrdersAnswer(
            orders=tuple(order_card(order, turn.language) for order in orders[:_ORDERS_SHOWN]),
            more=max(len(orders) - _ORDERS_SHOWN, 0),
            asked_for=asked.order is not None,
            complaint=asked.complaint,
            none_such=bool(orders) and not fitting and not asked.complaint,
            spent=_spent(fitting) if asked.spent and not _is_one_price(fitting, asked) else None,
            currency=found[0].currency if found else "CNY",
            cannot=asked.change,
            list_length=len(talk.orders) if asked.places and talk.orders and not orders else None,
            counted=len(fitting) if asked.counted else None,
        )
        plain = as_json(answer)
        state = state_of(_ordered(orders[:_ORDERS_SHOWN], talk)) if orders else {}
        return ToolOutput(output=plain, data={"orders": plain["orders"]}, state=state)

    def render(self, output: Json, turn: ToolContext) -> str:
        """The orders and where they are."""
        return told(output, OrdersAnswer, turn, tell_orders)


def _asked_for(orders: tuple[Order, ...], asked: OrderQuestion, talk: Talk) -> tuple[Order, ...]:
    """Those of somebody's orders that are meant: by number, by place in what was shown, or else all."""
    if asked.order is not None:
        return _numbered(orders, asked.order)
    if not (asked.places and talk.orders):
        return orders
    size = len(talk.orders)
    meant = [talk.orders[place - 1 if place > 0 else place] for place in asked.places if 0 < abs(place) <= size]
    return tuple(order for order in orders if _mark(order) in meant)


def _refusal(asked: OrderQuestion, turn: ToolContext) -> OrdersAnswer | None:
    """The polite no: without a user, where others read along, and to whoever asks for somebody else's orders.

    A name that goods have is no person's: "the phone's order".
    """
    signed_in, shared = turn.scope.user is not None, turn.scope.chat is not None
    others = asked.somebody_else and not asked.bought
    if signed_in and not shared and not others:
        return None
    return OrdersAnswer(signed_in=signed_in, shared=shared, others=others, complaint=asked.complaint)


def _picked(orders: tuple[Order, ...], pick: Pick | None) -> tuple[Order, ...]:
    """The one that is asked for; several where they cost the same, all where none is."""
    if pick is None or not orders:
        return orders
    if pick in ("latest", "earliest"):
        day = (max if pick == "latest" else min)(order.ordered_on for order in orders)
        return tuple(order for order in orders if order.ordered_on == day)
    total = (max if pick == "dearest" else min)(order.total for order in orders)
    return tuple(order for order in orders if order.total == total)


def _narrows(asked: OrderQuestion) -> bool:
    conditions = (asked.months_ago, asked.month, asked.year, asked.period, asked.min_total, asked.max_total)
    return bool(asked.states or asked.bought) or any(condition is not None for condition in conditions)


def _fits(order: Order, asked: OrderQuestion, shelf: Shelf, now: datetime) -> bool:
    """Whether it stands so, is of such goods, was made at that time, and cost so much."""
    if asked.states and order.status not in asked.states:
        return False
    if asked.bought and not any(_is_of(order, name, shelf) for name in asked.bought.split(",")):
        return False
    return _was_made(order.ordered_on, asked, now) and _cost(order, asked)


def _was_made(day: date, asked: OrderQuestion, now: datetime) -> bool:
    """Whether it was made at that time; a month alone is the last one of that name."""
    if asked.period is not None and not _within(asked.period, day, now.date()):
        return False
    if asked.year is not None and day.year != asked.year:
        return False
    ago = (now.year - day.year) * _YEAR + now.month - day.month
    if asked.months_ago is not None:
        return ago == asked.months_ago
    return asked.month is None or (day.month == asked.month and (asked.year is not None or ago < _YEAR))


def _within(period: Period, day: date, today: date) -> bool:
    weeks_ago = (today - timedelta(days=today.weekday()) - day + timedelta(days=day.weekday())).days // _WEEK
    match period:
        case "today":
            return day == today
        case "yesterday":
            return day == today - timedelta(days=1)
        case "this_week":
            return weeks_ago == 0
        case "last_week":
            return weeks_ago == 1
        case "this_year":
            return day.year == today.year
        case "last_year":
            return day.year == today.year - 1
        case _:
            assert_never(period)


def _cost(order: Order, asked: OrderQuestion) -> bool:
    """Whether it cost so much; nothing is converted, so what was paid in other money did not."""
    if asked.currency not in (None, order.currency):
        return False
    return (asked.min_total or 0) <= order.total <= (order.total if asked.max_total is None else asked.max_total)


def _is_one_price(orders: tuple[Order, ...], asked: OrderQuestion) -> bool:
    """Whether what one thing cost is asked, which the order itself tells, whatever has become of it."""
    return len(orders) == 1 and bool(asked.bought or asked.places)


def _is_known(bought: str, shelf: Shelf) -> bool:
    """Whether goods here are called so; by any other word an order is not looked for."""
    return all(shelf.category(name) is not None or _is_word(name, shelf) for name in bought.split(","))


def _is_word(name: str, shelf: Shelf) -> bool:
    terms, unknown = shelf.known((name,))
    return bool(terms) and not unknown


def _is_of(order: Order, bought: str, shelf: Shelf) -> bool:
    """Whether that was bought: by its category, by its words, or by the name it had then."""
    entry = shelf.by_id.get(order.item)
    if entry is not None and shelf.category(bought) == entry.item.category:
        return all(map(entry.fits, special(bought)))
    terms, _ = shelf.known((bought,))
    named = fold(f"{order.name} {order.name_zh}", _MAX_NAME)
    return bool(terms) and all(term in named or (entry is not None and entry.fits(term)) for term in terms)


def _spent(orders: tuple[Order, ...]) -> float:
    """What was paid and not given back."""
    return sum(order.total for order in orders if order.status in _PAID_FOR)


def _numbered(orders: tuple[Order, ...], number: str) -> tuple[Order, ...]:
    """Those of that number, or whose number ends so; dashes, blanks and cases do not matter."""
    asked = _bare(number)
    whole = tuple(order for order in orders if _bare(order.id) == asked)
    if whole or len(asked) < _SHORTEST_END:
        return whole
    return tuple(order for order in orders if _bare(order.id).endswith(asked))


def _bare(number: str) -> str:
    return "".join(filter(str.isalnum, number)).casefold()


def _ordered(orders: tuple[Order, ...], talk: Talk) -> Talk:
    """What the next question can point at: the orders shown, or in a list shown before the one that was picked."""
    marks = tuple(map(_mark, orders))
    if len(marks) == 1 and marks[0] in talk.orders:
        return replace(talk, order=talk.orders.index(marks[0]) + 1)
    return replace(talk, orders=marks, order=1 if len(marks) == 1 else None)


def _mark(order: Order) -> str:
    """What the session knows an order by: its number is nobody's who reads the session (A30)."""
    return blake2b(order.id.encode(), digest_size=6).hexdigest()
