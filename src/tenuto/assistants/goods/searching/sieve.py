"""A query made ready: which entries of a shelf it lets through."""

from __future__ import annotations

from collections.abc import Iterable

from tenuto.assistants.goods.intent import QueryIntent
from tenuto.assistants.goods.shop import Entry, Item, Shelf, limit
from tenuto.assistants.goods.words import fold


class Kind:
    """Goods by a few words that name them together: "cat food", "red phones", 手机壳."""

    def __init__(self, shelf: Shelf, phrase: str) -> None:
        whole = shelf.category(phrase)
        words = () if whole else tuple(phrase.split())
        named = next((word for word in words if shelf.category(word) is not None), None)
        self._category = whole
        self._words = words
        if named is not None:
            # "red phones" are phones; "cat food" is no food, but it is called so.
            category, others = shelf.category(named), tuple(word for word in words if word != named)
            if any(_is(entry, category, others) for entry in shelf.entries):
                self._category, self._words = category, others

    def fits(self, entry: Entry) -> bool:
        """Whether the item is of that kind."""
        return _is(entry, self._category, self._words)


class Sieve:
    """All the conditions of a query, looked up once for all entries."""

    def __init__(self, shelf: Shelf, query: QueryIntent) -> None:
        self._query = query
        self._either = [[Kind(shelf, option) for option in group] for group in query.either]
        self._without = [Kind(shelf, phrase) for phrase in query.without]
        goods = kin(shelf, query) if query.amounts else []
        self._limits = [held[1] for bound in query.amounts if (held := limit(goods, bound)) is not None]

    def through(self, shelf: Shelf) -> list[Item]:
        """The items that meet every condition."""
        fitting = [entry for entry in pool(shelf, self._query) if self._fits(entry)]
        for term in self._query.terms:
            fitting = _just(fitting, term)
        return [entry.item for entry in fitting]

    def _fits(self, entry: Entry) -> bool:
        return (
            _in_bounds(entry, self._query)
            and all(map(entry.fits, self._query.terms))
            and all(any(option.fits(entry) for option in group) for group in self._either)
            and not any(phrase.fits(entry) for phrase in self._without)
            and all(held.holds(entry.item) for held in self._limits)
        )


def meets(shelf: Shelf, query: QueryIntent) -> bool:
    """Whether anything meets the query."""
    return bool(Sieve(shelf, query).through(shelf))


def kin(shelf: Shelf, query: QueryIntent) -> list[Item]:
    """The goods that a bound speaks of: all of the kind, whatever else is asked of them."""
    groups = [[Kind(shelf, option) for option in group] for group in query.either]
    of_kind = [
        entry
        for entry in pool(shelf, query)
        if (query.category is None or entry.item.category == query.category)
        and all(any(option.fits(entry) for option in group) for group in groups)
    ]
    return [entry.item for entry in of_kind if all(map(entry.fits, query.terms))] or [entry.item for entry in of_kind]


def pool(shelf: Shelf, query: QueryIntent) -> Iterable[Entry]:
    """What there is to choose from."""
    if query.among:
        return [shelf.by_id[id_] for id_ in dict.fromkeys(query.among) if id_ in shelf.by_id]
    return shelf.entries


def _just(entries: list[Entry], term: str) -> list[Entry]:
    """Where some are just what the word says, those are none of it that are the same for pets."""
    if not any(term in entry.runs for entry in entries):
        return entries
    return [entry for entry in entries if not entry.is_for_pets(term)]


def _in_bounds(entry: Entry, query: QueryIntent) -> bool:
    """Whether the item is of that category and brand, at that price, and has what must hold."""
    item = entry.item
    return (
        (query.category is None or item.category == query.category)
        and (query.brand is None or query.brand in (item.brand, item.brand_zh))
        and (query.min_price is None or item.price >= query.min_price)
        and (query.max_price is None or item.price <= query.max_price)
        and (query.above is None or item.price > query.above)
        and (query.below is None or item.price < query.below)
        and (query.min_rating is None or item.rating >= query.min_rating)
        and (not query.in_stock or item.stock > 0)
        and item.id not in query.beyond
        and all(_has(entry, name, value) for name, value in query.attributes.items())
    )


def _has(entry: Entry, name: str, value: str) -> bool:
    """By the attribute itself or, as in "green tea", by the item's words."""
    held = fold(entry.item.attributes.get(name, ""), 80)
    return value == held or value.replace(" ", "") in held.replace(" ", "").split("-") or entry.fits(value)


def _is(entry: Entry, category: str | None, words: tuple[str, ...]) -> bool:
    return (category is None or entry.item.category == category) and all(map(entry.fits, words))
