"""Matches in the texts of one record: what one of them shows by its context is found in the others as well."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from string import ascii_uppercase
from typing import Final

from msgspec.structs import replace

from tenuto.model.privacy import PiiMatch
from tenuto.privacy.detection.finder import PiiFinder
from tenuto.privacy.detection.overlaps import merge_matches
from tenuto.privacy.json_texts import Slot
from tenuto.privacy.rules.folding import Work
from tenuto.privacy.rules.span import PiiType

_SHARED_TYPES: Final = frozenset({PiiType.ORDER_ID, PiiType.ADDRESS})
_BEGINNING: Final = 4
_LOWER: Final = {ord(letter): letter.lower() for letter in ascii_uppercase}
_BORDER: Final = re.compile(r"(?<!\w)(?=\S)", re.ASCII)
_WORD_GOES_ON: Final = re.compile(r"\w", re.ASCII)


def find_in_slots(finder: PiiFinder, slots: Sequence[Slot], *, bounded: bool) -> list[Sequence[PiiMatch]]:
    """The matches of each text. An order number or address that one text shows is found in the others as well."""
    work = Work() if bounded else None
    found = [_find_in_slot(finder, slot, None if slot.internal else work) for slot in slots]
    known = {
        slot.text[one.start : one.end]: one
        for slot, finds in zip(slots, found, strict=True)
        for one in finds
        if one.type in _SHARED_TYPES
    }
    if not known:
        return found
    likes = {text.translate(_LOWER): one for text, one in known.items()}
    lengths: dict[str, set[int]] = {}
    for value in likes:
        lengths.setdefault(value[:_BEGINNING], set()).add(len(value))
    longest_first = {beginning: sorted(some, reverse=True) for beginning, some in lengths.items()}
    again = [list(_find_again(slot.text, likes, longest_first)) for slot in slots]
    return [
        merge_matches(slot.text, finds, more) if more else finds
        for slot, finds, more in zip(slots, found, again, strict=True)
    ]


def _find_again(text: str, likes: Mapping[str, PiiMatch], lengths: Mapping[str, list[int]]) -> Iterator[PiiMatch]:
    """Every place of a value in a text, whatever the case. One pattern of all values would be tried value by value."""
    lower, reached = text.translate(_LOWER), 0
    for place in _BORDER.finditer(text):
        start = place.start()
        for length in lengths.get(lower[start : start + _BEGINNING], ()) if start >= reached else ():
            end = start + length
            one = likes.get(lower[start:end])
            if one is not None and not _WORD_GOES_ON.match(text, end):
                reached = end
                yield replace(one, start=start, end=end)
                break


def _find_in_slot(finder: PiiFinder, slot: Slot, work: Work | None) -> Sequence[PiiMatch]:
    """The matches in a text, searched together with its name."""
    if not slot.name:
        return finder.find(slot.text, work)
    start = len(slot.name) + 2
    found = finder.find(f"{slot.name}: {slot.text}", work)
    return [replace(one, start=max(0, one.start - start), end=one.end - start) for one in found if one.end > start]
