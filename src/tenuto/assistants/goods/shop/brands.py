"""The brands of goods: how many of each there are, at what prices, and how they are rated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Final

from tenuto.assistants.goods.intent import Sort
from tenuto.assistants.goods.shop.item import Item, in_language
from tenuto.model.prompt import Language
from tenuto.model.values import Value


class Brand(Value, frozen=True, kw_only=True):
    """A brand: how many goods it has, from what to what they cost, and how they are rated on average."""

    name: str
    name_zh: str
    currency: str
    count: int
    lowest: float
    highest: float
    rating: float

    def called(self, language: Language) -> str:
        """Its name in that language, or in the one it has."""
        return in_language(language, self.name, self.name_zh)


_ORDER: Final[dict[Sort, Callable[[Brand], float]]] = {
    "rating": lambda brand: -brand.rating,
    "price": lambda brand: brand.lowest,
    "price_desc": lambda brand: -brand.highest,
}


def brands_of(items: Sequence[Item], sort: Sort | None) -> tuple[Brand, ...]:
    """The brands of the items, in the order that was asked for; else those with the most goods first."""
    goods: dict[tuple[str, str], list[Item]] = {}
    for item in items:
        goods.setdefault((item.brand, item.brand_zh), []).append(item)
    brands = [_brand(own) for names, own in goods.items() if any(names)]
    by = _ORDER.get(sort) if sort is not None else None
    return tuple(sorted(brands, key=by or (lambda brand: -brand.count)))


def _brand(items: Sequence[Item]) -> Brand:
    return Brand(
        name=items[0].brand,
        name_zh=items[0].brand_zh,
        currency=items[0].currency,
        count=len(items),
        lowest=min(item.price for item in items),
        highest=max(item.price for item in items),
        rating=round(fmean(item.rating for item in items), 1),
    )
