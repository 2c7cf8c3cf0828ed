"""The tools of the shop: plain functions that a model calls, or that the table of words plans without one."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import msgspec
from msgspec.structs import replace

from tenuto.assistants.function_tools import make_tool, offline
from tenuto.assistants.goods.answers import (
    GoodsSearchResult,
    OrdersAnswer,
    make_card,
    make_order_card,
    render_goods,
    render_orders,
)
from tenuto.assistants.goods.intent import QueryIntent, Shown, Sort, at_position, shown_in
from tenuto.assistants.goods.item import Order
from tenuto.assistants.goods.shop import Shop
from tenuto.assistants.goods.words import Topic, interpret
from tenuto.model.generation import ToolContext, ToolOutput
from tenuto.model.values import JsonObject, Value
from tenuto.ports import Tool

_MAX_ORDERS_SHOWN: Final = 5
# The end of a number is enough to name an order; a shorter one would fit too many.
_MIN_NUMBER_END: Final = 3


def goods_tools(shop: Shop) -> tuple[Tool, ...]:
    """The tools of a shop. Whose orders they show comes from the credential; no argument names a user."""

    @offline(plan=lambda turn: _plan("goods", turn), render=render_goods)
    async def search_goods(
        turn: ToolContext,
        category: str = "",
        brand: str = "",
        text: str = "",
        min_price: float | None = None,
        max_price: float | None = None,
        currency: str = "",
        attributes: dict[str, str] = {},  # noqa: B006 - never changed
        sort: Sort | None = None,
        limit: int = 5,
        among_previous: bool = False,
        position: int | None = None,
    ) -> ToolOutput:
        """Search the catalogue; every condition must hold. category: such as phones, books. text: other words, any
        language. currency: only if the user named one; prices are not converted. attributes: value or bound, such as
        {"color": "red", "memory": ">= 8 GB"}. sort: best first; value is for money. among_previous: only the goods
        shown last. position: one of the goods shown last, 1 is the first, -1 the last."""
        intent = QueryIntent(
            category=category,
            brand=brand,
            text=text,
            min_price=min_price,
            max_price=max_price,
            currency=currency,
            attributes=attributes,
            sort=sort,
            limit=limit,
            among_previous=among_previous,
            position=position,
        )
        return replace(await _search(shop, intent, turn), intent="goods")

    @offline(plan=lambda turn: _plan("orders", turn), render=render_orders)
    async def my_orders(turn: ToolContext, order: str = "", position: int | None = None) -> ToolOutput:
        """Orders of the user who asks, with status and delivery, and their complaint cases. order: number or its end.
        position: one of the orders shown last."""
        found = await _show_orders(shop, QueryIntent(order=order, position=position), turn, complaint=False)
        return replace(found, intent="orders")

    @offline(plan=lambda turn: _plan("complaint", turn), render=render_orders)
    async def open_case(turn: ToolContext, order: str = "", position: int | None = None) -> ToolOutput:
        """Open a complaint case of the user, about one order if named; an open one is shown, not doubled."""
        found = await _show_orders(shop, QueryIntent(order=order, position=position), turn, complaint=True)
        return replace(found, intent="complaint")

    return (make_tool(search_goods), make_tool(my_orders), make_tool(open_case))


def _plan(topic: Topic, turn: ToolContext) -> JsonObject | None:
    """The arguments, if the words of the question are about that topic."""
    understood = interpret(turn.question, shown_in(turn.state))
    if understood is None or understood[0] != topic:
        return None
    plain: JsonObject = msgspec.to_builtins(understood[1])
    return plain


async def _search(shop: Shop, intent: QueryIntent, turn: ToolContext) -> ToolOutput:
    catalogue = await shop.catalogue(turn.scope)
    shown = shown_in(turn.state)
    among = shown.items if intent.among_previous else None
    if intent.position is not None:
        among = at_position(shown.items, intent.position)
    if among == ():
        return _output(GoodsSearchResult(query=intent, shown_before=len(shown.items)), goods=())
    found = catalogue.search(intent, among)
    answer = GoodsSearchResult(
        goods=tuple(make_card(item, turn.language) for item in found.items),
        found=found.total,
        query=intent,
        text_ignored=found.text_ignored,
        categories=() if found.items else catalogue.categories,
        currencies=() if found.items else catalogue.currencies,
    )
    # One of the goods shown leaves the list as it is: "the second one" still counts in it.
    picked = among is not None and len(found.items) == 1
    items = tuple(item.id for item in found.items) if found.items and not picked else shown.items
    return _output(answer, Shown(items=items) if found.items else None, goods=answer.goods)


async def _show_orders(shop: Shop, intent: QueryIntent, turn: ToolContext, *, complaint: bool) -> ToolOutput:
    """Orders and cases, or an open case about the one order that is meant.

    Without a user, and where others read along, the answer is the same for everyone and no model is asked.
    """
    if turn.scope.user is None or turn.scope.chat is not None:
        refusal = msgspec.to_builtins(
            OrdersAnswer(signed_in=turn.scope.user is not None, shared=turn.scope.chat is not None)
        )
        return ToolOutput(output=refusal, final_answer=render_orders(refusal, turn))
    shown = shown_in(turn.state)
    own = await shop.orders(turn.scope)
    orders = _select(own, intent, shown)
    named = bool(intent.order) or intent.position is not None
    opened = None
    # Several orders may end in the number named; the answer lists them, and the user says which one it is.
    if complaint and (not named or len(orders) == 1):
        opened = await shop.open_case(turn.scope, orders[0].id if named else None, turn.now.date())
    cases = await shop.cases(turn.scope)
    answer = OrdersAnswer(
        orders=tuple(make_order_card(order, turn.language) for order in orders[:_MAX_ORDERS_SHOWN]),
        cases=tuple(case for case in cases if not named or case.order in {order.id for order in orders}),
        more=max(len(orders) - _MAX_ORDERS_SHOWN, 0),
        named=named,
        opened=opened,
    )
    digests = tuple(map(_digest, orders[:_MAX_ORDERS_SHOWN]))
    if not digests or set(digests) <= set(shown.orders):
        digests = shown.orders
    return _output(answer, Shown(items=shown.items, orders=digests), orders=answer.orders, cases=answer.cases)


def _select(orders: tuple[Order, ...], intent: QueryIntent, shown: Shown) -> tuple[Order, ...]:
    """The orders that are meant: by number, by place in the orders shown last, or all."""
    if number := _bare(intent.order):
        whole = tuple(order for order in orders if _bare(order.id) == number)
        if whole or len(number) < _MIN_NUMBER_END:
            return whole
        return tuple(order for order in orders if _bare(order.id).endswith(number))
    if intent.position is not None:
        meant = at_position(shown.orders, intent.position)
        return tuple(order for order in orders if _digest(order) in meant)
    return orders


def _bare(number: str) -> str:
    return "".join(filter(str.isalnum, number)).casefold()


def _digest(order: Order) -> str:
    return blake2b(order.id.encode(), digest_size=6).hexdigest()


def _output(answer: Value, shown: Shown | None = None, **data: object) -> ToolOutput:
    output, plain, state = msgspec.json.decode(msgspec.json.encode((answer, data, shown or {})))
    return ToolOutput(output=output, data=plain, state=state)
