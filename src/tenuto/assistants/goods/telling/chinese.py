"""The shop's answers in Chinese."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Final

from tenuto.assistants.goods.intent import Claim, QueryIntent
from tenuto.assistants.goods.shop import OrderStatus
from tenuto.assistants.goods.telling.cards import (
    BrandCard,
    Card,
    CourtesyAnswer,
    OrderCard,
    OrdersAnswer,
    SearchAnswer,
)
from tenuto.assistants.goods.telling.voice import Sentences, against
from tenuto.assistants.goods.telling.wishes_chinese import FACTS, bounds, money, phrase_of, value_of, wanted
from tenuto.assistants.goods.words import ATTRIBUTES, CATEGORIES, COLORS, category_name
from tenuto.model.prompt import Language

SENTENCES: Final = Sentences(
    no_goods_shown="我还没有给您看过商品。您想找什么？",
    no_list_shown="我还没有给您列过商品。您想找什么？",
    not_found="商品目录里没有找到这一款。请告诉我它的名称，或者它在列表里的序号。",
    which="有几款都符合，您指的是哪一款？",
    hint="可以接着问“其中性价比最高的是哪个”，或者“第二个怎么样”。",
    cannot_buy="我不能在这里下单：我只能帮您找商品、介绍商品。",
    cannot_sum="我不做计算：这里给出的是商品目录里单件的价格。",
    sign_in="查询订单需要先确认您的身份：请登录后再问我。登录后会开始新的对话，这里看过的商品不会带过去。",
    not_here="这个聊天里还有其他人能看到回复，所以这里不显示订单。请在单独的对话里问我。",
    orders="您的订单（最近的在前）：",
    sorry="很抱歉给您带来了不好的体验。",
    no_complaints="我不能直接受理投诉：请把订单号提供给人工客服处理。",
    hello="您好！",
    welcome="不客气。还想找点什么吗？",
    bye="再见！",
    no_policies="我只了解店里的商品和您本人的订单。配送、付款、优惠、退换货和保修方面的规定，请咨询人工客服。",
    no_such_order="您的订单里没有这样的。",
    others_orders="我只能看到提问者本人的订单，看不到别人的，需要由下单的人自己来问。",
    nothing_wanted="好的。想找什么的时候，随时问我。",
    unclear="这句话我没有听懂。我只知道商品目录里注明的内容：价格、库存、评分、销量和各项参数。可以按序号问其中一款，或者告诉我要找什么样的商品。",
    about="我是这家商店的导购助手，根据商品目录和您本人的订单来回答。",
)
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
    "either": "这几种都没有",
    "amounts": "没有达到这个数值的",
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
# What goods have most and least of: what is measured, and the two ends of it.
_AMOUNTS: Final = {
    "battery": ("长", "短"),
    "weight": ("重", "轻"),
    "pages": ("多", "少"),
    "length": ("长", "短"),
    "power": ("高", "低"),
    "released": ("晚", "早"),
    "rating": ("高", "低"),
    "sales": ("高", "低"),
    "stock": ("多", "少"),
}
_MONEY: Final = {"CNY": "人民币（元）", "$": "美元", "USD": "美元", "EUR": "欧元", "GBP": "英镑", "JPY": "日元",
                 "HKD": "港元", "¥": "¥"}  # fmt: skip
CLAIMS: Final[Mapping[Claim, str]] = {
    "yes": "是的：",
    "no": "不是：",
    "same": "不是，两者相同：",
    "unnoted": "商品目录里没有都注明这一项，所以没法判断：",
}
_CANNOT: Final = {"cancel": "取消", "change": "修改"}


def cut(length: int) -> str:
    """That only so many characters of the question were read."""
    return f"这段话我只读了前 {length} 个字。"


def foreign_money(answer: SearchAnswer) -> str:
    """That prices in another currency were left out, and which one the shop has."""
    own, named = _MONEY.get(answer.currency, answer.currency), answer.foreign or ""
    return f"我们的价格以{own}计，我不换算{_MONEY.get(named, named)}，所以没有按这个价格筛选。"


def can(answer: CourtesyAnswer) -> str:
    """What can be asked here, by examples."""
    kinds = "、".join(category_name(slug, Language.CHINESE) for slug in answer.categories[:4])
    sold = f"我们有{kinds}{'等' if len(answer.categories) > 4 else ''}。" if kinds else ""
    return (
        f"我可以帮您找商品、比较商品，也可以查询您的订单。{sold}"
        "比如：“2000以下的手机”“内存不少于32GB的笔记本”“其中性价比最高的是哪个”“我的订单到哪了”。"
    )


def uncompared(answer: SearchAnswer) -> str:
    """That bounds were left out, since the catalogue notes nothing that compares with them."""
    noun = category_name(answer.query.category, Language.CHINESE) if answer.query.category else "这些商品"
    said = bounds(answer.uncompared)
    return f"商品目录里没有注明{noun}可以和“{said}”比较的数据，所以没有按这一条筛选。"


def unread(answer: SearchAnswer) -> str:
    """That words of the question were left out, since the catalogue does not know them."""
    return f"商品目录里没有和“{' '.join(answer.unknown)}”有关的信息，所以没有按这一点筛选。"


def unnoted(answer: SearchAnswer) -> str:
    """That the catalogue does not tell what should decide."""
    noun = "这些商品" if answer.query.among else wanted(answer).strip()
    what = FACTS.get(answer.unnoted or "", answer.unnoted or "这一项")
    comparable = "" if answer.unnoted == "released" else "可以比较的"
    return f"商品目录里没有注明{noun}的{comparable}{what}，所以没法这样排序。"


def _measure(query: QueryIntent) -> str:
    known = CATEGORIES.get(query.category or "")
    return known.measure if known else "款"


def nothing(answer: SearchAnswer) -> str:
    """That there are no such goods."""
    if answer.query.beyond:
        return "符合条件的都已经给您看过了。要不要换个条件，或者换个价位？"
    if answer.found:
        return f"一共只有 {answer.found} {_measure(answer.query)}。"
    if answer.unknown and answer.query.among:
        return f"商品目录里没有注明“{' '.join(answer.unknown)}”，所以没法判断。"
    if answer.unknown:
        return f"商品目录里没有找到和“{' '.join(answer.unknown)}”有关的商品。换个说法试试？"
    return f"没有找到{wanted(answer)}。"


def nearest(answer: SearchAnswer) -> str:
    """That there are no such goods, but others."""
    return f"{_missing(answer)}比较接近的有："


def _missing(answer: SearchAnswer) -> str:
    if answer.query.among:
        asked = _conditions(answer)
        return f"刚才看过的里面没有符合的{f'（{asked}）' if asked else ''}。"
    return f"没有找到{wanted(answer)}：{_let_go(answer)}。"


def _conditions(answer: SearchAnswer) -> str:
    """What those chosen from had to meet."""
    asked = [*map(value_of, answer.query.attributes.values()), *answer.query.terms]
    return f"“{' '.join(asked)}”" if asked else ""


def _let_go(answer: SearchAnswer) -> str:
    """The condition that nothing met, by what it was."""
    gone = answer.let_go
    unwanted = "、".join(f"“{phrase_of(phrase)}”" for phrase in answer.query.without)
    if gone.without:
        return f"去掉{unwanted}之后就没有了"
    other = f"除{unwanted}以外" if unwanted else ""
    too = "同时" if len(gone.terms) < len(answer.query.terms) else ""
    parts = [
        "、".join(map(value_of, gone.attributes.values())),
        "或".join(map(value_of, gone.either[0])) if gone.either else "",
        f"{too}符合“{' '.join(gone.terms)}”" if gone.terms else "",
        bounds(gone.amounts),
        "这个价位" if gone.terms and (gone.min_price is not None or gone.max_price is not None) else "",
    ]
    missing = "、".join(filter(None, parts))
    return other + (f"没有{missing}的" if missing else _LET_GO[answer.near or "terms"])


def heading(answer: SearchAnswer) -> str:
    """What the list is of."""
    query, shown = answer.query, len(answer.goods)
    ordered = _by(answer) if answer.by else _ORDERED.get(query.sort, "")
    order = f"，{ordered}" if ordered else ""
    unknown = f"（没有和“{' '.join(answer.unknown)}”有关的信息）" if answer.unknown else ""
    if query.among:
        return f"这 {len(query.among)} 款中有 {answer.found} {_measure(query)}符合{unknown}{order}："
    if answer.categories:
        kinds = "、".join(category_name(slug, Language.CHINESE) for slug in answer.categories)
        return f"我们有 {answer.found} 款商品：{kinds}。这里是 {shown} 款{order}："
    more = f"，这里是前 {shown} {_measure(query)}" if shown < answer.found else ""
    return f"找到 {answer.found} {_measure(query)}{wanted(answer)}{unknown}{order}{more}："


def of_brands(answer: SearchAnswer) -> str:
    """Of how many brands the goods are."""
    count = len(answer.brands) + answer.more_brands
    shown = f"，这里是前 {len(answer.brands)} 个" if answer.more_brands else ""
    return f"{wanted(answer).strip()}共 {answer.found} {_measure(answer.query)}，有 {count} 个品牌{shown}："


def brand_line(brand: BrandCard) -> str:
    """A brand in a list."""
    low, high = money(brand.lowest, brand.currency), money(brand.highest, brand.currency)
    price = low if brand.lowest == brand.highest else f"{low}到 {high}"
    return f"- {brand.name}：{brand.goods} 款，{price}，平均评分 {brand.rating:g}"


def line(good: Card, by: str | None = None) -> str:
    """An item in a list, with what it was chosen by."""
    color = good.attributes.get("color", "")
    shown = f"（{COLORS.get(color, color)}）" if color else ""
    sold_out = "，暂时缺货" if good.stock == 0 else ""
    fact = f"，{FACTS.get(by, by)} {value_of(good.attributes[by])}" if by in good.attributes else ""
    price = money(good.price, good.currency)
    return f"{good.name}{shown}：{price}{fact}，评分 {good.rating:g}，已售 {good.sales:,} 件{sold_out}"


def _ends(answer: SearchAnswer) -> tuple[str, str]:
    """The end that was asked for, and the other one."""
    most, least = _AMOUNTS.get(answer.by or "", ("大", "小"))
    return (least, most) if answer.query.sort == "least" else (most, least)


def _by(answer: SearchAnswer) -> str:
    first, last = _ends(answer)
    return f"{FACTS.get(answer.by or '', answer.by)}从{first}到{last}"


def _most(answer: SearchAnswer) -> str:
    query = answer.query
    ranked = "最" if query.rank == 1 else f"第{_DIGITS[min(query.rank, 10)]}"
    if answer.by:
        return f"{FACTS.get(answer.by, answer.by)}{ranked}{_ends(answer)[0]}"
    if query.rank == 1:
        return _MOST.get(query.sort, _MOST[None])
    return _RANKED.get(query.sort, _RANKED[None]).format(_DIGITS[min(query.rank, 10)])


def single(answer: SearchAnswer) -> str:
    """The one that was asked for, and why it is the one."""
    good, query = answer.goods[0], answer.query
    if answer.found == 1:
        found = (
            f"这 {len(query.among)} 款中符合{_conditions(answer)}的有一款"
            if query.among
            else f"找到一{_measure(query)}{wanted(answer)}"
        )
        return f"{found}：{line(good, answer.fact)}。{_asked_of(answer)}"
    among = (
        f"这 {answer.found} {_measure(query)}{_conditions(answer)}里"
        if query.among
        else f"{answer.found} {_measure(query)}{wanted(answer)}中"
    )
    return (
        f"{among}{_most(answer)}的是{line(good, answer.fact)}。{_asked_of(answer)}{_others(answer)}{_why(answer, good)}"
    )


def _asked_of(answer: SearchAnswer) -> str:
    """What else was asked of the one."""
    return point(answer.goods[0], answer.query.about) if answer.query.about else ""


def _others(answer: SearchAnswer) -> str:
    """Whoever has as much, and whoever would come before it if it were in stock."""
    tied = f"另有 {answer.tied} {_measure(answer.query)}的{_decides(answer)}与它相同。" if answer.tied else ""
    return tied + (f"（排在它前面的 {answer.ahead} {_measure(answer.query)}暂时缺货。）" if answer.ahead else "")


def _why(answer: SearchAnswer, good: Card) -> str:
    average = money(round(answer.average_price), good.currency)
    if answer.query.sort == "value":
        share = against(good.price, answer.average_price)
        price = "与平均价持平" if share == 0 else f"比平均价{'高' if share > 0 else '低'} {abs(share)}%"
        return f"理由：评分 {good.rating:g}，平均是 {answer.average_rating:.1f}；价格{price}（平均 {average}）。"
    return f"它们的平均价格是 {average}，平均评分 {answer.average_rating:.1f}。"


def too_far(length: int) -> str:
    """That the list is shorter than that."""
    return f"刚才的列表里有 {length} 款。您指的是哪一款？"


def point(good: Card, about: str | None, noted: bool | None = None) -> str:
    """The very thing that was asked, first."""
    match about:
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
        case _ if about in good.attributes:
            return f"{ATTRIBUTES.get(about, about)}：{value_of(good.attributes[about])}。"
        case _ if noted:
            return f"是的，它标注了“{about}”。"
        case _:
            return f"资料里没有注明“{ATTRIBUTES.get(about, about)}”。"


def portrait(good: Card) -> str:
    """Everything about an item."""
    stock = f"库存 {good.stock} 件" if good.stock else "暂时缺货"
    facts = "；".join(f"{ATTRIBUTES.get(name, name)}：{value_of(value)}" for name, value in good.attributes.items())
    about = f"{facts}。" if facts else ""
    price = money(good.price, good.currency)
    return f"{good.name}，{price}，评分 {good.rating:g}，已售 {good.sales:,} 件，{stock}。{about}"


def fact(good: Card, about: str, listed: bool = False) -> str:
    """An item in a list, with the one thing that was asked about all of them; or that it is listed with it."""
    facts = {
        "price": money(good.price, good.currency),
        "stock": f"库存 {good.stock} 件" if good.stock else "暂时缺货",
        "rating": f"评分 {good.rating:g}",
        "sales": f"已售 {good.sales:,} 件",
    }
    missing = f"标注了“{about}”" if listed else f"没有注明{FACTS.get(about, about)}"
    return f"{good.name}：{facts.get(about) or value_of(good.attributes.get(about, missing))}"


def too_many(shown: int, more: int) -> str:
    """That not all of them were looked at."""
    return f"一次最多看 {shown} 款，还有 {more} 款没有列入。"


def missing(names: Sequence[str]) -> str:
    """That nothing here has such a name."""
    return f"商品目录里没有找到{'、'.join(f'“{name}”' for name in names)}。\n"


def even(answer: SearchAnswer) -> str:
    """That none of them is ahead of the others."""
    which = "这" if answer.query.among else f"{wanted(answer).strip()}共"
    fitting = f"符合{_conditions(answer)}" if answer.query.among and _conditions(answer) else ""
    return f"{which} {answer.found} {_measure(answer.query)}{fitting}的{_decides(answer)}相同，不分先后。"


def verdict(cheapest: Sequence[Card], best_rated: Sequence[Card], best_value: Card | None, compared: int) -> str:
    """How so many compare; those that cost as little or are rated as high share the place."""
    price = f"价格相同，都是 {money(cheapest[0].price, cheapest[0].currency)}"
    rating = f"评分相同，都是 {best_rated[0].rating:g}"
    parts = [
        price if len(cheapest) == compared else f"价格最低：{_names(cheapest)}",
        rating if len(best_rated) == compared else f"评分最高：{_names(best_rated)}",
    ]
    return "；".join([*parts, *([f"性价比最高：{best_value.name}"] if best_value else [])]) + "。"


def _names(goods: Sequence[Card]) -> str:
    return "、".join(good.name for good in goods)


def _decides(answer: SearchAnswer) -> str:
    """What the goods were to be put in order by."""
    if answer.by is None and answer.query.sort in ("price", "price_desc"):
        return "价格"
    name = answer.by or answer.query.sort or ""
    return FACTS.get(name, name)


def no_orders(asked_for: bool) -> str:
    """That there are no orders, or none of that number."""
    return "您的订单里没有这个订单号。" if asked_for else "您在这里还没有订单。"


def too_few_orders(length: int) -> str:
    """That fewer orders were shown than that."""
    return f"刚才列出的订单有 {length} 个。您指的是哪一个？"


def one_order(order: OrderCard) -> str:
    """An order by itself."""
    return f"您的订单 {order_line(order)}"


def counted(count: int) -> str:
    """How many orders are as asked for."""
    return f"一共 {count} 个订单。"


def more_orders(count: int) -> str:
    """That there are more."""
    return f"另外还有 {count} 个更早的订单。"


def spent(total: float, currency: str) -> str:
    """What the orders cost together."""
    return f"合计 {money(total, currency)}（不含已取消和退回的）。"


def cannot(answer: OrdersAnswer) -> str:
    """That nothing here can do that to an order, and who can."""
    which = "订单号" if len(answer.orders) == 1 else "要处理的订单号"
    return f"我不能{_CANNOT[answer.cannot or 'change']}订单：请把{which}提供给人工客服处理。"


def order_line(order: OrderCard) -> str:
    """An order in a list."""
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
