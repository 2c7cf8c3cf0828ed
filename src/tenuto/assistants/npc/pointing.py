"""Questions that point at something said before: "it", "that one", 那个, "tell me more".

What they point at is known from the talk or not at all; a question that points at nothing is asked back, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from tenuto.assistants.npc import looks
from tenuto.assistants.npc.corpus import Corpus, Evidence
from tenuto.assistants.npc.facts import asked
from tenuto.assistants.npc.words import subjects, terms
from tenuto.model.expression import expression

_POINTERS: Final = expression(
    r"[它他她]们?|[这那](?:里|儿|边|些|样|个|位|条|件|座|次|时|种|是|呢|有|事|故事|$)|另外?一?个|其中|前者|后者|刚才|上面|同样"
    r"|再(?:详细|具体)?(?:说|讲|解释|介绍|来)|继续|(?:更|再)?详细|(?:第[一二三四五六七八九十\d]+|最后一?|[上下前]一)[个点项句步]"
    r"|\b(?:it|its|this|that|these|those|them|they|their|he|him|his|she|her|hers|the others?|another|the former"
    r"|the latter|the (?:next|previous|last|first|second|third|fourth|fifth|\d+(?:st|nd|rd|th))(?: (?:one|point|item))?"
    r"|(?<!is )(?<!are )(?<!was )(?<!were )there|more|again|go on|continue|elaborate)\b",
    re.IGNORECASE,
)
_SOMEBODY: Final = expression(r"[他她](?!们)|\b(?:he|him|his|she|her|hers)\b", re.IGNORECASE)
_NAMED: Final = expression(looks.NAMED)
# Words that ask for more of whatever it is.
_WANTING: Final = expression(
    r"意思|含义|解释|具体|说说|讲讲|介绍|一遍|一点|故事|主人公|主角|[件的]事情?|[这那]事"
    r"|\b(?:mean(?:s|ing)?|explain|details?|concrete|further|stor(?:y|ies)|tales?|take place|took place"
    r"|hero|(?:main )?(?:man|person|character))\b",
    re.IGNORECASE,
)
# Who is spoken to is no piece of evidence.
_YOU: Final = expression(r"[你您]|\byou(?:r|rs)?\b", re.IGNORECASE)


def points(question: str) -> bool:
    """Whether a question has a word that points: "it", "that one", 那个."""
    return _POINTERS.search(question) is not None


def of_somebody(question: str) -> bool:
    """Whether it asks of "him" or "her", 他, and names nobody before."""
    found = _SOMEBODY.search(question)
    return found is not None and _NAMED.search(question[: found.start()]) is None


def leans(question: str, corpus: Corpus, last: Sequence[Evidence]) -> bool:
    """Whether a question points or is cut short, and names nothing that a piece is about beside what was told last."""
    if of_somebody(question):
        return True
    words = own_words(question)
    if points(question):
        return not corpus.names(words) or any(corpus.cover(words, piece) == 1 for piece in last)
    if not asked(question).facts or _YOU.search(question):
        return False
    if _cut_short(question):
        return True
    return not corpus.names(words) and any(corpus.cover(words, piece) == 1 for piece in last)


def _cut_short(question: str) -> bool:
    """Whether it asks for a fact and does not say of what: "in which year?", "who was in charge?", 谁挖的."""
    deed, words = asked(question).deed, own_words(question)
    # What is written with a capital is somebody, and not what they did.
    return says_nothing(words.replace(deed, " ") if deed and deed == deed.lower() else words)


def says_nothing(words: str) -> bool:
    """Whether nothing could be looked up by these words."""
    return not terms(words) and not subjects(words)


def own_words(question: str) -> str:
    """What a question says besides asking and pointing."""
    return _WANTING.sub(" ", _POINTERS.sub(" ", asked(question).about))
