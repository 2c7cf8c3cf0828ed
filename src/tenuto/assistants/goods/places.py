"""Places in a list that was shown: "the second one", 第三个, "the first two", 最后一个."""

from __future__ import annotations

import re
from typing import Final

from tenuto.assistants.goods.speech import ORDINALS, number

MAX_PLACES: Final = 4

_NOUN: Final = r"one|item|option|product|phone|laptop|choice|pair|book|model"
PLACE: Final = re.compile(
    rf"(?<![a-z])(?:(?P<the>the|that|number|option|item)\s+)?(?P<en>{'|'.join(ORDINALS)}|last)(?P<one>\s+(?:{_NOUN}))?\b"
    r"(?! (?:aid|hand|week|month|year|time|class|name|cheapest|best|most|lowest|highest|least|priciest))"
    r"|(?:\bnumber|\bno\.|#|\boption|\bitem)\s*(?P<digit>\d{1,2})\b"
    r"|(?P<back>倒数)?第\s*(?P<zh>\d{1,2}|[一二三四五六七八九十])(?!便宜|贵|划算|高|好|次|天|名|畅销|热)\s*[个款台部双本件种项号]?"
    r"|(?P<end>最后)(?:一|那)?[个款台部双本件种]"
)
_FIRST_FEW: Final = re.compile(r"\bfirst (two|three|four|\d)\b|(?:前|头)([两二三四]|\d)[个款台部双本件种]")
_SHORT: Final = 20


def places_in(text: str, shown: bool) -> tuple[int, ...]:
    """Places counted from 1, or from -1 backwards.

    English words such as "first" mean other things too, so that they need company, or something that was shown.
    """
    if few := _FIRST_FEW.search(text):
        return tuple(range(1, int(number(few[1] or few[2])) + 1))[:MAX_PLACES]
    places = (_place(found, text, shown) for found in PLACE.finditer(text))
    return tuple(dict.fromkeys(place for place in places if place))[:MAX_PLACES]


def _place(found: re.Match[str], text: str, shown: bool) -> int:
    if found["zh"]:
        return int(number(found["zh"])) * (-1 if found["back"] else 1)
    if found["digit"]:
        return int(found["digit"])
    if found["end"]:
        return -1
    pointed = found["the"] or found["one"] or len(text) < _SHORT if shown else found["the"] and found["one"]
    return ORDINALS.get(found["en"], -1) if pointed else 0
