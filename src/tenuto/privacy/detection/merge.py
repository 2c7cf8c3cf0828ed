"""Finds of several origins on one text: none overlap, and nothing that any of them saw stays behind."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from tenuto.model.privacy import PiiMatch

# What is left of a find when another one took a part of it: signs and spaces alone are nothing.
_SOMETHING: Final = re.compile(r"\w(?:.*\w)?", re.DOTALL)


def merge_matches(text: str, *layers: Sequence[PiiMatch]) -> list[PiiMatch]:
    """All finds of all layers, in order and apart.

    Earlier layers are surer than later ones, and inside a layer the longer find is surer than the shorter, the first
    than the second. A surer find stands as it is. Of another one that overlaps it, what sticks out stays a find, so
    that nothing is shown which somebody took for private.
    """
    starts: list[int] = []
    taken: list[PiiMatch] = []
    for layer in layers:
        for find in sorted(layer, key=lambda one: one.start - one.end):
            for start, end in list(_free_ranges(find, taken, starts)):
                part = find if (start, end) == (find.start, find.end) else _trim_match(text, find, start, end)
                if part is not None:
                    place = bisect_left(starts, part.start)
                    starts.insert(place, part.start)
                    taken.insert(place, part)
    return taken


def _free_ranges(find: PiiMatch, taken: Sequence[PiiMatch], starts: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The stretches of a find that nothing has taken; those taken are apart and in order."""
    at = find.start
    place = bisect_left(starts, at)
    if place and taken[place - 1].end > at:
        place -= 1
    while place < len(taken) and taken[place].start < find.end:
        if at < taken[place].start:
            yield at, taken[place].start
        at = max(at, taken[place].end)
        place += 1
    if at < find.end:
        yield at, find.end


def _trim_match(text: str, find: PiiMatch, start: int, end: int) -> PiiMatch | None:
    core = _SOMETHING.search(text, start, end)
    return replace(find, start=core.start(), end=core.end()) if core else None
