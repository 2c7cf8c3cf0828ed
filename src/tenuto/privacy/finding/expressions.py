"""The shape of a regular expression that somebody else wrote: read, measured, and written anew.

Only shapes whose cost can be told beforehand are read: characters, choices, repeats with an end, and looks of bounded
width. What is written anew has no groups and no flags, so several expressions can stand in one.

It also knows a `WALL`: a character that stands where a text goes on but nobody may see how. No character of an
expression is a wall, and a look that meets one fails, whether it looks for something or for its absence. So a part of
a text between two walls shows no match that the whole did not show.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import combinations
from typing import Any, Final, NamedTuple, TypeAlias

from tenuto.privacy.rules.folding import fold

# The standard library's own reader of expressions. It is not public, so the type checker does not know it, and
# everything it gives becomes a shape of ours in `_Reader`.
_sre: Final[Any] = import_module("re._parser")

Chars: TypeAlias = tuple[tuple[int, int], ...]
"""A set of characters: ranges of code points, in order, apart from each other."""

_LAST: Final = 0x10FFFF
_TOO_MUCH: Final = 1_000_000
LONGEST_LOOK: Final = 32
WALL: Final = "\uffff"
_WALLS: Final[Chars] = ((ord(WALL), ord(WALL)),)
_CASE_BY_CASE: Final = 1024
"""Wider ranges are taken to hold both cases, but for ASCII letters, which are always added."""

_ODD_RANGE: Final = 128

_CATEGORIES: Final[dict[str, Chars]] = {
    "DIGIT": ((0x30, 0x39),),
    "SPACE": ((0x09, 0x0D), (0x20, 0x20)),
    "WORD": ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)),
}
# What \b means here: a word on one side, and on the other neither a word nor a wall.
_EDGE: Final = rf"(?:(?<=\w)(?![\w{WALL}])|(?<![\w{WALL}])(?=\w))"


class Refused(ValueError):
    """Why an expression cannot be used, as the end of a sentence. It quotes next to nothing of the expression."""


@dataclass(frozen=True, slots=True)
class One:
    """A single character out of a set."""

    chars: Chars


@dataclass(frozen=True, slots=True)
class Row:
    """One shape after the other."""

    items: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several shapes, tried in order."""

    items: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A shape several times; `lazy` tries few before many."""

    item: Shape
    least: int
    most: int
    lazy: bool


@dataclass(frozen=True, slots=True)
class Edge:
    """A place between a word and something else."""


@dataclass(frozen=True, slots=True)
class Look:
    """What must stand, or must not stand, beside the match."""

    item: Shape
    back: bool
    wanted: bool


Shape: TypeAlias = One | Row | Choice | Repeat | Edge | Look


# --- sets of characters -------------------------------------------------------------------------------------------


def _union(*sets: Chars) -> Chars:
    joined: list[tuple[int, int]] = []
    for low, high in sorted(part for chars in sets for part in chars):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    return tuple(joined)


def _others(chars: Chars) -> Chars:
    parts: list[tuple[int, int]] = []
    at = 0
    for low, high in chars:
        if low > at:
            parts.append((at, low - 1))
        at = high + 1
    return (*parts, (at, _LAST)) if at <= _LAST else tuple(parts)


def _meet(some: Chars, others: Chars) -> bool:
    return any(low <= end and start <= high for low, high in some for start, end in others)


def _twins(char: str) -> Chars:
    return tuple((ord(twin), ord(twin)) for twin in (char.lower(), char.upper()) if len(twin) == 1)


def _both_cases(chars: Chars) -> Chars:
    more: list[Chars] = []
    for low, high in chars:
        narrow = high - low <= _CASE_BY_CASE
        points = range(low, high + 1) if narrow else range(max(low, 0x41), min(high, 0x7A) + 1)
        more += [_twins(chr(point)) for point in points]
    return _union(chars, *more)


@cache
def plain_twins() -> dict[int, int]:
    """What the detector's fold does to each character for itself; `fold` also looks at what stands around."""
    source = "".join(map(chr, (*range(0x80, 0xD800), *range(0xE000, 0x10000), *range(0x1D7CE, 0x1D800))))
    return {ord(odd): ord(plain) for odd, plain in zip(source, fold(source), strict=True) if odd != plain}


def _folded(low: int, high: int) -> Chars:
    r"""A range with the plain twins of its odd characters: own patterns are held against folded text.

    A wide range is left alone. Whoever writes `[\x80-\uffff]` means anything foreign, not full-width letters.
    """
    if high < 0x80 or high - low > _ODD_RANGE:
        return ((low, high),)
    twins = plain_twins()
    return _union(((low, high),), tuple((twins[odd], twins[odd]) for odd in range(low, high + 1) if odd in twins))


# --- reading ------------------------------------------------------------------------------------------------------


def read(pattern: str, *, ignore_case: bool) -> Shape:
    """The shape of an expression.

    Raises:
        Refused: it is none, or has something in it whose cost has no bound.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tree = _sre.parse(pattern, re.ASCII)
    except (re.error, Warning, OverflowError, RecursionError) as exc:
        raise Refused(f"is no regular expression: {getattr(exc, 'msg', 'it is unclear or too large')[:60]}") from None
    if tree.state.flags != re.ASCII:
        raise Refused("sets flags inside; only `ignore_case` can be chosen")
    try:
        return _Reader(ignore_case=ignore_case).row(tree)
    except RecursionError:
        raise Refused("is nested too deeply") from None


class _Reader:
    """Turns the library's tree into shapes of ours."""

    def __init__(self, *, ignore_case: bool) -> None:
        self._ignore_case = ignore_case
        self._looking = False

    def row(self, tree: Any) -> Shape:
        items = tuple(self._shape(str(kind), value) for kind, value in tree)
        return items[0] if len(items) == 1 else Row(items)

    def _shape(self, kind: str, value: Any) -> Shape:
        match kind:
            case "LITERAL":
                return self._one(_folded(value, value))
            case "NOT_LITERAL":
                return self._one(_folded(value, value), negated=True)
            case "ANY":
                return self._one(((0x0A, 0x0A),), negated=True)
            case "IN":
                return self._set(value)
            case "BRANCH":
                return Choice(tuple(map(self.row, value[1])))
            case "SUBPATTERN":
                return self._group(value)
            case "MAX_REPEAT" | "MIN_REPEAT":
                return self._repeat(value, lazy=kind == "MIN_REPEAT")
            case "ASSERT" | "ASSERT_NOT":
                return self._look(value, wanted=kind == "ASSERT")
        return self._other(kind, value)

    def _other(self, kind: str, value: Any) -> Shape:
        match kind, str(value):
            case "AT", "AT_BOUNDARY":
                return Edge()
            case "AT", _:
                raise Refused(r"has ^, $, \A, \Z or \B in it; it is looked for anywhere in a text: write \b")
            case (("GROUPREF" | "GROUPREF_EXISTS"), _):
                raise Refused("refers back to a group, which can take very long")
            case (("POSSESSIVE_REPEAT" | "ATOMIC_GROUP"), _):
                raise Refused("has a possessive repeat or an atomic group; plain ones are enough here")
        raise Refused("has something in it that is not supported")

    def _one(self, chars: Chars, *, negated: bool = False) -> One:
        if self._ignore_case:
            chars = _both_cases(chars)
        # No character of an expression is a wall.
        return One(_others(_union(chars, _WALLS)) if negated else _others(_union(_others(chars), _WALLS)))

    def _set(self, members: Any) -> Shape:
        parts: list[Chars] = []
        for kind, value in members:
            match str(kind):
                case "LITERAL":
                    parts.append(_folded(value, value))
                case "RANGE":
                    parts.append(_folded(*value))
                case "CATEGORY":
                    _, negation, name = str(value).rpartition("NOT_")
                    known = _CATEGORIES[name.removeprefix("CATEGORY_")]
                    parts.append(_others(known) if negation else known)
        one = self._one(_union(*parts), negated=str(members[0][0]) == "NEGATE")
        if not one.chars:
            raise Refused("has a set in it that no character belongs to")
        return one

    def _group(self, value: Any) -> Shape:
        _, added, taken, tree = value
        if added or taken:
            raise Refused("sets flags inside; only `ignore_case` can be chosen")
        return self.row(tree)

    def _repeat(self, value: Any, *, lazy: bool) -> Shape:
        least, most, tree = value
        if most is _sre.MAXREPEAT:
            raise Refused("has a repeat without an end (*, + or {n,}); say how often at most: {1,64}")
        item = self.row(tree)
        if shortest(item) == 0:
            raise Refused("repeats something that may be empty")
        if most > 1 and least != most and _varies(item):
            raise Refused("has a repeat of varying length inside another one")
        return Repeat(item, int(least), int(most), lazy)

    def _look(self, value: Any, *, wanted: bool) -> Shape:
        direction, tree = value
        if self._looking:
            raise Refused("looks aside while it looks aside")
        self._looking = True
        item = self.row(tree)
        self._looking = False
        if longest(item) > LONGEST_LOOK:
            raise Refused(f"looks further aside than {LONGEST_LOOK} characters")
        if direction < 0 and not _even(item):
            raise Refused("looks back over a text of varying length")
        if not wanted and not (shortest(item) == longest(item) == 1):
            raise Refused("looks for the absence of something that is not one character wide")
        return Look(item, direction < 0, wanted)


# --- measuring ----------------------------------------------------------------------------------------------------


def shortest(shape: Shape) -> int:
    """The fewest characters a match has."""
    match shape:
        case One():
            return 1
        case Row(items):
            return sum(map(shortest, items))
        case Choice(items):
            return min(map(shortest, items))
        case Repeat(item, least, _, _):
            return min(_TOO_MUCH, least * shortest(item))
    return 0


def longest(shape: Shape) -> int:
    """The most characters a match has."""
    match shape:
        case One():
            return 1
        case Row(items):
            return sum(map(longest, items))
        case Choice(items):
            return max(map(longest, items))
        case Repeat(item, _, most, _):
            return min(_TOO_MUCH, most * longest(item))
    return 0


def _even(shape: Shape) -> bool:
    return shortest(shape) == longest(shape)


def _varies(shape: Shape) -> bool:
    match shape:
        case Row(items) | Choice(items):
            return any(map(_varies, items))
        case Repeat(item, least, most, _):
            return least != most or _varies(item)
    return False


class _Ahead(NamedTuple):
    """What may come next: its first characters, and how many of them are tried one by one."""

    chars: Chars
    tests: int

    def __or__(self, other: _Ahead) -> _Ahead:
        return _Ahead(_union(self.chars, other.chars), self.tests + other.tests)


# At the end of an expression everything is well: no way is tried after the first one that comes here.
_END: Final = _Ahead((), 0)


def _first(shape: Shape, follow: _Ahead) -> _Ahead:
    """With what the shape, and what follows it, can begin."""
    match shape:
        case One(chars):
            return _Ahead(chars, 1)
        case Row(items):
            for item in reversed(items):
                follow = _first(item, follow)
            return follow
        case Choice(items):
            firsts = [_first(item, follow) for item in items]
            return _Ahead(_union(*[first.chars for first in firsts]), sum(first.tests for first in firsts))
        case Repeat(item, least, most, _):
            if most == 0:
                return follow
            return _first(item, _END) | (_END if least else follow)
    return _Ahead(follow.chars, follow.tests + _cost(shape, _END)[0])


def steps(shape: Shape) -> int:
    """How many characters and edges are tried at most at one place of any text.

    The engine goes through the ways in which a text can be shared out among the repeats. Where a repeat cannot go on
    with what may follow it, one way out of it leads anywhere; where it can, there are as many as its length allows,
    and each is followed by everything behind it.
    """
    return _cost(shape, _END)[0]


def _cost(shape: Shape, follow: _Ahead) -> tuple[int, int]:
    """Steps inside a shape and at the doors of what follows; and the number of ways out that lead further."""
    match shape:
        case Row(items):
            return _cost_of_row(items, follow)
        case Choice(items):
            return _cost_of_choice(items, follow)
        case Repeat(item, least, most, _) if least == most:
            return _cost_of_row((item,) * most, follow)
        case Repeat(item, least, most, _):
            again = _first(item, _END)
            inside, ways = _cost(item, again | follow)
            shut = 0 if _meet(again.chars, follow.chars) else most - least
            entered = _capped(sum(min(_TOO_MUCH, ways**turn) for turn in range(most)))
            left = min(_TOO_MUCH, ways**most)
            return _capped(entered * inside + left * shut * follow.tests), _capped((most - least + 1 - shut) * left)
        case Look(item, _, _):
            return _cost(item, _END)[0] + 1, 1
    return 1, 1


def _cost_of_row(items: Sequence[Shape], follow: _Ahead) -> tuple[int, int]:
    follows = [follow]
    for item in reversed(items):
        follows.append(_first(item, follows[-1]))
    total, entered = 0, 1
    for item, behind in zip(items, reversed(follows[:-1]), strict=True):
        inside, ways = _cost(item, behind)
        total, entered = _capped(total + entered * inside), _capped(entered * ways)
    return total, entered


def _cost_of_choice(items: Sequence[Shape], follow: _Ahead) -> tuple[int, int]:
    costs = [_cost(item, follow) for item in items]
    total, ways = sum(inside for inside, _ in costs), [ways for _, ways in costs]
    firsts = [_first(item, follow).chars for item in items]
    if any(_meet(some, others) for some, others in combinations(firsts, 2)):
        return _capped(total), _capped(sum(ways))
    return _capped(total + (len(items) - 1) * follow.tests), max(ways)


def _capped(number: int) -> int:
    return min(number, _TOO_MUCH)


# --- writing ------------------------------------------------------------------------------------------------------


def written(shape: Shape, *, looks: bool = True) -> str:
    """The expression anew. Without `looks` it matches wherever it would in some surroundings."""
    match shape:
        case One(chars):
            return _written_set(chars)
        case Row(items):
            return "".join([written(item, looks=looks) for item in items])
        case Choice(items):
            return "(?:" + "|".join([written(item, looks=looks) for item in items]) + ")"
        case Repeat(item, least, most, lazy):
            return f"(?:{written(item, looks=looks)}){{{least},{most}}}" + ("?" if lazy else "")
        case Edge():
            return _EDGE if looks else ""
        case Look(item, back, wanted):
            sign = ("<" if back else "") + ("=" if wanted else "!")
            return f"(?{sign}{written(item)}{'' if wanted else '|' + WALL})" if looks else ""


def _written_set(chars: Chars) -> str:
    if len(chars) == 1 and chars[0][0] == chars[0][1]:
        return _char(chars[0][0])
    return "[" + "".join([_char(low) if low == high else f"{_char(low)}-{_char(high)}" for low, high in chars]) + "]"


def _char(point: int) -> str:
    return re.escape(chr(point)) if 0x20 < point < 0x7F else f"\\U{point:08x}"
