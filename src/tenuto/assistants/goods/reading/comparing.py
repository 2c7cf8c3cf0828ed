"""Which goods a question sets side by side: by their places, by name, "it" with another, or "the two"."""

from __future__ import annotations

from typing import Final

from tenuto.assistants.goods.intent import MAX_PLACES, Details, QueryIntent, Talk
from tenuto.assistants.goods.reading.pointing import PRONOUN, compared_places
from tenuto.assistants.goods.words import CATEGORY_PATTERNS, name_in
from tenuto.model.expression import expression

_COMPARE: Final = expression(
    r"\bcompar(?:e|ed|ison|ing)\b|\bversus\b|\bvs\b|\bdifferences?\b|对比|比较一下|比较下|比一比|做个比较|区别|差别|有什么不同"
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
_TWO: Final = expression(r"\b(?:the|these|those|them) two\b|\bboth\b|(?<![前后头第最])[两俩二][个款者台部双本件]|它俩")


def compared(text: str, asked: QueryIntent, talk: Talk) -> Details | None:
    """The goods that a folded text compares, if it does."""
    it = (talk.focus,) if talk.focus is not None and PRONOUN.search(text) else ()
    if not _COMPARE.search(text):
        return _rivals(text, talk)
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
    found = next((found for pattern in _RIVALS if (found := pattern.search(text)) is not None), None)
    names = tuple(filter(None, map(name_in, found.group("one", "other")))) if found is not None else ()
    return Details(names=names) if len(names) > 1 and not any(map(_is_category, names)) else None


def _is_category(name: str) -> bool:
    return any(pattern.fullmatch(name) for _, pattern in CATEGORY_PATTERNS)


def _together(text: str, talk: Talk) -> Details | None:
    """Those that were shown: the two that were, or all of them. Place 0 is nobody's: it is asked back who is meant."""
    if not talk.items:
        return None
    if _TWO.search(text) or talk.alone:
        return Details(ids=talk.pair, places=() if talk.pair else (0,))
    return Details(ids=talk.them)
