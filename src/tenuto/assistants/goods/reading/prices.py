"""Prices and ratings in a question: bounds, ranges, "around", in English and Chinese."""

from __future__ import annotations

import re
from typing import Final

from tenuto.assistants.goods.words import CURRENCY, currency_in, cut, number
from tenuto.model.expression import expression

_CHINESE_DIGITS: Final = "一二两三四五六七八九"
# Possessive, so that the check for a unit behind it cannot be dodged by giving a digit back.
_NUMBER: Final = (
    r"(?:\d++(?:,\d{3})*+(?:\.\d++)?+\s?(?:k\b|千|万|百)?+"
    rf"|[{_CHINESE_DIGITS}][{_CHINESE_DIGITS}零十百千万]{{0,8}}[十百千万][{_CHINESE_DIGITS}]?+)"
)
_NO_UNIT: Final = (
    r"(?!\s*-?(?:gb|tb|g\b|t\b|mah|inch|寸|英寸|hz|kg|ml|l\b|cm|mm|w\b|克|升|毫|公斤|斤|页|岁|星|stars?\b|年|个|款|台|件|部|双|本|种"
    r"|months?\b|days?\b|years?\b|小时|hours?\b|%|pieces?\b|people|人|点|分))"
)
_BEFORE: Final = r"(?:hk\$|us\$|[¥$€£]|rmb|cny|usd|eur|gbp|hkd|jpy)"
_MONEY: Final = rf"{_BEFORE}?\s*+({_NUMBER}){_NO_UNIT}\s*+(?:{CURRENCY})?"

_RANGES: Final = (
    expression(rf"(?:between|from)\s*{_MONEY}\s*(?:and|to|-|~)\s*{_MONEY}"),
    expression(rf"(?:从|在)?{_MONEY}\s*(?:-|~|到|至|和)\s*{_MONEY}\s*(?:之间|的)?"),
)
# 两三千: two neighbouring digits and one power.
_LOOSE_RANGE: Final = expression(rf"([{_CHINESE_DIGITS}])([{_CHINESE_DIGITS}])([百千万])(?:元|块钱?)?(?:左右)?")
_CLASSES: Final = expression(r"([百千万])元(机|[级档])")
_AT_MOST: Final = (
    expression(
        r"(?:under|below|less than|cheaper than|lower than|at most|up to|no more than|not more than|not over|within"
        r"|max(?:imum)?(?: of)?(?=\D{0,3}\d{2})|<=?|budget(?: is| of|:)?(?: about| around)?|spend"
        r"|不超过|不高于|不要超过|别超过|低于|少于|不到|小于|最多"
        rf"|便宜过|比|预算(?:是|为|在|大概|大约|只有|有)*|控制在)\s*{_MONEY}(?!\s*以上)"
    ),
    expression(
        rf"{_MONEY}\s*(?:or (?:less|under|below|cheaper)|and (?:under|below)|max\b|tops\b|budget"
        r"|以下|以内|之内|内|之下|不到|的?预算|封顶)"
    ),
)
_AT_LEAST: Final = (
    expression(
        r"(?:over|above|more than|at least|starting (?:at|from)|higher than|upwards of|>=?"
        r"|高于|超过|大于|不低于|不少于|至少|最少|起码)"
        rf"\s*{_MONEY}"
    ),
    expression(rf"{_MONEY}\s*(?:or (?:more|above|over)|and (?:up|above|over)|\+(?!\s*\d)|以上|起|往上|开外)"),
)
_NOT: Final = (
    r"(?:\b(?:not|no|nothing|none|never)|\b(?:do not|don't) (?:want|need|show me)(?: (?:any(?:thing)?|one|ones))?"
    r"|不要|别要?|不想要|不)\s*"
)
_NOT_OVER: Final = (
    expression(rf"{_NOT}(?:over|above|more than|higher than|beyond|高于|超过|大于)\s*{_MONEY}"),
    expression(rf"(?:不要|别要?|不想要){_MONEY}\s*(?:以上|往上)的?"),
)
_NOT_UNDER: Final = (
    expression(rf"{_NOT}(?:under|below|less than|lower than|cheaper than|低于|少于|小于)\s*{_MONEY}"),
    expression(rf"(?:不要|别要?|不想要){_MONEY}\s*(?:以下|以内)的?"),
)
_ABOUT: Final = (
    expression(rf"(?:around|about|roughly|approximately|approx\.?|near|circa|大概|大约|差不多)\s*{_MONEY}"),
    expression(rf"{_MONEY}\s*(?:左右|上下|ish\b|or so|价位|的样子)"),
    expression(rf"{_BEFORE}\s*({_NUMBER}){_NO_UNIT}(?:\s*(?:{CURRENCY}))?|({_NUMBER})\s*(?:{CURRENCY})"),
)
_RATED: Final = (
    expression(
        r"(?:rat(?:ed|ings?)|评[分价]|打分|scored?)\s*+(?:of|is|在|为|要)?\s*+"
        r"(?:above|over|at least|higher than|more than|不低于|高于|超过|大于|>=?)?"
        r"\s*+([0-5](?:\.\d)?)(?![\d.]*\d)\s*(?:stars?|[分星])?"
        r"\s*(?:以上|or (?:more|above|higher|better)|and (?:up|above)|\+)?"
    ),
    expression(
        r"(?:above|over|at least|more than)?\s*(?<![\d.])([0-5](?:\.\d)?)\s*"
        r"(?:\+\s*stars?|stars?(?: (?:or|and) (?:more|up|above|higher|better))?|星(?:及?以上)?|分以上)"
    ),
)
_EXACTLY: Final = (expression(rf"(?:exactly|precisely|正好|刚好|恰好)\s*{_MONEY}"),)
_NEAR: Final = 0.2


class Prices:
    """What a text says of prices and ratings, and the text without it."""

    def __init__(self, text: str) -> None:
        self.rest = text
        self.low: float | None = None
        self.high: float | None = None
        self.rating: float | None = None
        self.currency: str | None = None
        rated = self._take(*_RATED)
        if rated is not None:
            self.rating = float(rated[1])
        self._said = ""
        self._prices()
        self.currency = currency_in(self._said)

    def _prices(self) -> None:
        if found := self._take(*_RANGES):
            self.low, self.high = _span(found[1], found[2])
        elif found := self._take(_LOOSE_RANGE):
            self.low, self.high = number(found[1] + found[3]), number(found[2] + found[3])
        elif found := self._take(_CLASSES):
            base = number("一" + found[1])
            self.low, self.high = base, 2 * base
            self.rest += " 手机" if found[2] == "机" else ""
        elif found := self._take(*_EXACTLY):
            self.low = self.high = number(found[1])
        elif found := self._take(*_ABOUT[:2]):
            self._around(found[1])
        else:
            self._bounds()

    def _bounds(self) -> None:
        # What is not wanted first: within "nothing under 1000" stands "under 1000".
        if found := self._take(*_NOT_OVER):
            self.high = number(found[1])
        if found := self._take(*_NOT_UNDER):
            self.low = number(found[1])
        if self.high is None and (found := self._take(*_AT_MOST)):
            self.high = number(found[1])
        if self.low is None and (found := self._take(*_AT_LEAST)):
            self.low = number(found[1])
        if self.low is None and self.high is None and (found := self._take(_ABOUT[2])):
            self._around(found[1] or found[2])

    def _around(self, amount: str) -> None:
        middle = number(amount)
        self.low, self.high = round(middle * (1 - _NEAR), 2), round(middle * (1 + _NEAR), 2)

    def _take(self, *patterns: re.Pattern[str]) -> re.Match[str] | None:
        for pattern in patterns:
            found = pattern.search(self.rest)
            if found is not None:
                self.rest = cut(self.rest, *found.span())
                self._said = found[0]
                return found
        return None


def _span(one: str, other: str) -> tuple[float, float]:
    """Both ends of a range; in 2-3千 the first end borrows the second's power."""
    low, high = number(one), number(other)
    power = other.strip()[-1:]
    if power in "千万百k" and one.strip()[-1:] not in "千万百k" and low < 10:
        low = number(f"{one}{power}")
    return min(low, high), max(low, high)
