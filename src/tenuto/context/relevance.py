"""Whether earlier talk has anything to do with the question (`hasRelevantHistory`).

The simple gate opens when there is any talk. The other compares: by meaning where there are vectors, by shared words
and character pairs otherwise. A question that points back ("the first one", 其中哪个), goes on from what was said ("and
in red?") or is too short to stand alone always belongs to what was said before.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Final

from tenuto.model.message import Message, Role

DEFAULT_THRESHOLD: Final = 0.15
# What the default is worth where vectors are compared: chosen for the local embedder by `python -m bench.gate`.
_NEAR: Final = 0.22

_WORD: Final = re.compile(r"[a-z0-9]+(?:['-][a-z0-9]+)*|[\u3400-\u9fff]+")
_COMMON_WORDS: Final = """
a about am an and any are as at be been but by can could did do does for from get had has have hello hi how i if in into
is just let like me my no not of on or our please s so some tell thank thanks that the their there they to too us very
was we were what when where which who why will with would yes you your
"""
_COMMON_PAIRS: Final = """
什么 怎么 怎样 如何 哪个 哪些 哪里 为什 请问 可以 能不 不能 多少 几个 一下 一个 有没 没有 是不 不是
我想 想要 告诉 诉我 谢谢 你好
"""
_COMMON: Final = frozenset((_COMMON_WORDS + _COMMON_PAIRS).split())
_POINTS_BACK: Final = re.compile(
    r"\b(it|its|them|those|these|this|that|they|he|she|his|her|same|former|latter|above|previous|earlier|again|else"
    r"|another|the (first|second|third|last|next|other|best|cheapest)|(first|second|third|last|other) ones?"
    r"|among|more)\b"
    r"|[它他她]们?|这|那[个些种条款件台本家位只是么]|其中|其它|其他|刚才|刚刚|上面|上述|前面|之前|上一|前者|后者"
    r"|第[一二三四五六七八九十\d]|最后一|另外|还有|继续|再来|更[多便好]|具体|详细|呢[？?]?$",
    re.IGNORECASE,
)
_GOES_ON: Final = re.compile(
    r"^\W*(?:and|but|or|then|also|still|what about|how about|what if|why not)\b"
    r"|\b(?:ones|instead|otherwise|meanwhile|(?:which|this|that) one)\b|^(?:那|但|可是|然后|所以|如果是|要是)|的话|也",
    re.IGNORECASE,
)
# The same words where they point at nothing: "what time is it", "is it legal to", "more than", 这个周末.
_POINTS_NOWHERE: Final = re.compile(
    r"\b(?:what time is it|(?:is|was|would) it \w+ (?:to|that|if|when)|it(?:'s| is) \w+ (?:to|that)"
    r"|(?:does|did|will) it take|it (?:takes?|took)|(?:any|no|once) ?more(?! of)|more than"
    r"|(?:so|sure|such|say|said|think|know|hope|means?) that"
    r"|(?:this|that|these|those) (?:year|month|week|weekend|morning|afternoon|evening|days)"
    r"|(?:this|that) (?:spring|summer|autumn|winter))\b"
    r"|吉他|这个?(?:周末|星期|礼拜|月|周|季度|学期|年)",
    re.IGNORECASE,
)
_SPEAKERS: Final = (Role.USER, Role.ASSISTANT)
_LOOKED_AT: Final = 8_000
"""Characters of a text: a megabyte is about what its beginning is about, and takes half a second to read."""
_SHORT_WORDS: Final = 2
_SHORT_CHARACTERS: Final = 5


def has_relevant_history(question: str, history: Sequence[Message], threshold: float = DEFAULT_THRESHOLD) -> bool:
    """Whether the history belongs into the prompt for this question, by its words.

    A threshold of 0 is the simple gate: any talk will do. What is compared is what was said, turn by turn, without
    tools; the best match decides.
    """
    if threshold <= 0 or points_back(question):
        return any(_is_spoken(message) for message in history)
    return max(lexical(question, spoken(history)), default=0.0) >= threshold


def near_enough(
    question: Sequence[float], talk: Sequence[Sequence[float]], threshold: float = DEFAULT_THRESHOLD
) -> bool:
    """The same by meaning, from vectors: the two nearest texts decide, since one may be near by accident.

    The threshold is on the scale of words, which vectors are not on: what is best for words becomes what is best here.
    """
    nearest = sorted(cosine(question, talk), reverse=True)[:2]
    return bool(nearest) and sum(nearest) / len(nearest) >= _by_meaning(threshold)


def _by_meaning(threshold: float) -> float:
    if threshold <= DEFAULT_THRESHOLD:
        return _NEAR * threshold / DEFAULT_THRESHOLD
    return _NEAR + (1 - _NEAR) * (threshold - DEFAULT_THRESHOLD) / (1 - DEFAULT_THRESHOLD)


def spoken(history: Sequence[Message]) -> list[str]:
    """What was said, without tools and empty texts."""
    return [message.text for message in history if _is_spoken(message)]


def _is_spoken(message: Message) -> bool:
    return message.role in _SPEAKERS and bool(message.text)


def points_back(question: str) -> bool:
    """Whether the question cannot be understood alone: it points at the talk, goes on from it, or is very short."""
    question = question[:_LOOKED_AT]
    found = _WORD.findall(question.lower())
    words = sum(1 for run in found if run.isascii())
    characters = sum(len(run) for run in found if not run.isascii())
    if words <= _SHORT_WORDS and characters <= _SHORT_CHARACTERS:
        return True
    pointing = _POINTS_NOWHERE.sub(" ", question)
    return _POINTS_BACK.search(pointing) is not None or _GOES_ON.search(pointing) is not None


def lexical(question: str, texts: Sequence[str]) -> list[float]:
    """The share of the question's words and character pairs that each text holds."""
    wanted = features(question[:_LOOKED_AT])
    if not wanted:
        return [0.0 for _ in texts]
    return [len(wanted & features(text[:_LOOKED_AT])) / len(wanted) for text in texts]


def cosine(question: Sequence[float], texts: Sequence[Sequence[float]]) -> list[float]:
    """How near each text's vector lies to the question's, from 1 (the same direction) down to -1."""
    length = math.hypot(*question)
    return [_dot(question, text) / (length * math.hypot(*text) or 1.0) for text in texts]


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def features(text: str) -> frozenset[str]:
    """What a text is about: its words, stemmed, and pairs of Chinese characters, without those that say nothing."""
    found: set[str] = set()
    for run in _WORD.findall(text.lower()):
        if run.isascii():
            found.add(_stem(run))
        else:
            found |= {run[place : place + 2] for place in range(len(run) - 1)} or {run}
    return frozenset(found - _COMMON)


def _stem(word: str) -> str:
    if word in _COMMON:
        return word
    for ending in ("ies", "ing", "es", "ed", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word
