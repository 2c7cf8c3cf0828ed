"""Both ends of a long text, which is searched before its middle is cut out: half a value would not be found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from tenuto.model.privacy import PiiMatch, replace_matches

SPARE: Final = 10_000
"""Longer than a private key and than any typed value."""


class HeadAndTail(NamedTuple):
    """The first and the last part of a text, to be searched, and how many characters of each will be shown."""

    first: str
    last: str
    shown: int
    between: int

    def replace_matches_in_ends(
        self, in_first: Sequence[PiiMatch], in_last: Sequence[PiiMatch]
    ) -> tuple[str, list[PiiMatch]]:
        """The text with placeholders for the matches, blank between its ends, and the matches in the shown part."""
        head = [one for one in in_first if one.start < self.shown]
        begin = len(self.last) - self.shown
        tail = [one for one in in_last if one.end > begin]
        # A match across the border is shown as its placeholder.
        end = max([self.shown, *(one.end for one in head)])
        begin = min([begin, *(one.start for one in tail)])
        blank = " " * (self.between + len(self.first) - end + begin)
        return f"{replace_matches(self.first[:end], head)}{blank}{replace_matches(self.last, tail, begin)}", [
            *head,
            *tail,
        ]


def head_and_tail(text: str, shown: int) -> HeadAndTail | None:
    """Both ends of a text of which `shown` characters will be left on either side; `None` where they meet."""
    looked_at = shown + SPARE
    between = len(text) - 2 * looked_at
    return HeadAndTail(text[:looked_at], text[-looked_at:], shown, between) if between > 0 else None
