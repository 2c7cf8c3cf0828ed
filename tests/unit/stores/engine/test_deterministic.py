"""The engine reads no clock, draws no chance, starts no thread, orders nothing by hash: its simulator relies on it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import tenuto.stores.engine

_ROOT = Path(tenuto.stores.engine.__file__).parent
# What waits for a disk has threads, and is not part of the simulation.
_PATHS = sorted(path for path in _ROOT.rglob("*.py") if path.parent.name != "journal_files")
_FORBIDDEN = {"time", "random", "secrets", "os", "threading", "uuid", "socket", "concurrent"}
_SETS = {"set", "frozenset"}


def offences(tree: ast.AST) -> Iterator[str]:
    """What a module does that another run would do otherwise."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (f"import {name.name}" for name in names if name.name.split(".")[0] in _FORBIDDEN)
            case ast.ImportFrom(module=str(module), names=names) if module.split(".")[0] in _FORBIDDEN:
                # The type of a source of chance is no chance.
                yield from (f"from {module} import {name.name}" for name in names if name.name != "Random")
            case ast.Call(func=ast.Name(id="Random")):
                yield "Random()"
            case ast.Call(func=ast.Attribute(attr="now" | "utcnow" | "today")):
                yield "a clock"
            case ast.For(iter=source) | ast.comprehension(iter=source) if _is_set(source):
                yield "iteration over a set"


def _is_set(source: ast.expr) -> bool:
    match source:
        case ast.Set() | ast.SetComp():
            return True
        case ast.Call(func=ast.Name(id=name)):
            return name in _SETS
        case ast.BinOp(left=left, right=right):
            return _is_set(left) or _is_set(right)
        case _:
            return False


@pytest.mark.parametrize("path", _PATHS, ids=lambda path: str(path.relative_to(_ROOT)))
def test_the_engine_is_deterministic(path: Path) -> None:
    assert list(offences(ast.parse(path.read_text()))) == []


@pytest.mark.parametrize(
    "text",
    [
        "import time",
        "from secrets import token_hex",
        "from random import random",
        "Random()",
        "datetime.now(UTC)",
        "for x in {1, 2}: pass",
        "[x for x in set(y)]",
    ],
)
def test_an_offence_is_seen(text: str) -> None:
    assert list(offences(ast.parse(text)))
