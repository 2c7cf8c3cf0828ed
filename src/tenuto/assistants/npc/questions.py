"""What a question says by itself: small talk or not, the number of a rule, a wish for its meaning or its story.

Everything else about a question is decided by retrieval.
"""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

from tenuto.model.patterns import lazy_pattern
from tenuto.recall import terms

Kind: TypeAlias = Literal["meaning", "story"]
MAX_CHARACTERS: Final = 2_000
"""How much of a question is read."""

_COUNTED: Final = (
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty",
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth "
    "sixteenth seventeenth eighteenth nineteenth twentieth",
    "一 二 三 四 五 六 七 八 九 十 十一 十二 十三 十四 十五 十六 十七 十八 十九 二十",
)
_NUMBERS: Final = {word: number for words in _COUNTED for number, word in enumerate(words.split(), 1)}
_NUMBER: Final = rf"(?<![\w-])(\d{{1,4}}(?:st|nd|rd|th)?|{'|'.join(word for word in _NUMBERS if word.isascii())})\b"
_CHINESE_NUMBER: Final = r"第([一二三四五六七八九十百零廿\d]{1,5})"
# "rule 3", "the third rule", 第三条; and what only means a rule while rules are the topic: "the third one", 第三个.
_RULE_NUMBER: Final = lazy_pattern(
    rf"{_CHINESE_NUMBER}[条则]|\brules?(?: number)? {_NUMBER}|{_NUMBER} rule\b", re.IGNORECASE
)
_ORDINAL: Final = lazy_pattern(rf"{_CHINESE_NUMBER}个|{_NUMBER} one\b|\bthe {_NUMBER}(?=\W*$| means?\b)", re.IGNORECASE)
_STORY: Final = lazy_pattern(r"(?:具体的?)?(?:故事|例子)|\b(?:concrete )?(?:stor(?:y|ies)|examples?)\b", re.IGNORECASE)
_MEANING: Final = lazy_pattern(r"意思|含义|解释|\b(?:mean(?:s|ing)?|explain)\b", re.IGNORECASE)
# Words that only ask. Chinese is searched by pairs of characters, and a pair with one of these is in no piece.
_ASKING: Final = lazy_pattern(
    r"请问|有没有|有?哪[些里]|[为有]?什么|一共|有?多少?|有?几|怎么|时候|一?个|[能再讲说]"
    r"|\b(?:how many|list|show|ones?)\b",
    re.IGNORECASE,
)
_SMALL_TALK: Final = lazy_pattern(
    r"[你您]好|多谢|谢谢|再见|好的?|[嗯哦了啊]|[你您](?:是谁|叫什么名?字?)"
    r"|\b(?:hi|hello|hey|there|good (?:morning|afternoon|evening)|thanks|thank you|a lot|very much|ok|okay|bye|goodbye"
    r"|who are you|what(?:'s| is) your name)\b",
    re.IGNORECASE,
)
# What only the conversation knows: who the visitor is, and what was said.
_OF_THE_VISITOR: Final = lazy_pattern(
    r"我(?:叫|是|姓|来自|喜欢).{0,10}$|我的名字|我刚才|我问|记得我|聊了什么"
    r"|\b(?:my name|who am i|call me|i (?:like|love|come from)|did i|remember me|we talked)\b"
    r"|\bi (?:just )?(?:asked|said)\b|\bi(?: am|'m)(?: \w+){1,2}$",
    re.IGNORECASE,
)
_CLAUSE_END: Final = lazy_pattern(r"[,，.。!！?？;；:：\n]")


def needs_evidence(question: str) -> bool:
    """Whether any clause is more than small talk and what only the conversation knows."""
    return any(
        any(map(str.isalnum, _SMALL_TALK.sub("", clause))) and not _OF_THE_VISITOR.search(clause.strip())
        for clause in _CLAUSE_END.split(question)
    )


def rule_number(question: str, *, among_rules: bool) -> int | None:
    """The number of the rule it names; 0 for a number that is not understood, so that no other rule answers for it.

    `among_rules` says that rules are the topic: then "the third one" names a rule, too.
    """
    match = _RULE_NUMBER.search(question) or (_ORDINAL.search(question) if among_rules else None)
    if match is None:
        return None
    word = next(filter(None, match.groups())).lower()
    return int(re.sub(r"\D", "", word)) if word[0].isdecimal() else _NUMBERS.get(word, 0)


def wanted_kind(question: str) -> Kind | None:
    """Whether it asks for a story or a meaning."""
    if _STORY.search(question):
        return "story"
    return "meaning" if _MEANING.search(question) else None


def search_words(question: str) -> str:
    """The question without the words that only ask."""
    return _ASKING.sub(" ", question)


def own_words(question: str) -> str:
    """What it says beside asking, a rule's number, and a wish for a story or a meaning; empty where that is nothing."""
    for pattern in (_RULE_NUMBER, _ORDINAL, _STORY, _MEANING, _ASKING):
        question = pattern.sub(" ", question)
    return question if terms(question) else ""
