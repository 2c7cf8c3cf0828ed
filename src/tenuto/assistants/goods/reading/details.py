"""Which particular goods a question is about: by their places, by "it" and "the others", or by name."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from tenuto.assistants.goods.intent import Details, QueryIntent, Talk
from tenuto.assistants.goods.reading.comparing import compared
from tenuto.assistants.goods.reading.goodness import ORDERING
from tenuto.assistants.goods.reading.names import named_goods
from tenuto.assistants.goods.reading.pointing import BESIDE_IT, PRONOUN, THEY, others_in, places_in
from tenuto.assistants.goods.reading.sums import reckoned
from tenuto.assistants.goods.reading.wording import Wording
from tenuto.assistants.goods.words import ASPECTS, COLOR, HAN, name_in, terms_in
from tenuto.model.expression import expression
from tenuto.model.numbers import CARDINAL, HAN_NUMBER

_BUY: Final = expression(
    r"\b(?:buy|order|purchase|take) (?:it|them|this|that|the|number)\b(?! by\b)|\b(?:cart|basket|check ?out)\b"
    r"|下单|购物车|购买|结账|[要买](?:了|下)?(?=第|它|[这那][个款])"
)
# So many of those that were shown: whether they can be had is a matter of stock.
_BUY_SOME: Final = expression(
    rf"\b(?:can|could|may|i'll|i will|let me|i want to|i would like to|i'd like to) (?:i |we )?"
    rf"(?:buy|get|order|have|take) (?:\d{{1,3}}|{CARDINAL}|a dozen|a few|several|some)"
    r"(?: of (?:it|them|these|those))?\W*$"
    rf"|^(?:我)?(?:能|可以|可不可以|想|要)?(?:买|要|来|拿){HAN_NUMBER}[个款台部双本件盒包袋瓶箱份套只](?:吗|行吗|可以吗|吧)?\W*$"
)
_SHORT: Final = 15
_FEW: Final = 2
_ABOUT_IT: Final = expression(
    r"\b(?:tell me (?:more |all )?about|more about|details?|specs?|specifications?|describe|info(?:rmation)?"
    r"|how much (?:is|are|does|do)"
    r"|price of|what does .{1,40} cost|in stock|available|how good|reviews? of|how is|how are"
    r"|is .{1,40} (?:any )?good)\b"
    r"|详细|详情|介绍(?:一下|下)|参数|配置|规格|怎么样|好不好|好用吗|多少钱|什么价|价格|有货|现货|库存|有没有货"
)
_ASKS: Final = expression(r"\b(?:what|how)\b|多[少大重长久高厚]|什么|几[寸升]")
# How much of it there is, without what it is: left over where an attribute was named.
_HOW_MUCH: Final = expression(
    r"\b(?:how|big|large|long|heavy|thick|left|last|comes?)\b|多[大久长重少高厚]|[有是的]|(?<![第前后])[一每][瓶盒包袋箱份套只条罐个件本双台]"
)
_HOW_MANY_OF: Final = expression(
    r"^(?:and |but )?how (?:many|much) (?P<en>[a-z-]{3,20})"
    r"(?: (?:does|do|is|has|have) (?:it|they|this|that)(?: have)?)?\W*$"
    rf"|^有?(?:多少|几个)(?P<zh>(?![个款台部双本件种])[{HAN}]{{2,4}})\W*$"
)
# Asked of what was spoken of last, with the "it" left out: 能用微信吗, 支持快充吗.
_WHETHER: Final = expression(
    r"^(?:那|那么)?(?:能不能|可不可以|支不支持|会不会|能|可以|支持|带|会)(?:用|连接?|装)?(?P<zh>[^,，。\s]{1,8}?)(?:吗|么)?\W*$"
)
_OFFERS: Final = expression(r"\byou (?:have|sell|offer|recommend)\b|\bare there\b|有哪些|有没有|推荐")


def aspect_in(text: str) -> str | None:
    """What is asked of goods: price, stock, or an attribute."""
    return next((aspect for aspect, pattern in ASPECTS if pattern.search(text)), None)


def of_the_one(text: str, asked: QueryIntent) -> tuple[QueryIntent, str | None]:
    """What is asked besides of the one that a superlative picks, and the question without it: 最贵的那个内存多大."""
    about = aspect_in(text)
    if about in (None, "price", "stock", asked.sort, *asked.by) or asked.sort is None or not _ASKS.search(text):
        return asked, None
    return replace(asked, terms=tuple(term for term in asked.terms if _unasked(term, about).strip())), about


def about_goods(text: str, asked: QueryIntent, talk: Talk, wanted: QueryIntent | None) -> Details | None:
    """The question about particular goods that a folded text is, if it is one and no search."""
    about = aspect_in(text)
    buy = _BUY.search(text) is not None
    if (several := _several(text, asked, talk, about)) is not None:
        return several
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
    if (part := _part(text, asked, talk, about)) is not None:
        return Details(ids=(talk.focus,) if talk.focus else talk.them, about=part)
    if about is not None and asked.terms and asked == QueryIntent(terms=asked.terms) and _of_named(text):
        return Details(names=(name_in(_unasked(text, about)),), about=about)
    of_a_kind = asked.category is not None and asked.in_stock
    if not of_a_kind and _ABOUT_IT.search(text) and (name := _named(text)):
        return Details(names=(name,), about=about)
    name = named_goods(text, asked, searched=wanted is not None)
    return Details(names=(name,), unsplit=True) if name else None


def _several(text: str, asked: QueryIntent, talk: Talk, about: str | None) -> Details | None:
    """What is asked of several goods at once: a sum, so many of them, how they compare, one thing of each."""
    if (sums := reckoned(text, asked, talk)) is not None:
        return sums
    if talk.items and _BUY_SOME.search(text):
        return Details(ids=(talk.focus,) if talk.focus else talk.them, about="stock", buy=True)
    if (rivals := compared(text, asked, talk)) is not None:
        return rivals
    if talk.items and BESIDE_IT.search(text):
        return Details(places=(0,))
    return Details(ids=talk.them, about=about) if about is not None and _of_all(text, asked, talk) else None


def _unasked(text: str, about: str | None) -> str:
    """The text without what is asked."""
    return _HOW_MUCH.sub(" ", dict(ASPECTS)[about].sub(" ", text) if about is not None else text)


def _part(text: str, asked: QueryIntent, talk: Talk, about: str | None) -> str | None:
    """The one thing that is asked of what was shown, without a word for that: "and the screen?", 能用微信吗."""
    if not talk.items or replace(asked, limit=5) != QueryIntent(terms=asked.terms):
        return None
    if about is not None and not terms_in(_unasked(text, about)):
        return about
    if about is None and (many := _HOW_MANY_OF.search(text)) is not None and asked.terms:
        return many["en"] or many["zh"]
    whether = _WHETHER.search(text) if talk.focus is not None and asked.terms else None
    return whether["zh"] if whether is not None and not _OFFERS.search(text) else None


def _of_named(text: str) -> bool:
    return _ASKS.search(text) is not None and _OFFERS.search(text) is None


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


def _trait(text: str) -> str | None:
    """A property that is asked after: "is it waterproof?", 它防水吗, "does it come in red?"."""
    if COLOR.search(text):
        return "color"
    terms = terms_in(_ABOUT_IT.sub(" ", PRONOUN.sub(" ", text)))
    return " ".join(terms) if 0 < len(terms) <= _FEW else None


def _named(text: str) -> str:
    """The words that can be a name; none, when the question is about a whole category."""
    asked = Wording(_ABOUT_IT.sub(" ", text)).read()
    if asked.sort is not None or not asked.terms:
        return ""
    return name_in(_ABOUT_IT.sub(" ", text))
