"""Text in one shape, whoever typed it, and the patterns that are built over it."""

from __future__ import annotations

import unicodedata
from typing import Final

from tenuto.model.expression import expression

_INVISIBLE: Final = expression("[\u200b-\u200f\u2028-\u202f\u2060\ufeff\u00ad]")
_FOLDED: Final = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "—": "-", "–": "-", "～": "~"})
HAN: Final = "\u3400-\u9fff"


def fold(text: str, limit: int) -> str:
    """The beginning of a text in one shape: widths and cases alike, nothing invisible."""
    return _INVISIBLE.sub("", unicodedata.normalize("NFKC", text[:limit]).lower().translate(_FOLDED))


def either(*words: str) -> str:
    """A pattern for any of the words, the longest first."""
    return "|".join(sorted(" ".join(words).split(), key=len, reverse=True)).replace("_", " ")


def cut(text: str, start: int, end: int) -> str:
    """The text without that part, and a gap in its place, so that what stood on both sides is not read as one."""
    return f"{text[:start]} {text[end:]}"
