"""Expressions that are compiled when first used."""

from __future__ import annotations

import re

import pytest

from tenuto.model.expression import expression


def test_it_answers_as_the_compiled_one_does() -> None:
    late, now = expression(r"(\w)(\d)", re.IGNORECASE), re.compile(r"(\w)(\d)", re.IGNORECASE)
    text = "a1 B2"
    assert late.findall(text) == now.findall(text)
    assert [match.span() for match in late.finditer(text)] == [match.span() for match in now.finditer(text)]
    assert (late.sub("-", text), late.split(text), late.groups) == (now.sub("-", text), now.split(text), now.groups)
    assert (late.pattern, late.flags) == (now.pattern, now.flags)


def test_nothing_is_compiled_before_it_is_asked() -> None:
    wrong = expression("(")
    with pytest.raises(re.error):
        wrong.search("text")
