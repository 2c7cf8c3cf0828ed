"""What a question does not want: "neither red nor white", "any but Vantik", 不要苹果也不要华为, 光诺以外的.

A "not" holds for all that it is said of: of words joined by "or", "nor" or 和 behind it none is wanted.
"""

from __future__ import annotations

import re
from typing import Final

from tenuto.assistants.goods.words import (
    CATEGORY_PATTERNS,
    COLOR,
    COLOR_WORDS,
    HAN,
    MEASURE,
    STOP_PHRASES,
    STOP_WORDS,
    color_of,
    cut,
    term,
)
from tenuto.model.expression import expression
from tenuto.model.numbers import ORDINAL

_MAX_UNWANTED: Final = 8
_MAX_WORDS: Final = 2

_NO: Final = expression(
    r"(?<!why )\b(?:neither|nor|not|no|without|except(?:ing)?|exclud(?:e|ing)|other than|apart from|aside from|besides"
    r"|minus|barring|instead of|rather than|leav(?:e|ing) out|avoid(?:ing)?|skip(?:ping)?|hate|dislike|can't stand"
    r"|isn't|aren't|nothing(?= (?:from|by|in|with)\b)|non(?=[ -](?!stick|slip))"
    r"|(?:don't|do not|doesn't|does not) (?:want|need|like|have|come (?:with|in)))\b"
    r"|(?<!要)不要|除[了去开]|除(?=[^,，。\s]{1,12}?(?<![户野海])外)|不含|不带|别要|不想要|不喜欢|不考虑|讨厌|排除"
    r"|(?P<kind>非(?!常))|(?<![是要])不是"
)
# "Any phone but Vantik" leaves Vantik out; "any phone, but with more storage" wants something more.
_ALL_BUT: Final = expression(
    r"\b((?:any|every|all|each|no|none)(?:thing|one)?\b[^,.?!;]{0,40}?) but (?:not )?"
    r"(?!(?:with|in|at|under|over|below|above|around|about|for|only|also|please|cheap|more|less|better|good"
    r"|it|they|i|we|he|she|my|the price|no|must|should|can|has|have|is|are|\d|[a-z]+er\b))"
)
_LINK: Final = expression(
    r"(?:[\s-]+(?:for|from|by|of|in|with|have|be|about|on|containing|including|related to|made (?:by|of|from|in)"
    r"|the|an?|any(?:thing)?|to)\b)*+[\s-]*"
)
_DEGREE: Final = expression(rf"(?:too|very|so|that|heavy|expensive|{ORDINAL}|last)\b|[太贵了吗吧它这那]")
_WORD: Final = expression(r"[a-z][a-z0-9+'-]+")
_RUN: Final = expression(
    rf"([{HAN}a-z0-9]{{1,8}}?)(?=[的也又还都就和或、跟与,，。\s]|以及|[之以]外|(?<![户野海])外|牌|[吗吧]|$)"
)
_END: Final = expression(r"的?(?:[之以]外|(?<![户野海])外|牌)?的?")
# A comma goes on only where an "or" is still to come: "not red, blue or green".
_NEXT: Final = expression(
    r"\s*,?\s*\b(?:or|nor)\b|\s*,(?=[^,.?!]{1,24}(?:,[^,.?!]{1,24})?\b(?:or|nor)\b)"
    r"|的?(?:和|与|跟|、|或者?|以及|还有(?![什哪没别])|[也又](?:不要|不想要|不考虑|别要))"
)
_AND: Final = expression(r"和|与|跟|、|或者?|以及")
# 光诺和万擎以外的: what is left out comes first.
_OUTSIDE: Final = expression(rf"([{HAN}a-z0-9、]{{1,16}})[以之]外的?")
_DISMISSED: Final = expression(
    rf"(?:^|(?<=[,，。\s]))(?![这那它第])([{HAN}a-z0-9]{{1,8}}?)的?(?:就算了|就?不要了?|除外|就?不考虑了?)(?=[,，。\s吧]|$)"
)


class Unwanted:
    """What a text does not want, and the text without that."""

    def __init__(self, text: str) -> None:
        self.rest = _ALL_BUT.sub(r"\1 except ", text)
        self.phrases: list[str] = []
        at = 0
        while len(self.phrases) < _MAX_UNWANTED and (no := _NO.search(self.rest, at)) is not None:
            end = self._kind(no.end()) if no["kind"] else self._enumeration(no.end())
            at = no.end() if end is None else no.start()
            if end is not None:
                self._cut(no.start(), end)
        if (outside := _OUTSIDE.search(self.rest)) is not None:
            self._outside(outside)
        while len(self.phrases) < _MAX_UNWANTED and (dismissed := _DISMISSED.search(self.rest)) is not None:
            self.phrases.append(_called(dismissed[1]))
            self._cut(dismissed.start(), dismissed.end())

    def _cut(self, start: int, end: int) -> None:
        self.rest = cut(self.rest, start, end)

    def _kind(self, at: int) -> int | None:
        """Read what goods are not, up to what they are: 非智能手表 are watches."""
        phrase, end = _phrase(self.rest, at)
        end = next((place for place in range(at + 1, end) if names_category(self.rest, place)), end)
        if not phrase:
            return None
        self.phrases.append(_called(self.rest[at:end].removesuffix("的")))
        return end

    def _outside(self, found: re.Match[str]) -> None:
        """Leave out what stands before 以外, from where the question begins to name it."""
        start = max((stop.end() for stop in STOP_PHRASES.finditer(found[1]) if not _AND.fullmatch(stop[0])), default=0)
        named = [_called(word) for word in _AND.split(found[1][start:]) if word and not word.isdecimal()]
        if named:
            self.phrases += named[: _MAX_UNWANTED - len(self.phrases)]
            self._cut(found.start() + start, found.end())

    def _enumeration(self, at: int) -> int | None:
        """Read what a "not" is said of; where that ends, or `None` when it is said of no goods."""
        end: int | None = None
        while len(self.phrases) < _MAX_UNWANTED:
            link = _LINK.match(self.rest, at)
            phrase, behind = _phrase(self.rest, link.end() if link else at)
            if not phrase:
                break
            self.phrases.append(phrase)
            end = behind
            following = _NEXT.match(self.rest, end)
            if following is None:
                break
            at = following.end()
        return end


def _phrase(text: str, at: int) -> tuple[str, int]:
    """The words at that place that name something together, and where they end."""
    if _DEGREE.match(text, at):
        return "", at
    if color := COLOR.match(text, at):
        return color_of(color), color.end()
    if amount := MEASURE.match(text, at):
        return term(amount[1], amount[2]), _end(text, amount.end())
    if (run := _RUN.match(text, at)) and not run[1].isascii():
        return _called(run[1]), _end(text, run.end())
    return _words(text, at)


def _words(text: str, at: int) -> tuple[str, int]:
    words: list[str] = []
    end = at
    while len(words) < _MAX_WORDS and (word := _WORD.match(text, at)) is not None:
        if word[0] in STOP_WORDS or word[0] == "nor" or COLOR.match(text, at) or (words and names_category(text, at)):
            break
        words.append(word[0].removesuffix("'s"))
        end, at = word.end(), word.end() + 1
        if text[end : end + 1] != " ":
            break
    return " ".join(words), end


def names_category(text: str, at: int) -> bool:
    """Whether a category is named at that place."""
    return any(pattern.match(text, at) for _, pattern in CATEGORY_PATTERNS)


def _end(text: str, at: int) -> int:
    ending = _END.match(text, at)
    return ending.end() if ending else at


def _called(word: str) -> str:
    """A colour by its English name, anything else by its own."""
    return COLOR_WORDS.get(word.removesuffix("色"), word)
