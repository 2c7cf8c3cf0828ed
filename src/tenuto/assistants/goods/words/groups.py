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


KINDS: Final[tuple[Callable[[Group], bool], ...]] = (of_categories, of_colors, of_amounts, of_words)
