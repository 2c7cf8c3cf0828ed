"""Values in machine-written text: escaped, encoded, or in the columns of a table."""

from __future__ import annotations

import pytest

from tenuto.privacy import detect

pytestmark = pytest.mark.requirement("A12", "A32", "T9")


def found(text: str) -> list[tuple[str, str]]:
    return [(str(span.type), text[span.start : span.end]) for span in detect(text)]


@pytest.mark.parametrize("escape", ["\\n", "\\t", "\\r\\n", "\\\\n"])
@pytest.mark.parametrize(
    "value",
    [
        ("PHONE", "13800138000"),
        ("PHONE", "415-555-0134"),
        ("EMAIL", "ann@example.com"),
        ("CARD", "4111 1111 1111 1111"),
        ("SSN", "512-33-4455"),
        ("CN_ID", "11010519491231002X"),
        ("IP", "10.0.0.8"),
        ("API_KEY", "sk-Ab3dEf6hIj9kLm2nOp5q"),
    ],
)
def test_a_value_behind_an_escaped_break_or_tab_is_found(escape: str, value: tuple[str, str]) -> None:
    assert found(f'{{"text": "see{escape}{value[1]}{escape}thanks"}}') == [value]


@pytest.mark.parametrize("slashes", ["\\", "\\\\\\"])
def test_values_of_json_inside_json_are_found(slashes: str) -> None:
    quote = slashes + '"'
    fields = [("pw", "Fr0g!jump1"), ("tel", "13800138000"), ("api_key", "8d7f6e5c4b3a2918"), ("ip", "10.0.0.8")]
    text = "{" + ",".join([f"{quote}{name}{quote}:{quote}{value}{quote}" for name, value in fields]) + "}"

    assert [value for _, value in found(f'{{"arguments": "{text}"}}')] == [value for _, value in fields]


def test_a_password_behind_an_escaped_break_is_found() -> None:
    assert found("new password:\\nfr0g!Jump1\\nbye") == [("SECRET", "fr0g!Jump1")]


def test_a_backslash_before_a_word_is_no_escape() -> None:
    assert found("login: CORP\\tom / Fr0g!jump1") == [("SECRET", "Fr0g!jump1")]
    assert found("C:\\new\\2024\\readme and \\\\nas\\team\\report7") == []
