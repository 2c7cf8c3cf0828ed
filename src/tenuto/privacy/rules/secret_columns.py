"""Secrets in tables: a name heads a column, and the values are below it.

Lines of Markdown, CSV and spreadsheet tables have the same number of separators. Text in other columns is not the
value, however near the name it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tenuto.model.patterns import lazy_pattern
from tenuto.privacy.rules.folding import FoldedText
from tenuto.privacy.rules.secret_names import Name
from tenuto.privacy.rules.secret_values import is_blank, is_keylike, is_other_data, is_varied
from tenuto.privacy.rules.span import Find

_CUTS: Final = ("|", "\t", ",")
_ENDS_CELL: Final = lazy_pattern(r"""["'`*]{0,2}[ ]{0,16}(?P<cut>[|\t,\n])""")
# A header has words in its cells, and no sentence.
_HEADER: Final = lazy_pattern(r"""[^\n:=(){}\[\]<>0-9;.!?。，；]{3,96}""")
_BEFORE: Final = 64
"""How long a header may be before the name, and how far below its values may be: no rule reads further."""
_BELOW: Final = 136
_CELL: Final = lazy_pattern(r"""[ "'`]*(?P<value>[^\s"'`]{4,64})[ "'`]*""")


def secrets_in_column(view: FoldedText, name: Name) -> list[Find] | None:
    """The values below a name that heads a column; `None` if it does not."""
    text = view.text
    ends = _ENDS_CELL.match(text, name.end, name.end + 20)
    if ends is None:
        return None
    begin, last = _line_start(text, name.start), text.find("\n", name.end, name.end + _BEFORE)
    if begin is None or last < 0 or not _HEADER.fullmatch(text, begin, last):
        return None
    cut = next((sign for sign in _CUTS if text.find(sign, begin, last) >= 0), None)
    if cut is None or ends["cut"] not in (cut, "\n"):
        return None
    column, cuts = text.count(cut, begin, name.start), text.count(cut, begin, last)
    rows = [row for row in _rows(text, last + 1, name.end + _BELOW) if text.count(cut, *row) == cuts]
    if not rows:
        return None
    cells = [_cell_range(text, row, cut, column) for row in rows]
    return [(*cell, name.rule) for cell in cells if cell is not None and _is_secret(text[slice(*cell)], name.kind)]


def _line_start(text: str, at: int) -> int | None:
    """Where the line that holds `at` begins, if that is near."""
    start = text.rfind("\n", max(0, at - _BEFORE), at) + 1
    return start if start or at <= _BEFORE else None


def _rows(text: str, start: int, most: int) -> Iterator[tuple[int, int]]:
    """The lines from `start` on that end before `most`, up to the first empty one."""
    while start < min(most, len(text)):
        end = text.find("\n", start, most)
        if end < 0:
            end = len(text) if len(text) <= most else start
        if end == start:
            return
        yield start, end
        start = end + 1


def _cell_range(text: str, row: tuple[int, int], cut: str, column: int) -> tuple[int, int] | None:
    start, end = row
    for _ in range(column):
        start = text.find(cut, start, end) + 1
    stop = text.find(cut, start, end)
    value = _CELL.fullmatch(text, start, end if stop < 0 else stop)
    return None if value is None else value.span("value")


def _is_secret(value: str, kind: str) -> bool:
    if is_blank(value) or is_other_data(value):
        return False
    return is_varied(value) if kind == "password" else is_keylike(value, 16 if kind == "weak" else 8)
