"""Word tables of the rules, in `tables/`: a word or a form is added there, and how it decides is said in a rule.

A table is read by the first rule that needs it, which is when the first text is searched.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib.resources import files
from typing import Any, Final

_SEPARATOR: Final = re.compile(r"(?<!\[)\s+(?!\])")


@cache
def load_table(name: str) -> dict[str, Any]:
    """The sections of `tables/<name>.toml`."""
    return tomllib.loads(files(__package__).joinpath("tables", f"{name}.toml").read_text(encoding="utf-8"))


def any_of(words: str) -> str:
    """The body of a regular expression for any of these words, which may be expressions: the first that fits counts.

    Blanks separate words; `[ ]` is a blank inside one.
    """
    return "|".join(_SEPARATOR.split(words.strip()))


def one_of(characters: str) -> str:
    """A regular expression for any of these characters."""
    return f"[{''.join(characters.split())}]"
