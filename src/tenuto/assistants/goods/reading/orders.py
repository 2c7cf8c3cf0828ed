"""Which of the asker's own orders a question is about, and what is wanted of them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from tenuto.assistants.goods.intent import Change, OrderQuestion, Pick, QueryIntent, Talk
from tenuto.assistants.goods.reading.order_owners import is_somebody_elses, name_of_owner
from tenuto.assistants.goods.reading.order_things import asks_of_a_thing, thing_in, wants_to_give_back
from tenuto.assistants.goods.reading.order_wishes import (
    SPENT,
    asks_how_many,
    bounds_totals,
    is_complaint,
    month_in,
    period_in,
    pick_in,
    states_in,
    year_in,
)
from tenuto.assistants.goods.reading.pointing import PRONOUN, THEY, places_in
from tenuto.model.expression import expression

_OWN_ORDERS: Final = expression(
    r"\b(?:my|our|this|that) (?:[a-z]+ ){0,2}?"
    r"(?:orders?|packages?|parcels?|deliver(?:y|ies)|shipments?|purchases?|refunds?)\b"
    r"|\borders? (?:status|number|id|no\b|history|#)|\btrack(?:ing)? (?:my|the|number|order|package)"
    r"|\bwhere(?:'s| is| are) my\b"
    r"|\bwhen (?:will|does|is) (?:it|my [a-z ]{1,30}|they) (?:arriv|be delivered|com(?:e|ing)|ship)"
    r"|\b(?:has|have|did) my [a-z ]{1,30}(?:ship|arriv)|\bwhat (?:did|have) i (?:buy|bought|order)"
    # Orders that somebody has, not those that a shop takes: "free shipping on orders over 50".
    r"|(?<!take )(?<!takes )(?<!accept )(?<!bulk )(?<!large )(?<!for )(?<!on )(?<!your )(?<!place )\borders\b"
    r"|\b(?:have|did) i (?:ever |already )*"
    r"(?:buy|bought|ordered|order|purchased?|return(?:ed)?|cancell?(?:ed)?) any(?:thing)?\b"
    r"|\bhow many (?:packages|parcels|deliveries|purchases) (?:are|were|have|do|did)\b"
    r"|\b(?:thing|item)s? (?:that )?i(?:'ve| have)? (?:ever )?(?:bought|ordered)\b|\bwas i refunded\b"
    r"|订单|(?:我的?|查)(?:一下)?(?:快递|包裹|物流)|物流|(?:快递|包裹)(?:到|单号|还没|没|签收)|发货了?[吗没]"
    r"|什么时候(?:能)?(?:到货|发货|送到|到)|到哪[里儿]?了|签收了?[吗没]|退款(?:了[吗没]|到|进度|状态)|我的退款|我?买过几次|几[个笔张]?订?单(?![反车杠人])"
    r"|我(?:[^,，。]{0,6}?)买(?:了|过)(?:什么|哪些|啥)|[上哪这那最][^,，。]{0,3}一?单(?:$|[是在到发怎什呢吗最？?])|退货?的那?单"
    r"|(?:上个?[月周]|上个?星期|这个?[月周]|本[月周]|去年|今年|昨天|前天|\d月|月份?|上次|最近)我?都?(?:买|订)(?:了|过)(?:什么|啥|哪些|多少)"
)
# 256gb is how much a phone holds.
_ID: Final = (
    r"(?!\d+(?:gb|tb|mah|mm|cm|ml|kg|hz)(?![a-z0-9]))"
    r"(?:[a-z]{1,6}-?)?\d{3,24}(?:[a-z0-9-]{0,20}[a-z0-9])?(?![a-z0-9])"
)
# What looks like an order's number wherever it stands; shorter ones need a word of orders beside them.
_ORDER_ID: Final = expression(
    r"(?<![a-z0-9])([a-z]{1,4}-?\d{6,}[a-z0-9-]{0,20}|[a-z]{1,6}-\d{3,}[a-z0-9-]{0,20}|\d{8,24})(?![a-z0-9])"
)
_NO: Final = r"(?:\s*(?:no\b\.?|nr\b\.?|num(?:ber)?\b|id\b|is\b|:|#|ending (?:in|with)\b))*\s*"
_DONE: Final = (
    r"(?:ship|arriv|deliver|sent|dispatch|on (?:its|the) way|paid|cancel|com(?:e|ing)|gone|left|here|out(?! of\b))"
)
_NUMBERED: Final = (
    expression(
        # Whoever wants to order 100 of something names no order.
        rf"(?<!to )(?<!i )(?<!an )\border{_NO}(?P<id>{_ID})"
        rf"(?!\s+(?!(?:is|was|has|have|status|yet|now|please|been|again|already|to|and|but)\b|{_DONE})[a-z])"
    ),
    expression(
        rf"\b(?:has|have|did|is|was|will|does) (?:the )?(?:parcel |package |number |no\.? ?|# ?)?(?P<id>{_ID})"
        rf" (?:(?:been|be|already|yet|still) )*{_DONE}"
    ),
    expression(rf"\b(?:where(?:'s| is)|track|status of) (?:(?:parcel|package|number|no\.?) )?#?(?P<id>{_ID})"),
    expression(rf"(?<![下买菜简])单号?(?:码)?(?:是|为|:|：)?\s*#?(?P<id>{_ID})"),
    expression(rf"尾号(?:是|为)?\s*(?P<id>{_ID})"),
    expression(
        rf"(?<![a-z0-9.])(?P<id>{_ID})\s*号?(?:这|那|的)*[个]?"
        # 5000的单反 and 128G单卡 are goods.
        r"(?:订单|单(?=$|[\s,.!?，。！？到发在什怎呢吗的了还是已有])|发货|到哪|到了|送到|送达|签收|寄出|什么时候[到发送])"
    ),
)
_CANCEL: Final = expression(
    r"(?<!noise[ -])(?<!did i )(?<!i ever )\bcancel(?:lation)?\b|\b(?:don't|do not) want (?:it|this|that) any ?more"
    # What is or was cancelled asks for nothing: 取消的订单, 订单取消了吗.
    r"|(?:要|想|帮我|可以|能|怎么|如何|请)取消|(?<![已被经])取消(?![的了过没])|取消了吧|把[^,，。]{0,12}取消|撤单|退订|不想要了"
)
_CHANGE: Final = expression(
    r"\b(?:change|update|edit|modify|correct) (?:my|the|its?|this|that) (?:\w+ ){0,2}?(?:address|order|delivery)\b"
    r"|\b(?:deliver|ship|send) (?:it|them) (?:to (?:another|a different)|somewhere else)"
    r"|[改换](?:一下|下|个)?(?:收货|送货|配送)?地址|[修更]改(?:一下|下)?(?:我的|这个|第.{1,3}个)?(?:订单|收货|地址)"
)
_THAT_ORDER: Final = expression(r"\b(?:this|that) order\b|[这那](?:个订)?单")
_LATEST: Final = expression(r"\b(?:latest|newest|most recent)\b(?! orders)|最近(?:一|那)|最新")
_PICKED: Final[Mapping[str, Pick]] = MappingProxyType(
    {"price_desc": "dearest", "most": "dearest", "price": "cheapest", "least": "cheapest"}
)
_COST: Final = expression(
    r"which (?:one |of (?:them|those|these) )?(?:did )?(?:i pay|cost) (?:me )?the (most|least)(?: for)?\W*"
)
_ALL_ORDERS: Final = expression(
    r"\b(?:orders|my|our|all|i|any|anything|how many)\b|订单|我的|所有|全部|都|买|花|哪[个些单一几]|几[个单笔]"
)


def about_orders(text: str, asked: QueryIntent, talk: Talk) -> OrderQuestion | None:
    """The question about orders that a folded text is, if it is one."""
    places = _order_places(text, asked, talk)
    complaint, change = is_complaint(text) or wants_to_give_back(text), _change(text)
    if not (complaint or change or places or _asks_for_orders(text, asked, talk)):
        return None
    question = _of_somebody_else(text) or _of_number(text) or _dearest_shown(text, asked, talk)
    if question is None:
        wish = _wish(text, asked, talk, standing=not (complaint or change))
        question = replace(wish, places=() if wish != OrderQuestion() else places, spent=SPENT.search(text) is not None)
    return replace(question, complaint=complaint, change=change)


def _asks_for_orders(text: str, asked: QueryIntent, talk: Talk) -> bool:
    """Whether its words can only be about orders, alone or after orders were shown."""
    long = _ORDER_ID.search(text)
    if (long is not None and len(text) <= len(long[0]) + 4) or _numbered(text):
        return True
    if SPENT.search(text) or _OWN_ORDERS.search(text) or pick_in(text) or _of_somebody_else(text):
        return True
    shown = _still_orders(text, asked, talk) or _dearest_shown(text, asked, talk) is not None
    return shown or asks_of_a_thing(text, _just_shown(asked, talk))


def _of_somebody_else(text: str) -> OrderQuestion | None:
    """The orders of another person; a whole number is looked for among one's own, whoever is named beside it."""
    if _ORDER_ID.search(text):
        return None
    if is_somebody_elses(text):
        return OrderQuestion(somebody_else=True)
    owner = name_of_owner(text)
    return OrderQuestion(somebody_else=True, bought=owner) if owner else None


def _of_number(text: str) -> OrderQuestion | None:
    long = _ORDER_ID.search(text)
    number = _numbered(text) or (long[1] if long else "")
    return OrderQuestion(order=number.upper()) if number else None


def _numbered(text: str) -> str:
    """The number that words say is an order's, however short."""
    named = (found["id"] for pattern in _NUMBERED if (found := pattern.search(text)) is not None)
    return next(named, "")


def _wish(text: str, asked: QueryIntent, talk: Talk, *, standing: bool) -> OrderQuestion:
    """Which of the orders are meant, by how they stand, what was bought, when, and for how much."""
    months_ago, month = month_in(text)
    bounded = bounds_totals(text)
    return OrderQuestion(
        states=states_in(text) if standing else (),
        bought="" if talk.orders and places_in(text, True) else thing_in(text, _just_shown(asked, talk)),
        months_ago=months_ago,
        month=month,
        year=year_in(text),
        period=period_in(text),
        min_total=asked.min_price if bounded else None,
        max_total=asked.max_price if bounded else None,
        currency=asked.currency if bounded else None,
        pick=pick_in(text),
        counted=asks_how_many(text),
    )


def _dearest_shown(text: str, asked: QueryIntent, talk: Talk) -> OrderQuestion | None:
    """The one that cost most or least of the orders shown last: 哪个最贵, "which of them cost the least?"."""
    alone = asked == QueryIntent(sort=asked.sort, limit=asked.limit)
    cost = _COST.fullmatch(text)
    pick = _PICKED.get(cost[1]) if cost is not None else _PICKED.get(asked.sort or "") if alone else None
    if not talk.orders or pick is None or pick_in(text):
        return None
    return OrderQuestion(pick=pick, places=tuple(range(1, len(talk.orders) + 1)))


def _just_shown(asked: QueryIntent, talk: Talk) -> bool:
    """Whether orders were shown last and it says no more of goods than a name: "and the phone?", 手机呢."""
    return bool(talk.orders) and asked == QueryIntent(category=asked.category, terms=asked.terms)


def _change(text: str) -> Change | None:
    """What is to be done to an order."""
    if _CANCEL.search(text):
        return "cancel"
    return "change" if _CHANGE.search(text) else None


def _order_places(text: str, asked: QueryIntent, talk: Talk) -> tuple[int, ...]:
    """Which of the orders shown last are meant: "the first one", "the latest", and "it" after one was spoken of."""
    if not talk.orders or asked.category is not None or asked.attributes:
        return ()
    if places := places_in(text, True):
        return places
    if _LATEST.search(text):
        return (1,)
    if talk.order is None:
        return ()
    # In Chinese "it" is left out: 什么时候到 after one order was shown asks about that one.
    left_out = _OWN_ORDERS.search(text) is not None and _ALL_ORDERS.search(text) is None
    return (talk.order,) if left_out or PRONOUN.search(text) or _THAT_ORDER.search(text) else ()


def _still_orders(text: str, asked: QueryIntent, talk: Talk) -> bool:
    """Whether "it" can only be an order, since orders were shown last; and so can what is still on the way."""
    if not talk.orders or asked.category is not None or asked.attributes:
        return False
    pointed = PRONOUN.search(text) or THEY.search(text) or _THAT_ORDER.search(text)
    return pointed is not None or bool(states_in(text))
