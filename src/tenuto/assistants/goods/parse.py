"""From a question to a `QueryIntent`, on top of what was shown before.

A question that only changes something ("and under 2000?", 换成红色的) is read together with the query before it.
"""

from __future__ import annotations

import re
from typing import Any, Final

from msgspec.structs import replace

from tenuto.assistants.goods.intent import MAX_KEPT, PREVIOUS, Bound, QueryIntent, Talk
from tenuto.assistants.goods.page import AMONG, CHEAPER, DEARER, LEAD, MORE, RESORT, SEVERAL
from tenuto.assistants.goods.places import places_in
from tenuto.assistants.goods.words import HAN
from tenuto.model.expression import expression

_CUE: Final = expression(
    r"\b(?:buy|purchase|shop(?:ping)? for|look(?:ing)? for|search|find|show|recommend|suggest|want|need"
    r"|get me|got any|any|(?:do|have|can) you (?:have|sell|carry|stock|got|offer)|you (?:have|sell)|is there|are there"
    r"|which|list|gift|present|something|anything)\b"
    r"|有没有|有什么|有哪些|有啥|有[^\s]{1,12}吗|推荐|想买|想要|要买|我要|需要|买[个台部双本件款点]|找"
    r"|来[一几][个台部双本件款]|送给?|卖不卖|卖[^的得]"
)
_ANYTHING: Final = expression(
    r"^(?:so |and )?what (?:do|can|else do) you (?:sell|have|offer|recommend)\W*$|^what(?:'s| is) (?:new|popular)\W*$"
    r"|\bwhat (?:categories|kinds? of (?:goods|things|products))\b"
    r"|^你们(?:店|这里|这儿)?里?都?[有卖](?:什么|哪些|啥)\W*$|^有(?:什么|啥)好?(?:推荐|东西|商品)的?吗?\W*$|随便看看"
)
_CHOOSE: Final = expression(
    r"\bwhich (?:one|ones|is|would|should|do|has|have|are)\b"
    r"|\b(?:recommend|pick|choose) (?:me )?one\b|\bwhat (?:do|would) you recommend\b"
    r"|哪一?[个款台双本件种]|选哪|推荐哪|买哪"
)
_BETTER: Final = expression(
    r"\bbetter\b|\brecommend|\bshould i (?:buy|get|choose|take|pick)|\bpick one\b|\bchoose\b"
    r"|更好|哪[个款台]好|推荐|选哪|买哪"
)
_THAN: Final = expression(r"\bthan (?:the|that|this|it|number|#)\b|比(?:第|它|[这那])")
# Half a phrase, which lacks what was spoken of: 光诺的, "the Lumora ones".
_FRAGMENT: Final = expression(
    rf"^(?:(?:i|we) (?:want|need|prefer|like) )?[a-z0-9 -]{{1,24}} ones?\W*$|^[{HAN}a-z0-9 ]{{1,8}}的[吗呢]?\W*$"
)
_GLUE: Final = frozenset({"a", "an", "the", "some", "for", "with", "of", "and"})
_BARE_WORDS: Final = 4
_BARE_CHARACTERS: Final = 10


def parse(text: str, asked: QueryIntent, talk: Talk) -> QueryIntent | None:
    """The query that a folded text stands for, which says `asked` by itself; `None` when it asks for no goods."""
    if _ANYTHING.search(text):
        return QueryIntent(sort="sales")
    if _points(text, asked, talk) or _chooses(text, asked, talk):
        return _picked(text, asked, talk)
    if talk.intent is not None and (follow := _follow_up(text, asked, talk, talk.intent)) is not None:
        return follow
    if CHEAPER.search(text) and asked.sort is None:
        asked = replace(asked, sort="price")
    return asked if _wanted(text, asked) else None


def _constrained(asked: QueryIntent) -> bool:
    bounds = (asked.min_price, asked.max_price, asked.min_rating, asked.sort)
    held = asked.attributes or asked.amounts or asked.without or asked.in_stock
    return any(bound is not None for bound in bounds) or bool(held)


def _points(text: str, asked: QueryIntent, talk: Talk) -> bool:
    """Whether it says that it speaks of what was shown; "the cheapest among phones" after shoes does not."""
    if AMONG.search(text) is None and not (asked.sort and RESORT.search(text)):
        return False
    return asked.category is None or (talk.intent is not None and talk.intent.category == asked.category)


def _chooses(text: str, asked: QueryIntent, talk: Talk) -> bool:
    """Whether it picks from what was shown without saying so: "which one is cheapest?", 最便宜的是哪个."""
    if len(talk.items) < 2 or asked.category is not None or asked.min_price or asked.max_price or asked.attributes:
        return False
    most = asked.sort is not None and asked.limit == 1
    return not asked.terms and (most or _CHOOSE.search(text) is not None)


def _picked(text: str, asked: QueryIntent, talk: Talk) -> QueryIntent:
    """From the goods shown; where only the best of many was shown, from those it was the best of."""
    choice = _among(text, asked, talk)
    if talk.intent is not None and _named_one(talk.intent):
        return _changed(choice, talk.intent)
    return choice


def _named_one(before: QueryIntent) -> bool:
    return before.limit == 1


def _among(text: str, asked: QueryIntent, talk: Talk) -> QueryIntent:
    sort, limit = asked.sort, asked.limit
    if sort is not None and RESORT.search(text):
        return replace(asked, category=None, limit=max(len(talk.items), 1), among=talk.items or (PREVIOUS,))
    if sort is None and (_BETTER.search(text) or not (_constrained(asked) or asked.terms)):
        sort, limit = "value", 1
    elif sort is not None and limit == 5 and not SEVERAL.search(text):
        limit = 1
    return replace(asked, category=None, sort=sort, limit=limit, among=talk.items or (PREVIOUS,))


def _follow_up(text: str, asked: QueryIntent, talk: Talk, before: QueryIntent) -> QueryIntent | None:
    """The query before this one with what the question changes; `None` when the question stands by itself."""
    if asked.category is not None and asked.category != before.category:
        return _moved(asked, before) if LEAD.search(text) else None
    if asked.terms and not (LEAD.search(text) or _FRAGMENT.search(text)) and not asked.category:
        return None
    if (than := _than(text, asked, talk)) is not None:
        return _changed(replace(asked, amounts=(*asked.amounts, than), limit=5), before)
    priced = asked.min_price is not None or asked.max_price is not None
    if not priced and (compared := _bounds(text, talk)) is not None:
        return replace(_changed(asked, before), **compared)
    if MORE.search(text) and not _constrained(asked):
        shown = (talk.focus,) if _named_one(before) and talk.focus is not None else talk.items
        seen = dict.fromkeys((*before.beyond, *shown))
        return replace(_changed(asked, before), beyond=tuple(seen)[-MAX_KEPT:])
    if asked.category is None and (_constrained(asked) or asked.terms):
        return _changed(asked, before)
    return None


def _moved(asked: QueryIntent, before: QueryIntent) -> QueryIntent:
    """Another category, the same purse."""
    if asked.min_price is None and asked.max_price is None:
        asked = replace(asked, min_price=before.min_price, max_price=before.max_price, currency=before.currency)
    return asked if asked.sort is not None else replace(asked, sort=before.sort, by=before.by)


def _changed(asked: QueryIntent, before: QueryIntent) -> QueryIntent:
    priced = asked.min_price is not None or asked.max_price is not None
    return replace(
        before,
        terms=asked.terms or before.terms,
        without=before.without + asked.without,
        brand=None if asked.terms else before.brand,
        attributes=before.attributes | asked.attributes,
        amounts=(*(bound for bound in before.amounts if not _again(bound, asked)), *asked.amounts),
        min_price=asked.min_price if priced else before.min_price,
        max_price=asked.max_price if priced else before.max_price,
        currency=asked.currency if priced else before.currency,
        above=None,
        below=None,
        min_rating=asked.min_rating if asked.min_rating is not None else before.min_rating,
        in_stock=asked.in_stock or before.in_stock,
        sort=asked.sort or before.sort,
        by=asked.by if asked.sort else before.by,
        limit=asked.limit,
        rank=asked.rank,
        among=(),
        beyond=(),
    )


def _than(text: str, asked: QueryIntent, talk: Talk) -> Bound | None:
    """The bound in "lighter than the second one", 比它内存大的: how much goods that were shown have."""
    if asked.sort not in ("most", "least") or not asked.by or not _THAN.search(text):
        return None
    pointed = [talk.items[place - 1] for place in places_in(text, True) if 0 < place <= len(talk.items)]
    if meant := pointed[0] if pointed else talk.focus:
        return Bound(of=asked.by, sign=">" if asked.sort == "most" else "<", than=meant)
    return None


def _again(bound: Bound, asked: QueryIntent) -> bool:
    """Whether the question says anew how much of that there must be."""
    return any(set(bound.of) & set(other.of) for other in asked.amounts)


def _bounds(text: str, talk: Talk) -> dict[str, Any] | None:
    """Bounds for "cheaper ones" and "more expensive ones", by the item spoken of or by the list shown."""
    prices = talk.prices
    if pointed := [talk.prices[place - 1] for place in places_in(text, True) if 0 < place <= len(talk.prices)]:
        prices = tuple(pointed)
    elif talk.focus is not None and (price := talk.price_of(talk.focus)) is not None:
        prices = (price,)
    if not prices:
        return None
    if CHEAPER.search(text):
        return {"below": min(prices)}
    if DEARER.search(text):
        return {"above": max(prices), "sort": "price", "by": ()}
    return None


def _wanted(text: str, asked: QueryIntent) -> bool:
    if asked.category is not None:
        return True
    if asked.terms:
        return _constrained(asked) or _CUE.search(text) is not None or _bare(text, asked)
    return asked.sort is not None or (_constrained(asked) and _CUE.search(text) is not None)


def _bare(text: str, asked: QueryIntent) -> bool:
    """A few words that are nothing but a name for something."""
    words = [word for word in re.findall(r"[a-z0-9+.'-]+", text) if word not in _GLUE]
    left = sum(1 for term in asked.terms if term.isascii())
    characters = len(re.findall(f"[{HAN}]", text))
    return len(words) <= _BARE_WORDS and left == len(words) and characters <= _BARE_CHARACTERS
