"""A `QueryIntent` put to a shelf: plain comparisons, in which no text can be anything but text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import Final, TypeAlias

from msgspec.structs import replace

from tenuto.assistants.goods.intent import MAX_LIMIT, MAX_TERMS, Bound, QueryIntent, Sort, Talk
from tenuto.assistants.goods.searching.looser import looser
from tenuto.assistants.goods.searching.settling import settled
from tenuto.assistants.goods.searching.sieve import Sieve, kin, meets
from tenuto.assistants.goods.shop import Brand, Item, Measure, Shelf, brands_of, limit, measure, noted_as
from tenuto.assistants.goods.words import MEASURED, means
from tenuto.model.values import Value

_Key: TypeAlias = Callable[[Item], float]
_NEAR: Final = 3
_MEASURED: Final = ("most", "least")
# By these goods can be even: an order by value or by how well they match hides how near they are.
_TELLING: Final = ("price", "price_desc", "rating", "sales", *_MEASURED)
_EVEN: Final = 5


class Found(Value, frozen=True, kw_only=True):
    """What a query brought.

    `ranked` are the ids of the whole answer in order, as far as they are kept; `goods` those to show. Where nothing
    fits, `near` names the condition that was let go to find something after all. `unknown` are words that this
    catalogue does not know. The averages are those of everything that fits.

    `brands` are those of everything that fits, where they are asked for.

    `by` is the attribute that decided the order, which `tied` others have as much of as the first (or cost as much, or
    are rated as high); where one was asked for and all are tied, `even`, several are there. `unnoted` is the attribute
    that should have decided and that none of the goods has. `held` is what of the query was held. `ahead` are sold
    out, and would come before the first. `foreign` is a currency in which the catalogue has no prices: the bounds that
    were named in it do not count, and neither do those `uncompared`, of which these goods note nothing that compares.
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
    even: bool = False
    unnoted: str | None = None
    held: QueryIntent = QueryIntent()
    ahead: int = 0
    foreign: str | None = None
    uncompared: tuple[Bound, ...] = ()
    brands: tuple[Brand, ...] = ()


def search(shelf: Shelf, intent: QueryIntent, talk: Talk) -> Found:
    """Everything that fits, best first."""
    query, unknown = settled(shelf, intent, talk)
    query, foreign = _priced(shelf, query)
    query, uncompared = _bounded(shelf, _reworded(shelf, query))
    if _hopeless(query, unknown) or (unknown and query == talk.intent):
        return Found(query=query, unknown=tuple(unknown))
    found = _found(shelf, query, unknown)
    if not found.total and (other := _moved_on(shelf, query, unknown, talk)) is not None:
        query = other
        found = _found(shelf, query, unknown)
    if not found.total and intent.like is not None and intent.brand is None:
        # The brand was not asked for; it came with the goods that were pointed at.
        held = replace(query, brand=None)
        found = replace(_found(shelf, held, unknown, "brand"), query=query, held=held)
    if not (found.total or found.unnoted or _settled(intent)):
        found = next(_near(shelf, query, unknown, talk.intent), found)
    return replace(found, foreign=foreign, uncompared=uncompared)


def _settled(intent: QueryIntent) -> bool:
    """Whether that there is nothing is the answer: no more of it, no other brand, none that is sold out."""
    return bool(intent.beyond or intent.unlike) or any(bound.of == ("stock",) for bound in intent.amounts)


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
    goods = kin(shelf, query)
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


def _hopeless(query: QueryIntent, unknown: list[str]) -> bool:
    """Whether nothing the question named exists here; what is left of it would fit anything."""
    if query.among:
        return bool(unknown) and replace(query, among=(), limit=1, about=None) == QueryIntent(limit=1)
    return bool(unknown) and not (query.category or query.terms or query.brand or query.either)


def _found(shelf: Shelf, query: QueryIntent, unknown: list[str], near: str | None = None) -> Found:
    fitting = Sieve(shelf, query).through(shelf)
    by = measure(fitting, query.by) if query.sort in _MEASURED else None
    if fitting and by is None and query.sort in _MEASURED:
        return _unordered(shelf, query, unknown, near)
    key = _key(shelf, query.sort, by)
    # What is sold out comes last in any order; ties go to the better value.
    ranked = sorted(_measured(fitting, by), key=lambda item: (item.stock == 0, key(item), -shelf.value(item), item.id))
    start = query.rank - 1
    tied = _tied(ranked, start, key) if query.sort in _TELLING else 0
    even = query.limit == 1 and tied > 0 and tied == len(ranked) - 1
    return Found(
        by=by.name if by else None,
        tied=tied,
        even=even,
        ahead=sum(item.stock == 0 and key(item) < key(ranked[start]) for item in ranked) if start < len(ranked) else 0,
        query=query,
        goods=tuple(ranked[start : start + (_EVEN if even else query.limit)]),
        ranked=tuple(ranked[:MAX_LIMIT]),
        total=len(ranked),
        near=near,
        unknown=tuple(unknown),
        average_price=round(fmean(item.price for item in ranked), 2) if ranked else 0.0,
        average_rating=round(fmean(item.rating for item in ranked), 2) if ranked else 0.0,
        brands=brands_of(ranked, query.sort) if query.brands else (),
    )


def _unordered(shelf: Shelf, query: QueryIntent, unknown: list[str], near: str | None) -> Found:
    """The catalogue does not tell what should decide: that is said, and several are shown in the usual order."""
    unnoted = "size" if "size" in query.by else next(iter(query.by), "")
    if query.limit == 1:
        return Found(query=query, unknown=tuple(unknown), unnoted=unnoted)
    return replace(_found(shelf, replace(query, sort=None, by=()), unknown, near), unnoted=unnoted)


def _measured(items: list[Item], by: Measure | None) -> list[Item]:
    return items if by is None else [item for item in items if by.of(item) is not None]


def _tied(ranked: Sequence[Item], start: int, key: _Key) -> int:
    """How many more have as much as the one at that place."""
    return sum(key(item) == key(ranked[start]) for item in ranked) - 1 if start < len(ranked) else 0


def _reworded(shelf: Shelf, query: QueryIntent) -> QueryIntent:
    """The category taken as a mere word, where only so there are such goods: "cat food" is no food, but called so."""
    if query.category is None or not query.terms:
        return query
    kind = QueryIntent(category=query.category, brand=query.brand, terms=query.terms)
    called = (" ".join((*query.terms, query.category)),)
    worded = replace(kind, category=None, terms=(), either=(called,))
    if meets(shelf, kind) or not meets(shelf, worded):
        return query
    return replace(query, category=None, terms=(), either=(*query.either, called))


def _moved_on(shelf: Shelf, query: QueryIntent, unknown: list[str], talk: Talk) -> QueryIntent | None:
    """A follow-up that names goods of another kind: "what about a rice cooker?" after red phones.

    Several words that nothing fits together with those before stand for themselves: "fish tank" after "dog leash".
    """
    before = talk.intent
    if before is None or before.category != query.category or query.among:
        return None
    new = tuple(term for term in query.terms if term not in before.terms)
    if not new or any(map(MEASURED.fullmatch, new)):
        return None
    named = [entry for entry in shelf.entries if all(map(entry.is_called, new))]
    if query.category is None:
        by_itself = len(new) + len(unknown) > 1 and meets(shelf, QueryIntent(terms=new))
        moved = len(new) < len(query.terms) and (by_itself or (bool(named) and all(map(shelf.is_kind, new))))
    else:
        elsewhere = bool(named) and all(entry.item.category != query.category for entry in named)
        moved = elsewhere and any(map(shelf.is_kind, new))
    return _news(query, before, new) if moved else None


def _news(query: QueryIntent, before: QueryIntent, terms: tuple[str, ...]) -> QueryIntent:
    """What of a query was not asked for before."""
    priced = (query.min_price, query.max_price) != (before.min_price, before.max_price)
    ordered = query.sort != before.sort
    return QueryIntent(
        terms=terms,
        attributes={name: value for name, value in query.attributes.items() if before.attributes.get(name) != value},
        amounts=tuple(bound for bound in query.amounts if bound not in before.amounts),
        min_price=query.min_price if priced else None,
        max_price=query.max_price if priced else None,
        sort=query.sort if ordered else None,
        by=query.by if ordered else (),
        limit=query.limit,
    )


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


def _near(shelf: Shelf, query: QueryIntent, unknown: list[str], before: QueryIntent | None) -> Iterator[Found]:
    """Answers to the query with one condition let go, the dearest to the asker last."""
    for name, without in looser(shelf, query, before):
        found = _found(shelf, replace(query, **without, limit=_NEAR, rank=1), unknown, name)
        if found.total:
            held = replace(found.query, sort=query.sort, by=query.by, limit=query.limit, rank=query.rank)
            # Nobody asked for the order that goes with a bound let go, so that goods which note none just stand there.
            yield replace(found, query=query, held=held, unnoted=None if "by" in without else found.unnoted)
