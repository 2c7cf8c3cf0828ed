"""What kind of answer a question wants, and whether a sentence holds one: a time, a place, an age, a colour..."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

from tenuto.model.expression import expression

_I: Final = re.IGNORECASE
_DAYS: Final = (
    r"(?:(?:mon|tues|wednes|thurs|fri|satur|sun)day|january|february|march|april|may|june|july|august|september|october"
    r"|november|december|spring|summer|autumn|winter)s?\b"
)
_HAN: Final = "0-9０-９零一二三四五六七八九十百千万两半"


class Kind(StrEnum):
    """What can be told from the words of a sentence alone."""

    WHEN = "when"
    WHERE = "where"
    AGE = "age"
    COLOUR = "colour"
    PRICE = "price"


# Tried in this order: what asks for a price or an age asks with words that ask for other things as well.
_ASKS: Final = tuple(
    (kind, expression(pattern, _I))
    for kind, pattern in (
        (Kind.AGE, r"\bhow old\b|\bwhat age\b|几岁|多少岁|多大(?:年纪|岁数)?"),
        (Kind.COLOUR, r"\b(?:what|which) colou?rs?\b|(?:什么|啥|哪[种个]?|何种)颜?色"),
        (
            Kind.PRICE,
            r"\bhow much (?:is|are|was|were|do|does|did)\b|\bwhat (?:price|.{1,40} costs?\b)|多少钱|什么价钱?格?",
        ),
        (
            Kind.WHEN,
            r"^\W*(?:and |so |but )?when\b|\b(?:at )?what time\b|\b(?:what|which) (?:day|date|month|year)\b"
            r"|几点|什么时候|何时|哪[一]?[天年]|几[号月日]|星期几|周几|什么时间|哪个月",
        ),
        (
            Kind.WHERE,
            r"^\W*(?:and |so |but )?where\b|\b(?:what|which|in which|in what) (?:room|floor|city|place|town)\b"
            r"|在?哪[里儿]|在哪|在?什么地方|几[楼层]|哪个(?:房间|城市|地方)",
        ),
    )
)
_HOLDS: Final = {
    kind: expression(pattern, _I)
    for kind, pattern in (
        (
            Kind.WHEN,
            r"\b\d{1,2}(?::\d\d| ?[ap]\.?m\b| ?o'clock)|\b(?:19|20)\d\d\b"
            rf"|\b{_DAYS}|\b(?:today|tonight|tomorrow|yesterday|noon|midnight|weekend|morning|afternoon|evening)s?\b"
            r"|\b(?:next|last|this|every|in a) (?:week|month|year)\b"
            r"|\bat (?:\d{1,2}|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)\b"
            rf"|[{_HAN}]{{1,4}}(?:点|时|号|日|月|年)|周[一二三四五六日末]|星期|礼拜|[今明后昨前]天|[今明去]年|[上下]个?[周月]"
            r"|早上|上午|中午|下午|晚上|凌晨|[春夏秋冬]天",
        ),
        (
            Kind.WHERE,
            rf"\b(?:in|at|on|near|to|from|behind|beside|under) (?!\d|the (?:morning|afternoon|evening)|{_DAYS})\w"
            r"|\b(?:room|floor|street|gate)\b|[楼室区路街]"
            rf"|[在去到住](?!周|星期|礼拜|[今明后]天|[今明]年|下[个周月]|[{_HAN}]{{1,4}}[点月号日年])",
        ),
        (Kind.AGE, rf"\b\d{{1,3}}(?: years?\b| yo\b)|[{_HAN}]{{1,5}}(?:周?岁|个月大)"),
        (
            Kind.COLOUR,
            r"\b(?:red|orange|yellow|green|blue|purple|violet|pink|brown|black|white|gr[ae]y|silver|gold(?:en)?|beige|turquoise)\b"
            r"|[红橙黄绿青蓝紫粉棕黑白灰金银][色的]|[红橙黄绿青蓝紫粉棕黑白灰]$|色",
        ),
        (
            Kind.PRICE,
            rf"[$€£¥]\s?\d|\b\d[\d,.]*\s?(?:euros?|dollars?|pounds?|yuan|yen|usd|eur|rmb|bucks)\b|[{_HAN}]+(?:元|块|欧|美元|英镑)|免费|\bfree\b",
        ),
    )
}  # fmt: skip

# What a thing can be in the place of what was asked for; nearly everything has a place in it.
_TELLING: Final = (Kind.WHEN, Kind.AGE, Kind.COLOUR, Kind.PRICE)


def kind_asked(question: str) -> Kind | None:
    """Which kind of answer a question wants, where its words tell."""
    return next((kind for kind, pattern in _ASKS if pattern.search(question)), None)


def without_asking(question: str) -> str:
    """A question without the words that ask for a kind, which no answer needs to share."""
    kind = kind_asked(question)
    return question if kind is None else dict(_ASKS)[kind].sub(" ", question)


def holds(kind: Kind, sentence: str) -> bool:
    """Whether a sentence tells something of that kind."""
    return _HOLDS[kind].search(sentence) is not None


def fits(kind: Kind | None, text: str) -> bool:
    """Whether a text may answer a question for that kind: it holds one, or nothing that is plainly of another."""
    return kind is None or holds(kind, text) or not any(holds(other, text) for other in _TELLING)
