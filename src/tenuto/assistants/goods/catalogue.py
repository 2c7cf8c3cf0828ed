"""A catalogue in memory, and the search for a `QueryIntent` in it: plain comparisons and one lexical index."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from types import MappingProxyType
from typing import Final

from tenuto.assistants.goods.intent import MAX_SHOWN, QueryIntent, Sort
from tenuto.assistants.goods.item import Item
from tenuto.assistants.goods.words import (
    CATEGORIES,
    COLORS,
    ENGLISH_UNITS,
    ENGLISH_VALUES,
    attribute_name,
    category_slug,
)
from tenuto.model.values import Value
from tenuto.recall import LexicalIndex, terms

# A text matches an item that holds at least this share of its weight, and nearly as much as the best item does.
_MIN_COVERAGE: Final = 0.5
_NEAR_BEST: Final = 0.75
# "256GB" is found as "256 GB".
_UNIT_BORDER: Final = re.compile(r"(?<=\d)(?=[A-Za-z])")
_BOUND: Final = re.compile(r"\s*(>=|<=|>|<|=)?\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*|[\u4e00-\u9fff]+)\+?\s*")
_COMPARE: Final[Mapping[str, Callable[[float, float], bool]]] = MappingProxyType(
    {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
)
_UNITS: Final = {"tb": ("gb", 1024.0), "kg": ("g", 1000.0), "l": ("ml", 1000.0), "m": ("cm", 100.0)}
# A sign that several currencies share stands for each of them.
_SIGNS: Final = {"$": ("USD", "CAD", "AUD", "NZD", "SGD", "HKD"), "¥": ("CNY", "JPY"), "€": ("EUR",), "£": ("GBP",)}


class Found(Value, frozen=True, kw_only=True):
    """The best `limit` items for a query, and how many there are in all.

    `text_ignored` says that no item matches the text, so that these items meet the other conditions only.
    """

    items: tuple[Item, ...] = ()
    total: int = 0
    text_ignored: bool = False


class Catalogue:
    """All items of one catalogue, ready to be searched."""

    def __init__(self, items: Iterable[Item]) -> None:
        self.items = tuple(items)
        self.by_id = {item.id: item for item in self.items}
        self.categories = tuple(dict.fromkeys(item.category for item in self.items))
        self.currencies = tuple(dict.fromkeys(item.currency for item in self.items))
        self._places = {item.id: place for place, item in enumerate(self.items)}
        self._index = LexicalIndex(_fields(item) for item in self.items)
        prices: dict[str, list[float]] = {}
        for item in self.items:
            prices.setdefault(item.category, []).append(item.price)
        self._typical_price = {category: median(all_prices) for category, all_prices in prices.items()}

    def search(self, intent: QueryIntent, among: Sequence[str] | None = None) -> Found:
        """Items that meet every condition, best first; sold out items last. `among` limits the search to these ids."""
        category = self._category(intent.category)
        pool = self.items if among is None else [self.by_id[id_] for id_ in among if id_ in self.by_id]
        fitting = [item for item in pool if (category is None or item.category == category) and _meets(item, intent)]
        # A category that this shop does not have is a word to search by.
        text = f"{intent.text} {'' if category else intent.category}"
        scores: dict[str, float] = {}
        text_ignored = False
        if terms(text):
            scores = self._match(text, fitting)
            text_ignored = not scores
            if text_ignored and (not (category or intent.brand or among) or (intent.category and not category)):
                return Found()
            fitting = [item for item in fitting if item.id in scores] or fitting
        key = self._sort_key(intent.sort, scores)
        ranked = sorted(fitting, key=lambda item: (item.stock == 0, key(item), -self.value(item), item.id))
        limit = max(1, min(intent.limit, MAX_SHOWN))
        return Found(items=tuple(ranked[:limit]), total=len(ranked), text_ignored=text_ignored and bool(ranked))

    def value(self, item: Item) -> float:
        """Quality for money: rating above a plain 3, by the price against the median of the category.

        Few sales draw a rating towards 4. The price counts by less than its proportion, or the cheapest item always
        wins.
        """
        rating = (item.rating * item.sales + 4.0 * 100) / (item.sales + 100)
        typical = self._typical_price.get(item.category) or 1.0
        return (rating - 3.0) / math.pow(max(item.price / typical, 0.01), 0.35)

    def _category(self, name: str) -> str | None:
        """The shop's own category of that name: as written, inflected, or by a word of the table."""
        wanted = terms(name)
        own = (slug for slug in self.categories if slug == name or (wanted and terms(slug) == wanted))
        slug = next(own, category_slug(name))
        return slug if slug in self.categories else None

    def _match(self, text: str, items: Sequence[Item]) -> dict[str, float]:
        """The score of each item that matches the text well enough, by id."""
        hits = {hit.position: hit for hit in self._index.search(_UNIT_BORDER.sub(" ", text))}
        near = [(item.id, hits[place]) for item in items if (place := self._places[item.id]) in hits]
        best = max((hit.coverage for _, hit in near), default=0.0)
        least = max(_MIN_COVERAGE, best * _NEAR_BEST)
        return {id_: hit.score for id_, hit in near if hit.coverage >= least}

    def _sort_key(self, sort: Sort | None, scores: dict[str, float]) -> Callable[[Item], float]:
        keys: dict[Sort | None, Callable[[Item], float]] = {
            "price": lambda item: item.price,
            "price_desc": lambda item: -item.price,
            "rating": lambda item: -item.rating,
            "sales": lambda item: -item.sales,
            "value": lambda item: -self.value(item),
            None: lambda item: -scores.get(item.id, item.rating * (1 + item.sales) ** 0.1),
        }
        return keys[sort]


def _fields(item: Item) -> list[tuple[str, int]]:
    """The texts of an item with their weights."""
    values = " ".join(item.attributes.values())
    colors = " ".join(COLORS.get(value, "") for value in item.attributes.values())
    category = f"{item.category} {' '.join(CATEGORIES.get(item.category, ()))}"
    fields = [(f"{item.name} {item.name_zh}", 3), (f"{item.brand} {item.brand_zh} {category}", 2)]
    fields += [(" ".join(item.tags), 2), (f"{values} {colors}", 1)]
    return [(_UNIT_BORDER.sub(" ", text), weight) for text, weight in fields]


def _meets(item: Item, intent: QueryIntent) -> bool:
    priced = intent.min_price is not None or intent.max_price is not None
    return (
        (not intent.brand or intent.brand.casefold().strip() in (item.brand.casefold(), item.brand_zh.casefold()))
        and (intent.min_price is None or item.price >= intent.min_price)
        and (intent.max_price is None or item.price <= intent.max_price)
        and (not (priced and intent.currency) or is_currency(intent.currency, item.currency))
        and all(_has(item, attribute_name(name), wanted) for name, wanted in intent.attributes.items())
    )


def is_currency(named: str, code: str) -> bool:
    """Whether a currency as it is named, by code or sign, can be that one."""
    return named.upper() == code.upper() or code.upper() in _SIGNS.get(named, ())


def _has(item: Item, name: str, wanted: str) -> bool:
    """Whether an attribute has the wanted value or keeps the bound; an item without the attribute does not."""
    noted = item.attributes.get(name, "")
    bound, amount = _BOUND.fullmatch(wanted), _BOUND.fullmatch(noted)
    if bound is None or amount is None:
        wanted_terms = terms(ENGLISH_VALUES.get(wanted, wanted))
        return bool(noted) and set(wanted_terms) <= set(terms(noted)) and bool(wanted_terms)
    (limit, unit), (value, noted_unit) = _measure(bound), _measure(amount)
    if unit and unit != noted_unit:
        return False
    return _COMPARE.get(bound[1], math.isclose)(value, limit)


def _measure(found: re.Match[str]) -> tuple[float, str]:
    named = ENGLISH_UNITS.get(found[3], found[3].lower())
    unit, factor = _UNITS.get(named, (named, 1.0))
    return float(found[2]) * factor, unit
