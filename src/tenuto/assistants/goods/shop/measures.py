"""How much of something an item has: "6000 mAh", "0.9 kg" and "1 TB" as amounts that can be compared."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from tenuto.assistants.goods.intent import Bound, Sign
from tenuto.assistants.goods.shop.item import Item
from tenuto.assistants.goods.words import ATTRIBUTES, PLAIN, UNITS, Unit, fold
from tenuto.model.expression import expression
from tenuto.model.values import Value

_NEAR: Final = 1e-6
# What every item has, beside its attributes.
_FIELDS: Final = frozenset({"price", "rating", "sales", "stock"})
_AMOUNT: Final = expression(r"(\d+(?:\.\d+)?)\s*(\+|[a-z]+|[\u3400-\u9fff]{1,3})?")
_RANGE: Final = expression(r"(\d+(?:\.\d+)?)\s*(?:-|~|–)\s*(\d+(?:\.\d+)?)")
_OPEN: Final = expression(r"(\d+(?:\.\d+)?)\s*\+")
_DATE: Final = expression(r"(\d{4})-(\d{1,2})(?:-(\d{1,2}))?")
# Sizes of clothes in their order; the largest have two names.
_LETTERS: Final[Mapping[str, float]] = MappingProxyType(
    {name: float(place) for place, name in enumerate(("xxs", "xs", "s", "m", "l", "xl", "xxl", "xxxl", "xxxxl"))}
    | {"2xl": 6.0, "3xl": 7.0, "4xl": 8.0}
)
# What an attribute is measured in that goods may note under another name.
_KINDS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"weight": ("mass",), "capacity": ("volume",), "length": ("length",), "battery": ("charge", "time")}
)
_LETTER: Final = Unit(name="letter", kind="letter", worth=1.0)
_NAMES: Final[Mapping[str, str]] = MappingProxyType({chinese: name for name, chinese in ATTRIBUTES.items()})


class Measure(Value, frozen=True, kw_only=True):
    """What goods are compared by: one attribute, in one kind of unit. Hours and mAh do not compare."""

    name: str
    kind: str

    def of(self, item: Item) -> float | None:
        """How much the item has of it; `None` when that is not noted, or in units of another kind."""
        noted = _noted(item, self.name)
        return noted[0] * noted[1].worth if noted is not None and noted[1].kind == self.kind else None

    def span(self, item: Item) -> tuple[float, float] | None:
        """From how much to how much it has: sizes 36-46, ages from 8 on; one amount is both ends."""
        noted = _span(item, self.name)
        if noted is None or noted[2].kind != self.kind:
            return None
        return noted[0] * noted[2].worth, noted[1] * noted[2].worth


class Limit(Value, frozen=True, kw_only=True):
    """A bound that these goods can be held to. Goods that do not note the attribute are outside."""

    measure: Measure
    sign: Sign
    worth: float

    def holds(self, item: Item) -> bool:
        """Whether the item has as much; one that comes in many sizes, whether it comes in such a one.

        What is for ages "8+" suits everybody from 8 on, but is noted for 8: that is what "under 6" is held against.
        """
        span = self.measure.span(item)
        if span is None:
            return False
        low, high = span
        if self.sign == "=":
            return low * (1 - _NEAR) <= self.worth <= high * (1 + _NEAR)
        reached = low if "<" in self.sign or math.isinf(high) else high
        if math.isclose(reached, self.worth, rel_tol=_NEAR):
            return "=" in self.sign
        return reached > self.worth if ">" in self.sign else reached < self.worth


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
    said = fold(bound.amount, 40).strip().replace(",", "")
    figure = _LETTERS.get(said)
    amount = None if figure is not None else _AMOUNT.fullmatch(said)
    if figure is None and amount is None:
        return None
    goods = tuple(items)
    for name in (_NAMES.get(name, name) for name in bound.of):
        noted = Counter(span[2] for item in goods if (span := _span(item, name)) is not None)
        meant = _meant(noted, amount)
        if meant is not None:
            worth = figure if figure is not None else float(amount[1]) if amount is not None else 0.0
            held = Limit(measure=Measure(name=name, kind=meant.kind), sign=bound.sign, worth=worth * meant.worth)
            shown = meant.amount(worth) if figure is None else said.upper()
            return Bound(of=(name,), sign=bound.sign, amount=shown), held
    return None


def _meant(noted: Counter[Unit], amount: re.Match[str] | None) -> Unit | None:
    """The unit of an amount among those that goods are noted in; no amount at all is a size in letters."""
    if amount is None:
        return _LETTER if _LETTER in noted else None
    if amount[2] in (None, "+"):
        return next((unit for unit, _ in noted.most_common() if unit is not _LETTER), None)
    kinds = {unit.kind for unit in noted}
    return next((unit for unit in UNITS.get(amount[2], ()) if unit.kind in kinds), None)


def noted_as(item: Item, name: str) -> str | None:
    """How much the item has of it, in its own unit."""
    noted = _noted(item, name)
    return noted[1].amount(noted[0]) if noted is not None else None


def noted_under(item: Item, name: str) -> str | None:
    """Under which attribute an item notes such an amount: its own, or another of the same kind of unit."""
    if name in _FIELDS or _text(item, name) is not None:
        return name
    noted = ((other, _noted(item, other)) for other in item.attributes)
    kinds = _KINDS.get(name, ())
    return next((other for other, amount in noted if amount is not None and amount[1].kind in kinds), None)


def _has(item: Item, name: str) -> bool:
    return name in _FIELDS or _text(item, name) is not None


def _text(item: Item, name: str) -> str | None:
    return item.attributes.get(name) or item.attributes.get(ATTRIBUTES.get(name, ""))


def _noted(item: Item, name: str) -> tuple[float, Unit] | None:
    if name in _FIELDS:
        return float(getattr(item, name)), PLAIN
    text = _text(item, name)
    return _amount(fold(text, 40).strip()) if text else None


def _span(item: Item, name: str) -> tuple[float, float, Unit] | None:
    text = "" if name in _FIELDS else fold(_text(item, name) or "", 40).strip()
    if found := _RANGE.fullmatch(text):
        return float(found[1]), float(found[2]), PLAIN
    if found := _OPEN.fullmatch(text):
        return float(found[1]), math.inf, PLAIN
    first, _, last = text.partition("-")
    if first in _LETTERS and (last or first) in _LETTERS:
        return _LETTERS[first], _LETTERS[last or first], _LETTER
    noted = _noted(item, name)
    return (noted[0], noted[0], noted[1]) if noted is not None else None


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
