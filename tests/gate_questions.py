"""Talks with questions after them, each labelled: whether it belongs to the talk.

In `tests/data/gate/*.txt` a talk begins with a heading (`# `); `> ` is what the user said, `< ` the answer, `+ ` a
question that goes on with the talk, `- ` one about something else.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent / "data" / "gate"


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question, the talk before it, and whether it belongs to it."""

    text: str
    talk: tuple[str, ...]
    related: bool


def questions_by_talk(name: str) -> list[list[Question]]:
    """The questions of a file, talk by talk."""
    found: list[list[Question]] = []
    said: list[str] = []
    for line in (FOLDER / f"{name}.txt").read_text().splitlines():
        mark, text = line[0], line[2:]
        if mark == "#":
            found.append([])
            said = []
        elif mark in "<>":
            said.append(text)
        else:
            found[-1].append(Question(text=text, talk=tuple(said), related=mark == "+"))
    return found
