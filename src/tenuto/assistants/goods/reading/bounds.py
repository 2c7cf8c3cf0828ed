"""Comparisons in a question: "more than 8 GB of memory", 内存大于8GB, "13-15 inch", 不到1.5公斤.

Around each amount the text is looked at on both sides: for what is compared, for how, and for a "not". What is no
comparison stays in the text; a comparison in a unit that no goods are noted in is one all the same, and never a price.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tenuto.assistants.goods.intent import Bound, Sign
from tenuto.assistants.goods.reading.goodness import NOUNS
from tenuto.assistants.goods.words import UNIT, UNITS, cut, number, readings
from tenuto.model.expression import expression
from tenuto.model.numbers import CARDINAL

_MAX_BOUNDS: Final = 4
_MAX_AMOUNTS: Final = 16
_REACH: Final = 48
_NEAR: Final = 0.1
# Bare numbers from here on are prices, unless such goods really have that many.
_BARE: Final = 1000
_MANY: Final = frozenset({"battery", "power", "sales", "stock", "pages"})

_NUMBER: Final = (
    r"(?:(?<![\d.])\d++(?:,\d{3})*+(?:\.\d++)?+\s?(?:k(?![a-z])|[千万百](?!像素))?+"
    rf"|\b{CARDINAL}\b|\ban?(?= (?:week|month|day|kilo|lit(?:er|re)|met(?:er|re)|terabyte|tb)\b)"
    r"|(?<![第几])[一二两三四五六七八九十][零一二三四五六七八九十百千万]{0,8}+)"
)
_NAMED: Final = (
    *NOUNS,
    (("weight",), r"weigh(?:s|ing)?", r"净重|毛重"),
    (("thickness",), r"thick(?:ness)?", r"厚度"),
    (("width",), r"width|wide", r"宽度"),
    (("height",), r"height|tall", r"高度"),
    (("depth",), r"depth|deep", r"深度"),
    (("sales",), r"sales|sold", r"销量"),
    (("rating",), r"rat(?:ed|ings?)|scores?", r"评分"),
)
_NOUN: Final = "|".join(rf"\b(?:{english})\b|(?:{chinese})" for _, english, chinese in _NAMED)
_NOUN_OF: Final = tuple((by, expression(rf"{english}|{chinese}")) for by, english, chinese in _NAMED)
# What the attributes are measured in, and which ones a unit speaks of by itself.
_KINDS: Final = {
    "battery": ("charge", "time"),
    "screen": ("length",),
    "memory": ("data",),
    "storage": ("data",),
    "capacity": ("volume", "data", "charge"),
    "power": ("power",),
    "weight": ("mass",),
    "length": ("length",),
    "thickness": ("length",),
    "width": ("length",),
    "height": ("length",),
    "depth": ("length",),
    "pages": ("number",),
    "size": ("length", "volume", "mass"),
}
_OF: Final = {
    "charge": ("battery", "capacity"),
    "length": ("screen", "length", "size"),
    "mass": ("weight", "size"),
    "power": ("power",),
    "time": ("battery",),
    "volume": ("capacity", "size"),
    "number": ("pages",),
}
# Memories end where disks begin: "a phone with more than 8 GB", "with at least 128 GB".
_LARGEST_MEMORY: Final = 32

_BIG: Final = r"more|greater|bigger|larger|higher|longer|heavier|thicker|stronger|wider|taller|deeper"
_SMALL: Final = r"less|fewer|smaller|lower|shorter|lighter|thinner|slimmer|weaker|narrower|shallower"
# What an adjective speaks of by itself: a mat thicker than 10 mm is not longer than that.
_ADJECTIVES: Final = (
    (("thickness",), expression(r"thick|thin|slim|[厚薄]")),
    (("width",), expression(r"wide|narrow|[宽窄]")),
    (("height",), expression(r"tall|高(?!于)")),
    (("depth",), expression(r"deep|shallow|深")),
    (("weight",), expression(r"heav|light|[重轻]")),
)
_NOT: Final = (
    r"\b(?:not|no|nothing|none|never|without|except|isn't|aren't|can't|don't want)\b(?: any(?:thing)?| ones?)?"
    r"|不想要|不需要|(?<!要)不要|(?<!能)不能|不可以|别要?|排除|除了|不(?!是|能|要|会)"
)
_LINK: Final = (
    r"\b(?:is|are|be|being|of|that|has|have|having|with|at|size|an?|the|should|must)\b|[:,]"
    r"|在|为|是|要|的|得|有|达到?|能|必须|最好|大小"
)
_BEFORE: Final = expression(
    rf"(?:(?P<early>{_NOT})\s*(?:(?:{_LINK})\s*){{0,2}}(?={_NOUN}))?"
    rf"(?:(?P<noun>{_NOUN})\s*(?:(?:{_LINK})\s*){{0,3}})?(?:(?P<no>{_NOT})\s*(?:(?:{_LINK})\s*){{0,2}})?"
    rf"(?:(?P<gt>\b(?:{_BIG}) than|\b(?:over|above|beyond|exceed(?:s|ing)?)\b|>(?!=)"
    r"|大于|超过|超出|多于|高于|长于|重于|厚于)"
    r"|(?P<ge>\b(?:at ?least|min(?:imum)?(?: of)?|starting (?:at|from)|upwards of|from)\b|>=|≥|至少|最少|起码|最低)"
    rf"|(?P<lt>\b(?:{_SMALL}) than|\b(?:under|below)\b|<(?!=)|小于|少于|低于|短于|轻于|薄于|不到|不足|未满)"
    r"|(?P<le>\b(?:at ?most|up to|within|max(?:imum)?(?: of)?|until)\b|<=|≤|最多|最大|最高|至多|顶多)"
    r"|(?P<eq>\b(?:exactly|equal(?:s|ing)?(?: to)?)\b|(?<![<>])=|正好|刚好|等于)"
    r"|(?P<about>\b(?:around|about|roughly|approx(?:imately)?\.?|near(?:ly)?|circa)|~|大概|大约|差不多|约)"
    r"|(?P<than>比))?\s*(?:an?\s+)?\Z"
)
_AFTER: Final = expression(
    rf"\s*(?:(?P<ge>(?:or|and) (?:{_BIG}|above|over|up)\b(?!\s+(?:than|to)\b|\s*\d)|\+(?!\s*\d)|plus\b|min(?:imum)?\b"
    r"|(?:及|或者?|和)?以上|起步?(?!重)|往上|打底|开外)"
    rf"|(?P<le>(?:or|and) (?:{_SMALL}|under|below)\b(?!\s+than\b|\s*\d)|max(?:imum)?\b|tops\b"
    r"|(?:及|或者?|和)?以下|以内|之内|之下|内(?!存)|封顶)"
    r"|(?P<about>左右|上下|ish\b|or so\b|的样子)"
    r"|(?P<more>更?还?要?[大高多长重厚强久])|(?P<less>更?还?要?[小低少短轻薄弱]))?+"
    rf"\s*(?:(?:of|in)\s+|的)?(?:(?P<noun>{_NOUN})"
    r"(?:\s*(?:(?P<late_ge>or (?:more|above|over|higher)\b|(?:及|或)?以上|起步)"
    r"|(?P<late_le>or (?:less|under|below|lower)\b|(?:及|或)?以下|以内)))?)?"
)
_SPAN: Final = r"(?:-|~|\bto\b|到|至)"
_RANGE: Final = expression(
    rf"(?P<frame>\bbetween|\bfrom|介于|从)?\s*(?P<low>{_NUMBER})[\s-]?(?P<first>{UNIT})?\s*"
    rf"(?P<span>{_SPAN}|and\b|和|与)\s*(?P<high>{_NUMBER})[\s-]?(?P<unit>{UNIT})?(?:\s*(?P<end>之间))?"
)
_AMOUNT: Final = expression(rf"(?P<low>{_NUMBER})[\s-]?(?P<unit>{UNIT})?")
# A noun that was already said to be large, or how large, is not what the next number is compared with.
_SETTLED: Final = expression(
    rf"(?:\d[\s-]?{UNIT}|\b(?:good|great|big|large|long|high|strong|more|better|best|enough|lots of|plenty of)"
    r"|[大长高好多])(?:\s*(?:of|的))?\s*\Z"
)
_DELIVERY: Final = expression(r"\b(?:deliver|ship|arriv|dispatch|return)|发货|送[达到]|到货|退货|快递")
_OPPOSITE: Final[dict[Sign, Sign]] = {">": "<=", ">=": "<", "<": ">=", "<=": ">", "=": "="}


class Bounds:
    """The comparisons of a text, and the text without them."""

    def __init__(self, text: str) -> None:
        self.rest = text
        self.found: tuple[Bound, ...] = ()
        for pattern in (_RANGE, _AMOUNT):
            at = 0
            for _ in range(_MAX_AMOUNTS):
                amount = pattern.search(self.rest, at)
                if amount is None or len(self.found) >= _MAX_BOUNDS:
                    break
                at = self._take(amount)

    def _take(self, amount: re.Match[str]) -> int:
        """Take a comparison out of the text; where to look on."""
        start, end = amount.span()
        before = _BEFORE.search(self.rest, max(0, start - _REACH), start)
        after = _AFTER.match(self.rest, end, end + _REACH)
        assert before is not None, "it may be empty"
        assert after is not None, "it may be empty"
        bounds = tuple(_bounds(amount, before, after))
        if not bounds or (amount["unit"] and _delivered(amount["unit"], self.rest)):
            return amount.start("high") if "high" in amount.groupdict() else end
        # A noun that is not what was compared belongs to the rest of the question.
        of = bounds[0].of
        first = before.end("noun") if before["noun"] and _attributes(before["noun"]) != of else before.start()
        last = after.start("noun") if after["noun"] and _attributes(after["noun"]) != of else after.end()
        self.found += bounds
        self.rest = cut(self.rest, first, last)
        return first


def _bounds(amount: re.Match[str], before: re.Match[str], after: re.Match[str]) -> Iterator[Bound]:
    of = _compared(amount, before, after)
    if of is None:
        return
    figure, unit = _figure(amount["low"]), amount["unit"] or ""
    if "high" in amount.groupdict():
        if amount["span"] in ("and", "和", "与") and not (amount["frame"] or amount["end"]):
            return
        low, high = sorted((_said(figure, amount["first"] or unit), _said(_figure(amount["high"]), unit)), key=_size)
        yield Bound(of=of, sign=">=", amount=low)
        yield Bound(of=of, sign="<=", amount=high)
    elif before["about"] or after["about"]:
        yield Bound(of=of, sign=">=", amount=_said(figure * (1 - _NEAR), unit))
        yield Bound(of=of, sign="<=", amount=_said(figure * (1 + _NEAR), unit))
    elif (sign := _sign(before, after)) is not None:
        turned = (before["early"] is not None) != (before["no"] is not None)
        # A lowest rating has a field of its own.
        if turned or of != ("rating",) or ">" not in sign:
            yield Bound(of=of, sign=_OPPOSITE[sign] if turned else sign, amount=_said(figure, unit))


def _sign(before: re.Match[str], after: re.Match[str]) -> Sign | None:
    if before["than"]:
        return ">" if after["more"] else "<" if after["less"] else None
    signs: tuple[tuple[str | None, Sign], ...] = (
        (before["gt"], ">"),
        (before["ge"], ">="),
        (before["lt"], "<"),
        (before["le"], "<="),
        (before["eq"], "="),
        (after["ge"], ">="),
        (after["le"], "<="),
        (after["late_ge"], ">="),
        (after["late_le"], "<="),
    )
    return next((sign for said, sign in signs if said), None)


def _compared(amount: re.Match[str], before: re.Match[str], after: re.Match[str]) -> tuple[str, ...] | None:
    """The attributes that may be meant; `None` when it is no amount of any."""
    if amount["unit"]:
        nouns = (noun for noun in (before["noun"], after["noun"]) if noun)
        said = " ".join(filter(None, (before["gt"], before["lt"], after["more"], after["less"])))
        return next(filter(None, (_fitting(noun, amount) for noun in nouns)), _by_adjective(said, amount))
    noun = before["noun"] or after["noun"]
    if noun is None:
        return None
    of = _attributes(noun)
    many = _figure(amount["low"]) >= _BARE and of[0] not in _MANY
    settled = before["noun"] and _SETTLED.search(before.string, 0, before.start("noun"))
    direct = _direct(amount, before) if before["noun"] else of[0] in _MANY
    return None if many or settled or not direct else of


def _direct(amount: re.Match[str], before: re.Match[str]) -> bool:
    """Whether a word of comparison stands between the noun and the number."""
    return "high" in amount.groupdict() or any(before[name] for name in ("gt", "ge", "lt", "le", "eq", "about"))


def _attributes(noun: str) -> tuple[str, ...]:
    return next((by for by, pattern in _NOUN_OF if pattern.fullmatch(noun)), ())


def _fitting(noun: str, amount: re.Match[str]) -> tuple[str, ...]:
    """The attributes of the noun, if they can be measured in that unit at all."""
    of = _attributes(noun)
    if not amount["unit"]:
        return of
    kinds = {unit.kind for unit in UNITS.get(amount["unit"], ())}
    return of if kinds & {kind for name in of for kind in _KINDS.get(name, ("number",))} else ()


def _by_adjective(said: str, amount: re.Match[str]) -> tuple[str, ...]:
    """The attribute that a comparison speaks of by its adjective, where that is measured so; else by its unit."""
    kinds = {unit.kind for unit in UNITS.get(amount["unit"], ())}
    meant = (of for of, adjective in _ADJECTIVES if adjective.search(said) and kinds & set(_KINDS[of[0]]))
    return next(meant, _by_unit(amount))


def _by_unit(amount: re.Match[str]) -> tuple[str, ...]:
    figure = _figure(amount["low"])
    of: list[str] = []
    for unit in readings(figure, amount["unit"]):
        small = unit.kind == "data" and figure * unit.worth <= _LARGEST_MEMORY
        of += (("memory", "storage") if small else ("storage", "memory")) if unit.kind == "data" else _OF[unit.kind]
    return tuple(dict.fromkeys(of))


def _figure(text: str) -> float:
    return 1.0 if text in ("a", "an") else number(text)


def _said(figure: float, unit: str) -> str:
    meant = UNITS.get(unit, ())
    return meant[0].amount(figure) if len(meant) == 1 else f"{figure:.10g} {unit}".strip()


def _size(said: str) -> float:
    figure, _, unit = said.partition(" ")
    worth = next((meant.worth for meant in readings(float(figure), unit.lower())), 1.0)
    return float(figure) * worth


def _delivered(unit: str, text: str) -> bool:
    """Hours and days may be those of a delivery, which is no matter of the catalogue."""
    timed = any(reading.kind == "time" for reading in UNITS.get(unit, ()))
    return timed and _DELIVERY.search(text) is not None
