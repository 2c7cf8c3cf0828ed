"""Spellings of one value: `+86 138-0013-8000` and `13800138000` are one phone."""

from __future__ import annotations

import unicodedata
from typing import Final

# Written with any separators: only letters and digits count.
_GROUPED: Final = frozenset({"CC", "BANK_CARD", "CARD", "SSN", "CN_ID", "IBAN", "PASSPORT"})
_EXACT: Final = frozenset({"SECRET", "API_KEY", "JWT", "PRIVATE_KEY"})
_CHINA: Final = "86"
_NORTH_AMERICA: Final = "1"


def normalize_spelling(kind: str, value: str) -> str:
    """The normal form of all spellings of a value; `kind` is its type, or the name in its placeholder."""
    if kind in _EXACT:
        return value
    folded = unicodedata.normalize("NFKC", value).casefold()
    plain = "".join(character for character in folded if character.isalnum())
    if kind == "PHONE":
        return _national_number(plain, abroad=folded.lstrip(" (").startswith(("+", "00")))
    # On a Chinese keyboard the dot of a domain may be a full stop.
    return plain if kind in _GROUPED else " ".join(folded.replace("\u3002", ".").split())


def _national_number(digits: str, *, abroad: bool) -> str:
    """A phone number without the country code, if its form is that of the country.

    Eleven digits that begin with 13 to 19 are a Chinese mobile unless they are written with an international prefix.
    """
    bare = digits.removeprefix("00")
    if bare.startswith(_CHINA) and len(bare) == 13 and bare[2] == "1":
        return bare[2:]
    if bare.startswith(_NORTH_AMERICA) and len(bare) == 11 and (abroad or bare[1] == "2"):
        return bare[1:]
    return bare
