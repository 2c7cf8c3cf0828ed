"""Groups of alternatives, by what they are alternatives of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from tenuto.assistants.goods.words.categories import CATEGORIES
from tenuto.assistants.goods.words.colors import COLORS
from tenuto.model.expression import expression

Group: TypeAlias = tuple[str, ...]

# An amount as goods have it among their words: 8gb.
MEASURED: Final = expression(r"\d+(?:\.\d+)?([a-z]+)")


def of_categories(group: Group) -> bool:
    """Whether each option is a category."""
    return all(option in CATEGORIES for option in group)


def of_colors(group: Group) -> bool:
    """Whether each option is a colour."""
    return all(option in COLORS for option in group)


def of_amounts(group: Group) -> bool:
    """Whether each option is an amount."""
    return all(MEASURED.fullmatch(option) for option in group)


def of_words(group: Group) -> bool:
    """Whether the options are mere words: kinds, brands, features."""
    return not any(kind(group) for kind in (of_categories, of_colors, of_amounts))


# Words of which goods are the one or the other: who says the second takes the first back.
_RIVALS: Final = (
    (
        "women woman lady ladies female girls 女士 女式 女款 女生 女性",
        "men man male gents boys 男士 男式 男款 男生 男性",
        "kid kids child children baby 儿童 宝宝 童款",
    ),
    ("wired 有线", "wireless bluetooth 无线 蓝牙"),
    ("over-ear headband 头戴 头戴式", "in-ear earbuds 入耳 入耳式"),
)
_SIDES: Final = tuple(tuple(frozenset(side.split()) for side in sides) for sides in _RIVALS)


def are_rivals(word: str, other: str) -> bool:
    """Whether two words are of those of which goods are the one or the other: "women" and "men"."""
    return any(
        any(word in side for side in sides) and any(other in side and word not in side for side in sides)
        for sides in _SIDES
    )


KINDS: Final[tuple[Callable[[Group], bool], ...]] = (of_categories, of_colors, of_amounts, of_words)
