"""Dates in queries: which words mean which days, and under which terms a day is found."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from tenuto.recall.dates import date_terms, read_query, text_terms

# A Wednesday.
NOW = datetime(2026, 3, 11, 15, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("what did I cook today", "2026-03-11", "2026-03-11"),
        ("what did I cook yesterday", "2026-03-10", "2026-03-10"),
        ("what did I cook the day before yesterday", "2026-03-09", "2026-03-09"),
        ("what did I cook last night", "2026-03-10", "2026-03-10"),
        ("the recipe of 3 days ago", "2026-03-08", "2026-03-08"),
        ("the recipe of two weeks ago", "2026-02-23", "2026-03-01"),
        ("the recipe of this week", "2026-03-09", "2026-03-15"),
        ("the recipe of last week", "2026-03-02", "2026-03-08"),
        ("the recipe of last month", "2026-02-01", "2026-02-28"),
        ("the recipe of three months ago", "2025-12-01", "2025-12-31"),
        ("the recipe of last year", "2025-01-01", "2025-12-31"),
        ("what did I cook on Friday", "2026-03-06", "2026-03-06"),
        ("what did I cook on Wednesday", "2026-03-04", "2026-03-04"),
        ("今天做了什么菜", "2026-03-11", "2026-03-11"),
        ("昨天做了什么菜", "2026-03-10", "2026-03-10"),
        ("前天做了什么菜", "2026-03-09", "2026-03-09"),
        ("大前天做了什么菜", "2026-03-08", "2026-03-08"),
        ("三天前做了什么菜", "2026-03-08", "2026-03-08"),
        ("10天前做了什么菜", "2026-03-01", "2026-03-01"),
        ("上周做了什么菜", "2026-03-02", "2026-03-08"),
        ("上个月做了什么菜", "2026-02-01", "2026-02-28"),
        ("星期五做了什么菜", "2026-03-06", "2026-03-06"),
        ("上周三做了什么菜", "2026-03-04", "2026-03-04"),
        ("周天做了什么菜", "2026-03-08", "2026-03-08"),
        ("去年做了什么菜", "2025-01-01", "2025-12-31"),
    ],
)
def test_relative_words_mean_a_period(text: str, first: str, last: str) -> None:
    asked = read_query(text, NOW)

    assert asked.period is not None
    assert asked.period.start.date() == date.fromisoformat(first)
    assert (asked.period.end - asked.period.start).days == (
        date.fromisoformat(last) - date.fromisoformat(first)
    ).days + 1
    assert asked.terms
    assert not asked.only


@pytest.mark.parametrize("text", ["", "what is my favourite tea?", "我最喜欢的茶是什么？", "999 years", "今后"])
def test_other_words_mean_no_period(text: str) -> None:
    assert read_query(text, NOW).period is None


@pytest.mark.parametrize(
    "text", ["What did we discuss on Friday?", "what did we talk about last week", "我们昨天聊了什么？", "上周说过什么"]
)
def test_a_question_for_a_period_alone_has_no_terms(text: str) -> None:
    asked = read_query(text, NOW)

    assert asked.only
    assert asked.terms == []


@pytest.mark.parametrize(
    "text",
    ["on 8 May 2023", "May 8th 2023", "the 8th of may, 2023", "2023-05-08", "2023年5月8日", "Monday", "星期一", "周一"],
)
def test_a_day_is_found_by_its_date_in_either_language(text: str) -> None:
    assert set(text_terms(text)) <= set(date_terms(datetime(2023, 5, 8, tzinfo=UTC)))


@pytest.mark.parametrize("text", ["2023-15-40", "40月", "999999999999-1-1", "500 years ago", "99月99日"])
def test_impossible_dates_are_text(text: str) -> None:
    assert read_query(text, datetime(1, 1, 2, tzinfo=UTC)) is not None
