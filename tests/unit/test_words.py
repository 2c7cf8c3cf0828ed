"""The words of the code: names that say nothing of what they hold, names of exceptions, names of two classes."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import tenuto

TESTS = Path(__file__).parents[1]
SOURCE = Path(tenuto.__file__).parent
WORDS = tomllib.loads((TESTS / "data" / "refused_words.toml").read_text())
REFUSED, ALLOWED = WORDS["names"], WORDS["allowed"]
# Trees take long: they are made of files that may bind such a name.
CANDIDATE = re.compile(rf"\b_*(?:{'|'.join(REFUSED)})\b(?= *(?:[=:,()\]]| in ))")


def bound_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every name that a file gives to something, with its line."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name, node.lineno
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node.lineno
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                yield name, node.lineno


def refused_names(source: str) -> list[tuple[str, int]]:
    """The names of a source text that the list refuses."""
    if not CANDIDATE.search(source):
        return []
    return [(name, line) for name, line in bound_names(ast.parse(source)) if name.strip("_") in REFUSED]


def test_names_are_the_words_of_the_field() -> None:
    places = [
        f"{path.relative_to(SOURCE)}:{line}: {name}: write {REFUSED[name.strip('_')]}"
        for path in sorted(SOURCE.rglob("*.py"))
        for name, line in refused_names(path.read_text())
        if path.relative_to(SOURCE).as_posix() not in ALLOWED.get(name.strip("_"), ())
    ]

    assert places == []


def test_refused_names_are_found_wherever_a_name_is_given() -> None:
    source = "def told(wish, *, fate=1):\n  self._begun = 2\n  for unfit in x: ...\n  told.house(means=3)"

    assert refused_names(source) == [("told", 1), ("wish", 1), ("fate", 1), ("_begun", 2), ("unfit", 3)]


def test_a_bound_exception_is_called_error() -> None:
    """`exc` where it stands inside another."""
    handlers = re.compile(r"^ *except .* as (?!(?:error|exc):)\w+:", re.MULTILINE)
    places = [
        f"{path.name}: {match[0].strip()}"
        for folder in (SOURCE, TESTS)
        for path in sorted(folder.rglob("*.py"))
        for match in handlers.finditer(path.read_text())
    ]

    assert places == []


def test_public_classes_have_names_of_their_own() -> None:
    places = defaultdict(set)
    for path in sorted(SOURCE.rglob("*.py")):
        for name in re.findall(r"^class ([A-Z]\w*)", path.read_text(), re.MULTILINE):
            places[name].add(path.relative_to(SOURCE).as_posix())
    shared = {name: sorted(files) for name, files in places.items() if len(files) > 1}

    assert {name: files for name, files in shared.items() if name not in WORDS["shared"]["classes"]} == {}
    assert shared.keys() >= set(WORDS["shared"]["classes"])
