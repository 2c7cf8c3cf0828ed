"""Own patterns: what is refused and why, what is found, and that no text makes one take long."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tenuto.errors import InvalidSetting
from tenuto.model.privacy import OwnPattern
from tenuto.privacy.finding.expressions import (
    WALL,
    Choice,
    Edge,
    Look,
    One,
    Refused,
    Repeat,
    Row,
    Shape,
    longest,
    read,
    shortest,
    steps,
    written,
)
from tenuto.privacy.finding.own_patterns import LONGEST_MATCH, MOST_PATTERNS, OwnPatterns, compiled
from tenuto.privacy.rules.span import Rule, Type


def own(pattern: str, name: str = "STAFF_NO", *, ignore_case: bool = False) -> OwnPattern:
    return OwnPattern(name=name, pattern=pattern, ignore_case=ignore_case)


def values(text: str, *patterns: OwnPattern) -> list[str]:
    return [text[find.start : find.end] for find in OwnPatterns(patterns).find(text) or ()]


REFUSED = [
    ("(", "no regular expression"),
    ("[a", "no regular expression"),
    ("[[a]", "no regular expression"),
    ("a**", "no regular expression"),
    ("a{99999999999999999999}", "no regular expression"),
    ("", "empty text"),
    ("a?", "empty text"),
    ("a|", "empty text"),
    (r"\b", "empty text"),
    ("x{0}", "empty text"),
    (r"\d*", "{1,64}"),
    (r"\d+", "{1,64}"),
    (r"\d{6,}", "{1,64}"),
    ("a.*?b", "{1,64}"),
    (r"(\d)\1", "refers back"),
    ("(?P<one>a)(?P=one)", "refers back"),
    ("(a)?(?(1)b|c)", "refers back"),
    ("(?:a?){3}b", "may be empty"),
    ("(?:a{1,9}){1,9}b", "inside another"),
    ("(?:a{1,9}b?){2,9}", "inside another"),
    ("a{257}", str(LONGEST_MATCH)),
    ("(?:a{16}){17}", str(LONGEST_MATCH)),
    (r"\d{1,8}\d{1,8}\d{1,8}x", "too many ways"),
    ("(?:a|aa){1,20}b", "too many ways"),
    ("(?:a|a|a|a){8}b", "too many ways"),
    (r"\d?" * 10 + "x", "too many ways"),
    ("(?:a|aa)" * 12 + "x", "too many ways"),
    ("a++", "possessive"),
    ("(?>a)b", "possessive"),
    ("(?i)a", "ignore_case"),
    ("(?i:a)b", "ignore_case"),
    ("(?x) a b", "ignore_case"),
    ("^a", "write \\b"),
    ("a$", "write \\b"),
    (r"\Aa", "write \\b"),
    (r"\Ba", "write \\b"),
    ("(?<=a{1,2})b", "varying length"),
    ("(?<=a|bc)d", "varying length"),
    ("(?!ab)c", "one character wide"),
    ("(?=a{40})a{40}", "further aside"),
    ("(?=a(?=b))a", "aside"),
    (r"[^\s\S]a", "no character"),
    ("(" * 400 + "a" + ")" * 400, "nested"),
    ("a" * 1001, "longer than 1000"),
]


@pytest.mark.parametrize(("pattern", "word"), REFUSED, ids=[f"{pattern[:20]!a}" for pattern, _ in REFUSED])
def test_a_pattern_that_could_run_away_is_refused_in_a_sentence(pattern: str, word: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        compiled(own(pattern, "CASE_FILE"))

    assert word in str(refused.value)
    assert refused.value.setting == "patterns"
    assert "CASE_FILE" in str(refused.value)
    assert len(str(refused.value)) < 200


def test_a_refusal_leaves_the_expression_out() -> None:
    with pytest.raises(InvalidSetting) as refused:
        compiled(own("(?:customer-of-the-year){1,99}"))

    assert "customer" not in str(refused.value)


@pytest.mark.parametrize(
    "name", ["", "staff", "1A", "STAFF-NO", "A" * 33, "ÄRZTE", "STAFF_1", "REDACTED", "REDACTED_X", "NO]", "A\n"]
)
def test_a_name_that_cannot_stand_in_a_mark_is_refused(name: str) -> None:
    with pytest.raises(InvalidSetting):
        compiled(own("EMP[0-9]{4}", name))


@pytest.mark.parametrize("name", [*Type, *Rule])
def test_a_name_of_ours_is_refused(name: str) -> None:
    with pytest.raises(InvalidSetting, match="name of ours"):
        compiled(own("EMP[0-9]{4}", name))


def test_two_patterns_of_one_name_and_too_many_of_them_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="twice"):
        OwnPatterns([own("a"), own("b")])
    with pytest.raises(InvalidSetting, match="more than"):
        OwnPatterns([own("ab", f"P{number}X") for number in range(MOST_PATTERNS + 1)])


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        (r"\bEMP-?\d{4,6}\b", "ask EMP-12345 or EMP1234567", ["EMP-12345"]),
        (r"\bEMP\d{5}\b", "工号EMP12345，请查", ["EMP12345"]),
        (r"EMP-\d{5}", "工号ＥＭＰ－１２３４５", ["ＥＭＰ－１２３４５"]),
        (r"EMP\d{5}", "EMP1\u200b2345", ["EMP1\u200b2345"]),
        ("案号：[A-Z]{2}[0-9]{4}", "案号:AB1234 案号：CD5678", ["案号:AB1234", "案号：CD5678"]),
        ("[０-９]{4}号", "1234号", ["1234号"]),
        (r"(?<!\d)\d{6}(?!\d)", "123456 1234567 x654321y", ["123456", "654321"]),
        (r"(?<=PNR )[A-Z0-9]{6}", "PNR X4FQ2Z", ["X4FQ2Z"]),
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


# --- laws over expressions of all shapes --------------------------------------------------------------------------

ATOMS = ["a", "b", "1", "-", r"\d", "[ab]", ".", r"\w", "[^a]", r"\s", r"\bab?"]


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    counts = st.tuples(st.integers(0, 3), st.integers(0, 4)).map(lambda pair: f"{{{pair[0]},{pair[0] + pair[1]}}}")
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, counts, st.sampled_from(["", "?"])).map(lambda parts: f"(?:{parts[0]}){parts[1]}{parts[2]}"),
        inner.map(lambda one: rf"(?<!\d){one}"),
        inner.map(lambda one: f"{one}(?![a1])"),
        inner.map(lambda one: f"(?<=-){one}"),
    )


expressions = st.recursive(st.sampled_from(ATOMS), _grown, max_leaves=6)
texts = st.text("ab1- ", max_size=24)


def shape_of(pattern: str) -> Shape:
    try:
        return read(pattern, ignore_case=False)
    except Refused:
        assume(False)
        raise


@given(expressions, texts)
def test_an_expression_written_anew_matches_the_same(pattern: str, text: str) -> None:
    shape = shape_of(pattern)

    again = re.compile(written(shape), re.ASCII)

    assert [m.span() for m in again.finditer(text)] == [m.span() for m in re.finditer(pattern, text, re.ASCII)]


@given(expressions, texts)
def test_a_match_is_as_long_as_was_told(pattern: str, text: str) -> None:
    shape = shape_of(pattern)

    lengths = {len(match[0]) for match in re.finditer(pattern, text, re.ASCII)}

    assert all(shortest(shape) <= length <= longest(shape) for length in lengths)


@given(expressions, texts, texts, texts)
def test_between_walls_nothing_matches_that_the_whole_does_not_show(
    pattern: str, before: str, text: str, behind: str
) -> None:
    shape = shape_of(pattern)
    expression = re.compile(written(shape), re.ASCII)
    whole = before + text + behind

    for start in range(len(text)):
        match = expression.match(WALL + text + WALL, 1 + start)
        # Another way may lead further where more can be seen, so the match itself may differ.
        assert match is None or expression.match(whole, len(before) + start)


@given(expressions, texts)
def test_without_looks_it_matches_wherever_it_could(pattern: str, text: str) -> None:
    shape = shape_of(pattern)
    strict, anywhere = re.compile(written(shape), re.ASCII), re.compile(written(shape, looks=False), re.ASCII)

    assert all(anywhere.match(text, start) for start in range(len(text)) if strict.match(text, start))


ENOUGH = 2000


class Engine:
    """A plain backtracking engine that counts what it tries, as the library's does not tell, up to `ENOUGH`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.tried = 0

    def tries(self, shape: Shape, at: int) -> int:
        self.match(shape, at, lambda _: True)
        return self.tried

    def match(self, shape: Shape, at: int, then: Callable[[int], bool]) -> bool:
        match shape:
            case _ if self.tried > ENOUGH:
                return True
            case One(chars):
                self.tried += 1
                here = self._text[at : at + 1]
                return bool(here) and any(low <= ord(here) <= high for low, high in chars) and then(at + 1)
            case Row(()):
                return then(at)
            case Row(items):
                return self.match(items[0], at, lambda on: self.match(Row(items[1:]), on, then))
            case Choice(items):
                return any(self.match(item, at, then) for item in items)
            case Repeat():
                return self._repeat(shape, 0, at, then)
            case Edge() | Look():
                self.tried += 1
                looked = re.compile(written(shape), re.ASCII).match(self._text, at)
                return looked is not None and then(at)

    def _repeat(self, shape: Repeat, turn: int, at: int, then: Callable[[int], bool]) -> bool:
        def again() -> bool:
            return turn < shape.most and self.match(shape.item, at, lambda on: self._repeat(shape, turn + 1, on, then))

        def leave() -> bool:
            return turn >= shape.least and then(at)

        return (leave() or again()) if shape.lazy else (again() or leave())


@given(expressions, st.one_of(texts, st.sampled_from(["a" * 24, "1" * 24, "ab" * 12, "a1-" * 8])))
def test_no_text_takes_more_steps_than_were_told(pattern: str, text: str) -> None:
    shape = shape_of(pattern)
    told = steps(shape)
    assume(told < ENOUGH)

    assert all(Engine(text).tries(shape, start) <= told for start in range(len(text)))


@pytest.mark.parametrize("pattern", [pattern for pattern, word in REFUSED if word == "too many ways"])
def test_what_is_refused_for_its_ways_does_take_many_steps(pattern: str) -> None:
    """Those examples are no false alarms: some text of theirs takes hundreds of steps at one place."""
    shape = read(pattern, ignore_case=False)
    texts = ("1" * 40, "a" * 40, "abcd" * 20, "ab" * 20, "abcde" * 12)

    assert max(Engine(text).tries(shape, 0) for text in texts) > 300
