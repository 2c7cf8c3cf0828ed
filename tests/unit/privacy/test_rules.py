"""The examples of the requirements, their mistakes, and precedence between rules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tenuto
from tenuto.privacy import PiiRule, PiiType, RedactionStream, Span, detect, redact
from tenuto.privacy.rules.cards import passes_luhn
from tenuto.privacy.rules.identity_numbers import is_resident_id
from tenuto.privacy.rules.span import TYPE_OF
from tests.labelled_sentences import Sentence, sentences

pytestmark = pytest.mark.requirement("A12", "A13", "A14", "S1", "S2", "S3", "T9")


ROOT = Path(tenuto.__file__).parents[2]

TABLE = {
    "user@example.com": "[REDACTED_EMAIL]",
    "+1-234-567-8900": "[REDACTED_PHONE]",
    "4532-1234-5678-9012": "[REDACTED_CC]",
    "123-45-6789": "[REDACTED_SSN]",
    "192.168.1.1": "[REDACTED_IP]",
    "api_key=sk-xxx": "[REDACTED_API_KEY]",
    "password=abc123": "[REDACTED_SECRET]",
}


@pytest.mark.requirement("A13")
@pytest.mark.parametrize(("text", "mark"), TABLE.items())
def test_the_documents_table_comes_out_as_it_stands(text: str, mark: str) -> None:
    assert redact(text) == mark


def test_the_documents_table_comes_out_in_a_sentence_too() -> None:
    text = "Write to user@example.com or call +1-234-567-8900 from 192.168.1.1, my card number is 4532-1234-5678-9012."

    assert redact(text) == (
        "Write to [REDACTED_EMAIL] or call [REDACTED_PHONE] from [REDACTED_IP], my card number is [REDACTED_CC]."
    )


@pytest.mark.requirement("A12", "A26", "A32", "S1", "S2", "S3", "T9")
@pytest.mark.parametrize("sentence", sentences("exact_spans"), ids=lambda sentence: sentence.text)
def test_exactly_the_labelled_values_are_found(sentence: Sentence) -> None:
    """Each span to the character; a sentence without labels comes out as it is."""
    labels = [(truth.type, truth.start, truth.end) for truth in sentence.truths]

    assert [(span.type, span.start, span.end) for span in detect(sentence.text)] == labels
    assert (redact(sentence.text) == sentence.text) is (not labels)
    assert redact(once := redact(sentence.text)) == once


@pytest.mark.parametrize("sentence", sentences("stated_names"), ids=lambda sentence: sentence.text)
def test_a_name_is_told_from_what_people_say_they_are(sentence: Sentence) -> None:
    """Issue 4: "I am" stands before what one is as often as before a name."""
    names = detect(sentence.text, types={PiiType.PERSON})

    assert [(span.start, span.end) for span in names] == [(truth.start, truth.end) for truth in sentence.truths]


@pytest.mark.requirement("A35")
@pytest.mark.parametrize("sentence", sentences("addresses"), ids=lambda sentence: sentence.text)
def test_addresses_and_order_numbers_are_found_where_they_are_asked_for(sentence: Sentence) -> None:
    """Each span to the character, in a stream as well, and none of them unasked."""
    types = {PiiType.ADDRESS, PiiType.ORDER_ID}
    once, stream = redact(sentence.text, types=types), RedactionStream(types=types)

    found = [(span.type, span.start, span.end) for span in detect(sentence.text, types=types)]
    streamed = "".join([stream.feed(char) for char in sentence.text]) + stream.flush()

    assert found == [(truth.type, truth.start, truth.end) for truth in sentence.truths]
    assert (redact(once, types=types), streamed) == (once, once)
    assert not types.intersection(span.type for span in detect(sentence.text))


@pytest.mark.requirement("A12")
@pytest.mark.parametrize("text", ["", " ", "hello", "你好"])
def test_text_without_anything_private_is_returned_as_it_is(text: str) -> None:
    assert redact(text) == text
    assert detect(text) == []


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("4111111111111111", PiiRule.CC),
        ("银行卡6222021234567890128", PiiRule.BANK_CARD),
        ("11010519491231002X", PiiRule.CN_ID),
        ("SSN 856-12-3456", PiiRule.SSN),
        ("DE89 3704 0044 0532 0130 00", PiiRule.IBAN),
        ("BE68 5390 0754 7034", PiiRule.IBAN),
        ("acct ES9210011929547775076586", PiiRule.IBAN),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl", PiiRule.JWT),
        ("redis://:r3d1sPazz@cache:6379", PiiRule.URL_CREDENTIALS),
        ("https://ghp_aB3dE6fG9hJ2kL5mN8pQ1rS4tU7vW0xY3zA6@github.com/x/y", PiiRule.API_KEY),
        ("https://sk-proj-aB3dE6fG9hJ2kL5mN8pQ1rS4tU7v@host.example.com", PiiRule.API_KEY),
        ("https://7c1de09af3b24586a1e0c95d27b8f364@o99.ingest.example.io/12", PiiRule.URL_CREDENTIALS),
        ("-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIIrYSSNQFaA2Hwf1\n-----END EC PRIVATE KEY-----", PiiRule.PRIVATE_KEY),
        ("https://hooks.slack.com/services/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", PiiRule.WEBHOOK),
    ],
)
def test_the_most_specific_rule_has_the_word(text: str, rule: PiiRule) -> None:
    assert [span.rule for span in detect(text)] == [rule]


def test_every_type_and_name_in_marks_is_in_the_docs_and_in_the_words_of_the_console() -> None:
    docs, words = (
        (ROOT / name).read_text(encoding="utf-8")
        for name in ("docs/ideas/privacy.md", "src/tenuto/server/console/words/en.js")
    )

    assert [kind for kind in PiiType if f"`{kind}`" not in docs] == []
    assert [rule for rule in PiiRule if f'"mark.{Span(0, 0, TYPE_OF[rule], rule).name}"' not in words] == []


@pytest.mark.requirement("A32")
def test_check_digits_decide() -> None:
    assert passes_luhn("4242424242424242")
    assert not passes_luhn("4242424242424241")
    assert is_resident_id("11010519491231002X")
    assert not is_resident_id("110105194912310021")
    assert not is_resident_id("11010519491331002X")


def test_invisible_and_turning_characters_do_not_hide_a_card() -> None:
    text = "card \u202e4111\u200b1111\u200b1111\u200d1111\u202c end"

    assert redact(text) == "card \u202e[REDACTED_CC]\u202c end"


def test_offsets_count_code_points_of_what_was_given() -> None:
    text = "😀😀 手机１３８００１３８０００ \u200bann@example.com"

    spans = detect(text)

    assert [text[span.start : span.end] for span in spans] == ["１３８００１３８０００", "ann@example.com"]


def test_only_the_types_that_were_asked_for_are_taken() -> None:
    text = "我叫李雷，住上海市浦东新区世纪大道100号，订单号20240601123456，电话13800138000"

    assert redact(text) == text.replace("13800138000", "[REDACTED_PHONE]")
    assert redact(text, types={PiiType.EMAIL}) == text
    assert redact(text, types=set(PiiType)) == (
        "我叫[REDACTED_PERSON]，住[REDACTED_ADDRESS]，订单号[REDACTED_ORDER_ID]，电话[REDACTED_PHONE]"
    )


def test_a_stream_takes_another_text_after_its_end() -> None:
    stream = RedactionStream()

    first = stream.feed("mail ann@exam") + stream.feed("ple.com") + stream.flush()
    second = stream.feed("4111 1111 1111 1111") + stream.flush()

    assert (first, second) == ("mail [REDACTED_EMAIL]", "[REDACTED_CC]")
    assert stream.flush() == ""


@pytest.mark.parametrize(
    ("pieces", "limit"),
    [
        (["The committee talked about the garden and nobody could agree on anything before lunch. "] * 200, 400),
        ([f"{number:09} {number * 7:09}\n" for number in range(20_000)], 4096 + 512),
    ],
    ids=["prose", "without calm"],
)
def test_a_stream_holds_back_no_more_than_its_limit(pieces: list[str], limit: int) -> None:
    """Bounded delay: of prose, a reader waits for a few sentences at most."""
    stream = RedactionStream()
    given = out = most = 0
    for piece in pieces:
        given += len(piece)
        out += len(stream.feed(piece))
        most = max(most, given - out)

    assert most < limit


def test_the_room_is_light_until_a_foreign_number_comes() -> None:
    code = (
        "import sys, tenuto.privacy as p\n"
        "p.redact('call 202-555-0143 or ann@example.com')\n"
        "assert not {'phonenumbers', 'stdnum'} & sys.modules.keys()\n"
        "assert p.redact('+39 06 698 12345') == '[REDACTED_PHONE]'\n"
        "assert 'phonenumbers' in sys.modules"
    )

    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=120)


def test_a_span_says_nothing_about_its_value() -> None:
    """User text reaches no log line: a span can be printed."""
    assert repr(detect("ann@example.com")) == repr([Span(0, 15, PiiType.EMAIL, PiiRule.EMAIL)])
    assert "ann" not in repr(detect("ann@example.com"))


def test_a_private_key_block_ends_at_its_own_end() -> None:
    """A block of another kind inside it, or a second one after it, changes nothing."""
    first = (
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA\n-----END EC PRIVATE KEY-----\n-----END RSA PRIVATE KEY-----"
    )
    second = first.replace("RSA", "DSA")

    assert redact(f"{first} and {second}") == "[REDACTED_PRIVATE_KEY] and [REDACTED_PRIVATE_KEY]"
    assert redact("-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA\n(the end)").endswith("\n(the end)")


@pytest.mark.parametrize("opening", ["I'm", "I’m", "I am", "contact:", "大家好，我是"])
def test_a_name_in_the_middle_of_a_calm_text_is_found_in_a_stream_as_well(opening: str) -> None:
    """Issue 4: streaming output equals batch output at every chunk size."""
    calm = "nobody could agree on anything before lunch " * 12
    text = f"{calm}{opening} {'王伟' if opening.endswith('是') else 'Bob Lee'}, hello {calm}"
    whole = redact(text, types={PiiType.PERSON})

    assert "[REDACTED_PERSON]" in whole
    for size in range(1, 130):
        stream = RedactionStream(types={PiiType.PERSON})
        parts = [stream.feed(text[at : at + size]) for at in range(0, len(text), size)]
        assert "".join([*parts, stream.flush()]) == whole, size
