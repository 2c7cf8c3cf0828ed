"""Conventions of this repository that no linter knows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]


def matches(pattern: str, folder: Path) -> list[str]:
    """The places where a pattern occurs: texts, since syntax trees of all files take seconds."""
    return list(_matches(re.compile(pattern, re.MULTILINE), folder))


def _matches(pattern: re.Pattern[str], folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text()
        for match in pattern.finditer(text):
            yield f"{path.relative_to(folder)}:{text.count(chr(10), 0, match.start()) + 1}: {match[0].strip()[:60]}"


def test_requirements_of_tests_are_marks_and_not_docstrings() -> None:
    code = r"\b[A-EST]\d{1,2}\b"

    assert matches(rf'^ +"""{code}[:.,;]', TESTS) == []
    assert matches(rf'^ *"""[^"\n]*\({code}(?:, \w\d+)*\)[.:]', TESTS) == []


def test_no_test_module_is_imported() -> None:
    """What tests share stands in a module that is named after what it returns."""
    assert matches(r"^ *(?:from tests\.[\w.]*\btest_\w+ import|from tests[\w.]* import .*\btest_\w+)", TESTS) == []
