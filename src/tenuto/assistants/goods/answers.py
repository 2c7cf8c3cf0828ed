"""What the tools answer: values for models and clients, and templates for both languages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from types import MappingProxyType
from typing import Any, Final, TypeVar

import msgspec

from tenuto.assistants.goods.intent import QueryIntent
from tenuto.assistants.goods.item import Case, CaseStatus, Item, Order, OrderStatus, in_language
from tenuto.assistants.goods.words import ATTRIBUTES, value_in_chinese
from tenuto.model.generation import ToolContext
from tenuto.model.prompt import Language
from tenuto.model.values import Json, Value

_T = TypeVar("_T")


class Card(Value, frozen=True, kw_only=True, omit_defaults=False):
    """An item with its name in the language of the question."""

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


class OrderCard(Value, frozen=True, kw_only=True):
    """An order with the name of its item in the language of the question."""

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


class GoodsSearchResult(Value, frozen=True, kw_only=True, omit_defaults=False):
    """The result of `search_goods`, written out whole: a model that reads `"found": 0` invents less.

    `text_ignored`: no item matches the text, so that these meet the other conditions only. `shown_before` is how many
    goods were shown before, where the question points at one of them that does not exist. `categories` and
    `currencies` tell what the shop has where nothing was found.
    """

    goods: tuple[Card, ...] = ()
    found: int = 0
    query: QueryIntent = QueryIntent()
    text_ignored: bool = False
    shown_before: int | None = None
    categories: tuple[str, ...] = ()
    currencies: tuple[str, ...] = ()


class OrdersAnswer(Value, frozen=True, kw_only=True, omit_defaults=False):
    """The result of `my_orders` and `open_case`; `shared` says that others in this chat would read the answer.

    `opened` is the case about which the user complains, new or not. `named` says that one order was asked for.
    """

    orders: tuple[OrderCard, ...] = ()
    cases: tuple[Case, ...] = ()
    more: int = 0
    named: bool = False
    opened: Case | None = None
    signed_in: bool = True
    shared: bool = False


_ENGLISH: Final[Mapping[str, str]] = MappingProxyType(
    {
        "found": "I found {count}; here are the first {shown}{sorted}:",
        "all": "I found {count}{sorted}:",
        "one": "{name}: {price}, rated {rating:g}, {sales:,} sold, {stock}.",
        "row": "{name}{color}: {price}, rated {rating:g}, {sales:,} sold{sold_out}",
        "best": "Of these {count}, {sort}: ",
        "stock": "{stock} in stock",
        "sold_out": "sold out",
        "hint": "Ask for the best value among them, or about any of them by its number.",
        "text_ignored": "No item matches every word of the question; these match the rest.\n",
        "nothing": "I found nothing like that in the catalogue.",
        "categories": " Available: {names}.",
        "currencies": " Prices here are in {names}; I do not convert currencies.",
        "nothing_shown": "I have not shown you any goods yet. What are you looking for?",
        "too_far": "The list shown last has {count} entries.",
        "gone": "I could not find that one in the catalogue.",
        "unreadable": "I could not read the shop's answer.",
        "shared": "Other people read this chat, so orders are not shown here. Please ask in a private conversation.",
        "sign_in": "To see your orders I need to know who you are: please sign in and ask again.",
        "no_orders": "You have no orders here yet.",
        "no_such_order": "None of your orders has that number.",
        "orders": "Your orders, latest first:",
        "order": "{id} ({day}): {name}{times}, {price}; {status}{expected}{tracking}.",
        "times": ", {count} pieces",
        "expected": "; expected on {day}",
        "tracking": "; tracking number {number}",
        "more_orders": "There are {count} older ones.",
        "opened": "I am sorry that something went wrong. ",
        "case": "Complaint case {id}{about}, opened on {day}: {status}.",
        "about": " about order {order}",
    }
    | {"price": "cheapest first", "price_desc": "most expensive first", "rating": "best rated first"}
    | {"sales": "best selling first", "value": "best value first"}
    | {"best_price": "the cheapest", "best_price_desc": "the most expensive", "best_rating": "the best rated"}
    | {"best_sales": "the best selling", "best_value": "the best value"}
    | {OrderStatus.PAID: "paid, not sent yet", OrderStatus.SHIPPED: "on its way", OrderStatus.DELIVERED: "delivered"}
    | {OrderStatus.CANCELLED: "cancelled", OrderStatus.REFUNDING: "refund under way"}
    | {OrderStatus.RETURNED: "returned", CaseStatus.OPEN: "open", CaseStatus.CLOSED: "closed"}
)
_CHINESE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "found": "找到 {count} 款，这里是前 {shown} 款{sorted}：",
        "all": "找到 {count} 款{sorted}：",
        "one": "{name}：{price}，评分 {rating:g}，已售 {sales:,} 件，{stock}。",
        "row": "{name}{color}：{price}，评分 {rating:g}，已售 {sales:,} 件{sold_out}",
        "best": "这 {count} 款中{sort}：",
        "stock": "库存 {stock} 件",
        "sold_out": "暂时缺货",
        "hint": "可以接着问其中性价比最高的，或者按序号问某一款。",
        "text_ignored": "没有商品符合问题里的每个词，以下商品符合其余条件。\n",
        "nothing": "没有找到这样的商品。",
        "categories": "店里有：{names}。",
        "currencies": "这里的价格以 {names} 计，不做换算。",
        "nothing_shown": "还没有给您展示过商品。您想找什么？",
        "too_far": "上一次展示的列表只有 {count} 项。",
        "gone": "目录里找不到这一款。",
        "unreadable": "商店的查询结果无法读取。",
        "shared": "这个聊天里还有其他人能看到回复，所以这里不显示订单。请在单独的对话里问我。",
        "sign_in": "查询订单需要先确认您的身份：请登录后再问我。",
        "no_orders": "您在这里还没有订单。",
        "no_such_order": "您的订单里没有这个订单号。",
        "orders": "您的订单（最近的在前）：",
        "order": "{id}（{day}）：{name}{times}，{price}；{status}{expected}{tracking}。",
        "times": " × {count}",
        "expected": "；预计 {day} 送达",
        "tracking": "；物流单号 {number}",
        "more_orders": "另外还有 {count} 个更早的订单。",
        "opened": "很抱歉给您带来了不好的体验。",
        "case": "投诉工单 {id}{about}，{day} 建立：{status}。",
        "about": "（订单 {order}）",
    }
    | {"price": "价格从低到高", "price_desc": "价格从高到低", "rating": "评分从高到低", "sales": "销量从高到低"}
    | {"value": "性价比从高到低", "best_price": "最便宜的", "best_price_desc": "最贵的", "best_rating": "评分最高的"}
    | {"best_sales": "销量最高的", "best_value": "性价比最高的"}
    | {OrderStatus.PAID: "已付款，待发货", OrderStatus.SHIPPED: "运输中", OrderStatus.DELIVERED: "已签收"}
    | {OrderStatus.CANCELLED: "已取消", OrderStatus.REFUNDING: "退款处理中", OrderStatus.RETURNED: "已退货"}
    | {CaseStatus.OPEN: "处理中", CaseStatus.CLOSED: "已结束"}
)
_SIGNS: Final = {"CNY": "¥", "USD": "$", "EUR": "€", "GBP": "£"}


def make_card(item: Item, language: Language) -> Card:
    """The item as shown."""
    names = {
        "name": in_language(language, item.name, item.name_zh),
        "brand": in_language(language, item.brand, item.brand_zh),
    }
    attributes = item.attributes
    if language is Language.CHINESE:
        attributes = {name: value_in_chinese(value) for name, value in attributes.items()}
    return msgspec.convert(msgspec.structs.asdict(item) | names | {"attributes": attributes}, Card)


def make_order_card(order: Order, language: Language) -> OrderCard:
    """The order as shown."""
    names = {"name": in_language(language, order.name, order.name_zh)}
    return msgspec.convert(msgspec.structs.asdict(order) | names, OrderCard)


def render_goods(output: Json, turn: ToolContext) -> str:
    """A list of goods, one item, or that there is none; empty for a mere text that matches nothing.

    An empty answer lets the offline model answer by itself: the question was none to the shop.
    """
    return _render(output, GoodsSearchResult, turn, _goods)


def render_orders(output: Json, turn: ToolContext) -> str:
    """The orders and cases of the user, or why they are not shown."""
    return _render(output, OrdersAnswer, turn, _orders)


class _Speaker:
    """The templates of one language."""

    def __init__(self, language: Language) -> None:
        self.chinese = language is Language.CHINESE
        self.comma = "，" if self.chinese else ", "
        self._templates: Mapping[str, str] = _CHINESE if self.chinese else _ENGLISH

    def say(self, template: str, **facts: Any) -> str:
        return self._templates[template].format(**facts)

    def money(self, amount: float, currency: str) -> str:
        figure = f"{amount:,.0f}" if amount == int(amount) else f"{amount:,.2f}"
        if self.chinese and currency == "CNY":
            return f"{figure} 元"
        return f"{_SIGNS[currency]}{figure}" if currency in _SIGNS else f"{figure} {currency}"


def _render(output: Json, kind: type[_T], turn: ToolContext, template: Callable[[_T, _Speaker], str]) -> str:
    speaker = _Speaker(turn.language)
    try:
        answer = msgspec.convert(output, kind)
    except msgspec.ValidationError:
        return speaker.say("unreadable")
    return template(answer, speaker)


def _goods(answer: GoodsSearchResult, speaker: _Speaker) -> str:
    query, goods = answer.query, answer.goods
    if answer.shown_before is not None:
        return (
            speaker.say("too_far", count=answer.shown_before) if answer.shown_before else speaker.say("nothing_shown")
        )
    if not goods and query.position is not None:
        return speaker.say("gone")
    if not goods:
        return "" if query == QueryIntent(text=query.text) else _nothing(answer, speaker)
    note = speaker.say("text_ignored") if answer.text_ignored else ""
    if len(goods) == 1:
        chosen = answer.found > 1 and query.sort is not None
        best = speaker.say("best", count=answer.found, sort=speaker.say(f"best_{query.sort}")) if chosen else ""
        return f"{note}{best}{_one(goods[0], speaker)}"
    sorted_by = f"{speaker.comma}{speaker.say(query.sort)}" if query.sort else ""
    heading = "found" if len(goods) < answer.found else "all"
    heading = speaker.say(heading, count=answer.found, shown=len(goods), sorted=sorted_by)
    return f"{note}{heading}\n{_numbered([_row(good, speaker) for good in goods])}\n\n{speaker.say('hint')}"


def _nothing(answer: GoodsSearchResult, speaker: _Speaker) -> str:
    named = bool(answer.query.currency and answer.currencies)
    more = ("currencies", answer.currencies) if named else ("categories", answer.categories)
    separator = "、" if speaker.chinese else ", "
    return speaker.say("nothing") + (speaker.say(more[0], names=separator.join(more[1])) if more[1] else "")


def _row(good: Card, speaker: _Speaker) -> str:
    color = good.attributes.get("color", "")
    shown = (f"（{color}）" if speaker.chinese else f" ({color})") if color else ""
    return speaker.say(
        "row",
        name=good.name,
        color=shown,
        price=speaker.money(good.price, good.currency),
        rating=good.rating,
        sales=good.sales,
        sold_out="" if good.stock else f"{speaker.comma}{speaker.say('sold_out')}",
    )


def _one(good: Card, speaker: _Speaker) -> str:
    stock = speaker.say("stock", stock=good.stock) if good.stock else speaker.say("sold_out")
    price = speaker.money(good.price, good.currency)
    line = speaker.say("one", name=good.name, price=price, rating=good.rating, sales=good.sales, stock=stock)
    if not good.attributes:
        return line
    if speaker.chinese:
        facts = (f"{ATTRIBUTES.get(name, name)}：{fact}" for name, fact in good.attributes.items())
        return f"{line}{'；'.join(facts)}。"
    return f"{line} {'; '.join(f'{name}: {fact}' for name, fact in good.attributes.items())}."


def _orders(answer: OrdersAnswer, speaker: _Speaker) -> str:
    if answer.shared or not answer.signed_in:
        return speaker.say("shared" if answer.shared else "sign_in")
    if answer.opened is not None:
        return speaker.say("opened") + _case(answer.opened, speaker)
    if not answer.orders:
        lines = [speaker.say("no_such_order" if answer.named else "no_orders")]
    elif len(answer.orders) == 1:
        lines = [_order(answer.orders[0], speaker)]
    else:
        lines = [speaker.say("orders"), _numbered([_order(order, speaker) for order in answer.orders])]
    if answer.more:
        lines.append(speaker.say("more_orders", count=answer.more))
    return "\n".join([*lines, *(_case(case, speaker) for case in answer.cases)])


def _order(order: OrderCard, speaker: _Speaker) -> str:
    delivered = order.status is OrderStatus.DELIVERED and order.delivered_on
    shipped = order.status is OrderStatus.SHIPPED
    return speaker.say(
        "order",
        id=order.id,
        day=order.ordered_on,
        name=order.name,
        times=speaker.say("times", count=order.quantity) if order.quantity > 1 else "",
        price=speaker.money(order.total, order.currency),
        status=f"{speaker.say(order.status)} {order.delivered_on}" if delivered else speaker.say(order.status),
        expected=speaker.say("expected", day=order.expected_on) if order.expected_on else "",
        tracking=speaker.say("tracking", number=order.tracking) if order.tracking and shipped else "",
    )


def _case(case: Case, speaker: _Speaker) -> str:
    about = speaker.say("about", order=case.order) if case.order else ""
    return speaker.say("case", id=case.id, about=about, day=case.opened_on, status=speaker.say(case.status))


def _numbered(lines: Sequence[str]) -> str:
    return "\n".join(f"{place}. {line}" for place, line in enumerate(lines, 1))
