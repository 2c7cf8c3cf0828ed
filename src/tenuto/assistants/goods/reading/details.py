"""Which particular goods a question is about: by their places, by "it" and "the others", or by name."""

from __future__ import annotations

from typing import Final

from tenuto.assistants.goods.intent import MAX_PLACES, Details, QueryIntent, Talk
from tenuto.assistants.goods.reading.goodness import ORDERING
from tenuto.assistants.goods.reading.pointing import PRONOUN, THEY, compared_places, others_in, places_in
from tenuto.assistants.goods.reading.wording import Wording
from tenuto.assistants.goods.words import ASPECTS, COLOR, terms_in
from tenuto.model.expression import expression

_BUY: Final = expression(
    r"\b(?:buy|order|purchase|take) (?:it|them|this|that|the|number)\b(?! by\b)|\b(?:cart|basket|check ?out)\b"
    r"|下单|购物车|购买|结账|[要买](?:了|下)?(?=第|它|[这那][个款])"
)
_SHORT: Final = 15
_COMPARE: Final = expression(
    r"\bcompar(?:e|ed|ison|ing)\b|\bversus\b|\bvs\b|\bdifferences?\b|对比|比较一下|比较下|比一比|做个比较|区别|差别|有什么不同"
)
_ABOUT_IT: Final = expression(
    r"\b(?:tell me (?:more |all )?about|more about|details?|specs?|specifications?|describe|info(?:rmation)?"
    r"|how much (?:is|are|does|do)"
    r"|price of|what does .{1,40} cost|in stock|available|how good|reviews? of|how is|how are"
    r"|is .{1,40} (?:any )?good)\b"
    r"|详细|详情|介绍(?:一下|下)|参数|配置|规格|怎么样|好不好|好用吗|多少钱|什么价|价格|有货|现货|库存|有没有货"
)
_ASKS: Final = expression(r"\b(?:what|how)\b|多[少大重长]|什么|几[寸升]")
_JOINED: Final = expression(r"\s+(?:and|with|to|vs\.?|versus|or|from)\s+|和|与|跟|还是|、")
_COMPARING_WORDS: Final = expression(
    r"\b(?:(?:can|could|would) you|please|compar(?:e|ison)(?: of| between)?"
    r"|(?:what(?:'s| is| are) )?the differences? between|between|the)\b"
    r"|请|帮我|对比一?下?|比较一?下?|比一比|有什么(?:区别|差别|不同)|的?区别|的?差别|[?？。.!！]"
)


def about_goods(text: str, asked: QueryIntent, talk: Talk, wanted: QueryIntent | None) -> Details | None:
    """The question about particular goods that a folded text is, if it is one and no search."""
    about = next((aspect for aspect, pattern in ASPECTS if pattern.search(text)), None)
    buy = _BUY.search(text) is not None
    if _COMPARE.search(text) and (compared := _compared(text, asked, talk)) is not None:
        return compared
    if about is not None and _of_all(text, asked, talk):
        return Details(ids=talk.them, about=about)
    if wanted is not None and _ranks(text, asked, wanted):
        return None
    if (others := _others(text, asked, talk)) is not None and not buy:
        # Place 0 is nobody's: it is asked back which one is meant.
        return Details(ids=others, places=() if others else (0,), about=about)
    if places := places_in(text, bool(talk.items)):
        return Details(places=places, about=about, buy=buy)
    checks_out = buy and talk.focus is not None and len(text) <= _SHORT
    if (talk.focus or talk.items) and (checks_out or PRONOUN.search(text)) and asked.category is None:
        trait = None if buy else about or _trait(text)
        return Details(ids=(talk.focus or talk.items[0],), about=trait, buy=buy)
    of_a_kind = asked.category is not None and asked.in_stock
    if not of_a_kind and _ABOUT_IT.search(text) and (name := _named(text)):
        return Details(names=(name,), about=about)
    return None


def _of_all(text: str, asked: QueryIntent, talk: Talk) -> bool:
    """Whether one thing is asked about everything that was shown: "how heavy are they?", 它们都是什么颜色."""
    if len(talk.them) < 2 or asked != QueryIntent(terms=asked.terms):
        return False
    return THEY.search(text) is not None and _ASKS.search(text) is not None


def _others(text: str, asked: QueryIntent, talk: Talk) -> tuple[str, ...] | None:
    """Those of the list that was shown which were not spoken of last: "the other one", 另外两个."""
    unseen = talk.intent is not None and talk.intent.limit == 1
    if not talk.items or unseen or asked.category is not None:
        return None
    return others_in(text, talk.them, talk.focus)


def _ranks(text: str, asked: QueryIntent, wanted: QueryIntent) -> bool:
    """A wish for the best, for cheaper ones or for a price is a search, whatever it points at."""
    bounds = (asked.min_price, asked.max_price, wanted.above, wanted.below)
    best = asked.sort is not None and (asked.limit == 1 or ORDERING.search(text) is not None)
    held = wanted.like is not None or any(bound.than is not None for bound in wanted.amounts)
    return best or held or bool(wanted.among) or wanted.rank > 1 or any(bound is not None for bound in bounds)


def _compared(text: str, asked: QueryIntent, talk: Talk) -> Details | None:
    it = (talk.focus,) if talk.focus is not None and PRONOUN.search(text) else ()
    if places := compared_places(text, bool(talk.items)):
        return Details(ids=it, places=places)
    if asked.sort is not None:
        return None
    names = [" ".join(terms_in(part)) for part in _JOINED.split(_COMPARING_WORDS.sub(" ", text).strip())]
    named = tuple(name for name in names if name)
    if len(named) + len(it) >= 2:
        return Details(ids=it, names=named[:MAX_PLACES])
    return Details(ids=talk.them) if talk.them else None


def _trait(text: str) -> str | None:
    """A property that is asked after: "is it waterproof?", 它防水吗, "does it come in red?"."""
    if COLOR.search(text):
        return "color"
    terms = terms_in(_ABOUT_IT.sub(" ", PRONOUN.sub(" ", text)))
    return terms[0] if len(terms) == 1 else None


def _named(text: str) -> str:
    """The words that can be a name; none, when the question is about a whole category."""
    asked = Wording(_ABOUT_IT.sub(" ", text)).read()
    if asked.sort is not None or not asked.terms:
        return ""
    return " ".join(terms_in(_ABOUT_IT.sub(" ", text)))
