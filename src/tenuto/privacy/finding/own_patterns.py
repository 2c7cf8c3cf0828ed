"""Kinds of private data that only one installation knows, and the proof that looking for them cannot run away."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from tenuto.errors import InvalidSetting
from tenuto.model.privacy import Found, OwnPattern
from tenuto.privacy.finding.expressions import (
    LONGEST_LOOK,
    WALL,
    Refused,
    Shape,
    longest,
    plain_twins,
    read,
    shortest,
    steps,
    written,
)
from tenuto.privacy.rules.folding import INVISIBLE
from tenuto.privacy.rules.span import Rule, Type

SETTING: Final = "patterns"
LONGEST_MATCH: Final = 256
MOST_PATTERNS: Final = 64
_LONGEST_TEXT: Final = 1000
_MOST_STEPS: Final = 500
"""At one place of a text. Ordinary patterns need some dozens."""

_NAME: Final = re.compile("[A-Z][A-Z0-9_]{0,31}")
# `[STAFF_1]` would be both the mark of a pattern of that name and the first pseudonym of STAFF.
_NUMBERED: Final = re.compile(".*_[0-9]+")
BUILT_IN: Final = frozenset({str(name) for name in (*Type, *Rule)})


class Compiled:
    """A pattern that has been found harmless.

    It is held against text in which full-width letters, odd digits, spaces and dashes have become their ASCII twins
    and characters without width are gone.
    """

    __slots__ = ("_expression", "anywhere", "name")

    def __init__(self, name: str, shape: Shape) -> None:
        self.name = name
        self._expression = re.compile(written(shape), re.ASCII)
        self.anywhere = written(shape, looks=False)
        """The same without a look at what stands around: it matches whatever the pattern might."""

    def spans(self, plain: str) -> Iterator[tuple[int, int]]:
        """Where it matches in plain text, from left to right."""
        return (match.span() for match in self._expression.finditer(plain))


def compiled(own: OwnPattern) -> Compiled:
    """The pattern, ready for use.

    Raises:
        InvalidSetting: the name cannot stand in a mark, or matching could take unbounded time. The message tells the
            name and the reason, and leaves the expression out.
    """
    _check_name(own.name)
    if len(own.pattern) > _LONGEST_TEXT:
        raise _refused(own.name, f"is longer than {_LONGEST_TEXT} characters")
    try:
        shape = read(own.pattern, ignore_case=own.ignore_case)
        _check_size(shape)
    except Refused as exc:
        raise _refused(own.name, str(exc)) from None
    return Compiled(own.name, shape)


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise _refused(ascii(name[:32]), "is no name for a pattern: write capitals, digits and _, 32 at most")
    if name in BUILT_IN or name.startswith("REDACTED"):
        raise _refused(name, "is a name of ours; take another one")
    if _NUMBERED.fullmatch(name):
        raise _refused(name, "ends in a number like a pseudonym's mark; take another name")


def _check_size(shape: Shape) -> None:
    if shortest(shape) == 0:
        raise Refused("matches the empty text")
    if longest(shape) > LONGEST_MATCH:
        raise Refused(f"can match more than {LONGEST_MATCH} characters")
    if steps(shape) > _MOST_STEPS:
        raise Refused("can share out one text among its repeats in too many ways; put something fixed between them")


def _refused(name: str, why: str) -> InvalidSetting:
    return InvalidSetting(SETTING, f"{name} {why}")


class OwnPatterns:
    """All own patterns of a policy, in its order."""

    def __init__(self, patterns: Sequence[OwnPattern]) -> None:
        if len(patterns) > MOST_PATTERNS:
            raise InvalidSetting(SETTING, f"there are more than {MOST_PATTERNS}")
        self._patterns = tuple(map(compiled, patterns))
        self.names = tuple(pattern.name for pattern in self._patterns)
        for name in self.names:
            if self.names.count(name) > 1:
                raise _refused(name, "stands there twice")
        anywhere = "|".join([pattern.anywhere for pattern in self._patterns])
        self._anywhere = re.compile(anywhere, re.ASCII)
        self._runs = re.compile(rf"(?s:(?={anywhere}).)++", re.ASCII)

    @property
    def reach(self) -> int:
        """How far from the first character of a match anything can matter to it."""
        return LONGEST_MATCH + LONGEST_LOOK

    def candidates(self, text: str) -> Iterator[tuple[int, int]]:
        """Every place where a match might begin, in whatever surroundings; neighbours come as one stretch.

        Whether a place is among them depends on nothing but the `reach` characters from there on. Characters without
        width are not looked through.
        """
        return (match.span() for match in self._runs.finditer(_plain(text)))

    def find(self, text: str, *, behind: bool = False, before: bool = False) -> list[Found] | None:
        """The matches of each pattern, which may overlap those of another; None if no part of the text has any.

        A text may stand `behind` or `before` something that must not be looked at. What is found then would also be
        found by one who sees it.
        """
        kept: list[int] | None = None
        plain = text
        if not text.isascii():
            if INVISIBLE.search(text):
                kept = [i for i, char in enumerate(text) if not INVISIBLE.match(char)]
                text = "".join([text[i] for i in kept])
            plain = _plain(text)
        if self._anywhere.search(plain) is None:
            return None
        walled = WALL * behind + plain + WALL * before
        found: list[Found] = []
        for pattern in self._patterns:
            for start, end in pattern.spans(walled):
                first, last = start - behind, end - behind
                if kept is not None:
                    first, last = kept[first], kept[last - 1] + 1
                found.append(Found(start=first, end=last, type=pattern.name, rule=pattern.name, name=pattern.name))
        return found


def _plain(text: str) -> str:
    return text if text.isascii() else text.translate(plain_twins())
