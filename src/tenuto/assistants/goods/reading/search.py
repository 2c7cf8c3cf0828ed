"""From a question to a `QueryIntent`, on top of what was shown before.

A question that only changes something ("and under 2000?", 换成红色的) is read together with the query before it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from tenuto.assistants.goods.intent import MAX_KEPT, PREVIOUS, Bound, QueryIntent, Talk
from tenuto.assistants.goods.reading.pointing import places_in
from tenuto.assistants.goods.reading.wording import AMONG, CHEAPER, DEARER, LEAD, MORE, RESORT, SEVERAL
from tenuto.assistants.goods.words import HAN, KINDS, MEASURED, Group, of_categories, of_colors, of_words
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
    r"\bwhich (?:one|ones|is|would|should|do|has|have|are|of (?:the|these|those))\b"
    r"|\b(?:recommend|pick|choose) (?:me )?one\b|\bwhat (?:do|would) you recommend\b"
    r"|哪一?[个款台双本件种]|选哪|推荐哪|买哪"
)
# One of two: "the cheaper one", 轻的那个.
_OF_TWO: Final = expression(
    r"\bthe (?!other)(?:[a-z]+er|(?:more|less) [a-z]+) (?:one|of)\b"
    r"|(?:便宜|贵|[大小轻重长短厚薄好])一?点?的那[个款台部双本件]"
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
# That one in another way: "the first one, but in red", 第二个换成蓝色的.
_BUT: Final = expression(
    r"\b(?:but|only in|similar to|(?:something|anything|one|ones) like|just like|same)\b"
    r"|但|不过|换成|类似|[同一]样|就是要"
)
_IT: Final = expression(r"\b(?:it|this one|that one|this|that)\b|它(?!们)|[这那][个款台部双本件]")
_GLUE: Final = frozenset(
    {"a", "an", "the", "some", "for", "with", "of", "and", "or", "please", "pls", "thanks", "then", "just", "only"}
)
_BARE_WORDS: Final = 4
_BARE_CHARACTERS: Final = 10


def parse(text: str, asked: QueryIntent, talk: Talk) -> QueryIntent | None:
    """The query that a folded text stands for, which says `asked` by itself; `None` when it asks for no goods."""
    if _ANYTHING.search(text):
        return QueryIntent(sort="sales")
    if (alike := _alike(text, asked, talk)) is not None:
        return alike
    if _points(text, asked, talk) or _chooses(text, asked, talk):
        return _picked(text, asked, talk)
    if talk.intent is not None and (follow := _follow_up(text, asked, talk, talk.intent)) is not None:
        return follow
    if CHEAPER.search(text) and asked.sort is None:
        asked = replace(asked, sort="price")
    return asked if _wanted(text, asked) else None


def _constrained(asked: QueryIntent) -> bool:
    bounds = (asked.min_price, asked.max_price, asked.min_rating, asked.sort)
    held = asked.attributes or asked.amounts or asked.either or asked.without or asked.in_stock
    return any(bound is not None for bound in bounds) or bool(held)


def _points(text: str, asked: QueryIntent, talk: Talk) -> bool:
    """Whether it says that it speaks of what was shown; "the cheapest among phones" after shoes does not."""
    if AMONG.search(text) is None and not (asked.sort and RESORT.search(text)):
        return False
    return asked.category is None or (talk.intent is not None and _includes(talk.intent, asked.category))


def _alike(text: str, asked: QueryIntent, talk: Talk) -> QueryIntent | None:
    """Goods like one that was shown, with what the question changes about it."""
    if not _BUT.search(text) or asked.category is not None or asked.min_price or asked.max_price:
        return None
    pointed = _pointed(text, talk)
    meant = pointed[0] if len(pointed) == 1 else talk.focus if not pointed and _IT.search(text) else None
    if meant is None:
        return None
    compared = _bounds(text, talk)
    if compared is None and not (_constrained(asked) or asked.terms or "similar" in text or "like" in text):
        return None
    return replace(asked, like=meant, limit=5, **(compared or {}))


def _pointed(text: str, talk: Talk) -> tuple[str, ...]:
    """The goods of the list that the text points at by their places."""
    return talk.at(places_in(text, bool(talk.items)))


def _chooses(text: str, asked: QueryIntent, talk: Talk) -> bool:
    """Whether it picks from what was shown without saying so: "which one is cheapest?", 最便宜的是哪个."""
    if len(talk.them) < 2 or asked.category is not None or asked.min_price or asked.max_price or asked.attributes:
        return False
    if asked.either or asked.without or asked.terms:
        return False
    most = asked.sort is not None and asked.limit == 1
    priced = CHEAPER.search(text) is not None or DEARER.search(text) is not None
    if len(talk.them) == 2 and _OF_TWO.search(text):
        return True
    return most or (_CHOOSE.search(text) is not None and not (priced and SEVERAL.search(text)))


def _picked(text: str, asked: QueryIntent, talk: Talk) -> QueryIntent:
    """From the goods shown; where only the best of many was shown, from those it was the best of."""
    choice = _among(text, asked, talk)
    if talk.intent is not None and _named_one(talk.intent) and choice.among == talk.items:
        return _changed(choice, talk.intent)
    return choice


def _named_one(before: QueryIntent) -> bool:
    return before.limit == 1


def _among(text: str, asked: QueryIntent, talk: Talk) -> QueryIntent:
    sort, limit = asked.sort, asked.limit
    pointed = _pointed(text, talk)
    goods = (pointed if len(pointed) > 1 else talk.them) or (PREVIOUS,)
    if sort is not None and RESORT.search(text):
        return replace(asked, category=None, limit=max(len(goods), 1), among=goods)
    if sort is None and CHEAPER.search(text):
        sort = "price"
    elif sort is None and DEARER.search(text):
        sort = "price_desc"
    if sort is None and (_BETTER.search(text) or not (_constrained(asked) or asked.terms)):
        sort, limit = "value", 1
    elif sort is not None and (limit == 5 or len(pointed) > 1) and not SEVERAL.search(text):
        limit = 1
    return replace(asked, category=None, sort=sort, limit=limit, among=goods)


def _follow_up(text: str, asked: QueryIntent, talk: Talk, before: QueryIntent) -> QueryIntent | None:
    """The query before this one with what the question changes; `None` when the question stands by itself."""
    if asked.category is not None and _includes(before, asked.category) and asked.category != before.category:
        return replace(_changed(asked, before), category=asked.category)
    if (asked.category is not None and asked.category != before.category) or _groups(asked, of_categories):
        return _moved(asked, before) if LEAD.search(text) else None
    narrower = _FRAGMENT.search(text) is not None or (_bare(text, asked) and not LEAD.search(text))
    worded = asked.terms or _groups(asked, of_words)
    if worded and not (LEAD.search(text) or narrower) and not asked.category:
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
    if asked.category is None and narrower and asked.terms:
        return _narrowed(asked, before)
    if asked.category is None and (_constrained(asked) or asked.terms):
        return _changed(asked, before)
    return None


def _includes(before: QueryIntent, category: str) -> bool:
    return before.category == category or any(category in group for group in before.either)


def _groups(intent: QueryIntent, kind: Callable[[Group], bool]) -> tuple[Group, ...]:
    return tuple(group for group in intent.either if kind(group))


def _narrowed(asked: QueryIntent, before: QueryIntent) -> QueryIntent:
    """The same with something more: "wireless, please", 有线的. An amount takes the place of the one before it."""
    units = {found[1] for term in asked.terms if (found := MEASURED.fullmatch(term)) is not None}
    kept = (term for term in before.terms if (found := MEASURED.fullmatch(term)) is None or found[1] not in units)
    terms = tuple(dict.fromkeys((*kept, *asked.terms)))
    return replace(_changed(asked, before), terms=terms, brand=before.brand)


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
        either=_alternatives(asked, before),
        without=tuple(dict.fromkeys((*(word for word in before.without if not _named(word, asked)), *asked.without))),
        brand=None if asked.terms else before.brand,
        attributes={} if _groups(asked, of_colors) else before.attributes | asked.attributes,
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


def _alternatives(asked: QueryIntent, before: QueryIntent) -> tuple[Group, ...]:
    """What is said anew, of colours, amounts, categories or words, takes the place of what was said of them before."""
    again = [kind for kind in KINDS if _groups(asked, kind)]
    again += [of_colors] if asked.attributes else []
    again += [of_categories] if asked.category else []
    again += [of_words] if asked.terms else []
    return (*(group for group in before.either if not any(kind(group) for kind in again)), *asked.either)


def _named(word: str, asked: QueryIntent) -> bool:
    """Whether what was not wanted before is asked for now."""
    return word in asked.terms or word in asked.attributes.values() or any(word in group for group in asked.either)


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
    if asked.terms or asked.either:
        return _constrained(asked) or _CUE.search(text) is not None or _bare(text, asked)
    return asked.sort is not None or (_constrained(asked) and _CUE.search(text) is not None)


def _bare(text: str, asked: QueryIntent) -> bool:
    """A few words that are nothing but a name for something."""
    words = [word for word in re.findall(r"[a-z0-9+.'-]+", text) if word not in _GLUE]
    left = sum(1 for term in asked.terms if term.isascii())
    characters = len(re.findall(f"[{HAN}]", text))
    return len(words) <= _BARE_WORDS and left == len(words) and characters <= _BARE_CHARACTERS
