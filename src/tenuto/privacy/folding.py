"""A text made plain without moving anything: the detector's view of it.

People write digits full-width, dashes in ten kinds and spaces in fifteen, and text that was copied carries characters
nobody sees. `fold` maps each to its ASCII twin, one code point for one code point, so that offsets stay those of the
source. Only characters without any width are taken out, and then a map leads back.
"""

from __future__ import annotations

import re
from typing import Final

_ZEROS: Final = (
    *(0x0660, 0x06F0, 0x07C0, 0x0966, 0x09E6, 0x0A66, 0x0AE6, 0x0B66, 0x0BE6, 0x0C66, 0x0CE6, 0x0D66),
    *(0x0E50, 0x0ED0, 0x0F20, 0x1040, 0x17E0, 0x1810, 0x1D7CE, 0x1D7D8, 0x1D7E2, 0x1D7EC, 0x1D7F6),
)
_SPACES: Final = (0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000)
_DASHES: Final = (*range(0x2010, 0x2016), 0x2043, 0x2212, 0xFE58, 0xFE63, 0x30FC, 0x2E3A)
_UNSEEN: Final = "\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufe00-\ufe0f\ufeff"

_FOLDS: Final[dict[int, int]] = {
    **{0xFF01 + i: 0x21 + i for i in range(94)},
    **{zero + i: 0x30 + i for zero in _ZEROS for i in range(10)},
    **dict.fromkeys(_SPACES, ord(" ")),
    **dict.fromkeys(_DASHES, ord("-")),
    **dict.fromkeys((0x85, 0x2028, 0x2029), ord("\n")),
    0xB7: ord("."),
}
# The long vowel mark of katakana is a dash between digits only: パスワード must stay a word.
_LONG_VOWEL: Final = re.compile("(?<=[0-9])\u30fc(?=[0-9])")
# Full-width punctuation stands in nearly every Chinese sentence; the cheap `replace` deals with it, and `translate`
# (a hundred times dearer) only runs where letters, digits or odd dashes and spaces need it.
_COMMON: Final = tuple((chr(wide), chr(_FOLDS[wide])) for wide in map(ord, "：（）"))
_PUNCTUATION: Final = frozenset("：（），！？；、")


def _ranges(points: list[int]) -> str:
    """A character class body: neighbours become ranges, which the engine tests faster."""
    parts: list[str] = []
    start = previous = points[0]
    for point in [*points[1:], -1]:
        if point != previous + 1:
            parts.append(f"{re.escape(chr(start))}-{re.escape(chr(previous))}")
            start = point
        previous = point
    return "".join(parts)


del _FOLDS[0x30FC]
_ODD: Final = re.compile(f"[{_ranges(sorted(p for p in _FOLDS if chr(p) not in _PUNCTUATION))}]")
INVISIBLE: Final = re.compile(f"[{_UNSEEN}\U000e0000-\U000e007f]")
_STRANGE: Final = re.compile(
    f"[{_UNSEEN}\U000e0000-\U000e007f{_ranges(sorted(p for p in _FOLDS if chr(p) not in _PUNCTUATION))}]"
)


def fold(text: str) -> str:
    """`text` with every odd digit, letter, space and dash as its ASCII twin, of the same length."""
    if _ODD.search(text):
        text = text.translate(_FOLDS)
    return _fold_common(text)


def _fold_common(text: str) -> str:
    for wide, plain in _COMMON:
        text = text.replace(wide, plain)
    return _LONG_VOWEL.sub("-", text) if "\u30fc" in text else text


_DIGITS: Final = bytes(ord("0") if 0x30 <= byte <= 0x39 else byte for byte in range(256))

_WORDS: Final = bytes(
    ord("a") if (byte < 128 and chr(byte).isalnum()) or chr(byte) in "_-" else ord(" ") for byte in range(256)
)


class Folded:
    """A text in the three shapes the rules read, all of one length."""

    __slots__ = ("_digits", "_kept", "_words", "ascii", "bytes", "lower", "text")

    def __init__(self, text: str) -> None:
        self._kept: list[int] | None = None
        if not text.isascii():
            text = self._plain(text)
        self.text = text
        self.bytes = text.encode("ascii", "replace")
        """Every code point beyond ASCII has become one `?`."""
        self.ascii = text if text.isascii() else self.bytes.decode("ascii")
        self.lower = self.ascii.lower()
        self._digits: bytes | None = None
        self._words: bytes | None = None

    @property
    def digits(self) -> bytes:
        """The text with a zero for every digit: what the gates look at."""
        if self._digits is None:
            self._digits = self.bytes.translate(_DIGITS)
        return self._digits

    @property
    def words(self) -> bytes:
        """The text with an `a` for every letter, digit, dash and underscore, and a space for all else."""
        if self._words is None:
            self._words = self.bytes.translate(_WORDS)
        return self._words

    def _plain(self, text: str) -> str:
        if not _STRANGE.search(text):
            return _fold_common(text)
        if INVISIBLE.search(text):
            self._kept = [i for i, char in enumerate(text) if not INVISIBLE.match(char)]
            text = "".join([text[i] for i in self._kept])
        return fold(text)

    def back(self, start: int, end: int) -> tuple[int, int]:
        """The place in the source of `[start, end)` here."""
        if self._kept is None:
            return start, end
        return self._kept[start], self._kept[end - 1] + 1
