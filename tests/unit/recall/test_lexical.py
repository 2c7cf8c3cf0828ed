"""Lexical search: what becomes a term, where sentences end, and which document comes first."""

from __future__ import annotations

import pytest

from tenuto.recall import LexicalIndex, readable_words, split_sentences, terms


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Which phones are cheap?", ["phon", "cheap"]),
        ("She was running, he runs, they run", ["run", "run", "run"]),
        ("prices, priced, price", ["pric", "pric", "pric"]),
        ("stories and a story", ["story", "story"]),
        ("the boss's class", ["boss", "class"]),
        ("ＦＵＬＬ width and CAFÉ", ["full", "width", "café"]),
        ("有什么便宜的手机？", ["有", "便宜", "手机"]),
        ("盐是什么", ["盐"]),
        ("iPhone手机壳", ["iphon", "手机", "机壳"]),
        ("", []),
        ("?! ... _ 。", []),
    ],
)
def test_terms_are_folded_stemmed_and_paired(text: str, found: list[str]) -> None:
    assert terms(text) == found


@pytest.mark.parametrize(
    ("text", "words", "runs"),
    [
        ("Where are Ann’s Refunds?", [("ann", "Ann"), ("refund", "Refunds")], []),
        ("如何申请iPhone的退款流程？", [("iphon", "iPhone")], ["申", "退款流程"]),
        ("可以告诉我的吗", [], []),
        ("", [], []),
    ],
)
def test_words_for_people_stand_as_they_are_written(text: str, words: list[tuple[str, str]], runs: list[str]) -> None:
    assert readable_words(text) == (words, runs)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("I met Dr. Lee at 9 a.m. on Friday. It rained!", ["I met Dr. Lee at 9 a.m. on Friday.", "It rained!"]),
        ("1. Rice\n2. Tea", ["1. Rice", "2. Tea"]),
        ("今天下雨。明天呢？", ["今天下雨。", "明天呢？"]),
        ("Version 2.5 is out", ["Version 2.5 is out"]),
        ("... \n\n", []),
    ],
)
def test_sentences_end_where_readers_see_them_end(text: str, sentences: list[str]) -> None:
    assert split_sentences(text) == sentences


def test_the_best_match_comes_first_and_coverage_tells_how_much_it_holds() -> None:
    index = LexicalIndex(["My train leaves at 7:40.", "I like trains.", "我最喜欢的茶是龙井。"])

    train, other = index.search("When does my train leave?")
    tea = index.search("我最喜欢的茶是什么？")[0]
    unrelated = index.search("How tall is the train station in Bologna?")[0]

    assert (train.position, other.position) == (0, 1)
    assert train.coverage == 1.0 > other.coverage
    assert (tea.position, tea.coverage) == (2, 1.0)
    assert unrelated.coverage < 0.35
    assert index.search("the of 的") == []


def test_a_field_with_weight_outranks_a_mention() -> None:
    index = LexicalIndex([[("salt", 1), ("rules", 3)], [("salt", 3), ("rules", 1)]])

    assert [hit.position for hit in index.search("salt")] == [1, 0]


def test_a_single_character_finds_the_words_that_hold_it() -> None:
    assert LexicalIndex(["海盐的故事", "祠堂"]).search("盐是什么")[0].position == 0
