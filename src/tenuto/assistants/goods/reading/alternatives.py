"""Alternatives in a question: "red or blue", "phones or tablets", "8GB or 12GB", 手机或平板, 猫粮和狗粮.

An "and" joins alternatives only where no item can be both: two colours, two categories, two kinds of one thing ("cat
food and dog food").
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from tenuto.assistants.goods.reading.negation import names_category
from tenuto.assistants.goods.reading.pointing import PLACE
from tenuto.assistants.goods.words import (
    CATEGORY_PATTERNS,
    COLOR,
    HAN,
    MEASURE,
    STOP_PHRASES,
    STOP_WORDS,
    Group,
    color_of,
    cut,
    term,
)
from tenuto.model.expression import expression

MAX_GROUPS: Final = 4
_MAX_OPTIONS: Final = 6
_MAX_WORDS: Final = 3
_MAX_JOINS: Final = 12
_REACH: Final = 48

_ARTICLE: Final = r"(?:(?:\b(?:maybe|perhaps|even|also|an?|the|some|any)\b|一[个款台部双本件])\s*)*"
_OR: Final = r"(?:\bor\b|或者?是?|还是)"
_AND: Final = r"(?:\band\b|&|和|与|跟|以及|、)"
_JOIN: Final = rf"\s*,?\s*(?:{_OR}|{_AND}|,|/)\s*{_ARTICLE}"
_JOINED: Final = expression(_JOIN)
_AMOUNTS_OR: Final = expression(rf"(?:{MEASURE.pattern}|(?<![\d.])(\d{{1,4}}))\s*{_OR}\s*{MEASURE.pattern}")
_EITHER: Final = expression(rf"\s*(?P<or>{_OR})\s*{_ARTICLE}|\s*(?P<and>{_AND})\s*{_ARTICLE}")
# One plain run each: what is nested here could be tried in endless ways. Two blanks are a gap where something was read.
_LEFT: Final = expression(rf"[a-z0-9+'-](?:[a-z0-9+'-]| (?! ))*\Z|[{HAN}a-z0-9]+\Z")
_RIGHT: Final = expression(rf"[a-z0-9+'-](?:[a-z0-9+'-]| (?! ))*|[{HAN}a-z0-9]+")
_VERB: Final = expression(r"[买要找看想送给]")


class Alternatives:
    """The alternatives of a text, each group once, and the text without them."""

    def __init__(self, text: str) -> None:
        self.rest = text
        self.groups: tuple[Group, ...] = ()
        self._colors()
        self._categories()
        self._amounts()
        self._phrases()

    def _add(self, options: list[str], *spans: tuple[int, int]) -> None:
        self.groups += (tuple(dict.fromkeys(options))[:_MAX_OPTIONS],)
        for start, end in sorted(spans, reverse=True):
            self.rest = cut(self.rest, start, end)

    def _colors(self) -> None:
        """Nothing has two colours, so that several are alternatives however they are joined."""
        found = list(COLOR.finditer(self.rest))
        names = [color_of(color) for color in found]
        if len(set(names)) > 1:
            joined = (
                (one.end(), other.start())
                for one, other in pairwise(found)
                if _JOINED.fullmatch(self.rest, one.end(), other.start())
            )
            self._add(names, *(color.span() for color in found), *joined)

    def _categories(self) -> None:
        found = sorted(
            (match.span(), slug) for slug, pattern in CATEGORY_PATTERNS for match in pattern.finditer(self.rest)
        )
        for at, ((start, end), slug) in enumerate(found):
            options, last = [slug], end
            for (following, behind), other in found[at + 1 :]:
                if not _JOINED.fullmatch(self.rest, last, following):
                    break
                options.append(other)
                last = behind
            if len(set(options)) > 1:
                return self._add(options, (start, last))
        return None

    def _amounts(self) -> None:
        if found := _AMOUNTS_OR.search(self.rest):
            unit = found[2] or found[5]
            self._add([term(found[1] or found[3], unit), term(found[4], found[5])], found.span())

    def _phrases(self) -> None:
        at = 0
        for _ in range(_MAX_JOINS):
            join = _EITHER.search(self.rest, at)
            if join is None or len(self.groups) >= MAX_GROUPS:
                return
            left, right = _before(self.rest, join.start()), _behind(self.rest, join.end())
            right = _unshared(self.rest, left, right)
            options = [self.rest[start:end] for start, end in (left, right)]
            if not all(map(_names, options)) or (join["and"] and not _of_one_kind(*options)):
                at = join.end()
                continue
            self._add(options, (left[0], right[1]))
            at = left[0]


def _before(text: str, end: int) -> tuple[int, int]:
    """Where the phrase lies that ends there."""
    found = _LEFT.search(text, max(0, end - _REACH), end)
    if found is None:
        return end, end
    start = found.start()
    for stop in (*STOP_PHRASES.finditer(text, start, end), *_VERB.finditer(text, start, end - 1)):
        start = max(start, stop.end())
    words = text[start:end].split(" ")
    kept = len(words)
    while kept > 0 and len(words) - kept < _MAX_WORDS and _tells(words[kept - 1]):
        kept -= 1
    return end - len(" ".join(words[kept:])), end


def _behind(text: str, start: int) -> tuple[int, int]:
    """Where the phrase lies that begins there."""
    found = _RIGHT.match(text, start, start + _REACH)
    if found is None:
        return start, start
    stop = STOP_PHRASES.search(text, start, found.end())
    words = text[start : stop.start() if stop else found.end()].rstrip("都也各有").split(" ")
    kept = 0
    while kept < min(len(words), _MAX_WORDS) and _tells(words[kept]):
        kept += 1
    return start, start + len(" ".join(words[:kept]))


def _unshared(text: str, left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
    """The phrase without the category that both speak of: "wired or wireless headphones"."""
    if any(names_category(text, at) for at in range(*left)):
        return right
    shared = next((at for at in range(right[0] + 1, right[1]) if names_category(text, at)), right[1])
    return right[0], right[0] + len(text[right[0] : shared].rstrip())


def _names(phrase: str) -> bool:
    """Whether it can be a kind of goods, and is no place in a list."""
    return bool(phrase) and PLACE.search(phrase) is None


def _tells(word: str) -> bool:
    return bool(word) and word not in STOP_WORDS


def _of_one_kind(one: str, other: str) -> bool:
    """Whether both are kinds of the same thing: they end alike, and begin otherwise."""
    if one.isascii() and other.isascii():
        return " " in one and " " in other and one.split(" ")[-1] == other.split(" ")[-1]
    return len(one) > 1 and one != other and one[-1] == other[-1]
