"""The shop's answers in Chinese."""

from __future__ import annotations

from datetime import date
from typing import Final

from tenuto.assistants.goods.cards import Card, DetailsAnswer, OrderCard, OrdersAnswer, SearchAnswer
from tenuto.assistants.goods.intent import QueryIntent
from tenuto.assistants.goods.item import OrderStatus
from tenuto.assistants.goods.words import ATTRIBUTES, CATEGORIES, COLORS, MATERIALS, UNIT_NAMES, category_name
from tenuto.model.prompt import Language

SIGN_IN: Final = "查询订单需要先确认您的身份：请登录后再问我。"
NOT_HERE: Final = "这个聊天里还有其他人能看到回复，所以这里不显示订单。请在单独的对话里问我。"
_ORDERED: Final = {
    "price": "价格从低到高",
    "price_desc": "价格从高到低",
    "rating": "评分从高到低",
    "sales": "销量从高到低",
    "value": "性价比从高到低",
    None: "",
}
_MOST: Final = {
    "price": "最便宜",
    "price_desc": "最贵",
    "rating": "评分最高",
    "sales": "销量最高",
    "value": "性价比最高",
    None: "最合适",
}
_RANKED: Final = {
    "price": "第{}便宜",
    "price_desc": "第{}贵",
    "rating": "评分第{}高",
    "sales": "销量第{}高",
    "value": "性价比第{}高",
    None: "第{}合适",
}
_DIGITS: Final = "零一二三四五六七八九十"
_LET_GO: Final = {
    "price": "这个价位没有",
    "attributes": "没有完全符合这一点的",
    "terms": "没有全部符合的",
    "brand": "这个品牌没有",
    "rating": "没有达到这个评分的",
    "stock": "目前没有现货",
    "without": "去掉之后就没有了",
}
_STATUS: Final = {
    OrderStatus.PAID: "已付款，待发货",
    OrderStatus.SHIPPED: "运输中",
    OrderStatus.DELIVERED: "已签收",
    OrderStatus.CANCELLED: "已取消",
    OrderStatus.REFUNDING: "退款处理中",
    OrderStatus.RETURNED: "已退货",
}
_SORRY: Final = "很抱歉给您带来了不好的体验。"
_NEXT: Final = "\n我不能直接受理投诉：请把订单号提供给人工客服处理。"


def money(amount: float, currency: str = "CNY") -> str:
    """A price as people write it."""
    figure = f"{amount:,.0f}" if amount == int(amount) else f"{amount:,.2f}"
    return f"{figure} 元" if currency == "CNY" else f"{figure} {currency}"


def tell_search(answer: SearchAnswer) -> str:
    """What a search brought."""
    if answer.nothing_shown_before:
        return "我还没有给您看过商品。您想找什么？"
    if not answer.goods:
        return _nothing(answer)
    if answer.near:
        return f"{_missing(answer)}比较接近的有：\n{_list(answer.goods)}"
    if len(answer.goods) == 1 and (answer.query.limit == 1 or answer.found == 1):
        return _single(answer)
    return f"{_heading(answer)}\n{_list(answer.goods)}\n可以接着问“其中性价比最高的是哪个”，或者“第二个怎么样”。"


def _wanted(query: QueryIntent) -> str:
    """What was asked for, in words: 2,000 元以内的红色光诺手机."""
    noun = category_name(query.category, Language.CHINESE) if query.category else "商品"
    words = []
    if query.min_price is not None and query.max_price is not None:
        words.append(f"{money(query.min_price)}到{money(query.max_price)}")
    elif query.max_price is not None:
        words.append(f"{money(query.max_price)}以内")
    elif query.min_price is not None:
        words.append(f"{money(query.min_price)}以上")
    if query.below is not None:
        words.append(f"比 {money(query.below)}便宜")
    if query.above is not None:
        words.append(f"比 {money(query.above)}贵")
    if query.min_rating is not None:
        words.append(f"评分 {query.min_rating:g} 以上")
    if query.in_stock:
        words.append("有现货")
    words += [COLORS.get(value, value) for value in query.attributes.values()]
    if query.terms:
        words.append(f"“{' '.join(query.terms)}”")
    head = "、".join(words)
    brand = f"{query.brand} " if query.brand else ""
    text = f"{head}的{brand}{noun}" if head else f"{brand}{noun}"
    return f" {text}" if text[0].isascii() else text


def _measure(query: QueryIntent) -> str:
    known = CATEGORIES.get(query.category or "")
    return known.measure if known else "款"


def _nothing(answer: SearchAnswer) -> str:
    if answer.query.beyond:
        return "符合条件的都已经给您看过了。要不要换个条件，或者换个价位？"
    if answer.found:
        return f"一共只有 {answer.found} {_measure(answer.query)}。"
    if answer.unknown:
        return f"商品目录里没有找到和“{' '.join(answer.unknown)}”有关的商品。换个说法试试？"
    return f"没有找到{_wanted(answer.query)}。"


def _missing(answer: SearchAnswer) -> str:
    if answer.near == "among":
        return "刚才看过的里面没有符合的。"
    return f"没有找到{_wanted(answer.query)}：{_LET_GO[answer.near or 'terms']}。"


def _heading(answer: SearchAnswer) -> str:
    query, shown = answer.query, len(answer.goods)
    order = f"，{_ORDERED[query.sort]}" if query.sort else ""
    unknown = f"（没有和“{' '.join(answer.unknown)}”有关的信息）" if answer.unknown else ""
    if query.among:
        return f"其中有 {answer.found} {_measure(query)}符合{unknown}{order}："
    if answer.categories:
        kinds = "、".join(category_name(slug, Language.CHINESE) for slug in answer.categories)
        return f"我们有 {answer.found} 款商品：{kinds}。这里是 {shown} 款{order}："
    more = f"，这里是前 {shown} {_measure(query)}" if shown < answer.found else ""
    return f"找到 {answer.found} {_measure(query)}{_wanted(query)}{unknown}{order}{more}："


def _list(goods: tuple[Card, ...]) -> str:
    return "\n".join(f"{place}. {_line(good)}" for place, good in enumerate(goods, 1))


def _line(good: Card) -> str:
    color = good.attributes.get("color", "")
    shown = f"（{COLORS.get(color, color)}）" if color else ""
    sold_out = "，暂时缺货" if good.stock == 0 else ""
    price = money(good.price, good.currency)
    return f"{good.name}{shown}：{price}，评分 {good.rating:g}，已售 {good.sales:,} 件{sold_out}"


def _single(answer: SearchAnswer) -> str:
    good, query = answer.goods[0], answer.query
    if answer.found == 1:
        return f"符合的有一款：{_line(good)}。"
    most = _MOST[query.sort] if query.rank == 1 else _RANKED[query.sort].format(_DIGITS[min(query.rank, 10)])
    among = (
        f"这 {answer.found} {_measure(query)}里"
        if query.among
        else f"{answer.found} {_measure(query)}{_wanted(query)}中"
    )
    return f"{among}{most}的是{_line(good)}。{_why(answer, good)}"


def _why(answer: SearchAnswer, good: Card) -> str:
    average = money(round(answer.average_price), good.currency)
    if answer.query.sort == "value":
        price = _against(good.price, answer.average_price)
        return f"理由：评分 {good.rating:g}，平均是 {answer.average_rating:.1f}；价格{price}（平均 {average}）。"
    return f"它们的平均价格是 {average}，平均评分 {answer.average_rating:.1f}。"


def _against(price: float, average: float) -> str:
    share = round(100 * (price - average) / average) if average else 0
    return "与平均价持平" if share == 0 else f"比平均价{'高' if share > 0 else '低'} {abs(share)}%"


def tell_details(answer: DetailsAnswer) -> str:
    """About one item, or several side by side."""
    if answer.nothing_shown_before:
        return "我还没有给您列过商品。您想找什么？"
    if answer.which:
        return f"有几款都符合，您指的是哪一款？\n{_list(answer.which)}"
    if answer.list_length is not None:
        return f"刚才的列表里有 {answer.list_length} 款。您指的是哪一款？"
    if not answer.goods:
        return "商品目录里没有找到这一款。请告诉我它的名称，或者它在列表里的序号。"
    if len(answer.goods) > 1:
        return _comparison(answer)
    return f"{_point(answer.goods[0], answer)}{_portrait(answer.goods[0])}"


def _point(good: Card, answer: DetailsAnswer) -> str:
    """The very thing that was asked, first."""
    match answer.about:
        case None:
            return ""
        case "price":
            return f"价格是 {money(good.price, good.currency)}。"
        case "stock":
            return f"有现货，库存 {good.stock} 件。" if good.stock else "目前暂时缺货。"
        case "rating":
            return f"评分 {good.rating:g}（满分 5）。"
        case "sales":
            return f"已售 {good.sales:,} 件。"
        case about if about in good.attributes:
            return f"{ATTRIBUTES.get(about, about)}：{_value(good.attributes[about])}。"
        case about if answer.fact:
            return f"是的，它标注了“{about}”。"
        case about:
            return f"资料里没有注明“{ATTRIBUTES.get(about, about)}”。"


def _value(value: str) -> str:
    amount, _, unit = value.rpartition(" ")
    if amount and unit in UNIT_NAMES:
        return f"{amount} {UNIT_NAMES[unit]}"
    return COLORS.get(value) or MATERIALS.get(value, value)


def _portrait(good: Card) -> str:
    stock = f"库存 {good.stock} 件" if good.stock else "暂时缺货"
    facts = "；".join(f"{ATTRIBUTES.get(name, name)}：{_value(value)}" for name, value in good.attributes.items())
    about = f"{facts}。" if facts else ""
    price = money(good.price, good.currency)
    return f"{good.name}，{price}，评分 {good.rating:g}，已售 {good.sales:,} 件，{stock}。{about}"


def _comparison(answer: DetailsAnswer) -> str:
    lines = [f"{place}. {_portrait(good)}" for place, good in enumerate(answer.goods, 1)]
    cheap = min(answer.goods, key=lambda good: good.price)
    liked = max(answer.goods, key=lambda good: good.rating)
    verdict = [f"价格最低：{cheap.name}", f"评分最高：{liked.name}"]
    best = next((good.name for good in answer.goods if good.id == answer.best_value), None)
    if best:
        verdict.append(f"性价比最高：{best}")
    return "\n".join([*lines, "；".join(verdict) + "。"])


def tell_orders(answer: OrdersAnswer) -> str:
    """About the asker's own orders."""
    if answer.shared:
        return NOT_HERE
    sorry = _SORRY if answer.complaint else ""
    if not answer.signed_in:
        return f"{sorry}{SIGN_IN}"
    if not answer.orders:
        return sorry + ("您的订单里没有这个订单号。" if answer.asked_for else "您在这里还没有订单。")
    if len(answer.orders) == 1:
        text = f"您的订单 {_order(answer.orders[0])}"
    else:
        text = "\n".join(["您的订单（最近的在前）：", *(f"- {_order(order)}" for order in answer.orders)])
    more = f"\n另外还有 {answer.more} 个更早的订单。" if answer.more else ""
    return f"{sorry}{text}{more}{_NEXT if answer.complaint else ''}"


def _order(order: OrderCard) -> str:
    times = f" × {order.quantity}" if order.quantity > 1 else ""
    parts = [f"{order.id}（{_day(order.ordered_on)}）：{order.name}{times}，{money(order.total, order.currency)}"]
    received = f"{_day(order.delivered_on)}" if order.status is OrderStatus.DELIVERED and order.delivered_on else ""
    parts.append(f"{received}{_STATUS[order.status]}")
    if order.expected_on:
        parts.append(f"预计{_day(order.expected_on)}送达")
    if order.tracking and order.status is OrderStatus.SHIPPED:
        parts.append(f"物流单号 {order.tracking}")
    return "；".join(parts) + "。"


def _day(day: date) -> str:
    return f"{day.year}年{day.month}月{day.day}日"
