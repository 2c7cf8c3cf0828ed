"""What was asked for, in Chinese words."""

from __future__ import annotations

from typing import Final

from tenuto.assistants.goods.intent import Bound, QueryIntent
from tenuto.assistants.goods.telling.cards import SearchAnswer
from tenuto.assistants.goods.telling.voice import figure
from tenuto.assistants.goods.words import (
    ATTRIBUTES,
    COLORS,
    MATERIALS,
    UNIT_NAMES,
    category_name,
    of_categories,
    of_colors,
)
from tenuto.model.prompt import Language

FACTS: Final = {**ATTRIBUTES, "released": "上市时间", "rating": "评分", "sales": "销量", "stock": "库存",
                 "thickness": "厚度", "speed": "速度", "noise": "噪音", "resolution": "分辨率"}  # fmt: skip
_SIGNS: Final = {">": "大于", ">=": "不低于", "<": "小于", "<=": "不超过", "=": "等于"}
# 尺寸 42 and 适用年龄 6 say no more than that.
_SUITED: Final = ("size", "age")


def money(amount: float, currency: str = "CNY") -> str:
    """A price as people write it."""
    return f"{figure(amount)} 元" if currency == "CNY" else f"{figure(amount)} {currency}"


def value_of(value: str) -> str:
    """An attribute's value as people say it."""
    amount, _, unit = value.rpartition(" ")
    if amount and unit in UNIT_NAMES:
        return f"{amount} {UNIT_NAMES[unit]}"
    return COLORS.get(value) or MATERIALS.get(value, value)


def phrase_of(phrase: str) -> str:
    """What is not wanted, with colours and categories by their names."""
    words = [COLORS.get(word) or category_name(word, Language.CHINESE) for word in phrase.split(" ")]
    return "".join(words) if not any(word.isascii() for word in words) else " ".join(words)


def bounds(given: tuple[Bound, ...]) -> str:
    """内存大于 8 GB且不超过 32 GB: each attribute named once."""
    said: dict[str, list[str]] = {}
    for bound in given:
        name = next(iter(bound.of), "")
        if bound.of == ("stock",) and bound.sign == "=" and bound.amount == "0":
            said["缺货"] = [""]
            continue
        sign = "" if bound.sign == "=" and name in _SUITED else _SIGNS[bound.sign]
        said.setdefault(name, []).append(f"{sign} {value_of(bound.amount) or '那一款'}")
    return "、".join(f"{FACTS.get(name, name)}{'且'.join(signs)}" for name, signs in said.items())


def wanted(answer: SearchAnswer) -> str:
    """What was asked for, in words: 2,000 元以内的红色光诺手机."""
    query, currency = answer.query, answer.currency
    noun = "或".join(category_name(slug, Language.CHINESE) for slug in answer.kinds) or "商品"
    words = _priced(query, currency)
    if query.min_rating is not None:
        words.append(f"评分 {query.min_rating:g} 以上")
    if query.in_stock:
        words.append("有现货")
    words += [
        *filter(None, [bounds(query.amounts)]),
        *(COLORS.get(value, value) for value in query.attributes.values()),
        *("或".join(COLORS.get(color, color) for color in group) for group in query.either if of_colors(group)),
    ]
    if query.terms:
        words.append(f"“{' '.join(query.terms)}”")
    words += [
        "或".join(f"“{option}”" for option in group)
        for group in query.either
        if not (of_categories(group) or of_colors(group))
    ]
    if query.without:
        words.append(f"不要{'、'.join(f'“{phrase_of(phrase)}”' for phrase in query.without)}")
    head = "、".join(words)
    named = answer.brand or query.brand or ""
    brand = f"{named} " if named.isascii() and named else named
    text = f"{head}的{brand}{noun}" if head else f"{brand}{noun}"
    return f" {text}" if text[0].isascii() else text


def _priced(query: QueryIntent, currency: str) -> list[str]:
    words: list[str] = []
    if query.min_price is not None and query.max_price is not None:
        words.append(f"{money(query.min_price, currency)}到{money(query.max_price, currency)}")
    elif query.max_price is not None:
        words.append(f"{money(query.max_price, currency)}以内")
    elif query.min_price is not None:
        words.append(f"{money(query.min_price, currency)}以上")
    if query.below is not None:
        words.append(f"比 {money(query.below, currency)}便宜")
    if query.above is not None:
        words.append(f"比 {money(query.above, currency)}贵")
    return words
