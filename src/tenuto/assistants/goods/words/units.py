"""How amounts are written: figures, and units with what they measure and which of them compare."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tenuto.assistants.goods.words.text import either
from tenuto.model.expression import expression
from tenuto.model.numbers import whole
from tenuto.model.values import Value


class Unit(Value, frozen=True, kw_only=True):
    """A unit; those of one `kind` compare, by what they are `worth` in it."""

    name: str
    kind: str
    worth: float

    def amount(self, figure: float) -> str:
        """So much of it, as people write it."""
        name = self.name.removesuffix("s") if figure == 1 else self.name
        return f"{figure:.10g} {name}".strip()


PLAIN: Final = Unit(name="", kind="number", worth=1.0)

# Where a word means two units, the one that goods are really noted in comes last: a 200 g bar, but "an 8 g phone".
_TABLE: Final = (
    ("mAh", "charge", 1.0, "mah 毫安 毫安时"),
    ("Ah", "charge", 1000.0, "ah"),
    ("MB", "data", 1 / 1024, "mb megabytes"),
    ("GB", "data", 1.0, "gb g gig gigs gigabyte gigabytes"),
    ("TB", "data", 1024.0, "tb t terabyte terabytes"),
    ("mm", "length", 0.1, "mm 毫米"),
    ("cm", "length", 1.0, "cm 厘米 公分"),
    ("inch", "length", 2.54, "inch inches 寸 英寸 吋"),
    ("m", "length", 100.0, "m meter meters metre metres 米"),
    ("km", "length", 100_000.0, "km 公里"),
    ("mg", "mass", 0.001, "mg 毫克"),
    ("g", "mass", 1.0, "g gram grams 克"),
    ("kg", "mass", 1000.0, "kg kgs kilo kilos kilogram kilograms 公斤 千克"),
    ("斤", "mass", 500.0, "斤 市斤"),
    ("lb", "mass", 453.592, "lb lbs"),
    ("oz", "mass", 28.3495, "oz ounce ounces"),
    ("W", "power", 1.0, "w watt watts 瓦"),
    ("kW", "power", 1000.0, "kw 千瓦"),
    ("min", "time", 1.0, "min mins minute minutes 分钟"),
    ("h", "time", 60.0, "h hr hrs hour hours 小时"),
    ("days", "time", 1440.0, "day days 天"),
    ("weeks", "time", 10_080.0, "week weeks 周 星期"),
    ("months", "time", 43_200.0, "month months 个月"),
    ("ml", "volume", 1.0, "ml 毫升"),
    ("L", "volume", 1000.0, "l liter liters litre litres 升"),
    ("", "number", 1.0, "page pages 页"),
)
# Units that people compare by and this shop's goods may well not be noted in; they are no prices.
_OTHER: Final = (
    "hz 赫兹 mp megapixel megapixels 像素 万像素 fps nits 尼特 core cores 核 db 分贝 lumens 流明 volts v 伏 rpm"
    " mbps dpi ppi 度 ft"
)
# Sizes that memories and disks come in.
_DATA: Final = frozenset({1, 2, 3, 4, 6, 8, 12, 16, 18, 24, 32, 36, 48, 64, 96, 128, 256, 512, 1024})


def _named() -> Mapping[str, tuple[Unit, ...]]:
    named: dict[str, tuple[Unit, ...]] = {}
    for name, kind, worth, words in _TABLE:
        for word in words.split():
            named[word] = (*named.get(word, ()), Unit(name=name, kind=kind, worth=worth))
    return MappingProxyType(named)


_POWERS: Final = {"k": 1000, "百": 100, "千": 1000, "万": 10_000}
UNITS: Final = _named()
UNIT: Final = rf"(?:(?:{either(*UNITS, _OTHER)})(?![a-z]))"
MEASURE: Final = expression(
    r"(?<![\d.])(\d+(?:\.\d+)?)[\s-]?"
    r"(gb|tb|g|t|mah|inch(?:es)?|kg|ml|cm|l|w|英寸|寸|毫升|升|公斤|克|瓦|毫安|厘米|米)(?![a-z])"
)
# 12+256, as phones are labelled.
MEMORY_AND_STORAGE: Final = expression(
    r"(?<![\d.])(\d{1,2})\s?(?:gb?)?\s?\+\s?(64|128|256|512|1024)(?:\s?gb?)?(?![\d.a-z])"
)


def readings(figure: float, word: str) -> tuple[Unit, ...]:
    """What a unit can mean behind that figure, the likeliest first; none for a unit that nothing here is noted in."""
    units = UNITS.get(word, ())
    return units if figure in _DATA else units[-1:]


def term(figure: str, word: str) -> str:
    """An amount as goods have it among their words: "256g" as 256gb."""
    return figure + next((unit.name.lower() for unit in readings(float(figure), word)), word)


def number(text: str) -> float:
    """A number written in digits (`2,000`, `1.5k`, `3千`), in English or in Chinese words (两千五)."""
    text = text.strip().replace(",", "").replace(" ", "")
    bare = text.rstrip("k千万百")
    if text[:1].isdecimal():
        return float(bare) * (_POWERS[text[len(bare)]] if len(bare) < len(text) else 1)
    return float(whole(text) or 0)
