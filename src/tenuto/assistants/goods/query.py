"""A `QueryIntent` put to a shelf: plain comparisons, in which no text can be anything but text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import fmean
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from tenuto.assistants.goods.amounts import means
from tenuto.assistants.goods.intent import MAX_LIMIT, MAX_TERMS, PREVIOUS, Bound, QueryIntent, Sort, Talk
from tenuto.assistants.goods.item import Item
from tenuto.assistants.goods.measures import Limit, Measure, limit, measure, noted_as
from tenuto.assistants.goods.shelf import Entry, Shelf
from tenuto.assistants.goods.words import COLOR_WORDS, fold
from tenuto.model.values import Value

_Key: TypeAlias = Callable[[Item], float]
_NEAR: Final = 3
_MEASURED: Final = ("most", "least")


class Found(Value, frozen=True, kw_only=True):
    """What a query brought.

    `ranked` are the ids of the whole answer in order, as far as they are kept; `goods` those to show. Where nothing
    fits, `near` names the condition that was let go to find something after all. `unknown` are words that this
    catalogue does not know. The averages are those of everything that fits.

    `by` is the attribute that decided the order, which `tied` others have as much of as the first; `unnoted` the one
    that should have and that none of the goods has. `ahead` are sold out, and would come before the first. `foreign`
    is a currency in which the catalogue has no prices: the bounds that were named in it do not count, and neither do
    those `uncompared`, of which these goods note nothing that compares.
    """

    query: QueryIntent
    goods: tuple[Item, ...] = ()
    ranked: tuple[Item, ...] = ()
    total: int = 0
    near: str | None = None
    unknown: tuple[str, ...] = ()
    average_price: float = 0.0
    average_rating: float = 0.0
    by: str | None = None
    tied: int = 0
    unnoted: str | None = None
    ahead: int = 0
    foreign: str | None = None
    uncompared: tuple[Bound, ...] = ()


def search(shelf: Shelf, intent: QueryIntent, talk: Talk) -> Found:
    """Everything that fits, best first."""
    query, unknown = settled(shelf, intent, talk)
    query, foreign = _priced(shelf, query)
    query, uncompared = _bounded(shelf, query)
    if _hopeless(query, unknown):
        return Found(query=query, unknown=tuple(unknown))
    found = _found(shelf, query, unknown)
    if not found.total and query.category and query.terms:
        found = _reworded(shelf, query, unknown, found)
    if not found.total and _moved_on(shelf, query, talk):
        found = _found(shelf, QueryIntent(terms=query.terms, limit=query.limit), unknown)
    if not (found.total or found.unnoted or query.beyond):
        found = next(_near(shelf, query, unknown), found)
    return replace(found, foreign=foreign, uncompared=uncompared)


def _priced(shelf: Shelf, query: QueryIntent) -> tuple[QueryIntent, str | None]:
    """The query in the catalogue's own currency, and the other one that was named; nothing is converted."""
    bare = replace(query, currency=None)
    if query.currency is None or means(query.currency, shelf.currency):
        return bare, None
    cheap = "price" if query.max_price is not None and query.sort is None else query.sort
    return replace(bare, min_price=None, max_price=None, sort=cheap), query.currency


def _bounded(shelf: Shelf, query: QueryIntent) -> tuple[QueryIntent, tuple[Bound, ...]]:
    """The query with its bounds as these goods note them, and those that nothing here compares with."""
    query = replace(query, amounts=tuple(_than(shelf, bound) for bound in query.amounts))
    goods = _kin(shelf, query)
    read = [(bound, limit(goods, bound)) for bound in query.amounts[:MAX_TERMS]]
    amounts = tuple(compared[0] for _, compared in read if compared is not None)
    return replace(query, amounts=amounts), tuple(bound for bound, compared in read if compared is None)


def _than(shelf: Shelf, bound: Bound) -> Bound:
    """A bound by what other goods have, as the amount they have; without one where they note none."""
    item = next(iter(shelf.items([bound.than] if bound.than else [])), None)
    if item is None:
        return bound
    noted = ((name, said) for name in bound.of if (said := noted_as(item, name)) is not None)
    name, said = next(noted, ("", ""))
    return Bound(of=(name,) if name else bound.of, sign=bound.sign, amount=said)


def _limits(shelf: Shelf, query: QueryIntent) -> list[Limit]:
    goods = _kin(shelf, query) if query.amounts else []
    return [compared[1] for bound in query.amounts if (compared := limit(goods, bound)) is not None]


def _kin(shelf: Shelf, query: QueryIntent) -> list[Item]:
    """The goods that a bound speaks of: all of the kind, whatever else is asked of them."""
    kind = QueryIntent(category=query.category)
    of_kind = [entry for entry in _pool(shelf, query) if _fits(entry, kind)]
    return [entry.item for entry in of_kind if all(map(entry.fits, query.terms))] or [entry.item for entry in of_kind]


def settled(shelf: Shelf, intent: QueryIntent, talk: Talk) -> tuple[QueryIntent, list[str]]:
    """The intent in the catalogue's own words, and the words that it does not have."""
    category = shelf.category(intent.category) if intent.category else None
    texts = (
        intent.terms[:MAX_TERMS] if category or not intent.category else (*intent.terms[:MAX_TERMS], intent.category)
    )
    terms, unknown = shelf.known(texts)
    if category is None and not intent.category:
        # A word of a category that was misspelt is read as that word only here.
        category = next((slug for term in terms if (slug := shelf.category(term)) is not None), None)
        terms = [term for term in terms if category is None or shelf.category(term) != category]
    brands = {term: brand for term in terms if (brand := shelf.brand(term)) is not None}
    brand = shelf.brand(intent.brand) if intent.brand else next(iter(brands.values()), None)
    if intent.brand and brand is None:
        unknown.append(fold(intent.brand, 40))
    query = replace(
        intent,
        category=category,
        brand=brand,
        terms=tuple(term for term in terms if term not in brands),
        without=tuple(word for text in intent.without[:MAX_TERMS] for word in shelf.known((text,))[0]),
        attributes=dict(_attribute(name, value) for name, value in list(intent.attributes.items())[:MAX_TERMS]),
        among=talk.items if PREVIOUS in intent.among else intent.among,
        limit=min(max(intent.limit, 1), MAX_LIMIT),
        rank=min(max(intent.rank, 1), MAX_LIMIT),
    )
    return query, unknown


def _attribute(name: str, value: str) -> tuple[str, str]:
    key = fold(name, 40).replace("colour", "color").replace("颜色", "color")
    folded = fold(value, 40).strip()
    return key, COLOR_WORDS.get(folded.removesuffix("色"), folded) if key == "color" else folded


def _hopeless(query: QueryIntent, unknown: list[str]) -> bool:
    """Whether nothing the question named exists here; what is left of it would fit anything."""
    named = query.category or query.terms or query.brand or query.among
    return bool(unknown) and not named


def _found(shelf: Shelf, query: QueryIntent, unknown: list[str], near: str | None = None) -> Found:
    limits = _limits(shelf, query)
    fitting = [
        entry.item
        for entry in _pool(shelf, query)
        if _fits(entry, query) and all(held.holds(entry.item) for held in limits)
    ]
    by = measure(fitting, query.by) if query.sort in _MEASURED else None
    if fitting and by is None and query.sort in _MEASURED:
        return _unordered(shelf, query, unknown, near)
    key = _key(shelf, query.sort, by)
    # What is sold out comes last in any order; ties go to the better value.
    ranked = sorted(_measured(fitting, by), key=lambda item: (item.stock == 0, key(item), -shelf.value(item), item.id))
    start = query.rank - 1
    return Found(
        by=by.name if by else None,
        tied=_tied(ranked, start, by),
        ahead=sum(item.stock == 0 and key(item) < key(ranked[start]) for item in ranked) if start < len(ranked) else 0,
        query=query,
        goods=tuple(ranked[start : start + query.limit]),
        ranked=tuple(ranked[:MAX_LIMIT]),
        total=len(ranked),
        near=near,
        unknown=tuple(unknown),
        average_price=round(fmean(item.price for item in ranked), 2) if ranked else 0.0,
        average_rating=round(fmean(item.rating for item in ranked), 2) if ranked else 0.0,
    )


def _unordered(shelf: Shelf, query: QueryIntent, unknown: list[str], near: str | None) -> Found:
    """The catalogue does not tell what should decide: that is said, and several are shown in the usual order."""
    unnoted = next(iter(query.by), "")
    if query.limit == 1:
        return Found(query=query, unknown=tuple(unknown), unnoted=unnoted)
    return replace(_found(shelf, replace(query, sort=None, by=()), unknown, near), unnoted=unnoted)


def _measured(items: list[Item], by: Measure | None) -> list[Item]:
    return items if by is None else [item for item in items if by.of(item) is not None]


def _tied(ranked: Sequence[Item], start: int, by: Measure | None) -> int:
    """How many more have as much as the one at that place."""
    if by is None or start >= len(ranked):
        return 0
    return sum(by.of(item) == by.of(ranked[start]) for item in ranked) - 1


def _reworded(shelf: Shelf, query: QueryIntent, unknown: list[str], found: Found) -> Found:
    """The category taken as a mere word: "cat food" is no food, but it is called so."""
    again = _found(shelf, replace(query, category=None, terms=(*query.terms, query.category or "")), unknown)
    return again if again.total else found


def _moved_on(shelf: Shelf, query: QueryIntent, talk: Talk) -> bool:
    """Whether a follow-up names goods of another kind: "what about a rice cooker?" after red phones."""
    if not query.terms or query.category is None or talk.intent is None or talk.intent.category != query.category:
        return False
    named = [entry for entry in shelf.entries if all(map(entry.is_called, query.terms))]
    return bool(named) and not any(entry.item.category == query.category for entry in named)


def _pool(shelf: Shelf, query: QueryIntent) -> Iterable[Entry]:
    if query.among:
        return [shelf.by_id[id_] for id_ in dict.fromkeys(query.among) if id_ in shelf.by_id]
    return shelf.entries


def _fits(entry: Entry, query: QueryIntent) -> bool:
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
        and all(map(entry.fits, query.terms))
        and not any(map(entry.fits, query.without))
    )


def _has(entry: Entry, name: str, value: str) -> bool:
    """By the attribute itself or, as in "green tea", by the item's words."""
    held = fold(entry.item.attributes.get(name, ""), 80)
    return value == held or value.replace(" ", "") in held.replace(" ", "").split("-") or entry.fits(value)


def _key(shelf: Shelf, sort: Sort | None, by: Measure | None) -> _Key:
    keys: dict[Sort | None, _Key] = {
        "price": lambda item: item.price,
        "price_desc": lambda item: -item.price,
        "rating": lambda item: -item.rating,
        "sales": lambda item: -item.sales,
        "value": lambda item: -shelf.value(item),
        "most": lambda item: -_amount(item, by),
        "least": lambda item: _amount(item, by),
        None: lambda item: -item.rating * (1 + item.sales) ** 0.1,
    }
    return keys[sort]


def _amount(item: Item, by: Measure | None) -> float:
    return (by.of(item) if by is not None else None) or 0.0


def _near(shelf: Shelf, query: QueryIntent, unknown: list[str]) -> Iterator[Found]:
    """Answers to the query with one condition let go, the dearest to the asker last."""
    for name, without in _looser(shelf, query):
        found = _found(shelf, replace(query, **without, limit=_NEAR, rank=1), unknown, name)
        if found.total:
            yield replace(found, query=query)


def _looser(shelf: Shelf, query: QueryIntent) -> Iterator[tuple[str, dict[str, Any]]]:
    scoped = query.category is not None or bool(query.among)
    if (kind := _kind(shelf, query)) is not None:
        yield "among", {"among": (), "category": kind}
    if query.without:
        yield "without", {"without": ()}
    for bound in query.amounts:
        others = tuple(other for other in query.amounts if other.of != bound.of)
        yield "amounts", {"amounts": others, "sort": "most" if ">" in bound.sign else "least", "by": bound.of}
    if query.attributes and (scoped or query.terms or query.brand):
        yield "attributes", {"attributes": {}}
    if query.terms and (scoped or query.brand):
        yield "terms", {"terms": ()}
    for term in query.terms if len(query.terms) > 1 else ():
        yield "terms", {"terms": (term,)}
    free = {"min_price": None, "max_price": None, "above": None, "below": None}
    if query.max_price is not None or query.below is not None:
        yield "price", {**free, "sort": "price", "by": ()}
    if query.min_price is not None or query.above is not None:
        yield "price", {**free, "sort": "price_desc", "by": ()}
    if query.min_rating is not None:
        yield "rating", {"min_rating": None, "sort": "rating", "by": ()}
    if query.brand is not None and (scoped or query.terms):
        yield "brand", {"brand": None}
    if query.in_stock:
        yield "stock", {"in_stock": False}


def _kind(shelf: Shelf, query: QueryIntent) -> str | None:
    """The category of the goods that the query chooses among."""
    return next((item.category for item in shelf.items(query.among)), None)
