"""How much of something an item has: "6000 mAh", "0.9 kg" and "1 TB" as amounts that can be compared."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from tenuto.assistants.goods.item import Item
from tenuto.assistants.goods.words import ATTRIBUTES, UNITS, fold
from tenuto.model.values import Value

# What every item has, beside its attributes.
_FIELDS: Final = frozenset({"price", "rating", "sales", "stock"})
_AMOUNT: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(\+|[a-z]+|[\u3400-\u9fff]{1,3})?")
_DATE: Final = re.compile(r"(\d{4})-(\d{1,2})(?:-(\d{1,2}))?")
_UNITS: Final[Mapping[str, tuple[str, float]]] = MappingProxyType(
    {
        unit: (kind, worth)
        for kind, units in (
            ("charge", {"mah": 1, "ah": 1000}),
            ("data", {"mb": 1 / 1024, "gb": 1, "tb": 1024}),
            ("length", {"mm": 0.1, "cm": 1, "inch": 2.54, "m": 100, "km": 100_000}),
            ("mass", {"mg": 0.001, "g": 1, "kg": 1000}),
            ("power", {"w": 1, "kw": 1000}),
            ("time", {"min": 1, "h": 60, "hours": 60, "day": 1440, "days": 1440}),
            ("volume", {"ml": 1, "l": 1000}),
        )
        for unit, worth in units.items()
    }
)


class Measure(Value, frozen=True, kw_only=True):
    """What goods are compared by: one attribute, in one kind of unit. Hours and mAh do not compare."""

    name: str
    kind: str

    def of(self, item: Item) -> float | None:
        """How much the item has of it; `None` when that is not noted, or in units of another kind."""
        noted = _noted(item, self.name)
        return noted[1] if noted is not None and noted[0] == self.kind else None


def measure(items: Iterable[Item], names: Sequence[str]) -> Measure | None:
    """The first of the attributes that the items have as an amount, in the kind of unit that most of them have it in.

    Where most of them have it as something else, such as clothes their sizes, it does not order them.
    """
    goods = tuple(items)
    for name in names:
        noted = [_noted(item, name) for item in goods if _has(item, name)]
        kinds = Counter(amount[0] if amount is not None else "" for amount in noted)
        if kinds and (kind := kinds.most_common(1)[0][0]):
            return Measure(name=name, kind=kind)
    return None


def _has(item: Item, name: str) -> bool:
    return name in _FIELDS or _text(item, name) is not None


def _text(item: Item, name: str) -> str | None:
    return item.attributes.get(name) or item.attributes.get(ATTRIBUTES.get(name, ""))


def _noted(item: Item, name: str) -> tuple[str, float] | None:
    if name in _FIELDS:
        return "number", float(getattr(item, name))
    text = _text(item, name)
    return _amount(fold(text, 40).strip()) if text else None


def _amount(text: str) -> tuple[str, float] | None:
    """A value as kind and amount; sizes such as "36-46" are no amounts."""
    if date := _DATE.fullmatch(text):
        return "number", int(date[1]) + int(date[2]) / 100 + int(date[3] or 0) / 10_000
    found = _AMOUNT.fullmatch(text)
    if found is None:
        return None
    unit = found[2] or "+"
    if unit == "+":
        return "number", float(found[1])
    kind, worth = _UNITS.get(unit if unit.isascii() else UNITS.get(unit, unit), (unit, 1.0))
    return kind, float(found[1]) * worth
