"""How much of something an item has: "6000 mAh", "0.9 kg" and "1 TB" as amounts that can be compared."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from tenuto.assistants.goods.intent import Bound, Sign
from tenuto.assistants.goods.item import Item
from tenuto.assistants.goods.units import PLAIN, UNITS, Unit
from tenuto.assistants.goods.words import ATTRIBUTES, fold
from tenuto.model.expression import expression
from tenuto.model.values import Value

# What every item has, beside its attributes.
_FIELDS: Final = frozenset({"price", "rating", "sales", "stock"})
_AMOUNT: Final = expression(r"(\d+(?:\.\d+)?)\s*(\+|[a-z]+|[\u3400-\u9fff]{1,3})?")
_DATE: Final = expression(r"(\d{4})-(\d{1,2})(?:-(\d{1,2}))?")
_NAMES: Final[Mapping[str, str]] = MappingProxyType({chinese: name for name, chinese in ATTRIBUTES.items()})


class Measure(Value, frozen=True, kw_only=True):
    """What goods are compared by: one attribute, in one kind of unit. Hours and mAh do not compare."""

    name: str
    kind: str

    def of(self, item: Item) -> float | None:
        """How much the item has of it; `None` when that is not noted, or in units of another kind."""
        noted = _noted(item, self.name)
        return noted[0] * noted[1].worth if noted is not None and noted[1].kind == self.kind else None


class Limit(Value, frozen=True, kw_only=True):
    """A bound that these goods can be held to. Goods that do not note the attribute are outside."""

    measure: Measure
    sign: Sign
    worth: float

    def holds(self, item: Item) -> bool:
        """Whether the item has as much."""
        amount = self.measure.of(item)
        if amount is None:
            return False
        if math.isclose(amount, self.worth, rel_tol=1e-6):
            return "=" in self.sign
        return amount > self.worth if ">" in self.sign else amount < self.worth and "<" in self.sign


def measure(items: Iterable[Item], names: Sequence[str]) -> Measure | None:
    """The first of the attributes that the items have as an amount, in the kind of unit that most of them have it in.

    Where most of them have it as something else, such as clothes their sizes, it does not order them.
    """
    goods = tuple(items)
    for name in names:
        noted = [_noted(item, name) for item in goods if _has(item, name)]
        kinds = Counter(amount[1].kind if amount is not None else "" for amount in noted)
        if kinds and (kind := kinds.most_common(1)[0][0]):
            return Measure(name=name, kind=kind)
    return None


def limit(items: Iterable[Item], bound: Bound) -> tuple[Bound, Limit] | None:
    """The bound by the first of its attributes that the items note in such a unit, and how it reads then.

    A bare number is meant in the unit that most of the goods have; `None` when nothing here compares with it.
    """
    said = _AMOUNT.fullmatch(fold(bound.amount, 40).strip().replace(",", ""))
    if said is None:
        return None
    figure = float(said[1])
    goods = tuple(items)
    for name in (_NAMES.get(name, name) for name in bound.of):
        noted = Counter(amount[1] for item in goods if (amount := _noted(item, name)) is not None)
        kinds = {unit.kind for unit in noted}
        if said[2] in (None, "+"):
            meant = [unit for unit, _ in noted.most_common(1)]
        else:
            meant = [unit for unit in UNITS.get(said[2], ()) if unit.kind in kinds]
        if meant:
            held = Limit(measure=Measure(name=name, kind=meant[0].kind), sign=bound.sign, worth=figure * meant[0].worth)
            return Bound(of=(name,), sign=bound.sign, amount=meant[0].amount(figure)), held
    return None


def noted_as(item: Item, name: str) -> str | None:
    """How much the item has of it, in its own unit."""
    noted = _noted(item, name)
    return noted[1].amount(noted[0]) if noted is not None else None


def _has(item: Item, name: str) -> bool:
    return name in _FIELDS or _text(item, name) is not None


def _text(item: Item, name: str) -> str | None:
    return item.attributes.get(name) or item.attributes.get(ATTRIBUTES.get(name, ""))


def _noted(item: Item, name: str) -> tuple[float, Unit] | None:
    if name in _FIELDS:
        return float(getattr(item, name)), PLAIN
    text = _text(item, name)
    return _amount(fold(text, 40).strip()) if text else None


def _amount(text: str) -> tuple[float, Unit] | None:
    """A value as amount and unit; sizes such as "36-46" are no amounts."""
    if date := _DATE.fullmatch(text):
        return int(date[1]) + int(date[2]) / 100 + int(date[3] or 0) / 10_000, PLAIN
    found = _AMOUNT.fullmatch(text)
    if found is None:
        return None
    unit = found[2] or "+"
    if unit == "+":
        return float(found[1]), PLAIN
    # The last reading is the literal one: goods weigh 200 g, only people say so of gigabytes.
    return float(found[1]), UNITS[unit][-1] if unit in UNITS else Unit(name=unit, kind=unit, worth=1.0)
