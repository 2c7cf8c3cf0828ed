"""Numbers as people write them, read back: digits, English and Chinese words, Roman numerals."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.model.numbers import CARDINAL, CARDINALS, HAN_NUMBER, ORDINAL, ORDINALS, ROMAN, whole

_DIGITS = "零一二三四五六七八九"


def in_chinese(number: int) -> str:
    """From 1 to 999, as it is spoken in full."""
    hundreds, rest = divmod(number, 100)
    tens, ones = divmod(rest, 10)
    text = f"{_DIGITS[hundreds]}百" if hundreds else ""
    if tens:
        text += "十" if tens == 1 and not hundreds else f"{_DIGITS[tens]}十"
    elif hundreds and ones:
        text += "零"
    return text + (_DIGITS[ones] if ones else "")


def in_roman(number: int) -> str:
    text = ""
    for value, letters in ((100, "C"), (90, "XC"), (50, "L"), (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV")):
        text += letters * (number // value)
        number %= value
    return text + "I" * number


@given(st.integers(1, 999))
def test_a_number_written_in_chinese_is_read_whole(number: int) -> None:
    found = re.fullmatch(HAN_NUMBER, in_chinese(number))

    assert found is not None
    assert whole(found[0]) == number


@given(st.integers(1, 399))
def test_a_roman_numeral_is_read_whole(number: int) -> None:
    found = re.search(rf"rule {ROMAN}", f"rule {in_roman(number)}")

    assert found is not None
    assert whole(found[0].removeprefix("rule ")) == number


@pytest.mark.parametrize(
    ("words", "pattern"), [(CARDINALS, CARDINAL), (ORDINALS, ORDINAL)], ids=["cardinal", "ordinal"]
)
def test_english_words_from_one_to_ninety_nine_are_known(words: dict[str, int], pattern: str) -> None:
    assert sorted(words.values()) == list(range(1, 100))
    for word, number in words.items():
        for written in (word, word.replace("-", " "), word.upper()):
            assert re.fullmatch(pattern, written, re.IGNORECASE)
            assert whole(written) == number


@pytest.mark.parametrize(
    ("text", "number"),
    [("11th", 11), ("１１", 11), ("两千五", 2500), ("二〇二六", 2026), ("廿三", 23), ("一万二", 12_000), ("零", 0)],
)
def test_other_ways_to_write_a_number(text: str, number: int) -> None:
    assert whole(text) == number


@pytest.mark.parametrize("text", ["", "hello", "条", "-", "the", "百合"])
def test_what_is_no_number_is_none(text: str) -> None:
    assert whole(text) is None


@pytest.mark.parametrize("text", ["the rule I like", "rule CD players", "rule Vivid"])
def test_capitals_that_begin_a_word_are_no_numeral(text: str) -> None:
    assert re.search(rf"rule {ROMAN}", text) is None


@given(st.text(max_size=50))
def test_any_text_is_read_without_stumbling(text: str) -> None:
    found = whole(text)

    assert found is None or found >= 0
