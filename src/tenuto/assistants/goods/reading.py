"""Which of the shop's questions a text is: for goods, about particular goods, about one's own orders, or none."""

from __future__ import annotations

import re
from typing import Final, TypeAlias

from tenuto.assistants.goods.intent import Details, OrderQuestion, QueryIntent, Talk, talk_in
from tenuto.assistants.goods.parse import Page, beside_the_point, parse, terms_in
from tenuto.assistants.goods.places import MAX_PLACES, places_in
from tenuto.assistants.goods.words import ASPECTS, COLOR, fold
from tenuto.model.talk import ToolTurn

Question: TypeAlias = QueryIntent | Details | OrderQuestion

# A question is read up to here: nobody asks for goods in more words, and the work stays the same for any text.
MAX_READ: Final = 400

_OWN_ORDERS: Final = re.compile(
    r"\b(?:my|our|this|that) (?:[a-z]+ ){0,2}?"
    r"(?:orders?|packages?|parcels?|deliver(?:y|ies)|shipments?|purchases?|refunds?)\b"
    r"|\borders? (?:status|number|id|no\b|history|#)|\btrack(?:ing)? (?:my|the|number|order|package)"
    r"|\bwhere(?:'s| is| are) my\b"
    r"|\bwhen (?:will|does|is) (?:it|my [a-z ]{1,30}|they) (?:arriv|be delivered|com(?:e|ing)|ship)"
    r"|\b(?:has|have|did) my [a-z ]{1,30}(?:ship|arriv)|\bwhat (?:did|have) i (?:buy|bought|order)"
    r"|订单|(?:我的?|查)(?:一下)?(?:快递|包裹|物流)|物流|快递(?:到哪|单号)|发货了?[吗没]|什么时候(?:能)?(?:到货|发货|送到|到)"
    r"|到哪[里儿]?了|我(?:都|之前|最近)?买(?:了|过)(?:什么|哪些|啥)|退款(?:到|进度|状态)|我的退款"
)
_ORDER_ID: Final = re.compile(r"(?<![a-z0-9])([a-z]{1,4}-?\d{6,}[a-z0-9-]{0,20}|\d{8,24})(?![a-z0-9])")
_COMPLAINT: Final = re.compile(
    r"\b(?:complain(?:t|ts|ing)?|broken|damaged|defective|faulty|not working|doesn't work|stopped working|wrong item"
    r"|(?:get|want|need) (?:a|my) refund|(?:get|want) my money back|return (?:it|this|my|the item)|terrible service)\b"
    r"|投诉|坏了|破了|破损|损坏|质量问题|假货|发错|少发|漏发|(?:我要|想|申请|怎么)(?:退货|退款|换货|退换)|售后|差评"
)
_COMPARE: Final = re.compile(
    r"\bcompar(?:e|ed|ison|ing)\b|\bversus\b|\bvs\b|\bdifferences?\b|对比|比较一下|比较下|比一比|做个比较|区别|差别|有什么不同"
)
_PRONOUN: Final = re.compile(
    r"\b(?:it|its|it's|this one|that one|this (?:phone|laptop|item|product)|that (?:phone|laptop|item|product))\b"
    r"|它(?!们)|[这那][个款台部双本件](?!价|颜色|品牌|牌子|月|星期)"
)
_CUE: Final = re.compile(
    r"\b(?:tell me (?:more |all )?about|more about|details?|specs?|specifications?|describe|info(?:rmation)?"
    r"|how much (?:is|are|does|do)"
    r"|price of|what does .{1,40} cost|in stock|available|how good|reviews? of|how is|how are"
    r"|is .{1,40} (?:any )?good)\b"
    r"|详细|详情|介绍(?:一下|下)|参数|配置|规格|怎么样|好不好|好用吗|多少钱|什么价|价格|有货|现货|库存|有没有货"
)
_JOINED: Final = re.compile(r"\s+(?:and|with|to|vs\.?|versus|or|from)\s+|和|与|跟|还是|、")
_COMPARING_WORDS: Final = re.compile(
    r"\b(?:(?:can|could|would) you|please|compar(?:e|ison)(?: of| between)?"
    r"|(?:what(?:'s| is| are) )?the differences? between|between|the)\b"
    r"|请|帮我|对比一?下?|比较一?下?|比一比|有什么(?:区别|差别|不同)|的?区别|的?差别|[?？。.!！]"
)


def understand(turn: ToolTurn) -> Question | None:
    """What this turn's question asks of the shop."""
    return read(folded_question(turn.question), talk_in(turn.state))


def folded_question(text: str) -> str:
    """The question as it is read. Blanks come one by one: patterns that allow any number try all ways to share many."""
    return " ".join(fold(text, MAX_READ)[:MAX_READ].split())


def read(text: str, talk: Talk) -> Question | None:
    """The same for a folded text."""
    orders = _about_orders(text)
    if orders is not None:
        return orders
    if beside_the_point(text):
        return None
    wanted = parse(text, talk)
    details = _about_goods(text, talk, wanted)
    return details if details is not None else wanted


def _about_orders(text: str) -> OrderQuestion | None:
    numbered = _ORDER_ID.search(text)
    complaint = _COMPLAINT.search(text) is not None
    alone = numbered is not None and len(text) <= len(numbered[0]) + 4
    if not (complaint or alone or _OWN_ORDERS.search(text)):
        return None
    return OrderQuestion(order=numbered[1].upper() if numbered else None, complaint=complaint)


def _about_goods(text: str, talk: Talk, wanted: QueryIntent | None) -> Details | None:
    about = next((aspect for aspect, pattern in ASPECTS if pattern.search(text)), None)
    if _COMPARE.search(text) and (compared := _compared(text, talk)) is not None:
        return compared
    asked = Page(text).read()  # the wish itself, without what an earlier one adds to it
    if wanted is not None and _ranks(asked, wanted):
        return None
    if places := places_in(text, bool(talk.items)):
        return Details(places=places, about=about)
    if (talk.focus or talk.items) and _PRONOUN.search(text) and asked.category is None:
        return Details(ids=(talk.focus or talk.items[0],), about=about or _trait(text))
    of_a_kind = asked.category is not None and asked.in_stock
    if not of_a_kind and _CUE.search(text) and (name := _named(text)):
        return Details(names=(name,), about=about)
    return None


def _ranks(asked: QueryIntent, wanted: QueryIntent) -> bool:
    """A wish for the best, for cheaper ones or for a price is a search, whatever it points at."""
    bounds = (asked.min_price, asked.max_price, wanted.above, wanted.below)
    return bool(wanted.among) or wanted.rank > 1 or any(bound is not None for bound in bounds)


def _compared(text: str, talk: Talk) -> Details | None:
    if places := places_in(text, bool(talk.items)):
        return Details(places=places)
    names = [" ".join(terms_in(part)) for part in _JOINED.split(_COMPARING_WORDS.sub(" ", text).strip())]
    named = tuple(name for name in names if name)
    if len(named) >= 2:
        return Details(names=named[:MAX_PLACES])
    if talk.items:
        return Details(ids=talk.items[:MAX_PLACES])
    return None


def _trait(text: str) -> str | None:
    """A property that is asked after: "is it waterproof?", 它防水吗, "does it come in red?"."""
    if COLOR.search(text):
        return "color"
    terms = terms_in(_CUE.sub(" ", _PRONOUN.sub(" ", text)))
    return terms[0] if len(terms) == 1 else None


def _named(text: str) -> str:
    """The words that can be a name; none, when the question is about a whole category."""
    page = Page(_CUE.sub(" ", text))
    asked = page.read()
    if asked.sort is not None or not asked.terms:
        return ""
    return " ".join(terms_in(_CUE.sub(" ", text)))
