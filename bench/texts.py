"""Made-up sentences whose words are spread as words of a language are. Only the standard library is used here."""

from __future__ import annotations

import random
from typing import Final

ADDED: Final = 300
SEARCHED: Final = 100
_WORDS: Final = 30_000


def sentence(words: random.Random, count: int) -> str:
    """So many words."""
    # Zipf's law without the most frequent words, which are stop words: the n-th of the rest comes 1/(n+10) as often.
    return " ".join(f"word{int(10 * (_WORDS / 10) ** words.random()) - 10}" for _ in range(count))
