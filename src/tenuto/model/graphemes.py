"""Characters as people see them: a family emoji, a flag or a letter with its accents is one."""

from __future__ import annotations

from typing import Final

import regex

# `\X` ends a cluster after the virama that joins Indic consonants; Unicode 15.1 no longer does.
_CLUSTER: Final = regex.compile(r"(?:\X(?<=[\u094d\u09cd\u0acd\u0b4d\u0c4d\u0d4d]\u200d?))*\X", regex.DOTALL)


def graphemes(text: str) -> list[str]:
    """The text, character by character."""
    return [match.group() for match in _CLUSTER.finditer(text)]


def boundary_before(text: str, index: int) -> int:
    """The last place at or before `index` where a cut goes between two graphemes."""
    if index >= len(text):
        return len(text)
    end = 0
    for match in _CLUSTER.finditer(text, _plain_before(text, index)):
        if match.end() > index:
            return match.start()
        end = match.end()
    return end


def boundary_after(text: str, index: int) -> int:
    """The first place at or after `index` where a cut goes between two graphemes."""
    if index <= 0:
        return 0
    if index >= len(text):
        return len(text)
    before = boundary_before(text, index)
    if before == index:
        return index
    match = _CLUSTER.match(text, before)
    return match.end() if match else len(text)


def _plain_before(text: str, index: int) -> int:
    # Between two plain characters there is always a boundary, so that clusters need not be counted from the start.
    place = index
    while place > 0 and not (_plain(text[place]) and _plain(text[place - 1])):
        place -= 1
    return place


def _plain(character: str) -> bool:
    return " " <= character <= "~" or "\u4e00" <= character <= "\u9fff"
