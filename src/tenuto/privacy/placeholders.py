"""Pseudonyms in texts, such as `[EMAIL_1]`: recognized, neutralized where a user typed them, and restored."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

PSEUDONYM: Final = re.compile(r"\[([A-Z][A-Z0-9_]{0,40})_([0-9]{1,4})\]")
"""Name and number."""
LONGEST_PLACEHOLDER: Final = 52


def normalize_placeholder(asked: str) -> str:
    """A placeholder as it occurs in texts, from any spelling: `EMAIL_1`, `[email_1]`."""
    return f"[{asked.strip().strip('[]').upper()}]"


def neutralize_text(text: str) -> str:
    """A text with full-width brackets around its placeholders, which were typed and must not be restored."""
    return PSEUDONYM.sub("\N{FULLWIDTH LEFT SQUARE BRACKET}\\1_\\2\N{FULLWIDTH RIGHT SQUARE BRACKET}", text)


def restore_text(text: str, values: Mapping[str, str]) -> str:
    """A text with values in place of their placeholders; unknown placeholders stay."""
    return PSEUDONYM.sub(lambda mark: values.get(mark[0], mark[0]), text) if values and "[" in text else text


class RestoringStream:
    """Restores placeholders in a text that comes in chunks; holds back what may become one."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values
        self._held = ""

    def feed(self, chunk: str) -> str:
        """Take a chunk; return the text that is decided by now."""
        text = self._held + chunk
        start = text.rfind("[")
        open_mark = start >= 0 and "]" not in text[start:] and len(text) - start < LONGEST_PLACEHOLDER
        cut = start if open_mark else len(text)
        self._held = text[cut:]
        return restore_text(text[:cut], self._values)

    def flush(self) -> str:
        """Return the held text, at the end."""
        rest, self._held = self._held, ""
        return restore_text(rest, self._values)
