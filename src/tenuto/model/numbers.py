"""Whole numbers as people write them: in digits, in English and Chinese words, in Roman numerals.

The patterns have no groups, so that they fit into any other; what they find, `whole` reads.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

_ONES: Final = (
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_NTHS: Final = (
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth "
    "sixteenth seventeenth eighteenth nineteenth"
)
_TENS: Final = "twenty thirty forty fifty sixty seventy eighty ninety"


def _counted(ones: str, tens: str) -> Mapping[str, int]:
    """Words from 1 to 99, those of two parts with a hyphen."""
    counted = {word: number for number, word in enumerate(ones.split(), 1)}
    single = list(counted.items())[:9]
    for ten, (start, alone) in enumerate(zip(_TENS.split(), tens.split(), strict=True), 2):
        counted[alone] = 10 * ten
        counted |= {f"{start}-{word}": 10 * ten + number for word, number in single}
    return MappingProxyType(counted)


def _either(words: Iterable[str]) -> str:
    return "|".join(sorted(words, key=len, reverse=True)).replace("-", "[ -]")


CARDINALS: Final = _counted(_ONES, _TENS)
ORDINALS: Final = _counted(_NTHS, _TENS.replace("y", "ieth"))
_WORDS: Final = {**CARDINALS, **ORDINALS}

CARDINAL: Final = rf"(?:{_either(CARDINALS)})"
ORDINAL: Final = rf"(?:{_either(ORDINALS)}|\d{{1,6}}(?:st|nd|rd|th))"
# Possessive: where what follows does not fit, 十一 must not pass for 十.
HAN_NUMBER: Final = r"(?:\d{1,6}+|[零〇一二两三四五六七八九十百千廿卅]{1,9}+)"
# Capitals alone, and a single one only where nothing follows: "the rule I like" counts nothing.
ROMAN: Final = r"(?-i:(?=[CLXVI]{2}|[CLXVI](?!\s*\w))C{0,3}(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})(?![A-Za-z0-9]))"

_DIGITS: Final = {digit: number for number, digit in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2}
_POWERS: Final = {"十": 10, "百": 100, "千": 1000, "万": 10_000}
_ROMAN: Final = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100}
_FIGURES: Final = re.compile(r"\d{1,18}")


def whole(text: str) -> int | None:
    """The number that a word, an ordinal or a numeral stands for; `None` for anything else."""
    word = unicodedata.normalize("NFKC", text).strip().lower()
    if figures := _FIGURES.match(word):
        return int(figures[0])
    if (known := _WORDS.get(word.replace(" ", "-"))) is not None:
        return known
    if word and set(word) <= set(_ROMAN):
        return _roman(word)
    signs = word.replace("廿", "二十").replace("卅", "三十")
    return _han(signs) if signs and all(sign in _DIGITS or sign in _POWERS for sign in signs) else None


def _roman(word: str) -> int:
    values = [_ROMAN[letter] for letter in word]
    return sum(-one if one < after else one for one, after in zip(values, [*values[1:], 0], strict=True))


def _han(signs: str) -> int:
    if len(signs) > 1 and _POWERS.keys().isdisjoint(signs):  # 二〇二六, figure by figure
        return int("".join(str(_DIGITS[sign]) for sign in signs))
    total, section, digit, power = 0, 0, 0, 1
    for sign in signs:
        if sign in _DIGITS:
            digit = _DIGITS[sign]
            continue
        power = _POWERS[sign]
        if power == 10_000:
            total, section = (section + digit or 1) * power, 0
        else:
            section += (digit or 1) * power
        digit = 0
    if digit and power > 10 and signs[-2:-1] not in ("零", "〇"):  # 两千五 is 2500
        digit *= power // 10
    return total + section + digit
