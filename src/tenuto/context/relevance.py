"""Whether earlier messages are relevant to the question (`hasRelevantHistory`).

The simple gate opens if there are any messages. The other compares by vectors if there is an embedder, else by shared
terms. For a question that refers back ("the first one", 其中哪个), continues ("and in red?") or is too short to stand
alone, the history is always relevant.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Final

from tenuto.model.message import Message, Role
from tenuto.model.patterns import lazy_pattern
from tenuto.recall.lexical import MAX_CHARACTERS, LexicalIndex

DEFAULT_THRESHOLD: Final = 0.15
# The threshold for vectors that equals the default for terms: chosen for the local embedder by `python -m bench.gate`.
_VECTOR_THRESHOLD: Final = 0.22

_WORD: Final = lazy_pattern(r"[a-z0-9]+(?:['-][a-z0-9]+)*|[\u3400-\u9fff]+")
_SHORT_WORDS: Final = 2
_SHORT_CHARACTERS: Final = 5
_POINTS_BACK: Final = lazy_pattern(
    r"\b(?:its?|them|those|these|this|that|they|he|she|his|her|same|else|another|again|instead|meanwhile|above|previous"
    r"|earlier|ones|which one|among|more|the (?:first|second|third|last|next|other|best|cheapest))\b"
    r"|^\W*(?:and|but|or|then|also|still|(?:what|how) about|what if)\b"
    r"|[它她]|(?<!吉)他|这|那[个些款么]|其中|刚[才刚]|[上前]面|之前|第[一二三四五六七八九十\d]|另外|还有|继续|更[多便好]|具体|详细"
    r"|呢[？?]?$|^[那但]|的话|也",
    re.IGNORECASE,
)
# The same words where they refer to nothing: "is it legal to", "this weekend", 这个周末.
_POINTS_NOWHERE: Final = lazy_pattern(
    r"\b(?:time is it|(?:is|was) it \w+ (?:to|that|if)|it takes?|any ?more|more than"
    r"|th(?:is|at|ese|ose) (?:days|year|month|week(?:end)?|morning|afternoon|evening|spring|summer|autumn|winter))\b"
    r"|这个?(?:周|星期|月|年)",
    re.IGNORECASE,
)


def has_relevant_history(question: str, history: Sequence[Message], threshold: float = DEFAULT_THRESHOLD) -> bool:
    """Whether the history belongs into the prompt for this question, by its terms.

    A threshold of 0 is the simple gate: any message opens it. Tool messages are not compared; the best match decides.
    """
    if threshold <= 0 or points_back(question):
        return any(map(_is_spoken, history))
    return term_coverage(question, spoken_texts(history)) >= threshold


def near_enough(
    question: Sequence[float], talk: Sequence[Sequence[float]], threshold: float = DEFAULT_THRESHOLD
) -> bool:
    """The same by vectors: the mean of the two nearest texts decides, since one may be near by accident.

    The threshold is on the scale of terms; the default for terms is mapped to the default for vectors.
    """
    if threshold <= DEFAULT_THRESHOLD:
        least = _VECTOR_THRESHOLD * threshold / DEFAULT_THRESHOLD
    else:
        least = _VECTOR_THRESHOLD + (1 - _VECTOR_THRESHOLD) * (threshold - DEFAULT_THRESHOLD) / (1 - DEFAULT_THRESHOLD)
    nearest = sorted(cosine(question, talk), reverse=True)[:2]
    return bool(nearest) and sum(nearest) / len(nearest) >= least


def spoken_texts(history: Sequence[Message]) -> list[str]:
    """The texts of users and assistants, without tools and empty messages."""
    return [message.text for message in history if _is_spoken(message)]


def _is_spoken(message: Message) -> bool:
    return message.role in (Role.USER, Role.ASSISTANT) and bool(message.text)


def points_back(question: str) -> bool:
    """Whether the question cannot be understood alone: it refers back, continues, or is very short."""
    question = question[:MAX_CHARACTERS]
    runs = _WORD.findall(question.lower())
    words = sum(1 for run in runs if run.isascii())
    characters = sum(len(run) for run in runs if not run.isascii())
    if words <= _SHORT_WORDS and characters <= _SHORT_CHARACTERS:
        return True
    return _POINTS_BACK.search(_POINTS_NOWHERE.sub(" ", question)) is not None


def term_coverage(question: str, texts: Sequence[str]) -> float:
    """The share of the question's terms, weighted by rarity, that the best text holds."""
    return max((hit.coverage for hit in LexicalIndex(texts).search(question)), default=0.0)


def cosine(question: Sequence[float], texts: Sequence[Sequence[float]]) -> list[float]:
    """The cosine similarity of each text's vector with the question's."""
    length = math.hypot(*question)
    return [
        sum(a * b for a, b in zip(question, text, strict=True)) / (length * math.hypot(*text) or 1.0) for text in texts
    ]
