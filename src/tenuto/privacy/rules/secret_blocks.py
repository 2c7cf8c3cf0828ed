"""Secrets in blocks of YAML: a name, a bar or an angle, and the value below it, indented deeper than the name."""

from __future__ import annotations

from typing import Final

from tenuto.model.patterns import lazy_pattern
from tenuto.privacy.rules.folding import FoldedText
from tenuto.privacy.rules.secret_names import Name
from tenuto.privacy.rules.secret_values import is_blank, is_keylike
from tenuto.privacy.rules.span import Find

_OPENS: Final = lazy_pattern(
    r"""["'`]?[ \t]?:[ \t]{1,3}[|>][0-9+-]{0,2}[ \t]{0,3}\n(?:[ \t]{0,8}\n)?(?P<indent>[ \t]{1,24})(?=\S)"""
)
# A line of words, or one long word: longer lines of words are no password, and no rule reads further.
_LINE: Final = lazy_pattern(r"[^\s]{1,512}(?:[^\n\S][^\s]{1,24}){0,6}(?=\s{0,3}(?:\n|\Z))")
_REACH: Final = 136
_MOST_BEFORE: Final = 64


def secrets_in_block(view: FoldedText, name: Name) -> list[Find] | None:
    """The secret in the block that the name opens, none if the block holds something else; `None` without a block."""
    place = find_block_below(view, name.start, name.end)
    if place is None:
        return None
    text = view.text[slice(*place)]
    least = {"password": 0, "key": 8}.get(name.kind, 20)
    if is_blank(text) or len(text) < 3 or (least and not is_keylike(text, least)):
        return []
    return [(*place, name.rule)]


def find_block_below(view: FoldedText, start: int, end: int) -> tuple[int, int] | None:
    """The block that the name at `[start, end)` opens, from its first line to its last."""
    text = view.text
    opens = _OPENS.match(text, end)
    if opens is None or len(opens["indent"]) <= _indentation(text, start):
        return None
    first, last = opens.end(), opens.end()
    line = _LINE.match(text, first)
    while line is not None and (line.start() == first or line.end() <= end + _REACH):
        last = line.end()
        begin = text.find("\n", last, last + 4) + 1
        if not begin or not text.startswith(opens["indent"], begin):
            break
        line = _LINE.match(text, begin + len(opens["indent"]))
    return (first, last) if last > first else None


def _indentation(text: str, at: int) -> int:
    """How far the line of `at` is indented; a line that begins too far away counts as not at all."""
    begin = text.rfind("\n", max(0, at - _MOST_BEFORE), at) + 1
    return len(text[begin:at]) - len(text[begin:at].lstrip(" \t"))
