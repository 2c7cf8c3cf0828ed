"""Conditions that a question takes back: "any colour will do", "price doesn't matter", 颜色无所谓, 价格不限."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from tenuto.assistants.goods.intent import QueryIntent, Talk
from tenuto.assistants.goods.words import COLORS, cut, of_colors
from tenuto.model.expression import expression

# What can be set free, by its words in both languages.
_NOUNS: Final = (
    ("color", r"colou?rs?", r"颜色"),
    ("price", r"prices?|budget|costs?|money", r"价格|价钱|价位|预算"),
    ("brand", r"brands?|makes?|manufacturers?", r"品牌|牌子"),
    ("rating", r"ratings?|reviews?", r"评分|评价"),
    ("size", r"sizes?", r"尺码|尺寸|大小|码数"),
    ("age", r"ages?", r"年龄"),
    ("memory", r"memory|ram", r"内存"),
    ("storage", r"storage", r"存储|容量"),
    ("screen", r"screen(?: size)?", r"屏幕"),
    ("battery", r"battery(?: life)?", r"电池|续航"),
    ("weight", r"weight", r"重量"),
)
_EN: Final = "|".join(english for _, english, _ in _NOUNS)
_ZH: Final = "|".join(chinese for _, _, chinese in _NOUNS)
_NAMED: Final = tuple((name, expression(rf"(?:{english})|(?:{chinese})")) for name, english, chinese in _NOUNS)
_FINE: Final = r"(?:(?:is|are|will be|would be|'s) (?:ok(?:ay)?|fine|good|all right|alright)|will do|works|goes)"
# "Any colour but red" and "any price under 100" bind; "any colour" alone does not.
_BINDS: Final = r"(?! (?:of|but|except|other|than|under|over|below|above|between|from|up|\d))"
_FREED: Final = expression(
    rf"\b(?:any|whatever|whichever|no matter (?:what|which|the)) (?P<any>{_EN})\b{_BINDS}(?: {_FINE})?"
    rf"|\b(?:the )?(?P<matters>{_EN}) (?:does not|doesn't|don't|isn't|is not|no longer) (?:really )?"
    r"(?:matters?|important|an issue|a problem|relevant|count)\b"
    rf"|\b(?:i )?(?:don't|do not) (?:really )?(?:care|mind)(?: about)?(?: the| which| what)? (?P<cares>{_EN})\b"
    rf"|\b(?:forget|never mind|ignore|drop|regardless of|irrespective of)(?: about)?(?: the)? (?P<drops>{_EN})\b"
    rf"|\bno (?P<limits>{_EN}) (?:limits?|preferences?|restrictions?)\b|\b(?P<object>money) is no object\b"
    rf"|(?:随便|不管|无论|不论|任意|任何)(?:是)?(?:什么|哪种|哪个|啥)?的?(?P<random>{_ZH})(?:都(?:行|可以|好|成|没关系|要))?"
    rf"|(?:什么|哪种|哪个|啥)(?P<all>{_ZH})都(?:行|可以|好|成|没关系|要)"
    rf"|(?P<free>{_ZH})(?:上)?(?:不限制?|随便|无所谓|不重要|[不没]要求|没有要求|没关系|都行|都可以|任意)"
    rf"|(?:不限制?|不在[乎意]|不用管|不考虑|忽略)(?P<ignored>{_ZH})(?:了|因素)?"
)


def freed(text: str, talk: Talk) -> tuple[str, Talk]:
    """The text without what it takes back, and the conversation without those conditions."""
    names: list[str] = []
    while (found := _FREED.search(text)) is not None:
        noun = next(filter(None, found.groups()))
        names.append(next(name for name, pattern in _NAMED if pattern.fullmatch(noun)))
        text = cut(text, *found.span())
    if not names:
        return text, talk
    text = " ".join(text.split())
    return text, talk if talk.intent is None else replace(talk, intent=_released(talk.intent, frozenset(names)))


def _released(before: QueryIntent, names: frozenset[str]) -> QueryIntent:
    """The query without its conditions of those names."""
    free: dict[str, Any] = {"amounts": tuple(bound for bound in before.amounts if names.isdisjoint(bound.of))}
    free["attributes"] = {name: value for name, value in before.attributes.items() if name not in names}
    if "color" in names:
        free["either"] = tuple(group for group in before.either if not of_colors(group))
        free["without"] = tuple(phrase for phrase in before.without if phrase not in COLORS)
    if "price" in names:
        free |= dict.fromkeys(("min_price", "max_price", "above", "below", "currency"))
    if "brand" in names:
        free["brand"] = None
    if "rating" in names:
        free["min_rating"] = None
    return replace(before, **free)
