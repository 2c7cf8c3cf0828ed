"""The shop's tools: search, details, the asker's own orders, and what can be asked.

Each reads the question by the same rules, and at most one of them finds itself wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b
from types import MappingProxyType
from typing import Final, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from tenuto.assistants.goods import chinese, english
from tenuto.assistants.goods.cards import (
    CourtesyAnswer,
    DetailsAnswer,
    OrdersAnswer,
    SearchAnswer,
    card,
    order_card,
)
from tenuto.assistants.goods.catalogue import Catalogue
from tenuto.assistants.goods.intent import (
    MAX_KEPT,
    PREVIOUS,
    Courtesy,
    Details,
    OrderQuestion,
    QueryIntent,
    Talk,
    as_json,
    read_arguments,
    schema_of,
    state_of,
    talk_in,
)
from tenuto.assistants.goods.item import Item, Order
from tenuto.assistants.goods.places import MAX_PLACES
from tenuto.assistants.goods.query import Found, search
from tenuto.assistants.goods.reading import understand
from tenuto.assistants.goods.shelf import Shelf
from tenuto.assistants.goods.telling import Voice, tell_courtesy, tell_details, tell_orders, tell_search
from tenuto.assistants.goods.words import fold
from tenuto.model.prompt import Language
from tenuto.model.talk import ToolOutcome, ToolSpec, ToolTurn
from tenuto.model.values import Json, JsonObject

_T = TypeVar("_T")
_ORDERS_SHOWN: Final = 5
_CANDIDATES: Final = 5
_AT_A_LOSS: Final[Mapping[Language, str]] = MappingProxyType(
    {Language.ENGLISH: "I could not read the answer of the shop.", Language.CHINESE: "商店的查询结果无法读取。"}
)


class SearchGoods:
    """Finds goods, also among those shown before."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self.spec = ToolSpec(
            name="search_goods",
            description=(
                "Search the shop's catalogue. Use it for every question about which goods there are, what they cost, "
                "and which of them is cheapest, best rated, best value, or has most or least of something. For a "
                "follow-up on the goods shown last "
                '("the best value among them") set among to ["previous"]; for a changed wish ("and under 2000?") '
                "repeat the earlier conditions with the change. Where the answer has near, nothing fitted: the goods "
                "in it came up when that condition was dropped. Words under unknown are not in the catalogue."
            ),
            parameters=schema_of(QueryIntent),
        )

    def guess(self, turn: ToolTurn) -> JsonObject | None:
        """The query the question stands for."""
        return _guessed(turn, QueryIntent)

    async def run(self, arguments: JsonObject, turn: ToolTurn) -> ToolOutcome:
        """Search; the answer's list is what the next question can point at."""
        intent = read_arguments(arguments, QueryIntent)
        talk = talk_in(turn.state)
        if PREVIOUS in intent.among and not talk.items:
            return ToolOutcome(output=as_json(SearchAnswer(nothing_shown_before=True)))
        shelf = await self._catalogue.shelf(turn.scope)
        found = search(shelf, intent, talk)
        answer = SearchAnswer(
            goods=tuple(card(item, turn.language) for item in found.goods),
            found=found.total,
            query=found.query,
            near=found.near,
            unknown=found.unknown,
            average_price=found.average_price,
            average_rating=found.average_rating,
            categories=shelf.categories if _names_nothing(found.query) else (),
            by=found.by,
            tied=found.tied,
            unnoted=found.unnoted,
            ahead=found.ahead,
            currency=shelf.currency,
            foreign=found.foreign,
            uncompared=found.uncompared,
        )
        plain = as_json(answer)
        return ToolOutcome(output=plain, data={"goods": plain["goods"]}, state=state_of(_shown(found, talk)))

    def tell(self, output: Json, turn: ToolTurn) -> str:
        """The list, or the one that was asked for and why it is the one."""
        return _told(output, SearchAnswer, turn.language, tell_search)


class GoodsDetails:
    """Tells about one item, or compares several."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self.spec = ToolSpec(
            name="goods_details",
            description=(
                "Everything about one item, or several side by side: by id, by place in the list shown last "
                '("the second one" is places [2]), or by name.'
            ),
            parameters=schema_of(Details),
        )

    def guess(self, turn: ToolTurn) -> JsonObject | None:
        """Which goods the question is about."""
        return _guessed(turn, Details)

    async def run(self, arguments: JsonObject, turn: ToolTurn) -> ToolOutcome:
        """Look the goods up; from then on "it" is the one."""
        asked = read_arguments(arguments, Details)
        talk = talk_in(turn.state)
        if asked.places and not talk.items:
            return ToolOutcome(output=as_json(DetailsAnswer(nothing_shown_before=True)))
        shelf = await self._catalogue.shelf(turn.scope)
        items, which = _looked_up(shelf, asked, talk)
        answer = DetailsAnswer(
            goods=tuple(card(item, turn.language) for item in items),
            which=tuple(card(item, turn.language) for item in which),
            about=fold(asked.about, 40) if asked.about else None,
            fact=_fact(shelf, items, asked.about),
            list_length=len(talk.items) if _past_the_end(asked, talk) else None,
            best_value=max(items, key=shelf.value).id if len(items) > 1 else None,
            cannot_buy=asked.buy,
        )
        plain = as_json(answer)
        goods = plain["goods"] or plain["which"]
        return ToolOutcome(output=plain, data={"goods": goods}, state=state_of(_discussed(items or which, talk)))

    def tell(self, output: Json, turn: ToolTurn) -> str:
        """What was asked about it, then the rest."""
        return _told(output, DetailsAnswer, turn.language, tell_details)


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

    def guess(self, turn: ToolTurn) -> JsonObject | None:
        """Whether it is about orders, and which."""
        return _guessed(turn, OrderQuestion)

    async def run(self, arguments: JsonObject, turn: ToolTurn) -> ToolOutcome:
        """Look the orders up. Without a user, or where others read along, the answer is a polite no."""
        asked = read_arguments(arguments, OrderQuestion)
        if turn.scope.chat is not None or turn.scope.user is None:
            shared = turn.scope.chat is not None
            refusal = OrdersAnswer(signed_in=turn.scope.user is not None, shared=shared, complaint=asked.complaint)
            plain = as_json(refusal)
            return ToolOutcome(output=plain, reply=self.tell(plain, turn))
        talk = talk_in(turn.state)
        found = await self._catalogue.orders(turn.scope)
        orders = _asked_for(found, asked, talk)
        answer = OrdersAnswer(
            orders=tuple(order_card(order, turn.language) for order in orders[:_ORDERS_SHOWN]),
            more=max(len(orders) - _ORDERS_SHOWN, 0),
            asked_for=asked.order is not None,
            complaint=asked.complaint,
            cannot=asked.change,
            list_length=len(talk.orders) if asked.places and talk.orders and not orders else None,
        )
        plain = as_json(answer)
        state = state_of(_ordered(orders[:_ORDERS_SHOWN], talk)) if orders else {}
        return ToolOutcome(output=plain, data={"orders": plain["orders"]}, state=state)

    def tell(self, output: Json, turn: ToolTurn) -> str:
        """The orders and where they are."""
        return _told(output, OrdersAnswer, turn.language, tell_orders)


class ShopHelp:
    """Says what can be asked here."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self.spec = ToolSpec(
            name="shop_help",
            description="What kinds of goods the shop has. Use it when the user asks what you can do or what there is.",
            parameters=schema_of(Courtesy),
        )

    def guess(self, turn: ToolTurn) -> JsonObject | None:
        """Whether it is a greeting, thanks, or a question for help."""
        return _guessed(turn, Courtesy)

    async def run(self, arguments: JsonObject, turn: ToolTurn) -> ToolOutcome:
        """Look up what there is; what was shown before can still be pointed at."""
        asked = read_arguments(arguments, Courtesy)
        shelf = await self._catalogue.shelf(turn.scope)
        return ToolOutcome(output=as_json(CourtesyAnswer(occasion=asked.occasion, categories=shelf.categories)))

    def tell(self, output: Json, turn: ToolTurn) -> str:
        """A word back, and examples."""
        return _told(output, CourtesyAnswer, turn.language, tell_courtesy)


_Kind: TypeAlias = type[QueryIntent] | type[Details] | type[OrderQuestion] | type[Courtesy]


def _guessed(turn: ToolTurn, kind: _Kind) -> JsonObject | None:
    question = understand(turn)
    return as_json(question) if isinstance(question, kind) else None


def _told(output: Json, kind: type[_T], language: Language, tell: Callable[[_T, Voice], str]) -> str:
    try:
        answer = msgspec.convert(output, kind)
    except msgspec.ValidationError:
        return _AT_A_LOSS[language]
    return tell(answer, chinese if language is Language.CHINESE else english)


def _names_nothing(query: QueryIntent) -> bool:
    return replace(query, sort=None, by=(), limit=1, rank=1, beyond=()) == QueryIntent(limit=1)


def _shown(found: Found, talk: Talk) -> Talk:
    """What the next question can point at.

    A pick from a list leaves that list as it is: "the second one" still counts in it. A single answer of a new search
    brings those that came after it.
    """
    if not found.goods:
        return talk
    single = len(found.goods) == 1
    if single and found.query.among and not found.near:
        return replace(talk, focus=found.goods[0].id, orders=(), order=None)
    listed = found.ranked[:_CANDIDATES] if single and not found.near else found.goods
    return Talk(
        items=tuple(item.id for item in listed),
        prices=tuple(item.price for item in listed),
        focus=found.goods[0].id if single else None,
        # Where the one that was asked for is not there, all of the nearest are shown.
        intent=talk.intent if found.query.among else replace(found.query, limit=5) if found.near else found.query,
    )


def _discussed(items: list[Item], talk: Talk) -> Talk:
    if not items:
        return talk
    focus = items[0].id if len(items) == 1 else None
    if all(item.id in talk.items for item in items):
        return replace(talk, focus=focus, orders=(), order=None)
    return Talk(
        items=tuple(item.id for item in items[:MAX_KEPT]),
        prices=tuple(item.price for item in items[:MAX_KEPT]),
        focus=focus,
        intent=QueryIntent(category=items[0].category),
    )


def _asked_for(orders: tuple[Order, ...], asked: OrderQuestion, talk: Talk) -> tuple[Order, ...]:
    """Those of somebody's orders that are meant: by number, by place in what was shown, or else all."""
    if asked.order is not None:
        return tuple(order for order in orders if order.id.casefold() == asked.order.strip().casefold())
    if not (asked.places and talk.orders):
        return orders
    size = len(talk.orders)
    meant = [talk.orders[place - 1 if place > 0 else place] for place in asked.places if 0 < abs(place) <= size]
    return tuple(order for order in orders if _mark(order) in meant)


def _ordered(orders: tuple[Order, ...], talk: Talk) -> Talk:
    """What the next question can point at: the orders shown, or in a list shown before the one that was picked."""
    marks = tuple(map(_mark, orders))
    if len(marks) == 1 and marks[0] in talk.orders:
        return replace(talk, order=talk.orders.index(marks[0]) + 1)
    return replace(talk, orders=marks, order=1 if len(marks) == 1 else None)


def _mark(order: Order) -> str:
    """What the session knows an order by: its number is nobody's who reads the session (A30)."""
    return blake2b(order.id.encode(), digest_size=6).hexdigest()


def _looked_up(shelf: Shelf, asked: Details, talk: Talk) -> tuple[list[Item], list[Item]]:
    """The goods that are meant, or else those that may be."""
    size = len(talk.items)
    places = [place - 1 if place > 0 else size + place for place in asked.places]
    ids = [*asked.ids, *(talk.items[place] for place in places if 0 <= place < size)]
    items = shelf.items(list(dict.fromkeys(ids))[:MAX_PLACES])
    which: list[Item] = []
    for name in asked.names[:MAX_PLACES]:
        fitting = _called(shelf, name)
        items += fitting[:1] if len(fitting) == 1 or len(asked.names) > 1 else []
        which += fitting[:_CANDIDATES] if len(fitting) > 1 and len(asked.names) == 1 else []
    return items, which


def _past_the_end(asked: Details, talk: Talk) -> bool:
    return bool(asked.places) and all(abs(place) > len(talk.items) for place in asked.places)


def _called(shelf: Shelf, name: str) -> list[Item]:
    """The items all of whose asked words fit, those whose names hold nothing else before the others."""
    terms, unknown = shelf.known((name,))
    if not terms or unknown:
        return []
    fitting = [entry for entry in shelf.entries if all(map(entry.fits, terms))]
    return [entry.item for entry in sorted(fitting, key=lambda entry: (len(entry.item.name), entry.item.id))]


def _fact(shelf: Shelf, items: list[Item], about: str | None) -> bool | None:
    if about is None or len(items) != 1:
        return None
    terms, unknown = shelf.known((about,))
    return bool(terms) and not unknown and all(map(shelf.by_id[items[0].id].fits, terms))
