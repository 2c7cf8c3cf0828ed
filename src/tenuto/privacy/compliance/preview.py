"""A text as each mode would leave it, to try out a policy; nothing is stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tenuto.model.privacy import Mode, PiiMatch, replace_matches
from tenuto.privacy.detection.finder import PiiFinder
from tenuto.privacy.redactor import WITHHELD
from tenuto.privacy.spellings import normalize_spelling


@dataclass(frozen=True, slots=True)
class Preview:
    """The matches, and the text as each mode would leave it."""

    matches: Sequence[PiiMatch]
    by_mode: dict[Mode, str]


def preview(text: str, finder: PiiFinder, unvaulted: Sequence[str]) -> Preview:
    """Search a text by the policy of this finder."""
    found = finder.find(text)
    looks = {
        Mode.KEEP: text,
        Mode.REDACT: replace_matches(text, found),
        Mode.PSEUDONYM: _pseudonymize(text, found, unvaulted),
        Mode.BLOCK: WITHHELD if found else text,
    }
    return Preview(found, looks)


def _pseudonymize(text: str, found: Sequence[PiiMatch], unvaulted: Sequence[str]) -> str:
    """The text with the placeholders of a new session; all spellings of a value share one."""
    numbers: Counter[str] = Counter()
    by_spelling: dict[tuple[str, str], str] = {}
    placeholders: dict[tuple[str, str], str] = {}
    for one in found:
        if one.type in unvaulted:
            continue
        value = text[one.start : one.end]
        spelling = (one.name, normalize_spelling(one.name, value))
        if spelling not in by_spelling:
            numbers[one.name] += 1
            by_spelling[spelling] = f"[{one.name}_{numbers[one.name]}]"
        placeholders[one.name, value] = by_spelling[spelling]
    return replace_matches(text, found, placeholders=placeholders)
