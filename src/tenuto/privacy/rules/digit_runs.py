"""Runs of digits: candidates for numbers, split into groups with any separators."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from tenuto.model.patterns import lazy_pattern
from tenuto.privacy.rules.folding import FoldedText
from tenuto.privacy.rules.labels import REACH, Label, LabelContext, before, labels_left, labels_right
from tenuto.privacy.rules.prechecks import LEAST

# Separators between two groups of a run; any single character of a stretch is one.
_GAP: Final = lazy_pattern(r"[ \t.()/-]{2,3}|[ \t-]{0,2}\r?\n[ \t]{0,4}")
# Digits and separators, long enough for a run. Searched in the view where every digit is a zero: a regex that begins
# with one fixed character is several times as fast as one that begins with any of ten.
_STRETCH: Final = lazy_pattern(rb"0[0 \t\r\n.()/-]{5,}0")
# Dates, with or without the hour, and decimals unlike 555.0187: most numbers of a log.
_PLAIN: Final = lazy_pattern(
    r"(?:19|20)[0-9]{2}([-/.])[0-9]{1,2}\1[0-9]{1,2}(?: [0-9]{1,2})?"
    r"|(?![0-9]{3}\.[0-9]{4}$)(?:[0-9]{1,2}|[1-9][0-9]{2,4})\.[0-9]+"
)
_WORD: Final = lazy_pattern(r"(?<![A-Za-z0-9_])[A-Za-z]+\Z")
_GROUP: Final = lazy_pattern("[0-9]+")
_PATH: Final = lazy_pattern("[0-9]+[./][A-Za-z]")
CURRENCY: Final = frozenset("$€£¥￥₩")
# Amounts and prices are not private.
COUNTED: Final = lazy_pattern(
    r"[ ]?(?:条|條|次(?!日)|元(?![旦月宵])|件|篇|字节|步|公里|千米|块钱|万(?![一分])|亿|毫秒|秒(?!回)"
    r"|views?\b|records?\b|rows?\b|bytes?\b|times\b|ms\b|円|원)"
)
# A second number of the same length after a slash: 512-33-4455/431-66-2290.
_TWIN_BEFORE: Final = lazy_pattern(r"(?:[0-9]{8}|[0-9][ -][0-9]{3})[0-9][Xx]?/\Z")
_TWIN_AFTER: Final = lazy_pattern(r"/(?:[0-9]{9}|[0-9]{3,4}[ -][0-9])")


class DigitRun:
    """Digits that belong together by their format, in groups with separators."""

    __slots__ = ("_context", "_near", "ends", "shape", "starts", "taken", "total", "view")

    def __init__(self, view: FoldedText, starts: list[int], ends: list[int]) -> None:
        view.work.judged += 1 + len(starts) // 4
        self.view = view
        self.starts = starts
        self.ends = ends
        self.shape = bytes([min(ends[i] - first, 255) for i, first in enumerate(starts)])
        """The length of every group, to compare with number plans."""
        self.total = sum(self.shape)
        self.taken = bytearray(len(self.starts))
        self._context: LabelContext | None = None
        self._near: tuple[frozenset[Label], frozenset[Label]] | None = None

    def digits(self, first: int, last: int) -> str:
        """The digits of the groups `first` to `last`, both included."""
        if first == last:
            return self.view.ascii[self.starts[first] : self.ends[first]]
        return "".join([self.view.ascii[self.starts[i] : self.ends[i]] for i in range(first, last + 1)])

    def between(self, first: int, last: int) -> list[str]:
        """The separators between the groups `first` to `last`."""
        return [self.view.ascii[self.ends[i] : self.starts[i + 1]] for i in range(first, last)]

    def free(self, first: int, last: int) -> bool:
        """Whether no span has any of these groups yet."""
        return not any(self.taken[first : last + 1])

    def claim(self, first: int, last: int) -> None:
        """Mark these groups as part of a span."""
        for i in range(first, last + 1):
            self.taken[i] = 1

    def context(self, first: int) -> LabelContext:
        """The label before group `first`. A run contains no words, so the label before it is searched once."""
        if self._context is None:
            self._context = before(self.view.text, self.starts[0])
        if first == 0:
            return self._context
        return LabelContext(self._context.label if self.starts[first] - self.starts[0] < REACH // 2 else None, False)

    def has_label_near(self, first: int, last: int, label: Label) -> bool:
        """Whether `label` is within reach of the groups, on either side."""
        if self._near is None:
            text = self.view.text
            self._near = labels_left(text, self.starts[0]), labels_right(text, self.ends[-1])
        left, right = self._near
        return (label in left and self.starts[first] - self.starts[0] < REACH) or (
            label in right and self.ends[-1] - self.ends[last] < REACH
        )

    def stands_alone(self, first: int, last: int, *words: str) -> bool:
        """Whether the groups are a word of their own: not the tail of an id, a decimal, a price or a path."""
        return self.can_start(self.starts[first], *words) and self.can_end(self.ends[last])

    def can_start(self, start: int, *words: str) -> bool:
        """Whether a number may begin at `start`, perhaps joined to one of `words`: `SSN512-33-4455`."""
        text = self.view.ascii
        before = text[start - 1 : start]
        if before in ("", " "):
            return True
        if words and before.isalpha():
            word = _WORD.search(text, max(0, start - 16), start)
            return word is not None and word[0].lower() in words
        if before == "*":
            start = len(text[max(0, start - 8) : start].rstrip("*")) + max(0, start - 8)
            before = text[start - 1 : start]
        if before.isalnum() or before == "_" or self.view.text[start - 1 : start] in CURRENCY:
            return False
        if before == "/" and start == 1:
            return not _PATH.match(text, start)  # after an e-mail address: ann@example.com/13800138000
        if before == "/" and _TWIN_BEFORE.search(text, max(0, start - 16), start):
            return True
        return not (before and before in "-./:=&%~^\\" and self._joins(before, text[max(0, start - 2) : start - 1]))

    @staticmethod
    def _joins(mark: str, further: str) -> bool:
        if mark in "%~^\\":
            return True
        if mark == ":":
            return further.isdigit()
        return mark not in "=&" and (further.isalnum() or (mark == "." and not further.strip()) or further in "-_")

    def can_end(self, end: int) -> bool:
        """Whether a number may end at `end`."""
        text = self.view.ascii
        after = text[end : end + 1]
        if after in ("", " "):
            return True
        if after == "*":
            # Bold in Markdown, unless the number continues after the stars: 138****8000.
            return not text[end : end + 8].lstrip("*")[:1].isalnum()
        further = text[end + 1 : end + 2]
        if after.isalnum() or (after and after in "_%~^\\"):
            return False
        if after == "-":
            return not further.isalnum()
        if after == ":":
            # The last character of an id may be an X, which is not part of the run.
            return not further.isdigit() or end - self.starts[bisect_left(self.starts, end) - 1] > 2
        return not (after and after in "./" and further.isdigit()) or _TWIN_AFTER.match(text, end) is not None


def runs(view: FoldedText) -> Iterator[DigitRun]:
    """Every run with at least seven digits."""
    for stretch in _STRETCH.finditer(view.digits):
        start, end = stretch.span()
        if not _PLAIN.fullmatch(view.ascii, start, end):
            yield from _runs_in_stretch(view, start, end)


def _runs_in_stretch(view: FoldedText, start: int, end: int) -> Iterator[DigitRun]:
    text = view.ascii
    if text[start:end].isdigit():
        yield DigitRun(view, [start], [end])
        return
    starts: list[int] = []
    ends: list[int] = []
    for group in _GROUP.finditer(text, start, end):
        first, last = group.span()
        if ends and first - ends[-1] > 1 and not _GAP.fullmatch(text, ends[-1], first):
            if ends[-1] - starts[0] >= LEAST:
                yield from _if_long_enough(DigitRun(view, starts, ends))
            starts, ends = [], []
        starts.append(first)
        ends.append(last)
    if ends[-1] - starts[0] >= LEAST:
        yield from _if_long_enough(DigitRun(view, starts, ends))


def _if_long_enough(run: DigitRun) -> Iterator[DigitRun]:
    if run.total >= LEAST:
        yield run


def loosely(between: list[str]) -> bool:
    """Whether all separators are of one kind, however wide; any may be a line break. For numbers with a check digit."""
    return len({gap.strip(" \t")[:1] for gap in between if "\n" not in gap}) <= 1


def evenly(between: list[str]) -> bool:
    """Whether all separators are equal; one of them may be a line break."""
    kinds = {gap for gap in between if "\n" not in gap}
    return len(kinds) <= 1 and sum("\n" in gap for gap in between) <= 1 and all(len(gap) == 1 for gap in kinds)
