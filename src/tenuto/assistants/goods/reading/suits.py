"""Whom goods suit: sizes and ages in a question ("size 42 or larger", "for a 6 year old", 42码, 3到6岁, XL码)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tenuto.assistants.goods.intent import Bound, Sign
from tenuto.assistants.goods.words import COLOR, cut, number
from tenuto.model.expression import expression
from tenuto.model.numbers import CARDINAL

_MAX_FOUND: Final = 3
_MONTHS: Final = 12

_FIGURE: Final = r"\d{2,3}(?:\.5)?(?![\d.]|\s?(?:cm|mm|inch|ml|gb|l\b|kg|g\b|寸|厘米|毫升|升|英寸))"
_LETTERS: Final = r"(?:[2-5]?x{0,4}l|xx?s|s|m)(?![a-z0-9'])"
_SIZE: Final = rf"(?:{_FIGURE}|{_LETTERS})"
_YEARS: Final = rf"(?:\d{{1,2}}(?:\.5)?|{CARDINAL}|[一二两三四五六七八九十]{{1,3}})"
_SPAN: Final = r"\s*(?:-|~|to|and|or|到|至|或者?)\s*"
_LEAST: Final = r"at least|from|over|above|older than|larger than|bigger than|大于|超过|至少"
_MOST: Final = r"at most|up to|under|below|younger than|smaller than|小于|不到|未满|最多"
# Goods for "8+" are for children over 8; those for "3+" are not for children under 3.
_BELOW: Final = frozenset({"under", "below", "younger than", "smaller than", "小于", "不到", "未满"})
_UP: Final = r"(?:or|and) (?:larger|bigger|above|over|up|more|older)\b|\+(?!\s*\d)|plus\b|及?以上|往上|起"
_DOWN: Final = r"(?:or|and) (?:smaller|below|under|less|younger)\b|及?以下|以内"
# Of somebody's age it is told who that is: that word asks for nothing more.
_CHILD: Final = (
    r"(?:\s*的?(?:小?(?:孩子?|朋友)|宝宝|儿童|儿子|女儿|男孩|女孩|娃娃?)(?:玩|用|穿)?的?"
    r"|[- ](?:boys?|girls?|kids?|child(?:ren)?|son|daughter|toddlers?|bab(?:y|ies)|nephew|niece)\b)?"
)

_SIZES: Final = (
    expression(
        rf"(?:(?P<ge>{_LEAST})\s+|(?P<le>{_MOST})\s+)?(?:an? )?\b(?:sizes?|eu)\s*(?:of |is |eu )?\s*"
        rf"(?:(?P<least>{_LEAST})\s*|(?P<most>{_MOST})\s*)?(?P<low>{_SIZE})(?:{_SPAN}(?:size )?(?P<high>{_SIZE}))?"
        rf"\s*(?:(?P<up>{_UP})|(?P<down>{_DOWN}))?"
    ),
    expression(
        rf"(?:尺?码(?:数)?(?:是|为|要)?\s*)?(?:(?P<ge>{_LEAST})|(?P<le>{_MOST}))?\s*(?<![a-z0-9.])(?P<low>{_SIZE})"
        rf"(?:码?{_SPAN}(?P<high>{_SIZE}))?\s*码\s*(?:(?P<up>{_UP})|(?P<down>{_DOWN}))?的?"
    ),
    expression(
        r"\bin (?:an? )?(?:size )?"
        r"(?P<low>(?:[2-5]?x+l|xx?s|[sml](?=\W*$|,| (?:or|and|under|below|over|for|in|please|not|but)\b"
        rf"| (?:{COLOR.pattern})))(?![a-z0-9']))"
        rf"(?:{_SPAN}(?P<high>{_SIZE}))?"
    ),
)
_AGES: Final = (
    expression(
        rf"(?:\b(?:for|my|an?|aged?|ages|kids?|child(?:ren)?)\s+)*(?:(?P<ge>{_LEAST})\s+|(?P<le>{_MOST})\s+)?"
        rf"(?<![\d.])\b(?P<low>{_YEARS})(?:{_SPAN}(?P<high>{_YEARS}))?"
        r"(?:[- ]?(?:(?P<months>months?)|years?|yrs?)[- ](?:olds?|of age)\b|\s?y/?o\b)"
        rf"\s*(?:(?P<up>{_UP})|(?P<down>{_DOWN}))?{_CHILD}"
    ),
    expression(
        r"\b(?:kids?|children|toddlers?|bab(?:y|ies))\s+(?:aged?\s+|between\s+)?"
        rf"(?:(?P<ge>{_LEAST})\s+|(?P<le>{_MOST})\s+)?(?P<low>\d{{1,2}})(?:{_SPAN}(?P<high>\d{{1,2}}))?(?![\d.,]|\s*(?:¥|元|yuan|gb|inch))"
        rf"\s*(?:(?P<up>{_UP})|(?P<down>{_DOWN}))?"
    ),
    expression(
        rf"\bage[ds]?\s+(?:(?P<ge>{_LEAST})\s+|(?P<le>{_MOST})\s+)?(?P<low>{_YEARS})\b(?:{_SPAN}(?P<high>{_YEARS})\b)?"
        rf"(?P<months>\s*months)?\s*(?:(?P<up>{_UP})|(?P<down>{_DOWN}))?"
    ),
    expression(
        rf"(?:适合|给)?(?:(?P<ge>{_LEAST})|(?P<le>{_MOST}))?\s*(?<![\d.])(?P<low>{_YEARS})(?:{_SPAN}(?P<high>{_YEARS}))?"
        rf"\s*(?:(?P<months>个月大?)(?=的?(?:宝宝|孩|婴|儿))|[周半]?岁半?)"
        rf"\s*(?:(?P<up>{_UP})|(?P<down>{_DOWN}))?{_CHILD}"
    ),
)


class Suits:
    """The sizes and ages of a text as bounds, and the text without them."""

    def __init__(self, text: str) -> None:
        self.rest = text
        self.found: tuple[Bound, ...] = ()
        for name, patterns in (("age", _AGES), ("size", _SIZES)):
            said = next((found for pattern in patterns if (found := pattern.search(self.rest)) is not None), None)
            if said is not None and len(self.found) < _MAX_FOUND:
                self.found += tuple(_bounds(name, said))
                self.rest = cut(self.rest, *said.span())


def _bounds(name: str, said: re.Match[str]) -> Iterator[Bound]:
    groups = said.groupdict()
    months = bool(groups.get("months"))
    low, high = _amount(name, said["low"], months), said["high"] and _amount(name, said["high"], months)
    if high:
        yield Bound(of=(name,), sign=">=", amount=low)
        yield Bound(of=(name,), sign="<=", amount=high)
        return
    at_least = groups.get("ge") or groups.get("up") or groups.get("least")
    at_most = groups.get("le") or groups.get("down") or groups.get("most")
    sign: Sign = ">=" if at_least else "<" if at_most in _BELOW else "<=" if at_most else "="
    yield Bound(of=(name,), sign=sign, amount=low)


def _amount(name: str, said: str, months: bool) -> str:
    if name == "size":
        return said.upper()
    years = number(said)
    return f"{years / _MONTHS if months else years:.3g}"
