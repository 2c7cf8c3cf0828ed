"""Which conditions of a query can be let go, where nothing meets them all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from tenuto.assistants.goods.intent import QueryIntent
from tenuto.assistants.goods.shop import MOSTLY, Shelf
from tenuto.model.values import Value

Loosened: TypeAlias = tuple[str, dict[str, Any]]


def looser(shelf: Shelf, query: QueryIntent, before: QueryIntent | None = None) -> Iterator[Loosened]:
    """The conditions one by one, each by its name, and the fields that let it go; the dearest to the asker last."""
    scoped = query.category is not None or bool(query.among)
    if (kind := _kind(shelf, query)) is not None:
        yield "among", {"among": (), "category": kind}
    for bound in query.amounts:
        others = tuple(other for other in query.amounts if other.of != bound.of)
        yield "amounts", {"amounts": others, "sort": "most" if ">" in bound.sign else "least", "by": bound.of}
    yield from _traits(query, scoped)
    fewer = _fewer(shelf, query.terms, before)
    for terms in fewer.of_the_kind:
        yield "terms", {"terms": terms}
    yield from _prices(query)
    if fewer.kind:
        # Before what goods are called is let go, so is everything that they are to be like, and their price at last.
        bare = {"terms": fewer.kind, "attributes": {}, "amounts": ()}
        yield "terms", bare
        yield "terms", {**bare, "min_price": None, "max_price": None, "above": None, "below": None}
    for terms in fewer.others:
        yield "terms", {"terms": terms}
    if query.terms and (scoped or query.brand):
        yield "terms", {"terms": ()}
    if query.min_rating is not None:
        yield "rating", {"min_rating": None, "sort": "rating", "by": ()}
    if query.brand is not None and (scoped or query.terms):
        yield "brand", {"brand": None}
    if query.in_stock:
        yield "stock", {"in_stock": False}
    if query.without:
        # Nobody is shown what they do not want, unless there is nothing else.
        yield "without", {"without": ()}


def let_go(query: QueryIntent, held: QueryIntent) -> QueryIntent:
    """What the one asks for and the other does not: terms and amounts one by one, anything else as a whole."""
    return QueryIntent(
        terms=tuple(term for term in query.terms if term not in held.terms),
        amounts=tuple(bound for bound in query.amounts if bound not in held.amounts),
        either=query.either if query.either != held.either else (),
        without=query.without if query.without != held.without else (),
        brand=query.brand if query.brand != held.brand else None,
        min_price=query.min_price if query.min_price != held.min_price else None,
        max_price=query.max_price if query.max_price != held.max_price else None,
        attributes=query.attributes if query.attributes != held.attributes else {},
    )


def _traits(query: QueryIntent, scoped: bool) -> Iterator[Loosened]:
    if query.attributes and (scoped or query.terms or query.brand):
        yield "attributes", {"attributes": {}}
    if query.either and (scoped or query.terms or query.brand):
        yield "either", {"either": ()}


class _Fewer(Value, frozen=True, kw_only=True):
    """The words of a query with some left out: those that keep the `kind` of goods, and the others."""

    kind: tuple[str, ...] = ()
    of_the_kind: tuple[tuple[str, ...], ...] = ()
    others: tuple[tuple[str, ...], ...] = ()


def _fewer(shelf: Shelf, terms: tuple[str, ...], before: QueryIntent | None) -> _Fewer:
    """All words but one, the least dear left out first, then only one of them.

    What is said now is dearer than what was said earlier, what goods are called dearer than what they are like.
    """
    if len(terms) == 1:
        return _Fewer()
    earlier = before.terms if before is not None and set(terms) - set(before.terms) else ()
    called = {term: shelf.share_called(term) for term in terms}
    kinds = [term for term in terms if called[term] >= MOSTLY]
    # What goods are called stays, unless the question calls them otherwise now.
    kind = tuple(term for term in kinds if term not in earlier) or tuple(kinds)
    # Of words that are names alike the last one tells what it is: a "quiet fan" is a fan.
    dear = sorted(terms, key=lambda term: (term in earlier, -called[term], -terms.index(term)))
    fewer = [tuple(other for other in terms if other != term) for term in reversed(dear)]
    fewer += [kind] if 0 < len(kind) < len(terms) else []
    fewer += [(term,) for term in dear]
    return _Fewer(
        kind=kind,
        of_the_kind=tuple(kept for kept in fewer if set(kind) <= set(kept)),
        others=tuple(kept for kept in fewer if not set(kind) <= set(kept)),
    )


def _prices(query: QueryIntent) -> Iterator[Loosened]:
    """The nearest to a bound are the first beyond it."""
    dearer = query.max_price is not None or query.below is not None
    cheaper = query.min_price is not None or query.above is not None
    upper, lower = {"max_price": None, "below": None}, {"min_price": None, "above": None}
    if dearer:
        yield "price", {**upper, "sort": "price", "by": ()}
    if cheaper:
        yield "price", {**lower, "sort": "price_desc", "by": ()}
    if dearer and cheaper:
        yield "price", {**upper, **lower, "sort": "price", "by": ()}


def _kind(shelf: Shelf, query: QueryIntent) -> str | None:
    """The category of the goods that the query chooses among."""
    return next((item.category for item in shelf.items(query.among)), None)
