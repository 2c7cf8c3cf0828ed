"""The two ends of a text of which no more will be left: looked through as far as what is left depends on it.

A trace keeps some thousand characters of a question that may have a million. What was cut through is no longer found,
so both ends are looked at with `SPARE` characters more than are shown. Of a value that is longer than that and begins
before them, such as a token of twenty thousand characters, the last ones show.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from tenuto.model.privacy import PiiMatch, replace_matches

SPARE: Final = 10_000
"""More than a private key takes, and than any value people type."""


class HeadAndTail(NamedTuple):
    """The first and the last part of a text to look at, and how much of each may be shown."""

    first: str
    last: str
    shown: int
    between: int

    def replace_matches_in_ends(
        self, in_first: Sequence[PiiMatch], in_last: Sequence[PiiMatch]
    ) -> tuple[str, list[PiiMatch]]:
        """The text with marks for what was found, blank between its ends, and the finds that show."""
        head = [one for one in in_first if one.start < self.shown]
        begin = len(self.last) - self.shown
        tail = [one for one in in_last if one.end > begin]
        # A find that lies across the border is shown as its mark.
        end = max([self.shown, *(one.end for one in head)])
        begin = min([begin, *(one.start for one in tail)])
        blank = " " * (self.between + len(self.first) - end + begin)
        return f"{replace_matches(self.first[:end], head)}{blank}{replace_matches(self.last, tail, begin)}", [
            *head,
            *tail,
        ]


def head_and_tail(text: str, shown: int) -> HeadAndTail | None:
    """Both ends of a text of which so many characters may be left on either side; `None` where that is all of it."""
    looked_at = shown + SPARE
    between = len(text) - 2 * looked_at
    return HeadAndTail(text[:looked_at], text[-looked_at:], shown, between) if between > 0 else None
