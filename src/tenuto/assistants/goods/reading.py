"""Which of the shop's questions a text is: for goods, about particular goods, about one's own orders, or none."""

from __future__ import annotations

import re
from typing import Final, TypeAlias

from tenuto.assistants.goods.goodness import ORDERING
from tenuto.assistants.goods.intent import (
    Change,
    Courtesy,
    Details,
    Occasion,
    OrderQuestion,
    QueryIntent,
    Talk,
    talk_in,
)
from tenuto.assistants.goods.page import Page, terms_in
from tenuto.assistants.goods.parse import parse
from tenuto.assistants.goods.places import MAX_PLACES, compared_places, places_in
from tenuto.assistants.goods.words import ASPECTS, COLOR, fold
from tenuto.model.expression import expression
from tenuto.model.talk import ToolTurn

Question: TypeAlias = QueryIntent | Details | OrderQuestion | Courtesy

# A question is read up to here: nobody asks for goods in more words, and the work stays the same for any text.
MAX_READ: Final = 400

_BESIDE: Final = expression(
    r"\b(?:(?:your|my) name|who (?:are you|am i)|what can you do|the weather|summar|remember|translat|what time"
    r"|how are you|did (?:i|we|you) (?:ask|say|talk)|(?:tell|write)(?: me)? an? "
    r"|(?:opening|return|refund|shipping) (?:hours|polic))"
    r"|你是谁|你叫什么|我叫|我是谁|天气(?:怎|如|好|预)|笑话|总结|记得|翻译|我(?:刚才|之前|刚刚)?(?:说|问)(?:了|过)|几点|营业时间|退货政策"
)
# The whole of what was said: a greeting before a question is only skipped.
_COURTESY: Final[tuple[tuple[Occasion, re.Pattern[str]], ...]] = (
    (
        "hello",
        expression(
            r"(?:(?:hello+|hi+|hey+|hiya|howdy|greetings|good (?:morning|afternoon|evening|day))"
            r"(?: (?:there|again|everyone|all|you))?[\s,.!?~]*)+"
            r"|(?:(?:你好|您好|哈喽|哈啰|嗨|大家好|早上好|上午好|中午好|下午好|晚上好|早安|在吗|在么)[啊呀]?[\s,.!?，。！？~]*)+"
        ),
    ),
    (
        "thanks",
        expression(
            r"(?:(?:ok(?:ay)?|great|cool|perfect|nice)[\s,.!]*)?(?:many )?(?:thanks?(?: you| u)?|thx|ty|cheers)"
            r"(?: (?:a lot|so much|very much|again|for (?:the|your) help))*[\s,.!~]*"
            r"|(?:好的?|太好了)?[\s,，!！]*(?:谢谢|多谢|感谢|谢了|辛苦)[你您了啦啊]*[\s,.!，。！~]*"
        ),
    ),
    (
        "bye",
        expression(
            r"(?:good ?)?bye(?: bye)?[\s.!~]*|see you(?: later)?[\s.!~]*|(?:再见|拜拜|回头见)[啦了]?[\s.!。！~]*"
        ),
    ),
    (
        "help",
        expression(
            r"help(?: me)?[\s.!?]*|(?:what|who) are you[\s?]*"
            r"|(?:what can (?:you do|i ask)|how (?:do|can) you help|how does this work)"
            r"(?: (?:you|here|for me|me))*[\s?]*"
            r"|帮助[。!！]?|你是谁[啊呀?？]*|你(?:能|会|可以)(?:做|干|帮我做)?(?:什么|啥|些什么)[?？]*"
            r"|(?:可以|能)问(?:你)?(?:什么|啥|些什么)[?？]*|怎么用[?？]*"
        ),
    ),
)
_GREETING: Final = expression(
    r"^(?:hello|hi|hey|good (?:morning|afternoon|evening)|thanks?(?: you)?|ok(?:ay)?)(?![a-z-])[\s,.!~]*"
    r"|^(?:你好|您好|哈喽|嗨|谢谢|好的|请问)[\s,.!，。！~]*"
)
_OWN_ORDERS: Final = expression(
    r"\b(?:my|our|this|that) (?:[a-z]+ ){0,2}?"
    r"(?:orders?|packages?|parcels?|deliver(?:y|ies)|shipments?|purchases?|refunds?)\b"
    r"|\borders? (?:status|number|id|no\b|history|#)|\btrack(?:ing)? (?:my|the|number|order|package)"
    r"|\bwhere(?:'s| is| are) my\b"
    r"|\bwhen (?:will|does|is) (?:it|my [a-z ]{1,30}|they) (?:arriv|be delivered|com(?:e|ing)|ship)"
    r"|\b(?:has|have|did) my [a-z ]{1,30}(?:ship|arriv)|\bwhat (?:did|have) i (?:buy|bought|order)"
    r"|订单|(?:我的?|查)(?:一下)?(?:快递|包裹|物流)|物流|快递(?:到哪|单号)|发货了?[吗没]|什么时候(?:能)?(?:到货|发货|送到|到)"
    r"|到哪[里儿]?了|我(?:都|之前|最近)?买(?:了|过)(?:什么|哪些|啥)|退款(?:到|进度|状态)|我的退款"
)
_ORDER_ID: Final = expression(r"(?<![a-z0-9])([a-z]{1,4}-?\d{6,}[a-z0-9-]{0,20}|\d{8,24})(?![a-z0-9])")
_COMPLAINT: Final = expression(
    r"\b(?:complain(?:t|ts|ing)?|broken|damaged|defective|faulty|not working|doesn't work|stopped working|wrong item"
    r"|refund(?! polic)|(?:get|want) my money back|return (?:it|this|my|the item)|terrible service)\b"
    r"|投诉|坏了|破了|破损|损坏|质量问题|假货|发错|少发|漏发|(?:我要|想|申请|怎么)(?:退货|退款|换货|退换)|售后|差评"
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
_BUY: Final = expression(
    r"\b(?:buy|order|purchase|take) (?:it|them|this|that|the|number)\b(?! by\b)|\b(?:cart|basket|check ?out)\b"
    r"|下单|购物车|购买|结账|[要买](?:了|下)?(?=第|它|[这那][个款])"
)
_SHORT: Final = 15
_COMPARE: Final = expression(
    r"\bcompar(?:e|ed|ison|ing)\b|\bversus\b|\bvs\b|\bdifferences?\b|对比|比较一下|比较下|比一比|做个比较|区别|差别|有什么不同"
)
_PRONOUN: Final = expression(
    r"\b(?:it|its|it's|this one|that one|this (?:phone|laptop|item|product)|that (?:phone|laptop|item|product))\b"
    r"|它(?!们)|[这那][个款台部双本件](?!价|颜色|品牌|牌子|月|星期)"
)
_ABOUT_IT: Final = expression(
    r"\b(?:tell me (?:more |all )?about|more about|details?|specs?|specifications?|describe|info(?:rmation)?"
    r"|how much (?:is|are|does|do)"
    r"|price of|what does .{1,40} cost|in stock|available|how good|reviews? of|how is|how are"
    r"|is .{1,40} (?:any )?good)\b"
    r"|详细|详情|介绍(?:一下|下)|参数|配置|规格|怎么样|好不好|好用吗|多少钱|什么价|价格|有货|现货|库存|有没有货"
)
_JOINED: Final = expression(r"\s+(?:and|with|to|vs\.?|versus|or|from)\s+|和|与|跟|还是|、")
_COMPARING_WORDS: Final = expression(
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
    if (occasion := next((kind for kind, pattern in _COURTESY if pattern.fullmatch(text.strip())), None)) is not None:
        return Courtesy(occasion=occasion)
    text = _GREETING.sub("", text).strip()
    if not text:
        return None
    asked = Page(text).read()
    if (orders := _about_orders(text, asked, talk)) is not None:
        return orders
    if _BESIDE.search(text):
        return None
    wanted = parse(text, asked, talk)
    details = _about_goods(text, asked, talk, wanted)
    return details if details is not None else wanted


def _about_orders(text: str, asked: QueryIntent, talk: Talk) -> OrderQuestion | None:
    numbered = _ORDER_ID.search(text)
    complaint, change = _COMPLAINT.search(text) is not None, _change(text)
    alone = numbered is not None and len(text) <= len(numbered[0]) + 4
    places = _order_places(text, asked, talk)
    if not (complaint or change or alone or places or _OWN_ORDERS.search(text) or _still_orders(text, asked, talk)):
        return None
    number = numbered[1].upper() if numbered else None
    return OrderQuestion(order=number, places=() if number else places, complaint=complaint, change=change)


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
    return (talk.order,) if left_out or _PRONOUN.search(text) or _THAT_ORDER.search(text) else ()


def _still_orders(text: str, asked: QueryIntent, talk: Talk) -> bool:
    """Whether "it" can only be an order: orders were shown last, and none of them in particular was spoken of."""
    if not talk.orders or asked.category is not None or asked.attributes:
        return False
    return (_PRONOUN.search(text) or _THAT_ORDER.search(text)) is not None


def _about_goods(text: str, asked: QueryIntent, talk: Talk, wanted: QueryIntent | None) -> Details | None:
    about = next((aspect for aspect, pattern in ASPECTS if pattern.search(text)), None)
    buy = _BUY.search(text) is not None
    if _COMPARE.search(text) and (compared := _compared(text, asked, talk)) is not None:
        return compared
    if wanted is not None and _ranks(text, asked, wanted):
        return None
    if places := places_in(text, bool(talk.items)):
        return Details(places=places, about=about, buy=buy)
    checks_out = buy and talk.focus is not None and len(text) <= _SHORT
    if (talk.focus or talk.items) and (checks_out or _PRONOUN.search(text)) and asked.category is None:
        trait = None if buy else about or _trait(text)
        return Details(ids=(talk.focus or talk.items[0],), about=trait, buy=buy)
    of_a_kind = asked.category is not None and asked.in_stock
    if not of_a_kind and _ABOUT_IT.search(text) and (name := _named(text)):
        return Details(names=(name,), about=about)
    return None


def _ranks(text: str, asked: QueryIntent, wanted: QueryIntent) -> bool:
    """A wish for the best, for cheaper ones or for a price is a search, whatever it points at."""
    bounds = (asked.min_price, asked.max_price, wanted.above, wanted.below)
    best = asked.sort is not None and (asked.limit == 1 or ORDERING.search(text) is not None)
    held = any(bound.than is not None for bound in wanted.amounts)
    return best or held or bool(wanted.among) or wanted.rank > 1 or any(bound is not None for bound in bounds)


def _compared(text: str, asked: QueryIntent, talk: Talk) -> Details | None:
    it = (talk.focus,) if talk.focus is not None and _PRONOUN.search(text) else ()
    if places := compared_places(text, bool(talk.items)):
        return Details(ids=it, places=places)
    if asked.sort is not None:
        return None
    names = [" ".join(terms_in(part)) for part in _JOINED.split(_COMPARING_WORDS.sub(" ", text).strip())]
    named = tuple(name for name in names if name)
    if len(named) + len(it) >= 2:
        return Details(ids=it, names=named[:MAX_PLACES])
    if talk.items:
        return Details(ids=talk.items[:MAX_PLACES])
    return None


def _trait(text: str) -> str | None:
    """A property that is asked after: "is it waterproof?", 它防水吗, "does it come in red?"."""
    if COLOR.search(text):
        return "color"
    terms = terms_in(_ABOUT_IT.sub(" ", _PRONOUN.sub(" ", text)))
    return terms[0] if len(terms) == 1 else None


def _named(text: str) -> str:
    """The words that can be a name; none, when the question is about a whole category."""
    page = Page(_ABOUT_IT.sub(" ", text))
    asked = page.read()
    if asked.sort is not None or not asked.terms:
        return ""
    return " ".join(terms_in(_ABOUT_IT.sub(" ", text)))
