"""Custom patterns: what is refused and why, what is found, and that every text is searched in bounded time."""

from __future__ import annotations

import time

import pytest

# The package has no type information.
import re2  # type: ignore[import-untyped]
from hypothesis import assume, given
from hypothesis import strategies as st

from tenuto.errors import InvalidSetting
from tenuto.model.privacy import CustomPattern
from tenuto.privacy.detection.custom_patterns import LONGEST_MATCH, MOST_PATTERNS, CustomPatterns, max_match_length
from tenuto.privacy.rules.span import PiiRule, PiiType


def own(pattern: str, name: str = "STAFF_NO", *, ignore_case: bool = False) -> CustomPattern:
    return CustomPattern(name=name, pattern=pattern, ignore_case=ignore_case)


def values(text: str, *patterns: CustomPattern) -> list[str]:
    return [text[find.start : find.end] for find in CustomPatterns(patterns).find(text) or ()]


REFUSED = [
    ("(", "not an expression of RE2"),
    ("[a", "not an expression of RE2"),
    ("[z-a]", "not an expression of RE2"),
    ("a)|(b", "not an expression of RE2"),
    ("a**", "not an expression of RE2"),
    ("a++", "not an expression of RE2"),
    ("a{99999999999999999999}", str(LONGEST_MATCH)),
    (r"\u4e00", "not an expression of RE2"),
    (r"(\d)\1", "no back-references"),
    ("(?P<one>a)(?P=one)", "no back-references"),
    ("(a)?(?(1)b|c)", "no back-references"),
    (r"(?<!\d)\d{6}", "no look-around"),
    (r"\d{6}(?!\d)", "no look-around"),
    ("(?>a)b", "no look-around"),
    ("\ud800", "half a character"),
    ("", "empty text"),
    ("a?", "empty text"),
    ("a|", "empty text"),
    (r"\b", "empty text"),
    ("x{0}", "empty text"),
    (r"\d*", "{1,64}"),
    (r"\d+", "{1,64}"),
    (r"\d{6,}", "{1,64}"),
    ("a.*?b", "{1,64}"),
    ("a{257}", str(LONGEST_MATCH)),
    ("(?:a{16}){17}", str(LONGEST_MATCH)),
    (r"\pL{1,200}", "too large"),
    ("^a", "write \\b"),
    ("a$", "write \\b"),
    (r"(?i)\Aa", "write \\b"),
    (r"a\z", "write \\b"),
    (r"\Ba", "write \\b"),
    (r"\Ca", "write \\b"),
    ("a" * 1001, "longer than 1000"),
]


@pytest.mark.parametrize(("pattern", "word"), REFUSED, ids=[f"{pattern[:20]!a}" for pattern, _ in REFUSED])
def test_an_unsuitable_pattern_is_refused_in_a_sentence(pattern: str, word: str) -> None:
    with pytest.raises(InvalidSetting) as excinfo:
        CustomPatterns([own(pattern, "CASE_FILE")])

    assert word in str(excinfo.value)
    assert excinfo.value.setting == "patterns"
    assert "CASE_FILE" in str(excinfo.value)
    assert len(str(excinfo.value)) < 200


def test_a_refusal_leaves_the_expression_out() -> None:
    with pytest.raises(InvalidSetting) as excinfo:
        CustomPatterns([own("(?:customer-of-the-year")])

    assert "customer" not in str(excinfo.value)


@pytest.mark.parametrize(
    "name", ["", "staff", "1A", "STAFF-NO", "A" * 33, "ÄRZTE", "STAFF_1", "REDACTED", "REDACTED_X", "NO]", "A\n"]
)
def test_a_name_that_cannot_stand_in_a_mark_is_refused(name: str) -> None:
    with pytest.raises(InvalidSetting):
        CustomPatterns([own("EMP[0-9]{4}", name)])


@pytest.mark.parametrize("name", [*PiiType, *PiiRule])
def test_a_name_of_ours_is_refused(name: str) -> None:
    with pytest.raises(InvalidSetting, match="built-in name"):
        CustomPatterns([own("EMP[0-9]{4}", name)])


def test_two_patterns_of_one_name_and_too_many_of_them_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="twice"):
        CustomPatterns([own("a"), own("b")])
    with pytest.raises(InvalidSetting, match="more than"):
        CustomPatterns([own("ab", f"P{number}X") for number in range(MOST_PATTERNS + 1)])


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        (r"\bEMP-?\d{4,6}\b", "ask EMP-12345 or EMP1234567", ["EMP-12345"]),
        (r"\bEMP\d{5}\b", "工号EMP12345，请查", ["EMP12345"]),
        (r"EMP-\d{5}", "工号ＥＭＰ－１２３４５", ["ＥＭＰ－１２３４５"]),
        (r"EMP\d{5}", "EMP1\u200b2345", ["EMP1\u200b2345"]),
        ("案号：[A-Z]{2}[0-9]{4}", "案号:AB1234 案号：CD5678", ["案号:AB1234", "案号：CD5678"]),
        ("[０-９]{4}号", "1234号", ["1234号"]),
        (r"EMP\d{5}", "😀 工号😀EMP12345😀", ["EMP12345"]),
        (r"\d{3}（[－、]）", "123(-) 123（、）", ["123(-)", "123（、）"]),
        (r"[[:alpha:]]{3}[]^]\d\pL", "abc]1中", ["abc]1中"]),
        (r"\x{5de5}\d\b", "工7 工77", ["工7"]),
        ("(?i)emp1|x1", "EMP1 X1", ["EMP1", "X1"]),
        (r"[a-z]{1,64}@[a-z]{1,64}\.corp", "bob@east.corp", ["bob@east.corp"]),
        (r"(?:[A-Z]{2,3}-){2}\d{2}(?:-\d{1,4})?", "AB-CDE-12-7", ["AB-CDE-12-7"]),
        (r"<.{1,40}?>", "<a><b>", ["<a>", "<b>"]),
        (r"[^\S\n]x", "a x\nx\u3000x", [" x", "\u3000x"]),
    ],
)
def test_an_own_pattern_finds_its_values_in_any_spelling(pattern: str, text: str, found: list[str]) -> None:
    assert values(text, own(pattern)) == found


def test_case_is_ignored_where_asked() -> None:
    assert values("emp1 EMP1 Émp1", own("[e-eé]mp1", ignore_case=True)) == ["emp1", "EMP1", "Émp1"]
    assert values("emp1 EMP1", own("emp1")) == ["emp1"]
    assert values("aBxb", own("[^b]x", ignore_case=True)) == []


@pytest.mark.parametrize("pattern", [r"[$^]1\$", r"\^[^$]\$", r"[\]^]\\z"])
def test_signs_of_anchors_may_stand_for_themselves(pattern: str) -> None:
    assert CustomPatterns([own(pattern)]).find("nothing") is None


# Properties over expressions of all shapes.

ATOMS = ["a", "b", "1", "-", r"\d", "[ab]", ".", r"\w", "[^a]", r"\s", r"\bab?", r"b\b", r"\x{61}", r"\pL", "[]1-]"]


def _grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    counts = st.tuples(st.integers(0, 3), st.integers(0, 4)).map(lambda pair: f"{{{pair[0]},{pair[0] + pair[1]}}}")
    opens = st.sampled_from(["(?:", "(", "(?i:", "(?P<x>"])
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(opens, inner, inner).map(lambda parts: f"{parts[0]}{parts[1]}|{parts[2]})"),
        st.tuples(inner, counts, st.sampled_from(["", "?"])).map(lambda parts: f"(?:{parts[0]}){parts[1]}{parts[2]}"),
        inner.map(lambda one: rf"\b{one}"),
        inner.map(lambda one: rf"{one}\b"),
    )


expressions = st.recursive(st.sampled_from(ATOMS), _grow, max_leaves=6)
texts = st.text("ab1- 中😀", max_size=24)


def own_patterns(expression: str) -> CustomPatterns:
    try:
        return CustomPatterns([own(expression)])
    except InvalidSetting:
        assume(False)
        raise


def spans(patterns: CustomPatterns, text: str, *, walled: bool = False) -> list[tuple[int, int]]:
    return [(find.start, find.end) for find in patterns.find(text, behind=walled, before=walled) or ()]


@given(expressions, texts)
def test_offsets_are_those_of_a_search_by_code_points(expression: str, text: str) -> None:
    patterns = own_patterns(expression)

    assert spans(patterns, text) == [match.span() for match in re2.finditer(expression, text)]
    assert all(start < end for start, end in spans(patterns, text))


@given(expressions, st.one_of(texts, st.sampled_from(["a" * 40, "1" * 40, "ab" * 20, "]1-" * 9])))
def test_no_match_is_longer_than_was_measured(expression: str, text: str) -> None:
    longest = max_match_length(expression)
    try:
        lengths = {match.end() - match.start() for match in re2.finditer(expression, text)}
    except re2.error:
        assume(False)
        raise

    assert longest is not None
    assert all(length <= longest for length in lengths)


@given(expressions, texts, texts, texts)
def test_between_walls_nothing_is_found_that_the_whole_does_not_show(
    expression: str, before: str, text: str, behind: str
) -> None:
    patterns = own_patterns(expression)
    whole = before + text + behind

    # In a longer text another alternative may match more, so the match itself may differ.
    for start, _ in spans(patterns, text, walled=True):
        assert re2.compile(expression).match(whole, len(before) + start)


@given(expressions, texts)
def test_every_match_begins_in_a_stretch_of_candidates(expression: str, text: str) -> None:
    patterns = own_patterns(expression)
    stretches = list(patterns.candidates(text))

    begins = [at for at in range(len(text)) if re2.compile(expression).match(text, at)]
    assert all(any(start <= at < end for start, end in stretches) for at in begins)


@pytest.mark.parametrize(
    "pattern",
    [
        "(?:a{1,9}){1,9}b",
        r"(?:\d{1,8}){3}x",
        "(?:a|aa){1,20}b",
        "(?:a|a|a|a){8}b",
        r"\d?" * 10 + "x",
        "(?:a|b)a(?:a|b){100}c",
    ],
)
@pytest.mark.parametrize("text", ["a", "1", "ab", "abba1"])
def test_no_text_makes_a_pattern_run_away(pattern: str, text: str) -> None:
    """A backtracking engine takes minutes and more for these."""
    patterns = CustomPatterns([own(pattern)])
    long = (text * 20_000)[:20_000]

    started = time.process_time()
    patterns.find(long)

    assert time.process_time() - started < 2
