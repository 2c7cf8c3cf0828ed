"""Questions that point at something said before: "it", "that one", 那个, "tell me more".

What they point at is known from the talk or not at all; a question that points at nothing is asked back, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from tenuto.assistants.npc.corpus import Corpus, Evidence
from tenuto.assistants.npc.facts import asked
from tenuto.model.expression import expression

_POINTERS: Final = expression(
    r"[它他她]们?|[这那](?:里|儿|边|些|样|个|位|条|件|座|次|时|种|是|呢|有|$)|另外?一?个|其中|前者|后者|刚才|上面|同样"
    r"|再(?:详细|具体)?(?:说|讲|解释|介绍|来)|继续|(?:更|再)?详细|(?:第[一二三四五六七八九十\d]+|最后一?|[上下前]一)[个点项句]"
    r"|\b(?:it|its|this|that|these|those|them|they|their|he|him|his|she|her|hers|the others?|another|the former"
    r"|the latter|the (?:next|previous|last|first|second|third|fourth|fifth|\d+(?:st|nd|rd|th))(?: (?:one|point|item))?"
    r"|(?<!is )(?<!are )(?<!was )(?<!were )there|more|again|go on|continue|elaborate)\b",
    re.IGNORECASE,
)
# Words that ask for more of whatever it is.
_WANTING: Final = expression(
    r"意思|含义|解释|具体|说说|讲讲|介绍|一遍|一点"
    r"|\b(?:mean(?:s|ing)?|explain|details?|concrete|further)\b",
    re.IGNORECASE,
)


def leans(question: str, corpus: Corpus, last: Sequence[Evidence]) -> bool:
    """Whether the question points, and says nothing of its own that a piece is about and that was not told last."""
    if _POINTERS.search(question) is None:
        return False
    words = own_words(question)
    return not corpus.names(words) or any(corpus.cover(words, piece) == 1 for piece in last)


def own_words(question: str) -> str:
    """What a question says besides asking and pointing."""
    return _WANTING.sub(" ", _POINTERS.sub(" ", asked(question).about))
