"""Questions about the one who is asked: "are you married?", 你干了多少年; not so "when do you open?".

Of a character's own life, nothing but the piece that introduces it can tell; a custom of the village never does (C1).
"""

from __future__ import annotations

import re
from typing import Final

from tenuto.assistants.npc.pointing import own_words
from tenuto.model.expression import expression

_YOU: Final = r"(?:you|your|yours|yourself)"
_LIFE: Final = (
    r"married|marry|single|wife|wives|husband|spouse|child(?:ren)?|kids?|sons?|daughters?|parents?|mother|father|siblings?"
    r"|brothers?|sisters?|family|born|birthday|grow up|grew up|die|died|live|lived|retired?|hobb(?:y|ies)|favou?rite"
    r"|salary|earn|school|study|studied|religion|rich|happy"
)
_WORK: Final = (
    r"work(?:ed|ing)?(?: here| there)?|(?:been|being) (?:here|doing|a|an|in)|(?:doing|done) (?:this|that|it)"
    r"|jobs?|(?:start|beg[aiu]n)(?:ed|ing|ning)?(?: out| here| working)?"
)
# No thing that "you" might have here stands between.
_BETWEEN: Final = "(?:have|had|has|got|get|ever|still|already|first|a|an|any|many|own|been|be|to|do|did|really|go|like)"
_OF_ITSELF: Final = expression(
    rf"\b{_YOU} (?:{_BETWEEN} ){{0,4}}(?:{_LIFE}|{_WORK})\b|\b(?:{_LIFE}) (?:do|did|have|had) you\b"
    r"|\bhow old (?:are|were) you\b|\bwhere (?:are|were) you from\b|\byour age\b"
    r"|[你您](?!们|这里|这儿|这边).{0,8}(?:结婚|成家|娶|嫁|单身|老婆|妻子|太太|丈夫|老公|孩子|儿子|女儿|父母|父亲|母亲|爸|妈|兄弟"
    r"|出生|生日|几岁|多大|年纪|岁数|住|退休|工资|收入|爱好|喜欢|读过书|上过学|哪里人|老家|工作|干了|做了|干这|做这|当了|入行)",
    re.IGNORECASE,
)
# What a visitor asks for by saying "you", and the place or its craft is meant.
_OF_THE_PLACE: Final = expression(r"\b(?:tell|show|recommend|know)\b|知道|告诉|讲|介绍|活动|参加|适合", re.IGNORECASE)
_WORKING: Final = expression(
    rf"\b(?:{_WORK}|{_YOU})\b|[你您]|工作|[干做当][了过]?这?[行个份]?|入行|在?这里|这儿|如今|今年", re.IGNORECASE
)


def of_itself(question: str) -> bool:
    """Whether a question is about the life of the character it is put to."""
    return _OF_ITSELF.search(question) is not None and _OF_THE_PLACE.search(question) is None


def beside_work(question: str) -> str:
    """What is asked of a character besides its work here, which its piece is about anyway."""
    return _WORKING.sub(" ", own_words(question))
