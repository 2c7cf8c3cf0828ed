"""Words that point at what was shown: "the second one", 第三个, "the first two", "the others", "it", 它们."""

from __future__ import annotations

import re
from typing import Final

from tenuto.assistants.goods.intent import MAX_PLACES
from tenuto.model.expression import expression
from tenuto.model.numbers import CARDINAL, HAN_NUMBER, ORDINAL, whole

_NOUN: Final = r"one|item|option|product|phone|laptop|choice|pair|book|model"
PLACE: Final = expression(
    rf"(?<![a-z])(?:(?P<the>the|that|number|option|item)\s+)?(?P<en>{ORDINAL}|last)(?P<one>\s+(?:{_NOUN}))?\b"
    r"(?! (?:aid|hand|week|month|year|time|class|name|most|least|best|[a-z]+est\b))"
    r"|(?:\bnumber|\bno\.|#|\boption|\bitem)\s*(?P<digit>\d{1,2})\b"
    rf"|(?P<back>倒数)?第\s*(?P<zh>{HAN_NUMBER})(?!便宜|贵|划算|[高好大小轻重长短新多少薄厚快]|次|天|名|畅销|热)"
    r"\s*[个款台部双本件种项号]?"
    r"|(?P<end>最后)(?:一|那)?[个款台部双本件种]"
)
_FIRST_FEW: Final = expression(r"\bfirst (two|three|four|\d)\b|(?:前|头)([两二三四]|\d)[个款台部双本件种]")
_LAST_FEW: Final = expression(r"\blast (two|three|four|\d)\b|(?:最后|后面?|末)([两二三四]|\d)[个款台部双本件种]")
# Those of the list that were not spoken of last.
OTHERS: Final = expression(
    rf"\b(?:the|that) other(?: (?P<en>{CARDINAL}|\d))?(?:(?P<one> (?:{_NOUN}))(?!s))?\b(?! (?:hand|day|way))"
    r"|\bthe others\b"
    r"|另外?那?(?P<zh>[一两二三四]|\d)?[个款台部双本件种]|另外那?几[个款台部双本件种]|其余的?|剩下的?"
    r"|其[他它]的?(?P<few>[两二三四]|\d)[个款台部双本件种]"
)
_BEST_FEW: Final = expression(r"\b(?:top|best) (two|three|four|\d)\b|最[前好]的?([两二三四]|\d)[个款台部双本件种]")
_PAIR: Final = expression(
    r"(?<![\d.])([1-9]\d?)\s*(?:and|with|to|vs\.?|versus|&|,|和|与|跟|、|对)\s*(?:number )?([1-9]\d?)(?![\d.]|\s*[a-z])"
)
# Beside the one spoken of, in the list or in the talk: which one is asked back.
BESIDE_IT: Final = expression(
    r"\bthe (?:one )?(?:before|after) (?:that|it|this)(?: one)?\b|\bthe one (?:before|after)\W*$"
    r"|\bthe (?:previous|next) one\b|^(?:那)?[上前下后]一[个款台部双本件](?:呢|怎么样)?\W*$"
)
PRONOUN: Final = expression(
    r"\b(?:it|its|it's|this one|that one|this (?:phone|laptop|item|product)|that (?:phone|laptop|item|product))\b"
    r"|它(?!们)|[这那][个款台部双本件](?!价|颜色|品牌|牌子|月|星期)"
)
THEY: Final = expression(r"\b(?:they|them|their|these|those)\b|它们|这些|那些|[这那]几[个款台部双本件]")
THE_TWO: Final = expression(
    r"\b(?:the|these|those|them) two\b|\bboth\b|(?<![前后头第最])[两俩二][个款者台部双本件]|它俩"
)
_SHORT: Final = 20


def places_in(text: str, shown: bool) -> tuple[int, ...]:
    """Places counted from 1, or from -1 backwards.

    English words such as "first" mean other things too, so that they need company, or something that was shown.
    """
    if few := _FIRST_FEW.search(text):
        return tuple(range(1, (whole(few[1] or few[2]) or 0) + 1))[:MAX_PLACES]
    if few := _LAST_FEW.search(text):
        return tuple(range(-(whole(few[1] or few[2]) or 0), 0))[-MAX_PLACES:]
    places = (_place(found, text, shown) for found in PLACE.finditer(text))
    return tuple(dict.fromkeys(place for place in places if place is not None))[:MAX_PLACES]


def compared_places(text: str, shown: bool) -> tuple[int, ...]:
    """Places as people name them where they compare: also "the top two", "2 and 4"."""
    if not shown:
        return places_in(text, shown)
    if few := _BEST_FEW.search(text):
        return tuple(range(1, (whole(few[1] or few[2]) or 0) + 1))[:MAX_PLACES]
    if pair := _PAIR.search(text):
        return int(pair[1]), int(pair[2])
    return places_in(text, shown)


def _place(found: re.Match[str], text: str, shown: bool) -> int | None:
    if found["zh"]:
        return (whole(found["zh"]) or 0) * (-1 if found["back"] else 1)
    if found["digit"]:
        return int(found["digit"])
    if found["end"]:
        return -1
    pointed = found["the"] or found["one"] or len(text) < _SHORT if shown else found["the"] and found["one"]
    return (whole(found["en"]) or -1) if pointed else None


def others_in(text: str, shown: tuple[str, ...], focus: str | None) -> tuple[str, ...] | None:
    """Those shown that were not spoken of last; none where so many do not remain, `None` where none are named."""
    found = OTHERS.search(text)
    if found is None:
        return None
    said = found["en"] or found["zh"] or found["few"]
    many = whole(said) if said else 1 if found["one"] else None
    rest = tuple(item for item in shown if item != focus) if focus in shown else ()
    return rest if many is None or many == len(rest) else ()
