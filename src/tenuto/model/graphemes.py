"""Characters as people see them: a family emoji, a flag or a letter with its accents is one."""

from __future__ import annotations

from typing import Final

import regex

# `\X` ends a cluster after the virama that joins Indic consonants; Unicode 15.1 no longer does.
_CLUSTER: Final = regex.compile(r"(?:\X(?<=[\u094d\u09cd\u0acd\u0b4d\u0c4d\u0d4d]\u200d?))*\X", regex.DOTALL)

# Two of these side by side are always two characters: letters, signs and emoji, whole Hangul syllables, line ends.
_PLAIN: Final = r"[\p{GCB=Other}\p{GCB=LV}\p{GCB=LVT}\p{GCB=Control}\n]"
_BETWEEN: Final = regex.compile(rf"(?r)(?<={_PLAIN})(?={_PLAIN})")
# How far back such a place is looked for. Where there is none, as among flags, a start in their midst does as well;
# only a character of more code points than the second number, which no real text has, is cut.
_LOOK_BACK: Final = 1024
_START_BACK: Final = 64


def graphemes(text: str) -> list[str]:
    """The text, character by character."""
    return [match.group() for match in _CLUSTER.finditer(text)]


def boundary_before(text: str, index: int) -> int:
    """The last place at or before `index` where a cut goes between two graphemes."""
    if index >= len(text):
        return len(text)
    end = 0
    for match in _CLUSTER.finditer(text, _scan_start(text, index)):
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


def _scan_start(text: str, index: int) -> int:
    """A place at or before `index` from which clusters are told apart, near enough that a long text costs no more."""
    between = _BETWEEN.search(text, max(0, index - _LOOK_BACK), index + 1)
    return between.start() if between else 0 if index <= _LOOK_BACK else index - _START_BACK
