"""What was asked for, in English words."""

from __future__ import annotations

from typing import Final

from tenuto.assistants.goods.intent import Bound, QueryIntent
from tenuto.assistants.goods.telling.cards import SearchAnswer
from tenuto.assistants.goods.telling.voice import figure
from tenuto.assistants.goods.words import category_name, of_categories, of_colors
from tenuto.model.prompt import Language

_SIGNS: Final = {">": "over", ">=": "of at least", "<": "under", "<=": "of at most", "=": "of exactly"}
# "in size 42" and "for age 6" say no more than that.
_SUITED: Final = ("size", "age")


def money(amount: float, currency: str = "CNY") -> str:
    """A price as people write it."""
    return f"¥{figure(amount)}" if currency == "CNY" else f"{figure(amount)} {currency}"


def bounds(given: tuple[Bound, ...]) -> str:
    """ "memory over 8 GB and of at most 32 GB": each attribute named once."""
    said: dict[str, list[str]] = {}
    for bound in given:
        name = next(iter(bound.of), "")
        if bound.of == ("stock",) and bound.sign == "=" and bound.amount == "0":
            said["nothing in stock"] = [""]
            continue
        sign = "" if bound.sign == "=" and name in _SUITED else f"{_SIGNS[bound.sign]} "
        said.setdefault(name, []).append(f"{sign}{bound.amount or 'that one'}")
    return ", ".join(f"{name} {' and '.join(signs)}".strip() for name, signs in said.items())


def wanted(answer: SearchAnswer, count: int = 2) -> str:
    """What was asked for, in words: "red Lumora phones with 256gb under ¥2,000"."""
    query, currency = answer.query, answer.currency
    noun = " or ".join(category_name(slug, Language.ENGLISH, count) for slug in answer.kinds) or (
        "item" if count == 1 else "goods"
    )
    colors = [*query.attributes.values(), *(" or ".join(group) for group in query.either if of_colors(group))]
    words = [*colors, answer.brand or query.brand or "", noun]
    if query.terms:
        words.append(f"for “{' '.join(query.terms)}”")
    words += [
        f"for {' or '.join(f'“{option}”' for option in group)}"
        for group in query.either
        if not (of_categories(group) or of_colors(group))
    ]
    if query.amounts:
        words.append(f"with {bounds(query.amounts)}")
    words += _priced(query, currency)
    if query.min_rating is not None:
        words.append(f"rated {query.min_rating:g} or better")
    if query.in_stock:
        words.append("in stock")
    if query.without:
        words.append(f"but not {' or '.join(f'“{phrase}”' for phrase in query.without)}")
    return " ".join(word for word in words if word)


def _priced(query: QueryIntent, currency: str) -> list[str]:
    words: list[str] = []
    if query.min_price is not None and query.max_price is not None:
        words.append(f"between {money(query.min_price, currency)} and {money(query.max_price, currency)}")
    elif query.max_price is not None:
        words.append(f"up to {money(query.max_price, currency)}")
    elif query.min_price is not None:
        words.append(f"from {money(query.min_price, currency)}")
    if query.below is not None:
        words.append(f"cheaper than {money(query.below, currency)}")
    if query.above is not None:
        words.append(f"more expensive than {money(query.above, currency)}")
    return words
