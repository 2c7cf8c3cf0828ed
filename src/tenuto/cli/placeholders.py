"""Marks of the privacy policy at the terminal: dimmed, so that one sees that they are not the speaker's words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import typer

from tenuto.cli.bars import has_colours
from tenuto.cli.terminal import visible
from tenuto.model import Draft, Role
from tenuto.model.privacy import REDACTED
from tenuto.privacy.placeholders import LONGEST_PLACEHOLDER
from tenuto.privacy.rules.span import MARK

_COLOUR: Final = "cyan"
_WHOLE: Final = r"\[(?:WITHHELD|ERASED)\]"


class Marks:
    """What is a mark here: ours, and those of a tenant's own patterns."""

    def __init__(self, own: Sequence[str] = ()) -> None:
        names = "|".join(map(re.escape, own))
        of_theirs = rf"|\[(?:REDACTED_)?(?:{names})(?:_[0-9]{{1,4}})?\]" if own else ""
        self._marks = re.compile(f"({MARK.pattern}|{_WHOLE}{of_theirs})")

    def paint(self, text: str, *, dim: bool = False) -> str:
        """A text as the terminal may have it, its marks painted where there are colours; all of it dimmed if asked."""
        visible_text = visible(text, lines=True)
        if not has_colours():
            return visible_text
        # Split by a group: what was said and marks take turns.
        parts = self._marks.split(visible_text)
        texts = [typer.style(part, dim=True) if dim and part else part for part in parts[::2]]
        marks = [typer.style(part, fg=_COLOUR, dim=True) for part in parts[1::2]]
        return "".join(part for pair in zip(texts, [*marks, ""], strict=True) for part in pair)


class PlaceholderStream:
    """Paints marks in a text that comes in chunks; holds back what may become one."""

    def __init__(self, marks: Marks) -> None:
        self._marks = marks
        self._pending = ""

    def feed(self, chunk: str) -> str:
        """Take a chunk; give back what is decided by now."""
        text = self._pending + chunk
        start = text.rfind("[")
        is_partial = (
            has_colours() and start >= 0 and "]" not in text[start:] and len(text) - start < LONGEST_PLACEHOLDER
        )
        cut = start if is_partial else len(text)
        self._pending = text[cut:]
        return self._marks.paint(text[:cut])

    def flush(self) -> str:
        """Give back what was held, at the end."""
        rest, self._pending = self._pending, ""
        return self._marks.paint(rest)


def count_redacted(messages: Iterable[Draft]) -> dict[str, int]:
    """How many private values of each name these messages do without, as stored."""
    counts: Counter[str] = Counter()
    for message in messages:
        by_type = message.metadata.get(REDACTED)
        # A sender may have a field of this name of its own.
        if isinstance(by_type, dict):
            counts.update({name: many for name, many in by_type.items() if type(many) is int and many > 0})
    return dict(counts)


def last_turn_messages(messages: Sequence[Draft]) -> Sequence[Draft]:
    """The messages from the last question on."""
    questions = [place for place, message in enumerate(messages) if message.role is Role.USER]
    return messages[questions[-1] :] if questions else ()
