"""When two spellings are one value, so that they get one pseudonym."""

from __future__ import annotations

import unicodedata
from typing import Final

# Of these, only letters and digits count: people write them with any separators.
_GROUPED: Final = frozenset({"CC", "BANK_CARD", "CARD", "SSN", "CN_ID", "IBAN", "PASSPORT"})
_EXACT: Final = frozenset({"SECRET", "API_KEY", "JWT", "PRIVATE_KEY"})
_CHINA: Final = "86"
_NORTH_AMERICA: Final = "1"


def likeness(kind: str, value: str) -> str:
    """What all spellings of a value have in common: `+86 138-0013-8000` and `13800138000` are one phone."""
    if kind in _EXACT:
        return value
    folded = unicodedata.normalize("NFKC", value).casefold()
    plain = "".join(character for character in folded if character.isalnum())
    if kind == "PHONE":
        return _national_number(plain, abroad=folded.lstrip(" (").startswith(("+", "00")))
    # Typed on a Chinese keyboard, the dot of a domain is a full stop.
    return plain if kind in _GROUPED else " ".join(folded.replace("\u3002", ".").split())


def _national_number(digits: str, *, abroad: bool) -> str:
    """A phone number without the country's code, where the number is that country's by its form.

    Eleven digits that begin with 13 to 19 are a Chinese mobile unless they are written as a call from abroad.
    """
    bare = digits.removeprefix("00")
    if bare.startswith(_CHINA) and len(bare) == 13 and bare[2] == "1":
        return bare[2:]
    if bare.startswith(_NORTH_AMERICA) and len(bare) == 11 and (abroad or bare[1] == "2"):
        return bare[1:]
    return bare
