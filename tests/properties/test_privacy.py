"""Laws of the detector: redacting twice changes nothing, a stream ends like one look, and no text breaks it."""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.model.privacy import PrivacyPolicy, replace_matches
from tenuto.privacy import MARK, PiiType, RedactionStream, Span, detect, redact
from tenuto.privacy.detection import finder
from tenuto.privacy.detection.finder import PiiFinder
from tenuto.privacy.rules import detector
from tenuto.privacy.rules.api_keys import LONGEST_BLOCK
from tenuto.privacy.rules.chunked_search import KNOWN_CHUNKS
from tenuto.privacy.rules.chunking import LIMIT, Chunker
from tenuto.privacy.rules.detector import find
from tenuto.privacy.rules.families import FAMILIES, Needs, select_families
from tenuto.privacy.rules.folding import FoldedText, Work
from tests.labelled_sentences import COMMON_SETS, sentences
from tests.samples import odd_texts

pytestmark = pytest.mark.requirement("T9")


KNOWN = [sentence.text for sentence in sentences(*COMMON_SETS, "spelled_out")]
PROSE = (
    "The committee talked about the garden and nobody could agree on anything before lunch. ",
    "今天的会议改到下午请大家准时参加如果有问题可以随时联系我们会尽快处理这个需求。",
)
ODD = odd_texts("pieces for the detector")
pieces = st.one_of(st.sampled_from(ODD), st.sampled_from(KNOWN), st.sampled_from(PROSE), st.text(max_size=12))
texts = st.lists(pieces, max_size=14).map("".join)
long_texts = st.lists(st.tuples(pieces, st.integers(1, 40)), min_size=3, max_size=12).map(
    lambda parts: "".join(text * times for text, times in parts)
)
sizes = st.one_of(st.integers(1, 9), st.integers(10, 700))


def streamed(text: str, size: int) -> str:
    stream = RedactionStream()
    return "".join([stream.feed(text[at : at + size]) for at in range(0, len(text), size)]) + stream.flush()


@given(texts)
def test_redacting_twice_changes_nothing(text: str) -> None:
    once = redact(text)

    assert redact(once) == once


@given(texts, st.sets(st.sampled_from(PiiType)))
def test_redacting_some_types_twice_changes_nothing(text: str, types: set[PiiType]) -> None:
    once = redact(text, types=types)

    assert redact(once, types=types) == once


@given(texts)
def test_a_text_has_nothing_for_the_families_it_is_spared(text: str) -> None:
    """The short cuts for prose are no more than that."""
    view = FoldedText(text)
    spared = set(FAMILIES) - set(select_families(view))

    assert not any(family.may_find(view) for family in spared)


def test_prose_is_spared_most_families() -> None:
    def needs(text: str) -> Needs:
        return max(family.needs for family in select_families(FoldedText(text)))

    assert [needs(text) for text in PROSE] == [Needs.NOTHING, Needs.NOTHING]
    assert needs("the key to the garden") == Needs.WORDS
    assert needs("mail ann@example.com") == Needs.SIGNS


@given(texts, st.data())
def test_a_part_of_a_view_is_the_view_of_a_part(text: str, data: st.DataObject) -> None:
    """What stands between two finds is read as it would be if it stood alone."""
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))

    part, alone = FoldedText(text).part(start, end), FoldedText(text[start:end])

    shapes = ("source", "text", "ascii", "bytes", "lower", "digits", "words", "stems", "signed")
    assert {name: getattr(part, name) for name in shapes} == {name: getattr(alone, name) for name in shapes}
    assert (part.text is part.ascii) == (alone.text is alone.ascii)


@given(texts, sizes)
def test_a_stream_ends_like_one_look(text: str, size: int) -> None:
    assert streamed(text, size) == redact(text)


@settings(max_examples=30, deadline=None)
@given(long_texts, st.integers(50, 3000))
def test_a_long_stream_ends_like_one_look(text: str, size: int) -> None:
    assert streamed(text, size) == redact(text)


def test_every_known_sentence_streams_alike() -> None:
    for text in KNOWN:
        assert {streamed(text, size) for size in (1, 3, 7, 64)} == {redact(text)}


def test_every_known_sentence_streams_alike_among_the_others() -> None:
    """Thirty thousand characters, dense and calm in turns."""
    text = "\n".join(part for index, known in enumerate(KNOWN) for part in (known, PROSE[index % 2] * (index % 4)))

    once = redact(text)

    assert streamed(text, 61) == once
    assert redact(once) == once


@given(texts)
def test_spans_are_in_order_and_inside_the_text(text: str) -> None:
    spans = detect(text)

    assert all(0 <= span.start < span.end <= len(text) for span in spans)
    assert all(left.end <= right.start for left, right in pairwise(spans))


@given(texts)
def test_everything_but_the_spans_stays(text: str) -> None:
    spans = detect(text)
    parts = [
        text[start:end]
        for start, end in zip([0, *(s.end for s in spans)], [*(s.start for s in spans), None], strict=True)
    ]
    rebuilt = "".join(
        part + mark for part, mark in zip(parts, [*(span.placeholder for span in spans), ""], strict=True)
    )

    assert redact(text) == rebuilt
    assert all(MARK.fullmatch(span.placeholder) for span in spans)


@given(
    st.text(max_size=40).filter(lambda text: not any(map(str.isalnum, text))), st.sampled_from(["，", "的", "。", "在"])
)
def test_a_mail_is_found_whatever_stands_around_it(around: str, glue: str) -> None:
    text = f"{glue}ann.lee@example.com{glue}{around}"

    assert "ann.lee@example.com" in [text[span.start : span.end] for span in detect(text)]


@pytest.mark.requirement("A32")
@given(st.integers(0, 10**15 - 1), st.sampled_from(["", " ", "-"]))
def test_every_visa_number_is_found_in_every_grouping(number: int, gap: str) -> None:
    digits = f"4{number:014}"[:15]
    total = sum(int(d) if i % 2 else sum(divmod(2 * int(d), 10)) for i, d in enumerate(digits))
    card = digits + str(-total % 10)
    written = gap.join(card[i : i + 4] for i in range(0, 16, 4))

    assert redact(f"my card is {written}, thanks") == "my card is [REDACTED_CC], thanks"


@pytest.mark.parametrize("unit", odd_texts("repeated for the detector"))
def test_hostile_text_is_looked_at_in_small_parts_and_about_once(unit: str) -> None:
    """Work inside a part is bounded by its size, so the cost of the whole grows as its length (`bench.privacy`)."""
    text = (unit * (200_000 // len(unit) + 1))[:200_000]
    cutter = Chunker()

    parts = [*cutter.add(text[:90_000]), *cutter.add(text[90_000:]), *cutter.rest()]

    assert "".join(part.text[part.start : part.end] for part in parts) == text
    assert max(len(part.text) for part in parts) <= LIMIT + LONGEST_BLOCK + 512
    assert sum(len(part.text) for part in parts) <= 1.1 * len(text)


@pytest.mark.parametrize("unit", odd_texts("repeated for the detector"))
def test_repetition_is_searched_once(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (unit * (400_000 // len(unit) + 1))[:400_000]
    searched: list[str] = []

    def watched(part: str, types: Collection[PiiType]) -> list[Span]:
        searched.append(part)
        return find(part, types)

    monkeypatch.setattr(detector, "find", watched)
    detect(text)

    assert len(searched) <= KNOWN_CHUNKS


@pytest.mark.parametrize(
    "unit",
    [
        "token={0}{1}a ",
        "密码{0}a",
        '{{"password": "{0}x"}},',
        "护照E1234{0}{1}",
        "203.0.{2}.{2} ",
        "(202) 555-{0} ",
        "+44 20 {0} {1} ",
        "a{0}@b{1}.com ",
        "http://a:{0}b@c.com/ ",
        "sk-{0}a{1}b{0}c{1} ",
        "{2} {1} {0} {2} ",
    ],
    ids=lambda unit: unit[:8],
)
def test_the_work_for_a_dense_text_is_bounded_and_the_rest_withheld(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in candidates, without a clock; values differ, so that no chunk is known."""
    dice = Random(3)
    one = [unit.format(dice.randint(1000, 9999), dice.randint(1000, 9999), dice.randint(1, 254)) for _ in range(2500)]
    text, most = "".join(one), 500
    monkeypatch.setattr(finder, "MOST_JUDGED", most)
    finds, work = PiiFinder(PrivacyPolicy()), Work()

    *_, last = finds.find(text, work)

    assert most < work.judged < most + LIMIT
    assert (last.placeholder, last.end) == ("[WITHHELD]", len(text))
    stream = finds.stream()
    told = "".join([stream.feed(text[at : at + 700]) for at in range(0, len(text), 700)]) + stream.flush()
    assert told == replace_matches(text, finds.find(text, Work()))


def test_a_long_log_of_addresses_is_searched_to_its_end() -> None:
    dice = Random(3)
    line = '203.{}.{}.{} - - [18/Nov/2026:10:{}:07 +0000] "GET /shop/{} HTTP/1.1" 200 {}\n'
    text = "".join([line.format(*(dice.randint(10, 250) for _ in range(6))) for _ in range(1000)])
    work = Work()

    assert len(PiiFinder(PrivacyPolicy()).find(text, work)) == 1000
    assert work.judged * 10 < finder.MOST_JUDGED


def test_five_megabytes_of_digits_pass() -> None:
    text = "7" * 5_000_000

    assert redact(text) == text


_SCRAPS = st.sampled_from([*"0123456789Xx:/.-@*#=+()[]_%~^&\\ \n：，。", *odd_texts("pieces around numbers and keys")])


@given(st.lists(_SCRAPS, max_size=14).map("".join))
def test_no_heap_of_scraps_stops_the_detector_and_twice_is_once(text: str) -> None:
    once = redact(text)
    assert redact(once) == once
