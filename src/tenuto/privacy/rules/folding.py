"""Folding of a text to ASCII with unchanged offsets: the view that the rules read.

Texts have full-width digits, ten kinds of dashes, fifteen of spaces, and invisible characters. `fold` maps each to
its ASCII equivalent, code point by code point, so that offsets stay those of the source. Only zero-width characters are
removed, and a map leads back. Escaped line breaks, tabs and quotes, as in JSON inside JSON, are unescaped and padded
with spaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from tenuto.model.patterns import lazy_pattern

_ZEROS: Final = (
    *(0x0660, 0x06F0, 0x07C0, 0x0966, 0x09E6, 0x0A66, 0x0AE6, 0x0B66, 0x0BE6, 0x0C66, 0x0CE6, 0x0D66),
    *(0x0E50, 0x0ED0, 0x0F20, 0x1040, 0x17E0, 0x1810, 0x1D7CE, 0x1D7D8, 0x1D7E2, 0x1D7EC, 0x1D7F6),
)
_SPACES: Final = (0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000)
_DASHES: Final = (*range(0x2010, 0x2016), 0x2043, 0x2212, 0xFE58, 0xFE63, 0x30FC, 0x2E3A)
_UNSEEN: Final = (
    *(0xAD, 0x034F, 0x061C, 0x180E, *range(0x200B, 0x2010), *range(0x202A, 0x202F)),
    *(*range(0x2060, 0x2065), *range(0x2066, 0x2070), *range(0xFE00, 0xFE10), 0xFEFF),
)

FOLDS: Final[dict[int, int]] = {
    **{0xFF01 + i: 0x21 + i for i in range(94)},
    **{zero + i: 0x30 + i for zero in _ZEROS for i in range(10)},
    **dict.fromkeys(_SPACES, ord(" ")),
    **dict.fromkeys(_DASHES, ord("-")),
    **dict.fromkeys((0x85, 0x2028, 0x2029), ord("\n")),
    0xB7: ord("."),
}
# The katakana long vowel mark is a dash between digits only: パスワード must stay a word.
_LONG_VOWEL: Final = lazy_pattern("(?<=[0-9])\u30fc(?=[0-9])")
# Nearly every Chinese sentence has full-width punctuation, which the cheap `replace` handles; `translate` costs a
# hundred times as much and runs only for letters, digits, odd dashes and spaces.
_COMMON: Final = tuple((chr(wide), chr(FOLDS[wide])) for wide in map(ord, "：（）"))
_PUNCTUATION: Final = frozenset("：（），！？；、")


def _ranges(points: Iterable[int]) -> list[tuple[int, int]]:
    """The points as ranges."""
    ranges: list[tuple[int, int]] = []
    for point in sorted(points):
        if ranges and point == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], point)
        else:
            ranges.append((point, point))
    return ranges


def _complement(points: Iterable[int]) -> list[tuple[int, int]]:
    """The ranges of the first plane without these points."""
    taken = _ranges(points)
    firsts, lasts = [0, *(last + 1 for _, last in taken)], [*(first - 1 for first, _ in taken), 0xFFFF]
    return [(first, last) for first, last in zip(firsts, lasts, strict=True) if first <= last]


def _character_class(ranges: Iterable[tuple[int, int]]) -> str:
    """The body of a regex character class: ranges are tested faster than single characters."""
    return "".join([f"{re.escape(chr(first))}-{re.escape(chr(last))}" for first, last in ranges])


# A full-width comma ends a value, unlike an ASCII comma inside a password.
for _point in (0x30FC, *map(ord, "，；")):
    del FOLDS[_point]
_ODD_POINTS: Final = frozenset(point for point in FOLDS if chr(point) not in _PUNCTUATION)
_ODD: Final = lazy_pattern(f"[{_character_class(_ranges(_ODD_POINTS))}]")
INVISIBLE: Final = lazy_pattern(f"[{_character_class(_ranges(_UNSEEN))}\U000e0000-\U000e007f]")
# Single characters: one search finds them all, and few texts have one by chance.
_SIGN_CHARACTERS: Final = "密令钥鑰授账提パ暗トキシ비암토키시패Пп照旅여"
_SIGNS: Final = lazy_pattern(f"[{_SIGN_CHARACTERS}]")
_LONG_VOWEL_MARK: Final = "\u30fc"
# A negated class: the engine looks it up in a table as long as it has no character beyond the first plane. All
# characters beyond count as strange and are checked more closely.
_STRANGE_POINTS: Final = {point for point in (*_ODD_POINTS, *_UNSEEN) if point <= 0xFFFF}
_STRANGE: Final = lazy_pattern(f"[^{_character_class(_complement(_STRANGE_POINTS))}]")
# Most texts have neither a strange character, nor a sign, nor a long vowel: one search says so.
_NOTABLE: Final = lazy_pattern(
    f"[^{_character_class(_complement(_STRANGE_POINTS.union(map(ord, _SIGN_CHARACTERS + _LONG_VOWEL_MARK))))}]"
)


# An escaped line break or tab: \n13800138000. After a domain or a drive the letter begins a name: CORP\tom, C:\new.
_ESCAPED_BLANK: Final = lazy_pattern(r"(?<![A-Z][A-Z])(?<!\b[A-Za-z]:)(?<!\\)\\{1,8}[nrt]|\\{1,8}[nrt](?![a-z])")
_OPENING_QUOTE: Final = lazy_pattern(r"""(?:(?<=[\s:,{\[(=])|\A)(\\{1,8})\"""")
_CLOSING_QUOTE: Final = lazy_pattern(r"""(\\{1,8})\"""")


def blank_escapes(text: str) -> str:
    """`text` with unescaped characters, padded with spaces to the same length."""
    if "\\" not in text:
        return text
    text = _ESCAPED_BLANK.sub(_spaces, text)
    if '\\"' not in text:
        return text
    text = _OPENING_QUOTE.sub(lambda match: _spaces(match, 1) + '"', text)
    return _CLOSING_QUOTE.sub(lambda match: '"' + _spaces(match, 1), text)


def _spaces(match: re.Match[str], group: int = 0) -> str:
    return " " * len(match[group])


def fold(text: str) -> str:
    """`text` with the ASCII equivalent of every odd digit, letter, space and dash, of the same length."""
    if _ODD.search(text):
        text = text.translate(FOLDS)
    return _fold_common(text)


def _fold_common(text: str) -> str:
    text = _fold_punctuation(text)
    return _LONG_VOWEL.sub("-", text) if _LONG_VOWEL_MARK in text else text


def _fold_punctuation(text: str) -> str:
    for wide, plain in _COMMON:
        text = text.replace(wide, plain)
    return text


_DIGITS: Final = bytes(ord("0") if 0x30 <= byte <= 0x39 else byte for byte in range(256))

_WORDS: Final = bytes(
    ord("a") if (byte < 128 and chr(byte).isalnum()) or chr(byte) in "_-" else ord(" ") for byte in range(256)
)


# Stems that several families need. In the ASCII view a non-ASCII letter is a question mark.
_STEMS: Final[tuple[str, ...]] = (
    *("kennwort", "cre", "token", "key"),
    *("basic", "bearer", "auth", "identified by", "dot"),
    *("wachtwoord", "senha", "clave", "contrasenya", "salasana", "adgangskode", "heslo", "mdp", "parola"),
)
_MORE_STEMS: Final[tuple[str, ...]] = (*_STEMS, *("schl?ssel", "contrase?a", "has?o", "l?senord", "jelsz?", "?ifre"))
# The rest begin alike, so one search excludes all of them.
_P_STEMS: Final = ("pass", "pasw", "pw", "psw", "psk")
_ANY_P_STEM: Final = lazy_pattern("p(?:as[sw]|w|s[wk])")
_NONE: Final[frozenset[str]] = frozenset()


def _find_stems(lower: str, among: frozenset[str] | None, *, plain: bool) -> frozenset[str]:
    stems = _STEMS if plain else _MORE_STEMS
    if _ANY_P_STEM.search(lower):
        stems += _P_STEMS
    asked = stems if among is None else among.intersection(stems)
    return frozenset([stem for stem in asked if stem in lower])


class Work:
    """Counts the candidates that rules judge in a text and its parts: what the search costs, without a clock."""

    __slots__ = ("judged",)

    def __init__(self) -> None:
        self.judged = 0


class FoldedText:
    """A text in the views that the rules read, all of one length.

    Nearly every text needs all of them, so they are made at once. Prechecks use `in` on strings and `find` on bytes:
    `in` on bytes tries a number first, which costs ten times the search.
    """

    __slots__ = (
        *("_kept", "_strange", "ascii", "bytes", "digits", "lower", "signed", "source", "stems", "text", "words"),
        "work",
    )

    def __init__(self, text: str, among: frozenset[str] | None = None, work: Work | None = None) -> None:
        """For a part, `among` are the stems of the whole text: it can have no others."""
        self.source = text
        self.work = Work() if work is None else work
        self._kept: list[int] | None = None
        self._strange = False
        """Whether a part of the text may be folded differently from the whole."""
        self.signed = False
        """Whether a character of Chinese, Japanese or Korean names of secrets and documents occurs."""
        if not text.isascii():
            text = self._fold_non_ascii(text)
        if "\\" in text:
            self._strange = True
            text = blank_escapes(text)
        plain = text.isascii()
        self.text = text
        self.bytes = text.encode("ascii", "replace")
        """With a `?` for every non-ASCII code point."""
        self.ascii = text if plain else self.bytes.decode("ascii")
        self.lower = self.ascii.lower()
        self.digits = self.bytes.translate(_DIGITS)
        """The text with a zero for every digit."""
        self.words = self.bytes.translate(_WORDS)
        """The text with an `a` for every letter, digit, dash and underscore, and a space for all else."""
        self.stems = _find_stems(self.lower, among, plain=plain) if self.words.find(b"aa") >= 0 else _NONE
        """The stems that occur, case-insensitive: names of secrets, words of headers. Most texts have none."""

    def _fold_non_ascii(self, text: str) -> str:
        if not _NOTABLE.search(text):
            return _fold_punctuation(text)
        self.signed = _SIGNS.search(text) is not None
        self._strange = _LONG_VOWEL_MARK in text
        if not _STRANGE.search(text):
            return _fold_common(text)
        self._strange = True
        if INVISIBLE.search(text):
            self._kept = [i for i, char in enumerate(text) if not INVISIBLE.match(char)]
            text = "".join([text[i] for i in self._kept])
        return fold(text)

    def part(self, start: int, end: int) -> FoldedText:
        """The view of `[start, end)` of the source alone; mostly sliced from this one, not made anew."""
        if self._strange:
            return FoldedText(self.source[start:end], self.stems, self.work)
        part = FoldedText.__new__(FoldedText)
        part._kept, part._strange, part.source, part.work = None, False, self.source[start:end], self.work
        text = self.text[start:end]
        plain = self.text is self.ascii or text.isascii()
        part.bytes, part.ascii = self.bytes[start:end], text if plain else self.ascii[start:end]
        part.text, part.lower = text, self.lower[start:end]
        part.digits, part.words = self.digits[start:end], self.words[start:end]
        part.stems = _find_stems(part.lower, self.stems, plain=plain) if self.stems else _NONE
        part.signed = self.signed and not plain and _SIGNS.search(text) is not None
        return part

    def back(self, start: int, end: int) -> tuple[int, int]:
        """The source range of `[start, end)` in this view."""
        if self._kept is None:
            return start, end
        return self._kept[start], self._kept[end - 1] + 1
