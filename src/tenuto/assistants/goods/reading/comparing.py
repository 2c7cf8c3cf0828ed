"""Which goods a question sets side by side: by their places, by name, "it" with another, or "the two"."""

from __future__ import annotations

import re
from typing import Final

from tenuto.assistants.goods.intent import MAX_PLACES, Bound, Details, QueryIntent, Talk
from tenuto.assistants.goods.reading.pointing import PRONOUN, THE_TWO, compared_places, places_in
from tenuto.assistants.goods.reading.wording import CHEAPER, DEARER
from tenuto.assistants.goods.words import ASPECTS, CATEGORY_PATTERNS, name_in
from tenuto.model.expression import expression

_COMPARE: Final = expression(
    r"^(?:and )?(?:both|the two)(?: of them)?\W*$|^(?:这|那|它们)?(?:两个|俩|两款)都?(?:看看|介绍)?\W*$"
    r"|\bcompar(?:e|ed|ison|ing)\b|\bversus\b|\bvs\b|\bdifferences?\b|对比|比较一下|比较下|比一比|做个比较|区别|差别|有什么不同"
)
_JOINED: Final = expression(r"\s+(?:and|with|to|vs\.?|versus|or|from)\s+|和|与|跟|还是|、")
_COMPARING_WORDS: Final = expression(
    r"\b(?:(?:can|could|would) you|please|compar(?:e|ison)(?: of| between)?"
    r"|(?:what(?:'s| is| are) )?the differences? between|between|the)\b"
    r"|请|帮我|对比一?下?|比较一?下?|比一比|有什么(?:区别|差别|不同)|的?区别|的?差别|[?？。.!！]"
)
_MORE_OF: Final = r"(?:better|worse|[a-z]{3,}er|(?:more|less) [a-z]+)"
# Two that are named, and which of them is more: "is X better than Y?", X和Y哪个便宜.
_RIVALS: Final = (
    expression(rf"\b(?:is|are) (?P<one>.{{2,40}}?) (?:any |much |really )?{_MORE_OF} than (?P<other>.{{2,40}}?)\W*$"),
    expression(rf"\bwhich(?: one)? is {_MORE_OF}\W+(?P<one>.{{2,40}}?) or (?P<other>.{{2,40}}?)\W*$"),
    expression(r"^(?P<one>.{2,24}?)(?:和|与|跟|还是)(?P<other>.{2,24}?),?哪一?[个款台本双件](?:更|比较)?.{1,6}$"),
    expression(r"^(?P<one>.{2,24}?)比(?P<other>.{2,24}?)(?:更|还|要)?[好贵大小轻重]?(?:便宜|划算|好用)?[吗么]\W*$"),
)
# Whether one is more than the other, where at least one of them was shown: "is it cheaper than the third?".
_WHETHER: Final = (
    expression(
        r"^(?:and |so |but )?(?:is|are|was|does|do|has|have)(?:n't)? (?P<one>.{2,40}?) "
        rf"(?:(?:have|has|come with|cost) )?(?:any |much |really |even |an? )?{_MORE_OF}(?: [a-z ]{{2,24}}?)?"
        r" than (?P<other>.{2,40}?)\W*$"
    ),
    expression(
        r"^(?:那|那么)?(?P<one>.{1,16}?)是?不?是?比(?P<other>.{1,16}?)(?:的|更|还|要)?"
        r"(?:便宜|划算|好用|[好贵大小轻重长短厚薄高低多少])一?[些点]?(?:吗|么|嘛|吧|不)\W*$"
    ),
)
# Which of two is more, where one of them is "it": 它和光诺 Lite 2 哪个好.
_WHICH: Final = (
    _RIVALS[1],
    expression(r"^(?P<one>.{1,24}?)(?:和|与|跟|还是)(?P<other>.{1,24}?),?哪一?[个款台本双件](?:更|比较)?.{1,6}$"),
    expression(r"\b(?P<one>it|this one|that one) (?:or|vs\.?|versus) (?P<other>.{2,40}?)\W*$"),
)


def compared(text: str, asked: QueryIntent, talk: Talk) -> Details | None:
    """The goods that a folded text compares, if it does."""
    it = (talk.focus,) if talk.focus is not None and PRONOUN.search(text) else ()
    if not _COMPARE.search(text):
        return _whether(text, asked, talk) or _beside_it(text, talk) or _rivals(text, talk)
    if places := compared_places(text, bool(talk.items)):
        return Details(ids=it, places=places)
    if asked.sort is not None:
        return None
    named = tuple(filter(None, map(name_in, _JOINED.split(_COMPARING_WORDS.sub(" ", text).strip()))))
    if len(named) + len(it) > 1:
        return Details(ids=it, names=named[:MAX_PLACES])
    return _together(text, talk)


def _rivals(text: str, talk: Talk) -> Details | None:
    if compared_places(text, bool(talk.items)) or PRONOUN.search(text):
        return None
    found = _first(_RIVALS, text)
    names = tuple(filter(None, map(name_in, found.group("one", "other")))) if found is not None else ()
    return Details(names=names) if len(names) > 1 and not any(map(_is_category, names)) else None


def _whether(text: str, asked: QueryIntent, talk: Talk) -> Details | None:
    """Two of which it is asked whether the one is more than the other."""
    found = _first(_WHETHER, text)
    if found is None or not talk.items:
        return None
    if len(talk.at(places := places_in(text, True))) < len(places):
        # Place 0 is nobody's: it is asked back which one is meant.
        return Details(places=(0,))
    one, other = _side(found["one"], talk), _side(found["other"], talk)
    if one is None or other is None or not (one.ids or other.ids):
        return None
    if not (one.ids and other.ids):
        # Goods by their name may be several: they are set beside the one, and nothing is said of which.
        return Details(ids=(*one.ids, *other.ids), names=(*one.names, *other.names))
    return Details(ids=(*one.ids, *other.ids), claim=_claim(text, asked))


def _beside_it(text: str, talk: Talk) -> Details | None:
    """What was spoken of beside goods that are named."""
    found = _first(_WHICH, text) if talk.items else None
    if found is None or compared_places(text, True):
        return None
    sides = [side for side in (_side(found["one"], talk), _side(found["other"], talk)) if side is not None]
    ids, names = (tuple(each for side in sides for each in getattr(side, of)) for of in ("ids", "names"))
    return Details(ids=ids, names=names) if ids and names else None


def _side(said: str, talk: Talk) -> Details | None:
    """One side of a comparison: goods that were shown, or a name; `None` for a kind of goods or nothing at all."""
    if shown := talk.at(places_in(said, True)):
        return Details(ids=shown[:1])
    if PRONOUN.search(said) or said in ("this", "that", "它", "这", "那"):
        return Details(ids=(talk.focus or talk.items[0],))
    name = name_in(said)
    return Details(names=(name,)) if name and not _is_category(name) else None


def _claim(text: str, asked: QueryIntent) -> Bound | None:
    """What the first is said to have more or less of; `None` where that is no amount: "better"."""
    if CHEAPER.search(text) or DEARER.search(text):
        return Bound(of=("price",), sign="<" if CHEAPER.search(text) else ">")
    named = tuple(aspect for aspect, pattern in ASPECTS if pattern.search(text))
    if asked.sort not in ("most", "least"):
        return None
    # 电池比第二个大 speaks of the battery, and 大 alone of what such goods have.
    return Bound(of=named[:1] or asked.by, sign=">" if asked.sort == "most" else "<")


def _first(patterns: tuple[re.Pattern[str], ...], text: str) -> re.Match[str] | None:
    return next((found for pattern in patterns if (found := pattern.search(text)) is not None), None)


def _is_category(name: str) -> bool:
    return any(pattern.fullmatch(name) for _, pattern in CATEGORY_PATTERNS)


def _together(text: str, talk: Talk) -> Details | None:
    """Those that were shown: the two that were, or all of them. Place 0 is nobody's: it is asked back who is meant."""
    if not talk.items:
        return None
    if THE_TWO.search(text) or talk.alone:
        return Details(ids=talk.pair, places=() if talk.pair else (0,))
    return Details(ids=talk.them)
