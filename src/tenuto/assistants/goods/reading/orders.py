"""Which of the asker's own orders a question is about, and what is wanted of them."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from tenuto.assistants.goods.intent import Change, OrderQuestion, QueryIntent, Talk
from tenuto.assistants.goods.reading.order_wishes import (
    SPENT,
    bought_in,
    is_complaint,
    month_in,
    names_another,
    states_in,
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
    r"|订单|(?:我的?|查)(?:一下)?(?:快递|包裹|物流)|物流|快递(?:到哪|单号)|发货了?[吗没]|什么时候(?:能)?(?:到货|发货|送到|到)"
    r"|到哪[里儿]?了|我(?:[^,，。]{0,6}?)买(?:了|过)(?:什么|哪些|啥)|退款(?:到|进度|状态)|我的退款"
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
    r"(?<!noise[ -])\bcancel(?:lation)?\b|\b(?:don't|do not) want (?:it|this|that) any ?more"
    r"|取消|撤单|退订|不想要了"
)
_CHANGE: Final = expression(
    r"\b(?:change|update|edit|modify|correct) (?:my|the|its?|this|that) (?:\w+ ){0,2}?(?:address|order|delivery)\b"
    r"|\b(?:deliver|ship|send) (?:it|them) (?:to (?:another|a different)|somewhere else)"
    r"|[改换](?:一下|下|个)?(?:收货|送货|配送)?地址|[修更]改(?:一下|下)?(?:我的|这个|第.{1,3}个)?(?:订单|收货|地址)"
)
_THAT_ORDER: Final = expression(r"\b(?:this|that) order\b|[这那](?:个订)?单")
_LATEST: Final = expression(r"\b(?:latest|newest|most recent)\b|最近(?:的|一|那)|最新")
_ALL_ORDERS: Final = expression(r"\b(?:orders|my|our|all)\b|订单|我的|所有|全部|都")


def about_orders(text: str, asked: QueryIntent, talk: Talk) -> OrderQuestion | None:
    """The question about orders that a folded text is, if it is one."""
    long = _ORDER_ID.search(text)
    named = next((found for pattern in _NUMBERED if (found := pattern.search(text)) is not None), None)
    complaint, change = is_complaint(text), _change(text)
    alone = long is not None and len(text) <= len(long[0]) + 4
    places = _order_places(text, asked, talk)
    spent = SPENT.search(text) is not None
    told = complaint or change or alone or named or places or spent
    if not (told or _OWN_ORDERS.search(text) or _still_orders(text, asked, talk) or _another(text, asked, talk)):
        return None
    if number := named["id"].upper() if named else long[1].upper() if long else None:
        return OrderQuestion(order=number, complaint=complaint, change=change)
    wish = _wish(text, talk, complaint=complaint, change=change, spent=spent)
    return wish if wish != _wish("", talk, complaint=complaint, change=change) else replace(wish, places=places)


def _wish(text: str, talk: Talk, *, complaint: bool, change: Change | None, spent: bool = False) -> OrderQuestion:
    """Which of the orders are meant, by how they stand, what was bought, and when."""
    months_ago, month = month_in(text)
    return OrderQuestion(
        states=() if complaint or change else states_in(text),
        bought=bought_in(text, bool(talk.orders)),
        months_ago=months_ago,
        month=month,
        spent=spent,
        complaint=complaint,
        change=change,
    )


def _another(text: str, asked: QueryIntent, talk: Talk) -> bool:
    """Whether it names another of the orders that were shown: "and the phone?", 手机呢."""
    plain = asked == QueryIntent(category=asked.category, terms=asked.terms)
    return bool(talk.orders) and plain and names_another(text)


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
