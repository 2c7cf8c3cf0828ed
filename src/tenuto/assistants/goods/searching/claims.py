"""Whether one of two goods has more of something than the other, as it was asked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from tenuto.assistants.goods.intent import Bound, Claim
from tenuto.assistants.goods.shop import Item, measure

_TWO: Final = 2


def claimed(items: Sequence[Item], claim: Bound | None) -> tuple[Claim | None, str | None]:
    """Whether the first of two has more or less than the second, and of which attribute."""
    if claim is None or len(items) != _TWO:
        return None, None
    by = measure(items, claim.of)
    first, second = (by.of(item) if by is not None else None for item in items)
    name = by.name if by is not None else claim.of[0]
    if first is None or second is None:
        return "unnoted", name
    if math.isclose(first, second):
        return "same", name
    return ("yes" if (first > second) == (claim.sign == ">") else "no"), name
