"""What a search asks for, and what it shows of a message."""

from __future__ import annotations

import pytest

from tenuto.recall.lexical import find_terms
from tenuto.stores.engine.searching import count_groups, wanted_groups


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("Hotels in Kyoto, hotels", [["hotel"], ["kyoto"]]),
        ("京都", [["京都"]]),
        ("京都酒店", [["京都"], ["酒店"]]),
        ("京都老酒店", [["京都"], ["都老", "老酒"], ["酒店"]]),
        ("京都的酒店 tea", [["京都"], ["酒店"], ["tea"]]),
        ("盐是什么", [["盐"]]),
        ("what is the", []),
    ],
)
def test_words_of_a_query(text: str, groups: list[list[str]]) -> None:
    assert set(wanted_groups(text)) == {frozenset(group) for group in groups}


def test_each_character_of_a_run_counts_with_a_neighbour() -> None:
    wanted = wanted_groups("京都老酒店")

    assert count_groups(wanted, {"京都", "老酒", "酒店"}) == len(wanted)
    assert count_groups(wanted, {"京都", "酒店"}) < len(wanted)


@pytest.mark.parametrize(
    ("text", "terms", "found"),
    [
        ("The Hotels' garden, hotel", {"hotel"}, ["Hotels", "hotel"]),
        ("去京都住酒店", {"京都", "酒店"}, ["京都", "酒店"]),
        ("Ｋｙｏｔｏ!", {"kyoto"}, ["Ｋｙｏｔｏ"]),
        ("nothing", {"else"}, []),
    ],
)
def test_terms_are_found_where_they_stand(text: str, terms: set[str], found: list[str]) -> None:
    assert [text[start:end] for start, end in find_terms(text, terms)] == found
