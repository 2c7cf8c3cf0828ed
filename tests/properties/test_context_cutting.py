"""Laws of cutting: within its limit, visibly, and never through what a reader sees as one character."""

from __future__ import annotations

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from tenuto.context import TokenCounter, boundary_after, boundary_before, truncate_text
from tenuto.context.tokens import estimate, level, truncate_parts
from tenuto.model import text_part, tool_call, tool_result
from tests.samples import odd_texts

pytestmark = pytest.mark.requirement("S4", "E20")


COUNTER = TokenCounter()
CLUSTERS = odd_texts("grapheme clusters")

odd = st.lists(st.sampled_from(CLUSTERS), max_size=60).map("".join)
texts = st.one_of(odd, st.builds(lambda text, times: text * times, odd, st.integers(1, 30)), st.text(max_size=80))


def boundaries(text: str) -> set[int]:
    """Where graphemes begin and end."""
    return {0, *(match.end() for match in regex.finditer(r"\X", text))}


@given(texts, st.integers(0, 120), st.sampled_from([COUNTER.count, len, estimate]))
def test_a_cut_text_keeps_its_limit(text: str, limit: int, measure: object) -> None:
    assert callable(measure)
    shorter = truncate_text(text, limit, measure)

    assert measure(shorter) <= limit
    assert shorter == text or measure(text) > limit


@pytest.mark.requirement("A24")
@given(texts, st.integers(0, 120))
def test_a_cut_never_splits_a_grapheme(text: str, limit: int) -> None:
    shorter = truncate_text(text, limit, COUNTER.count)
    head, mark, tail = shorter.partition("[.")
    if not mark:
        head, mark, tail = shorter.partition("[…")

    if shorter not in (text, "…", ""):
        tail = tail.rpartition("]")[2] if "]" in tail else tail
        assert text.startswith(head)
        assert text.endswith(tail)
        assert len(head) in boundaries(text)
        assert len(text) - len(tail) in boundaries(text)


@given(texts, st.integers(0, 400))
def test_boundaries_are_where_the_whole_text_has_them(text: str, index: int) -> None:
    """Found from nearby, without reading the text from its beginning."""
    before, after = boundary_before(text, index), boundary_after(text, index)

    assert before <= max(index, 0)
    assert after >= min(index, len(text))
    assert {before, after} <= boundaries(text)


@given(st.lists(st.integers(0, 500), max_size=12), st.integers(0, 2000))
def test_a_level_is_the_highest_that_fits(sizes: list[int], limit: int) -> None:
    height = level(sizes, limit)

    assert sum(min(size, height) for size in sizes) <= limit
    assert height >= max(sizes, default=0) or sum(min(size, height + 1) for size in sizes) > limit


@given(st.lists(texts, min_size=1, max_size=4), st.integers(40, 200))
def test_cut_parts_keep_kind_order_and_identity(words: list[str], limit: int) -> None:
    makers = (text_part, lambda text: tool_call("c", "search", {"q": text}), lambda text: tool_result("c", text))
    parts = [makers[place % 3](text) for place, text in enumerate(words)]

    shorter = truncate_parts(parts, limit, COUNTER)

    assert [part["type"] for part in shorter] == [part["type"] for part in parts]
    assert sum(map(COUNTER.count_part, shorter)) <= limit
    assert all(isinstance(part["arguments"], dict) for part in shorter if part["type"] == "tool_call")
