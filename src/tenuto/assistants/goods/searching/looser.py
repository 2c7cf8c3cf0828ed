"""Which conditions of a query can be let go, where nothing meets them all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from tenuto.assistants.goods.intent import QueryIntent
from tenuto.assistants.goods.shop import Shelf

Loosened: TypeAlias = tuple[str, dict[str, Any]]


def looser(shelf: Shelf, query: QueryIntent) -> Iterator[Loosened]:
    """The conditions one by one, each by its name, and the fields that let it go; the dearest to the asker last."""
    scoped = query.category is not None or bool(query.among)
    if (kind := _kind(shelf, query)) is not None:
        yield "among", {"among": (), "category": kind}
    if query.without:
        yield "without", {"without": ()}
    for bound in query.amounts:
        others = tuple(other for other in query.amounts if other.of != bound.of)
        yield "amounts", {"amounts": others, "sort": "most" if ">" in bound.sign else "least", "by": bound.of}
    yield from _words(query, scoped)
    yield from _prices(query)
    if query.min_rating is not None:
        yield "rating", {"min_rating": None, "sort": "rating", "by": ()}
    if query.brand is not None and (scoped or query.terms):
        yield "brand", {"brand": None}
    if query.in_stock:
        yield "stock", {"in_stock": False}


def _words(query: QueryIntent, scoped: bool) -> Iterator[Loosened]:
    if query.attributes and (scoped or query.terms or query.brand):
        yield "attributes", {"attributes": {}}
    if query.either and (scoped or query.terms or query.brand):
        yield "either", {"either": ()}
    if query.terms and (scoped or query.brand):
        yield "terms", {"terms": ()}
    for term in query.terms if len(query.terms) > 1 else ():
        yield "terms", {"terms": (term,)}


def _prices(query: QueryIntent) -> Iterator[Loosened]:
    free = {"min_price": None, "max_price": None, "above": None, "below": None}
    if query.max_price is not None or query.below is not None:
        yield "price", {**free, "sort": "price", "by": ()}
    if query.min_price is not None or query.above is not None:
        yield "price", {**free, "sort": "price_desc", "by": ()}


def _kind(shelf: Shelf, query: QueryIntent) -> str | None:
    """The category of the goods that the query chooses among."""
    return next((item.category for item in shelf.items(query.among)), None)
