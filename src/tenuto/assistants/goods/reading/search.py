"""From a question to a `QueryIntent`, on top of what was shown before.

A question that only changes something ("and under 2000?", 换成红色的) is read together with the query before it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from tenuto.assistants.goods.intent import MAX_KEPT, Bound, QueryIntent, Talk
from tenuto.assistants.goods.reading.choosing import chosen, constrained, includes, pointed
from tenuto.assistants.goods.reading.pointing import PRONOUN, places_in
from tenuto.assistants.goods.reading.wording import (
    AMONG,
    BY_SO_MUCH,
    CHEAPER,
    DEARER,
    EVERYWHERE,
    LEAD,
    MORE,
    NONE_OF,
    SOLD_OUT,
)
from tenuto.assistants.goods.words import (
    HAN,
    KINDS,
    MEASURE,
    MEASURED,
    Group,
    are_rivals,
    number,
    of_categories,
    of_colors,
    of_words,
)
from tenuto.model.expression import expression

_CUE: Final = expression(
    r"\b(?:buy|purchase|shop(?:ping)? for|look(?:ing)? for|search|find|show|recommend|suggest|want|need"
    r"|get me|got any|any|(?:do|have|can) you (?:have|sell|carry|stock|got|offer)|you (?:have|sell)|is there|are there"
    r"|which|list|gift|present|something|anything|how many)\b"
    r"|有没有|有什么|有哪些|有啥|有(?:多少|几)[种款个台本双件]|有[^\s]{1,12}吗|推荐|想买|想要|要买|我要|需要|买[个台部双本件款点]|找"
    r"|来[一几][个台部双本件款]|送给?|卖不卖|卖[^的得]"
)
_ANYTHING: Final = expression(
    r"^(?:so |and )?what (?:do|can|else do) you (?:sell|have|offer|recommend)\W*$|^what(?:'s| is) (?:new|popular)\W*$"
    r"|\bwhat (?:categories|kinds? of (?:goods|things|products))\b"
    r"|^你们(?:店|这里|这儿)?里?都?[有卖](?:什么|哪些|啥)\W*$|^有(?:什么|啥)好?(?:推荐|东西|商品)的?吗?\W*$|随便看看"
)
_HOW_MANY: Final = expression(
    r"\bhow many (?:of|are|have|has|come|cost|with|in|under|over)\b|其中有?(?:几|多少)|[里中]面?有?(?:几|多少)"
)
_THAN: Final = expression(r"\bthan (?:the|that|this|it|number|#)\b|比(?:第|它|[这那])")
# Beside one that was spoken of, "a bigger one" is bigger than that.
_COMPARATIVE: Final = expression(
    r"\b(?:bigger|larger|smaller|lighter|heavier|longer|shorter|thicker|thinner)\b(?! than)"
    r"|更[大小轻重长短厚薄]|[大小轻重长短厚薄](?:一点|点|一些|些)的"
)
# Half a phrase, which lacks what was spoken of: 光诺的, "the Lumora ones".
_FRAGMENT: Final = expression(
    rf"^(?:(?:i|we) (?:want|need|prefer|like) )?[a-z0-9 -]{{1,24}} ones?(?: only| please| then)*\W*$"
    rf"|^[{HAN}a-z0-9 ]{{1,8}}的[吗呢]?\W*$"
)
# What is wanted besides; "and a tent?" is about another thing.
_ALSO: Final = expression(
    r"^(?:and|with|also|only|just|but)\b(?! (?:an?|some|any|the|what|how)\b)|^(?:还要|并且|而且|也要|只要)"
)
# That one in another way: "the first one, but in red", 第二个换成蓝色的.
_BUT: Final = expression(
    r"\b(?:but|only in|similar to|(?:something|anything|one|ones) like|just like|same)\b"
    r"|但|不过|换成|类似|[同一]样|就是要"
)
_IT: Final = expression(r"\b(?:it|this one|that one|this|that)\b|它(?!们)|[这那][个款台部双本件]")
_GLUE: Final = frozenset(
    {"a", "an", "the", "some", "for", "with", "of", "and", "or", "please", "pls", "thanks", "then", "just", "only"}
    | {"really", "very", "quite", "pretty", "so", "nice", "good", "new"}
)
_BRANDS: Final = expression(
    r"\b(?:what|which|how many|list (?:the|all)|all (?:the )?) ?(?:[a-z]+ )?(?:brands?|manufacturers?)\b"
    r"|(?:什么|哪些|哪个|哪几个|几个|多少个?|几种|哪种)(?:品牌|牌子)|(?:品牌|牌子)(?:都?有(?:哪些|什么|几)|最[好高多])"
)
_OTHER_BRANDS: Final = expression(
    r"\b(?:other|another|different) (?:brands?|makes?)\b|(?:别的|其[他它]的?|另外的?|换个|换一个)(?:品牌|牌子)"
)
_BARE_WORDS: Final = 4
_BARE_CHARACTERS: Final = 10


def parse(text: str, asked: QueryIntent, talk: Talk) -> QueryIntent | None:
    """The query that a folded text stands for, which says `asked` by itself; `None` when it asks for no goods."""
    if _ANYTHING.search(text):
        return QueryIntent(sort="sales")
    if (brands := _brands(text, asked, talk)) is not None:
        return brands
    if NONE_OF.search(text):
        asked = QueryIntent()
    if (alike := _alike(text, asked, talk)) is not None:
        return alike
    if _counts(text, asked, talk) and talk.intent is not None:
        return _narrowed(asked, talk.intent) if asked.terms else _changed(asked, talk.intent)
    if talk.intent is not None and _sold_out(asked) and not AMONG.search(text) and asked.category is None:
        # What is sold out comes last: it is rarely among those shown.
        return _changed(asked, talk.intent)
    if (choice := chosen(text, asked, talk)) is not None:
        return _picked(choice, talk)
    if EVERYWHERE.search(text):
        return asked if _wanted(text, asked) else None
    if talk.intent is not None and (follow := _follow_up(text, asked, talk, talk.intent)) is not None:
        return follow
    if CHEAPER.search(text) and asked.sort is None:
        asked = replace(asked, sort="price")
    return asked if _wanted(text, asked) else None


def renewed(before: QueryIntent) -> QueryIntent:
    """The query before this one, put again."""
    return _changed(QueryIntent(), before)


def _brands(text: str, asked: QueryIntent, talk: Talk) -> QueryIntent | None:
    """The brands of the goods that are named, or of those that were asked for before."""
    if not _BRANDS.search(text) or PRONOUN.search(text) or places_in(text, bool(talk.items)):
        return None
    alone = asked.category is None and not asked.terms and talk.intent is not None and not EVERYWHERE.search(text)
    return replace(_changed(asked, talk.intent) if alone and talk.intent is not None else asked, brands=True, limit=5)


def _sold_out(asked: QueryIntent) -> bool:
    return SOLD_OUT in asked.amounts


def _counts(text: str, asked: QueryIntent, talk: Talk) -> bool:
    """Whether it asks how many there are of all that was found, of which a part may have been shown."""
    told = talk.total >= len(talk.items) or AMONG.search(text) is None
    return (
        told
        and asked.category is None
        and (constrained(asked) or bool(asked.terms))
        and _HOW_MANY.search(text) is not None
    )


def _alike(text: str, asked: QueryIntent, talk: Talk) -> QueryIntent | None:
    """Goods like one that was shown, with what the question changes about it."""
    if not _BUT.search(text) or asked.category is not None or asked.min_price or asked.max_price:
        return None
    places = pointed(text, talk)
    meant = places[0] if len(places) == 1 else talk.focus if not places and _IT.search(text) else None
    if meant is None:
        return None
    compared = _bounds(text, talk)
    if compared is None and not (constrained(asked) or asked.terms or "similar" in text or "like" in text):
        return None
    return replace(asked, like=meant, limit=5, **(compared or {}))


def _picked(choice: QueryIntent, talk: Talk) -> QueryIntent:
    """From the goods shown; where only the best of many was shown, from those it was the best of."""
    if talk.intent is not None and _named_one(talk.intent) and choice.among == talk.items:
        return _changed(choice, talk.intent)
    return choice


def _named_one(before: QueryIntent) -> bool:
    return before.limit == 1


def _follow_up(text: str, asked: QueryIntent, talk: Talk, before: QueryIntent) -> QueryIntent | None:
    """The query before this one with what the question changes; `None` when the question stands by itself."""
    if asked.category is not None and includes(before, asked.category) and asked.category != before.category:
        return replace(_changed(asked, before), category=asked.category)
    if (asked.category is not None and asked.category != before.category) or _groups(asked, of_categories):
        return _moved(asked, before) if LEAD.search(text) else None
    narrower = _narrows(text, asked, before)
    worded = asked.terms or _groups(asked, of_words)
    if worded and not (LEAD.search(text) or narrower) and not asked.category:
        return None
    if (than := _than(text, asked, talk)) is not None:
        return _changed(replace(asked, amounts=(*asked.amounts, than), limit=5), before)
    priced = asked.min_price is not None or asked.max_price is not None
    if not priced and (compared := _bounds(text, talk)) is not None:
        return _beside(_changed(asked, before), asked, before, compared)
    if MORE.search(text) and not constrained(asked):
        shown = (talk.focus,) if _named_one(before) and talk.focus is not None else talk.items
        if _OTHER_BRANDS.search(text):
            return replace(_changed(asked, before), unlike=shown, brand=None)
        seen = dict.fromkeys((*before.beyond, *shown))
        return replace(_changed(asked, before), beyond=tuple(seen)[-MAX_KEPT:])
    if asked.category is None and narrower and asked.terms:
        return _narrowed(asked, before)
    if asked.category is None and (constrained(asked) or asked.terms):
        return _changed(asked, before)
    return None


def _narrows(text: str, asked: QueryIntent, before: QueryIntent) -> bool:
    """Whether it adds to what was asked for: "wireless, please", 光诺的, "and over-ear?"; 推荐 begins anew."""
    if _FRAGMENT.search(text):
        return True
    if LEAD.search(text):
        return before.category is not None and _ALSO.search(text) is not None
    # What is called by the same word again is asked for anew: "winter jacket" after "jacket size 120".
    again = before.category is None and not set(asked.terms).isdisjoint(before.terms)
    return _bare(text, asked) and not again and not _groups(asked, of_words) and _CUE.search(text) is None


def _beside(changed: QueryIntent, asked: QueryIntent, before: QueryIntent, compared: dict[str, Any]) -> QueryIntent:
    """Cheaper or dearer than what was shown: prices asked for before bound it no more, and the nearest come first."""
    free = replace(changed, **({"min_price": None, "max_price": None} | compared))
    nearest = before.min_price is not None and free.below is not None and asked.sort is None
    return replace(free, sort="price_desc", by=()) if nearest else free


def _groups(intent: QueryIntent, kind: Callable[[Group], bool]) -> tuple[Group, ...]:
    return tuple(group for group in intent.either if kind(group))


def _narrowed(asked: QueryIntent, before: QueryIntent) -> QueryIntent:
    """The same with something more: "wireless, please", 有线的.

    An amount takes the place of the one before it, and "men's" that of "women's".
    """
    units = {found[1] for term in asked.terms if (found := MEASURED.fullmatch(term)) is not None}
    kept = (term for term in before.terms if (found := MEASURED.fullmatch(term)) is None or found[1] not in units)
    held = (term for term in kept if not any(are_rivals(term, said) for said in asked.terms))
    terms = tuple(dict.fromkeys((*held, *asked.terms)))
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
        terms=asked.terms or tuple(term for term in before.terms if not _unwanted(term, asked)),
        either=_alternatives(asked, before),
        without=tuple(dict.fromkeys((*(word for word in before.without if not _named(word, asked)), *asked.without))),
        brand=None if asked.terms else before.brand,
        attributes={} if _groups(asked, of_colors) else _attributes(asked, before),
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
        unlike=(),
        about=asked.about,
    )


def _attributes(asked: QueryIntent, before: QueryIntent) -> dict[str, str]:
    """What held before and holds now: who wanted black and wants none any more has changed their mind."""
    kept = {name: value for name, value in before.attributes.items() if not _unwanted(value, asked)}
    return kept | asked.attributes


def _unwanted(word: str, asked: QueryIntent) -> bool:
    """Whether what was asked for before is not wanted now."""
    return word.replace("-", " ") in (phrase.replace("-", " ") for phrase in asked.without)


def _alternatives(asked: QueryIntent, before: QueryIntent) -> tuple[Group, ...]:
    """What is said anew, of colours, amounts, categories or words, takes the place of what was said of them before."""
    again = [kind for kind in KINDS if _groups(asked, kind)]
    again += [of_colors] if asked.attributes else []
    again += [of_categories] if asked.category else []
    again += [of_words] if asked.terms else []
    kept = (group for group in before.either if not any(kind(group) for kind in again))
    left = (tuple(option for option in group if not _unwanted(option, asked)) for group in kept)
    return (*(group for group in left if group), *asked.either)


def _named(word: str, asked: QueryIntent) -> bool:
    """Whether what was not wanted before is asked for now."""
    return word in asked.terms or word in asked.attributes.values() or any(word in group for group in asked.either)


def _than(text: str, asked: QueryIntent, talk: Talk) -> Bound | None:
    """The bound in "lighter than the second one", 比它内存大的: how much goods that were shown have."""
    measured = _THAN.search(text) or (talk.focus is not None and _COMPARATIVE.search(text))
    if asked.sort not in ("most", "least") or not asked.by or not measured:
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
    if so_much := BY_SO_MUCH.search(text):
        return _by_so_much(prices, so_much)
    if CHEAPER.search(text):
        return {"below": min(prices)}
    if DEARER.search(text):
        return {"above": max(prices), "sort": "price", "by": ()}
    return None


def _by_so_much(prices: tuple[float, ...], said: re.Match[str]) -> dict[str, Any]:
    """Bounds for 便宜100块的, "200 cheaper"."""
    if said["less"] or said["cheaper"]:
        return {
            "max_price": max(min(prices) - number(said["less"] or said["cheaper"]), 0.0),
            "sort": "price_desc",
            "by": (),
        }
    return {"min_price": max(prices) + number(said["more"] or said["dearer"]), "sort": "price", "by": ()}


def _wanted(text: str, asked: QueryIntent) -> bool:
    if asked.category is not None:
        return True
    if asked.terms or asked.either:
        return constrained(asked) or _CUE.search(text) is not None or _bare(text, asked)
    return asked.sort is not None or (constrained(asked) and _CUE.search(text) is not None)


def _bare(text: str, asked: QueryIntent) -> bool:
    """A few words that are nothing but a name for something."""
    words = [word for word in re.findall(r"[a-z0-9+.'-]+", MEASURE.sub(r"\1\2", text)) if word not in _GLUE]
    left = sum(1 for term in asked.terms if term.isascii())
    characters = len(re.findall(f"[{HAN}]", text))
    return len(words) <= _BARE_WORDS and left == len(words) and characters <= _BARE_CHARACTERS
