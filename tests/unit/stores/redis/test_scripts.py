"""Scripts are put together from parts: what one part calls a thing must not hide what another one means."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files

import pytest

from tenuto.stores.redis._scripts import script

NAMES = sorted(
    entry.name.removesuffix(".lua")
    for entry in files("tenuto.stores.redis").joinpath("scripts").iterdir()
    if entry.name.endswith(".lua") and not entry.name.startswith("_")
)
_STRING = re.compile(r"'(?:\\.|[^'\\])*'")
_WORD = re.compile(r"[A-Za-z_]\w*|[^\s\w]")


def hidden_names(source: str) -> Iterator[str]:
    """Locals that are declared where one of the same name can be seen already."""
    scopes: list[set[str]] = [set()]
    words = _WORD.findall(_STRING.sub("", source))
    for place, word in enumerate(words):
        if word in ("if", "do", "function", "repeat"):
            scopes.append(set())
        elif word in ("end", "until"):
            scopes.pop()
        elif word in ("else", "elseif"):
            scopes[-1] = set()
        elif word == "local":
            for name in declared(words, place + 1):
                if name != "_" and any(name in scope for scope in scopes):
                    yield name
                scopes[-1].add(name)


def declared(words: list[str], place: int) -> Iterator[str]:
    """The names that follow the word `local`."""
    if words[place] == "function":
        place += 1
    yield words[place]
    while words[place + 1] == ",":
        place += 2
        yield words[place]


def test_a_hidden_name_is_found() -> None:
    assert list(hidden_names("local a, b = 1 if a then local c, b = 2 end local c = 3")) == ["b"]


@pytest.mark.parametrize("name", NAMES)
def test_no_part_of_a_script_hides_a_name_of_another(name: str) -> None:
    assert list(hidden_names(script(name).source)) == []


@pytest.mark.parametrize("name", NAMES)
def test_every_part_and_every_constant_is_written_in(name: str) -> None:
    source = _STRING.sub("", script(name).source)

    assert "include" not in source
    assert set(re.findall(r"\b[A-Z][A-Z_]+\b", source)) <= {"KEYS", "ARGV"}
