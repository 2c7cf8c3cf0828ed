"""How many tokens a text may take, without any vocabulary: an over-estimate by script.

Measured against o200k on conversations in English and Chinese it is 1.3 times the exact count in the mean and below it
in one message of two hundred, by 15 % at worst, which the counter's margin makes good. It never divides bytes by four.
"""

from __future__ import annotations

import re
from typing import Final

# Runs that a vocabulary joins (letters, digits, blanks), and everything else sign by sign.
_RUNS: Final = re.compile(
    r"(?P<word>[A-Za-z]+)"
    r"|(?P<digits>[0-9]+)"
    r"|(?P<blank>[ \t]+)"
    r"|(?P<lines>[\r\n]+)"
    r"|(?P<alphabet>[\u00a0-\u052f]+)"
    r"|(?P<han>[\u3000-\u9fff\uac00-\ud7a3\uff00-\uffef])"
    r"|(?P<sign>[\x00-\x7f])"
    r"|(?P<rare>.)",
    re.DOTALL,
)
_SHORT_WORD: Final = 5


def estimate(text: str) -> int:
    """At least about as many tokens as the text takes."""
    return sum(_run(match.lastgroup, match.group()) for match in _RUNS.finditer(text))


def _run(kind: str | None, run: str) -> int:
    length = len(run)
    match kind:
        case "word":
            return 1 if length <= _SHORT_WORD else (length + 3) // 4
        case "digits":
            return (length + 2) // 3
        case "blank":
            # One blank belongs to the word after it.
            return 0 if length == 1 else 1 + length // 16
        case "lines":
            return 1 + length // 8
        case "alphabet":
            return (length + 1) // 2
        case "rare":
            return min(3, len(run.encode(errors="replace")))
        case _:
            return 1
