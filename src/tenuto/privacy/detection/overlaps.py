"""Matches of several searches brought into one order, without overlaps."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from tenuto.model.privacy import PiiMatch

# The rest of a match that another one overlaps: punctuation and spaces alone do not count.
_SOMETHING: Final = re.compile(r"\w(?:.*\w)?", re.DOTALL)


def merge_matches(text: str, *layers: Sequence[PiiMatch]) -> list[PiiMatch]:
    """All matches of all layers, in order and not overlapping.

    Earlier layers have precedence over later ones, and inside a layer longer matches over shorter ones, earlier over
    later ones. Of a match that overlaps one of higher precedence, the rest stays a match, so that no part of it is
    shown.
    """
    starts: list[int] = []
    taken: list[PiiMatch] = []
    for layer in layers:
        for find in sorted(layer, key=lambda one: one.start - one.end):
            for start, end in list(_free_ranges(find, taken, starts)):
                part = find
                if (start, end) != (find.start, find.end):
                    core = _SOMETHING.search(text, start, end)
                    if core is None:
                        continue
                    part = replace(find, start=core.start(), end=core.end())
                place = bisect_left(starts, part.start)
                starts.insert(place, part.start)
                taken.insert(place, part)
    return taken


def _free_ranges(find: PiiMatch, taken: Sequence[PiiMatch], starts: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The ranges of a match that are not `taken`, which is sorted and without overlaps."""
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


def shift_match(match: PiiMatch, by: int) -> PiiMatch:
    """The match `by` characters further on."""
    return replace(match, start=match.start + by, end=match.end + by) if by else match
