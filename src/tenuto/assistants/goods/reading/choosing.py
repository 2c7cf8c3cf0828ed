"""Questions that choose from what was shown: "the best value among them", 贵的那个, "which has the best camera?"."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from tenuto.assistants.goods.intent import PREVIOUS, QueryIntent, Talk
from tenuto.assistants.goods.reading.pointing import THE_TWO, places_in
from tenuto.assistants.goods.reading.wording import AMONG, CHEAPER, DEARER, EVERYWHERE, NONE_OF, RESORT, SEVERAL
from tenuto.assistants.goods.words import CATEGORY_PATTERNS
from tenuto.model.expression import expression

_CHOOSE: Final = expression(
    r"\bwhich (?:one|ones|is|would|should|do|has|have|are|sells|of (?:the|these|those))\b"
    r"|\b(?:recommend|pick|choose) (?:me )?one\b|\bwhat (?:do|would) you recommend\b"
    r"|哪一?[个款台双本件种]|选哪|推荐哪|买哪"
)
# One of two: "the cheaper one", 轻的那个.
_OF_TWO: Final = expression(
    r"\bthe (?!other)(?:[a-z]+er|(?:more|less) [a-z]+) (?:one|of)\b"
    r"|(?:便宜|贵|[大小轻重长短厚薄好])一?点?的那[个款台部双本件]"
)
# One by what it is like: "the black one", 黑色的那个.
_THE_ONE: Final = expression(r"\bthe (?:[a-z0-9-]+ ){1,3}one\b|的那一?[个款台部双本件]")
_BETTER: Final = expression(
    r"\bbetter\b|\brecommend|\bshould i (?:buy|get|choose|take|pick)|\bpick one\b|\bchoose\b"
    r"|更好|哪[个款台]好|推荐|选哪|买哪"
)
# What goods have is not what they are: a phone has a camera.
_HAS: Final = expression(r"\bwhich\b.{0,24}?\b(?:has|have|with|takes?)\b|哪一?[个款台部]的")


def constrained(asked: QueryIntent) -> bool:
    """Whether it says more than what kind of goods it wants."""
    bounds = (asked.min_price, asked.max_price, asked.min_rating, asked.sort)
    held = asked.attributes or asked.amounts or asked.either or asked.without or asked.in_stock
    return any(bound is not None for bound in bounds) or bool(held)


def includes(before: QueryIntent, category: str) -> bool:
    """Whether goods of that category were asked for."""
    return before.category == category or any(category in group for group in before.either)


def chosen(text: str, asked: QueryIntent, talk: Talk) -> QueryIntent | None:
    """The choice from what was shown that a folded text makes, if it makes one."""
    if (featured := _featured(text, asked, talk)) is not None:
        return _among(text, featured, talk)
    if not (_points(text, asked, talk) or _chooses(text, asked, talk)):
        return None
    return _among(text, asked, talk)


def pointed(text: str, talk: Talk) -> tuple[str, ...]:
    """The goods of the list that the text points at by their places."""
    return talk.at(places_in(text, bool(talk.items)))


def _featured(text: str, asked: QueryIntent, talk: Talk) -> QueryIntent | None:
    """The question with its category as a mere word, where it is something that the goods shown may have."""
    if asked.category is None or len(talk.them) < 2 or talk.intent is None or includes(talk.intent, asked.category):
        return None
    has = _HAS.search(text)
    pattern = dict(CATEGORY_PATTERNS)[asked.category]
    said = pattern.search(text, has.end()) if has is not None else None
    return None if said is None else replace(asked, category=None, terms=(said[0], *asked.terms))


def _points(text: str, asked: QueryIntent, talk: Talk) -> bool:
    """Whether it says that it speaks of what was shown; "the cheapest among phones" after shoes does not."""
    if (
        EVERYWHERE.search(text)
        or NONE_OF.search(text)
        or (AMONG.search(text) is None and not (asked.sort and RESORT.search(text)))
    ):
        return False
    return asked.category is None or (talk.intent is not None and includes(talk.intent, asked.category))


def _chooses(text: str, asked: QueryIntent, talk: Talk) -> bool:
    """Whether it picks from what was shown without saying so: "which one is cheapest?", 最便宜的是哪个."""
    if len(talk.them) < 2 or asked.category is not None or asked.min_price or asked.max_price:
        return False
    if EVERYWHERE.search(text):
        return False
    if asked.either or asked.without or asked.terms:
        return False
    if asked.attributes:
        return _THE_ONE.search(text) is not None and not talk.alone
    most = asked.sort is not None and asked.limit == 1
    priced = CHEAPER.search(text) is not None or DEARER.search(text) is not None
    if _OF_TWO.search(text) and (asked.sort is not None or priced or len(talk.them) == 2):
        return True
    return most or (_CHOOSE.search(text) is not None and not (priced and SEVERAL.search(text)))


def _among(text: str, asked: QueryIntent, talk: Talk) -> QueryIntent:
    sort, limit = asked.sort, asked.limit
    places = pointed(text, talk)
    two = talk.pair if THE_TWO.search(text) else ()
    goods = (places if len(places) > 1 else two or talk.them) or (PREVIOUS,)
    if sort is not None and RESORT.search(text):
        return replace(asked, category=None, limit=max(len(goods), 1), among=goods)
    if sort is None and CHEAPER.search(text):
        sort = "price"
    elif sort is None and DEARER.search(text):
        sort = "price_desc"
    if sort is None and (_BETTER.search(text) or not (constrained(asked) or asked.terms)):
        sort, limit = "value", 1
    elif sort is not None and (limit == 5 or len(places) > 1 or two) and not SEVERAL.search(text):
        limit = 1
    return replace(asked, category=None, sort=sort, limit=limit, among=goods)
