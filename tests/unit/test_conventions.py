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


def test_no_test_module_is_imported() -> None:
    """What tests share stands in a module that is named after what it returns."""
    imports = [
        f"{path}: {module}"
        for path, tree in trees(TESTS)
        for node in ast.walk(tree)
        for module in imported_modules(node)
        if module.startswith("tests.") and module.rpartition(".")[2].startswith("test_")
    ]

    assert imports == []


def imported_modules(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names if alias.name.islower())]
    return []
