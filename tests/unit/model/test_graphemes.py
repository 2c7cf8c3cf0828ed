"""Cuts between characters as people see them, near where they are wanted however long the text is."""

from __future__ import annotations

from itertools import accumulate

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from tenuto.model import graphemes as room
from tenuto.model.graphemes import boundary_after, boundary_before, graphemes
from tests.samples import odd_texts

PIECES = odd_texts("pieces of characters")
LONG = {
    "flags": "🇩🇪" * 5000,
    "lines": "a\n" * 5000,
    "accents": "e\u0301" * 5000,
    "families": "👩\u200d👩\u200d👧" * 5000,
    "Russian": "привет " * 5000,
    "Korean": "한국어" * 5000,
    "Hindi": "क\u094dष" * 5000,
    "one piled up": "a" + "\u0301" * 20000,
}


@pytest.mark.requirement("A24")
@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), st.integers(0, 30))
def test_a_cut_goes_where_characters_meet(text: str, index: int) -> None:
    index = min(index, len(text))
    ends = [0, *accumulate(map(len, graphemes(text)))]

    assert boundary_before(text, index) == max(end for end in ends if end <= index)
    assert boundary_after(text, index) == min(end for end in ends if end >= index)


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
@pytest.mark.parametrize("back", [0, 1, 3])
def test_a_cut_far_into_a_text_reads_little_around_it(text: str, back: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A question of a megabyte is cut a dozen times, so a cut must not count characters from the beginning."""
    index = len(text) // 2 - back
    starts: list[int] = []

    class Noting:
        def finditer(self, text: str, start: int) -> object:
            starts.append(start)
            return regex.finditer(r"\X", text, pos=start)

    monkeypatch.setattr(room, "_CLUSTER", Noting())
    before = boundary_before(text, index)

    assert index - starts[0] <= 1024
    assert index - before <= 64


@pytest.mark.parametrize("index", [20_000, 20_001, 20_002, 20_003])
def test_flags_far_into_a_text_stay_whole(index: int) -> None:
    text = "a" + LONG["flags"] * 3

    assert (boundary_before(text, index) - 1) % 2 == 0
    assert (boundary_after(text, index) - 1) % 2 == 0
