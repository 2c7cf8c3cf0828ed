"""Conventions of this repository that no linter knows."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
REQUIREMENT = re.compile(r"\b(?:[A-EST]\d{1,2}|[Pp]romise \d+)\b")


def trees(folder: Path) -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(folder.rglob("*.py")):
        yield path.relative_to(folder).as_posix(), ast.parse(path.read_text())


def test_requirements_of_tests_are_marks_and_not_docstrings() -> None:
    coded = [
        f"{path}:{node.lineno}"
        for path, tree in trees(TESTS)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
        if REQUIREMENT.search(ast.get_docstring(node) or "")
    ]

    assert coded == []
