"""Goods that a question begins with the name of: "Orbelle One", "Vantik V20 price", 奥蓓One防水吗.

Where the name ends, only the catalogue knows: the words are handed on together.
"""

from __future__ import annotations

from typing import Final

from tenuto.assistants.goods.intent import MAX_TERMS, QueryIntent
from tenuto.assistants.goods.words import ASPECTS, HAN, IN_NAMES, MEASURED, STOP_WORDS
from tenuto.model.expression import expression

_MAX_BARE: Final = 5
_NAMED: Final = 2
_WORD: Final = expression(rf"[a-z0-9][a-z0-9+.'-]*|[{HAN}]+")
_ONESELF: Final = expression(r"\b(?:i|i'm|i've|my|me|we|our|you|your)\b|[我你您他她咱]")
_MODEL: Final = expression(rf"^[{HAN}]{{2,4}}\s?[a-z]*\d+[a-z]*[\s{HAN}].*[吗么嘛]\W*$")
# Whether goods of some name are so: "is the Orbelle One waterproof?", 奥蓓One防水吗.
_WHETHER: Final = expression(
    r"^(?:and |but |so )?(?:is|are|does|do|has|have|can|will) (?:the |an? )?"
    r"(?P<en>(?!(?:it|they|there|this|that|these|those|everything|anything|anyone|all|any)\b).{3,60}?)\W*$"
    r"|^(?P<zh>[^,，。它这那]{3,24}?)(?:吗|么|嘛)\W*$"
)


def named_goods(text: str, asked: QueryIntent, *, searched: bool) -> str:
    """The name that the text begins with and what follows it, where it is about goods of some name; else nothing.

    What can be `searched` for is, unless it asks whether a model of some number is so (光诺 S5 支持5G吗), or ends with
    what is asked of it: "Lumora Air 3 battery".
    """
    if all(map(MEASURED.fullmatch, asked.terms)) or _ONESELF.search(text):
        return ""
    if searched and not (_MODEL.search(text) or _asks_at_its_end(text)):
        return ""
    if searched and asked != QueryIntent(terms=asked.terms):
        return ""
    found = _WHETHER.search(text)
    said = found["en"] or found["zh"] if found is not None else text if _bare(text) else ""
    return " ".join(_WORD.findall(said)[:MAX_TERMS])


def _asks_at_its_end(text: str) -> bool:
    words = _WORD.findall(text)
    return len(words) > _NAMED and any(pattern.fullmatch(words[-1]) for _, pattern in ASPECTS)


def _bare(text: str) -> bool:
    """Whether nothing else is said than a name, and perhaps what is asked of it."""
    words = _WORD.findall(text)
    return len(words) <= _MAX_BARE and all(map(_in_names, words))


def _in_names(word: str) -> bool:
    if len(word) == 1 or word in IN_NAMES or word not in STOP_WORDS:
        return True
    return any(pattern.fullmatch(word) for _, pattern in ASPECTS)
