"""What a sentence claims, and what it only asks, supposes, guesses or puts into somebody's mouth."""

from __future__ import annotations

import re
from bisect import bisect_right
from enum import Enum, auto
from itertools import pairwise
from typing import Final

from tenuto.model.expression import expression


class Claim(Enum):
    """What a speaker does with what they say."""

    STATED = auto()
    HEDGED = auto()
    """Thought, heard, hoped, said by others, or denied to have been said: to be quoted, and no fact."""
    OPEN = auto()
    """Asked or supposed: nothing is said about it."""


_I: Final = re.IGNORECASE
# How far before a statement the words are looked for that make it none.
_LOOK_AT: Final = 100
_SUBJECT: Final = r"(?:i|you|he|she|it|we|they|my|your|his|her|our|their|the|this|that|there|these|those)"
_WH: Final = r"(?:what|where|who|whom|whose|when|which|how|why)(?:'s|'re)?"
_AUX: Final = (
    r"(?:(?:do|does|did|is|are|am|was|were|can|could|will|would|should|shall|may|might|must|have|has|had)(?:n't)?)"
)
_CLAUSE: Final = expression(
    r"[,;:(!\n]|\.\s|\s[-\u2013\u2014]+\s"
    rf"|\s(?:and|but|so|or|because|since|though|although|while|then)(?=\s+(?:{_WH}|{_AUX}|{_SUBJECT})\b)",
    _I,
)
_LEAD: Final = r"\W*(?:(?:and|but|so|or|then|also|well|hey|hi|hello|ok(?:ay)?|please|even|only|what|as)\b\W*)*"
_ASKS: Final = expression(rf"{_LEAD}(?:{_WH}\b|{_AUX} {_SUBJECT}\b|(?:remember|know) (?:if|when|what|where|who)\b)", _I)
# What asks for nothing but a yes: "I live in Paris, don't I?"
_TAG: Final = expression(
    rf"{_LEAD}(?:{_AUX} (?:not )?(?:i|it|he|she|they|you|we)(?: not)?"
    r"|(?:is (?:that|it|this)|am i|are you sure)(?: (?:not )?(?:right|correct|true|so))?)\W*$",
    _I,
)
# What asks whether it was heard, and not whether it is so: "My name is Ann, ok?"
_AGREED: Final = expression(r"\W*(?:ok(?:ay)?|got it|understood|please)\W*$", _I)
_SUPPOSES: Final = expression(
    rf"{_LEAD}(?:(?:if|unless|in case|provided|supposing|suppose|imagine|assuming|assume|pretend)\b(?! you\b)"
    r"|let(?:'s| us| me) (?:say|suppose|assume|pretend|imagine)\b|say (?=i\b|my\b))",
    _I,
)
_SUPPOSED: Final = expression(
    r"\b(?:if|unless|whether|in case|as though|suppos\w+|imagin\w+|assum\w+|pretend\w*|dream(?:t|s|ed)?)\b"
    r"|\b(?:when|whenever|once|until|till|before|after|as soon as)\s*$",
    _I,
)
_GUESSING: Final = (
    r"\b(?:maybe|perhaps|possibly|probably|apparently|allegedly|seems?|wish(?:es|ed)?|hop(?:e|es|ed|ing)|doubt(?:s|ed)?"
    r"|guess(?:es|ed)?|(?:no|not) (?:idea|sure|certain)|deny|denied|forg[eo]t(?:ten)?)\b"
)
_UNTRUE: Final = r"\b(?:not true|untrue|false|wrong|lie|rumou?r|myth|nonsense|(?:im)?possible|(?:un)?likely)"
_GUESSED: Final = expression(rf"{_GUESSING}|{_UNTRUE}(?: that)?\s*$", _I)
_GUESSED_AT: Final = expression(rf"{_GUESSING}|{_UNTRUE}\b", _I)
_THINKING: Final = r"(?:think|thinks|thought|believe|believes|believed|hear|heard|fear)"
_THINKS: Final = expression(rf"\b{_THINKING}(?: that)?\s*$", _I)
_SAYING: Final = (
    r"(?:sa(?:y|ys|id|ying)|tells?|told|telling|claim(?:s|ed|ing)?|insist(?:s|ed)?|mention(?:s|ed)?|wrote|write"
    r"|swears?)"
)
_SAYS: Final = expression(
    rf"\b{_SAYING}(?: (?:to )?(?P<whom>me|us|you|him|her|them|everyone|everybody|people|(?:my|the) [\w-]+))?"
    r"(?: that)?\s*$",
    _I,
)
_MAY_HEDGE: Final = expression(rf"\b(?:{_THINKING}|{_SAYING})\b", _I)
_OWN_WORDS: Final = expression(
    r"^\W*(?:(?:and|but|so|as|well|yes)\W+)*i\b"
    r"(?!.*\b(?:never|not|cannot|hardly|lied|refuse\w*|(?:was|were|been) told)\b)(?!.*n't\b)",
    _I,
)


def may_hedge(text: str) -> bool:
    """Whether a sentence has words that can make a statement a hedged one."""
    return any(pattern.search(text) for pattern in (_MAY_HEDGE, _GUESSED_AT, _HAN_HEDGED))


class EnglishClaims:
    """What becomes of the statements of one sentence, each known by where it begins."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts = [0, *(found.end() for found in _CLAUSE.finditer(text))]
        self._open = _SUPPOSES.match(text) is not None or self._is_asked()

    def at(self, place: int) -> Claim:
        """What becomes of the statement that begins there."""
        start = self._starts[bisect_right(self._starts, place) - 1]
        before = self._text[max(start, place - _LOOK_AT) : place]
        if self._open or _SUPPOSED.search(before) or _ASKS.match(self._text, start):
            return Claim.OPEN
        hedged = _GUESSED.search(before) or _THINKS.search(before) or _is_hearsay(before)
        return Claim.HEDGED if hedged else Claim.STATED

    def _is_asked(self) -> bool:
        """Whether the whole sentence asks: "My name is Carl?" """
        if not self._text.rstrip(" \t\"')").endswith("?"):
            return False
        clauses = [self._text[start:end] for start, end in pairwise([*self._starts, len(self._text)])]
        last = next((clause for clause in reversed(clauses) if any(map(str.isalnum, clause))), "")
        return _TAG.match(last) is not None or (_ASKS.match(last) is None and _AGREED.match(last) is None)


def _is_hearsay(before: str) -> bool:
    """Whether it is what others say, or what was said to others; "I told you" is as good as saying it."""
    said = _SAYS.search(before)
    return said is not None and not ((said["whom"] or "you").lower() == "you" and _OWN_WORDS.match(before))


_HAN_SUPPOSES: Final = expression(
    r"^\W*(?:那|但是?|不过|就|而)*(?:如果|要是|假如|假设|假使|假定|倘若|若是|万一|假装|想象|设想|除非|即使|就算|哪怕)(?!你|您)"
)
_HAN_SUPPOSED: Final = expression(r"如果|要是|假如|假设|假装|想象|设想|除非|即使|就算|梦[见到]|是否|是不是|等")
_HAN_HEDGED: Final = expression(
    r"觉得|认为|以为|好像|似乎|可能|也许|大概|或许|听说|据说|怀疑|希望|但愿|不知道|不确定|不记得|忘了|恐怕"
    r"|(?:没有?|不|别|谁|他|她|你|您|们|人|家|爸|妈|友|事|板)(?:都|也|总|老|曾|从来?没?|是|能|要|会|跟.{1,4}|对.{1,4})*+"
    r"(?:说|讲|告诉|提)"
    r"|假的|谣言|骗人的|胡说|不是真的"
)
_HAN_CLAUSE: Final = expression(r"[，,。！!？?；;：:\n]")
_HAN_ASKS: Final = expression(
    r"什么|啥|谁|哪|吗|呢|几|多[少大高重久长远]|怎么|如何|为何|是不是|有没有|[能会可]不[能会可]"
)
# Without a subject of its own it asks about what stands before it: 对吗, 是吧, 对不对.
_HAN_TAG: Final = expression(
    r"^\s*(?:你说|这样|我说的?)?(?:是|对|好|行|没错|真|不是)?(?:的|了)?(?:吗|吧|么|呢|嘛|不对|不是)+\s*$"
)


def chinese_claim(sentence: str, before: str) -> Claim:
    """What becomes of a statement in a sentence, before which its clause has these words."""
    if _HAN_SUPPOSES.match(sentence) or _han_asked(sentence) or _HAN_SUPPOSED.search(before):
        return Claim.OPEN
    return Claim.HEDGED if _HAN_HEDGED.search(before) else Claim.STATED


def _han_asked(sentence: str) -> bool:
    """Whether the whole sentence asks: 我叫小明？ and 我叫小明，对吗 do, 我叫小明，你呢？ does not."""
    clauses = [clause for clause in _HAN_CLAUSE.split(sentence) if clause.strip()]
    if not clauses:
        return False
    tagged = len(clauses) > 1 and _HAN_TAG.match(clauses[-1]) is not None
    asks = sentence.rstrip().endswith(("?", "？"))
    return tagged or (asks and not _HAN_ASKS.search(clauses[-1]))
