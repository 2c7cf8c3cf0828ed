"""Finding by policy: types, custom patterns, allow-list; redaction is idempotent, a stream equals one search."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.errors import InvalidSetting
from tenuto.model.privacy import CustomPattern, PiiMatch, PrivacyPolicy, replace_matches
from tenuto.privacy import MARK, RedactionStream, detect, redact
from tenuto.privacy.detection.custom_patterns import LONGEST_MATCH
from tenuto.privacy.detection.finder import PiiFinder
from tenuto.privacy.detection.overlaps import merge_matches
from tenuto.privacy.rules.chunking import LIMIT
from tenuto.privacy.rules.folding import Work
from tests.labelled_sentences import sentences
from tests.samples import odd_texts

pytestmark = pytest.mark.requirement("T9")


KNOWN = [sentence.text for sentence in sentences("english", "chinese", "other_languages", "no_private_data")]
PROSE = "The committee talked about the garden and nobody could agree on anything before lunch. "
OWN = (
    CustomPattern(name="STAFF_NO", pattern=r"\bEMP-?\d{4,6}\b", ignore_case=True),
    CustomPattern(name="CASE_FILE", pattern="案号：[A-Z]{1,3}[0-9]{4}"),
    CustomPattern(name="TICKET", pattern=r"\d{3}"),
    CustomPattern(name="TAIL", pattern=r"\d{2}x\b"),
    CustomPattern(name="QUOTE", pattern="<.{1,200}>"),
    CustomPattern(name="BRACKET", pattern=r"[\[\]]x"),
)
ALLOW = ("13800138000", "@example.com", "*.corp.example", "EMP-1234", "4111 1111 1111 1111", "Ann")
FINDERS = [
    PiiFinder(PrivacyPolicy(patterns=OWN)),
    PiiFinder(PrivacyPolicy(patterns=OWN, allow=ALLOW, also=("PERSON", "ADDRESS", "ORDER_ID"))),
    PiiFinder(PrivacyPolicy(allow=ALLOW, never=("IP",))),
]
BITS = odd_texts("pieces for custom patterns")
pieces = st.one_of(st.sampled_from(BITS), st.sampled_from(BITS), st.sampled_from([*KNOWN, PROSE]), st.text(max_size=8))
texts = st.lists(pieces, max_size=16).map("".join)
long_texts = st.lists(st.tuples(pieces, st.integers(1, 60)), min_size=3, max_size=12).map(
    lambda parts: "".join(text * times for text, times in parts)
)
sizes = st.one_of(st.integers(1, 9), st.integers(10, 700))
finders = st.sampled_from(FINDERS)


def staff(*patterns: str, **more: object) -> PiiFinder:
    own = tuple(CustomPattern(name=f"OWN_{chr(65 + place)}", pattern=text) for place, text in enumerate(patterns))
    return PiiFinder(PrivacyPolicy(patterns=own, **more))  # type: ignore[arg-type]  # the settings of one test


def streamed(finder: PiiFinder, text: str, size: int) -> str:
    stream = finder.stream()
    return "".join([stream.feed(text[at : at + size]) for at in range(0, len(text), size)]) + stream.flush()


# Matches.


def test_a_policy_without_patterns_finds_what_the_detector_finds() -> None:
    finder = PiiFinder(PrivacyPolicy())

    for text in KNOWN:
        assert [(f.start, f.end, f.type, f.rule, f.placeholder) for f in finder.find(text)] == [
            (s.start, s.end, s.type, s.rule, s.placeholder) for s in detect(text)
        ]
        assert finder.redact(text) == redact(text)


def test_the_name_of_an_own_pattern_stands_in_its_mark() -> None:
    text = "EMP-12345 called 202-555-0143 about 案号：AB1234"

    assert FINDERS[0].redact(text) == "[REDACTED_STAFF_NO] called [REDACTED_PHONE] about [REDACTED_CASE_FILE]"
    assert [find.name for find in FINDERS[0].find(text)] == ["STAFF_NO", "PHONE", "CASE_FILE"]


def test_marks_of_own_patterns_pass_as_they_are() -> None:
    text = "password is [REDACTED_STAFF_NO], key: [STAFF_NO_1], [CASE_FILE_77] [REDACTED_CASE_FILE]"

    assert FINDERS[0].find(text) == []
    assert all(FINDERS[0].marks.fullmatch(mark) for mark in ("[STAFF_NO_1]", "[EMAIL_1]", "[REDACTED_CC]"))
    # The number of a pseudonym is short, so that it cannot be a phone.
    assert "13800138000" not in FINDERS[0].redact("[STAFF_NO_13800138000]")


def test_types_are_added_and_left_alone_by_name() -> None:
    text = "my name is Ann Lee, 8.8.4.4"

    assert PiiFinder(PrivacyPolicy()).redact(text) == "my name is Ann Lee, [REDACTED_IP]"
    assert PiiFinder(PrivacyPolicy(never=("IP",))).redact(text) == text
    assert (
        PiiFinder(PrivacyPolicy(also=("PERSON",), never=("IP",))).redact(text)
        == "my name is [REDACTED_PERSON], 8.8.4.4"
    )


@pytest.mark.parametrize(
    ("policy", "setting"),
    [
        (PrivacyPolicy(also=("NAMES",)), "also"),
        (PrivacyPolicy(never=("email",)), "never"),
        (PrivacyPolicy(also=("PERSON",), never=("PERSON",)), "never"),
        (PrivacyPolicy(unvaulted=("STAFF_NO",)), "unvaulted"),
        (PrivacyPolicy(patterns=(CustomPattern(name="STAFF_NO", pattern=r"\d+"),)), "patterns"),
        (PrivacyPolicy(allow=("",)), "allow"),
        (PrivacyPolicy(allow=("@",)), "allow"),
        (PrivacyPolicy(allow=("@com",)), "allow"),
        (PrivacyPolicy(allow=("*.",)), "allow"),
        (PrivacyPolicy(allow=("*",)), "allow"),
        (PrivacyPolicy(allow=("138*",)), "allow"),
        (PrivacyPolicy(allow=("x" * 300,)), "allow"),
    ],
)
def test_a_policy_that_names_what_is_not_there_is_refused(policy: PrivacyPolicy, setting: str) -> None:
    with pytest.raises(InvalidSetting) as excinfo:
        PiiFinder(policy)

    assert excinfo.value.setting == setting
    assert len(str(excinfo.value)) < 250


def test_an_own_pattern_may_stay_out_of_the_vault() -> None:
    assert PiiFinder(PrivacyPolicy(patterns=OWN, unvaulted=("STAFF_NO", "SECRET"))).names >= {"STAFF_NO", "EMAIL"}


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("EMP-1234@evil.com", "[REDACTED_EMAIL]"),  # ours is longer, and nothing of it stays
        ("案号 13800138001 end", "[REDACTED_OWN_B] end"),  # theirs is longer
        ("4242 4242 4242 4242 17", "[REDACTED_OWN_C]"),
    ],
)
def test_of_two_finds_on_one_place_the_longer_stands(text: str, redacted: str) -> None:
    assert staff(r"EMP-\d{4}", r"案号 \d{11}", r"[\d ]{4,40}").redact(text) == redacted


def test_what_sticks_out_of_a_shorter_find_is_hidden_as_well() -> None:
    """The custom pattern matches half of a card; the other half must be redacted too."""
    redacted = staff(r"REFERENCE NUMBER OF CARD 4242 4242").redact("REFERENCE NUMBER OF CARD 4242 4242 4242 4242.")

    assert redacted == "[REDACTED_OWN_A] [REDACTED_CC]."


# The allow-list.


@pytest.mark.parametrize("value", odd_texts("allowed values"))
def test_an_allowed_value_stays_in_every_spelling(value: str) -> None:
    finder = PiiFinder(PrivacyPolicy(patterns=OWN[:1], allow=ALLOW))

    assert finder.redact(f"tel {value} , ok") == f"tel {value} , ok"
    assert PiiFinder(PrivacyPolicy(patterns=OWN[:1])).redact(f"tel {value} , ok") != f"tel {value} , ok"


@pytest.mark.parametrize("value", odd_texts("not quite allowed values"))
def test_what_only_looks_like_an_allowed_value_goes(value: str) -> None:
    finder = PiiFinder(PrivacyPolicy(patterns=OWN[:1], allow=ALLOW))

    assert finder.redact(f"tel {value} , ok") != f"tel {value} , ok"


def test_a_service_number_is_allowed_however_it_is_written() -> None:
    finder = PiiFinder(PrivacyPolicy(allow=("400-800-8888",)))

    for text in ("客服电话 4008008888", "call (400) 800-8888", "电话：400 800 8888", "电话:４００-８００-８８８８"):
        assert finder.redact(text) == text


def test_an_allowed_value_shields_what_was_found_inside_it_only() -> None:
    finder = PiiFinder(PrivacyPolicy(patterns=(CustomPattern(name="WORD", pattern="ann"),), allow=("@example.com",)))

    assert finder.redact("ann@example.com and ann") == "ann@example.com and [REDACTED_WORD]"


# Properties.


@given(finders, texts)
def test_redacting_twice_changes_nothing(finder: PiiFinder, text: str) -> None:
    once = finder.redact(text)

    assert finder.redact(once) == once


@given(finders, texts)
def test_finds_are_in_order_apart_and_wanted(finder: PiiFinder, text: str) -> None:
    found = finder.find(text)

    assert all(0 <= find.start < find.end <= len(text) for find in found)
    assert all(left.end <= right.start for left, right in pairwise(found))
    assert all(find.type in finder.names and finder.marks.fullmatch(find.placeholder) for find in found)
    assert finder.find(text) == found


@given(finders, texts, sizes)
def test_a_stream_ends_like_one_look(finder: PiiFinder, text: str, size: int) -> None:
    assert streamed(finder, text, size) == finder.redact(text)


@settings(max_examples=30, deadline=None)
@given(finders, long_texts, st.integers(30, 3000))
def test_a_long_stream_ends_like_one_look(finder: PiiFinder, text: str, size: int) -> None:
    assert streamed(finder, text, size) == finder.redact(text)


@pytest.mark.parametrize("finder", FINDERS, ids=["patterns", "patterns and allowed", "allowed"])
def test_every_known_sentence_streams_alike_among_the_others(finder: PiiFinder) -> None:
    text = "\n".join(
        part for index, known in enumerate(KNOWN[::3]) for part in (known, PROSE * (index % 9), "EMP-7654")
    )

    assert streamed(finder, text, 61) == finder.redact(text)
    assert streamed(finder, text, 700) == finder.redact(text)


@pytest.mark.parametrize("shift", range(0, 600, 29))
def test_the_longest_match_is_found_wherever_a_text_is_cut(shift: int) -> None:
    """Neither in prose nor in a dense text does a cut split a match of a custom pattern."""
    finder = staff("<[a-z ]{254}>")
    value = "<" + "word and " * 28 + "ab>"
    assert len(value) == LONGEST_MATCH
    dense = "13800138000 " * 300

    for text in (PROSE * 6 + "x" * shift + value + PROSE * 6, dense + "x" * shift + value + dense):
        assert value not in finder.redact(text)
        assert streamed(finder, text, 64) == finder.redact(text)


def test_a_stream_in_prose_holds_back_a_bounded_number_of_characters() -> None:
    stream = FINDERS[0].stream()
    given_out = sum(len(stream.feed(PROSE)) for _ in range(100))

    assert 100 * len(PROSE) - given_out < 1000


def test_a_flushed_stream_can_take_another_text() -> None:
    stream = FINDERS[0].stream()

    assert stream.feed("EMP-1234") + stream.flush() == "[REDACTED_STAFF_NO]"
    assert stream.feed("5678") + stream.flush() == "[REDACTED_TICKET]8"


@pytest.mark.parametrize("unit", odd_texts("repeated for custom patterns"))
def test_hostile_text_is_looked_at_in_small_parts_and_a_few_times(unit: str) -> None:
    """Work inside a part is bounded by its size, so the total cost is linear in the length."""
    text = (unit * (120_000 // len(unit) + 1))[:120_000]
    looked: list[int] = []

    class Watched(PiiFinder):
        def _find_until_stable(self, text: str, start: int, end: int, work: Work | None) -> list[PiiMatch]:
            looked.append(end - start)
            return super()._find_until_stable(text, start, end, work)

    found = Watched(PrivacyPolicy(patterns=OWN, allow=ALLOW)).find(text)

    assert max(looked) <= 4 * LIMIT + 4 * LONGEST_MATCH
    assert sum(looked) <= 4 * len(text)
    assert all(left.end <= right.start for left, right in pairwise(found))


def test_a_megabyte_of_digits_passes_beside_own_patterns() -> None:
    text = "7" * 1_000_000

    assert staff(r"\bEMP\d{1,6}\b", allow=("ann@example.com",)).redact(text) == text


# Cuts, which the detector's own streams share.


def test_a_private_key_glued_to_a_word_is_not_cut() -> None:
    key = "-----BEGIN RSA PRIVATE KEY-----" + PROSE * 9 + "-----END RSA PRIVATE KEY-----"

    for text in (PROSE * 5 + key + " and so on", PROSE * 5 + "password:EMP-1234" + key + " and so on"):
        stream = RedactionStream()
        parts = [stream.feed(text[at : at + 61]) for at in range(0, len(text), 61)]
        assert "".join(parts) + stream.flush() == redact(text)
        assert "[REDACTED_PRIVATE_KEY]" in redact(text)


def test_a_cut_at_the_limit_does_not_make_a_calm_place() -> None:
    """Text after a cut that was read before the cut is not lost."""
    text = ("13800138000，" * 400)[:3700] + " " + "13800138000，" * 200

    for size in (1, 61):
        stream = RedactionStream()
        parts = [stream.feed(text[at : at + size]) for at in range(0, len(text), size)]
        assert "".join(parts) + stream.flush() == redact(text)


# Matches of several layers.


def found(start: int, end: int, kind: str = "PERSON") -> PiiMatch:
    return PiiMatch(start=start, end=end, type=kind, rule=kind, name=kind)


def test_a_surer_find_stands_and_what_sticks_out_of_another_stays_a_find() -> None:
    text = "Ann Lee, 202-555-0143 (home)"

    both = merge_matches(text, [found(9, 21, "PHONE")], [found(0, 28)])

    assert replace_matches(text, both) == "[REDACTED_PERSON], [REDACTED_PHONE] ([REDACTED_PERSON])"


def test_a_find_inside_a_surer_one_is_gone() -> None:
    assert merge_matches("ann@example.com", [found(0, 15, "EMAIL")], [found(0, 3), found(4, 15)]) == [
        found(0, 15, "EMAIL")
    ]


spans = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 12)).map(lambda p: found(p[0], min(31, sum(p)))), max_size=8
)


@given(st.text("ab .,", min_size=31, max_size=31), spans, spans)
def test_merging_leaves_out_signs_alone_and_overlaps_nothing(
    text: str, here: list[PiiMatch], there: list[PiiMatch]
) -> None:
    both = merge_matches(text, here, there)

    wanted = {place for find in (*here, *there) for place in range(find.start, find.end) if text[place].isalnum()}
    hidden = {place for find in both for place in range(find.start, find.end)}
    assert wanted <= hidden <= {place for find in (*here, *there) for place in range(find.start, find.end)}
    assert all(left.end <= right.start for left, right in pairwise(both))
    assert merge_matches(text, both) == both


def test_the_detectors_marks_are_known_to_every_finder() -> None:
    assert all(finder.marks.fullmatch("[REDACTED_CC]") and MARK.fullmatch("[REDACTED_CC]") for finder in FINDERS)
