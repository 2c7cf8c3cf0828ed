"""Values in machine-written text: escaped, encoded, or in the columns of a table (A12, A32, T9)."""

from __future__ import annotations

import pytest

from tenuto.privacy import detect, redact


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


@pytest.mark.parametrize(
    ("text", "mail"),
    [
        ("GET /u?email=ann%40example.com&x=1", "ann%40example.com"),
        ("?to=ann.lee%2Bx%40example.com", "ann.lee%2Bx%40example.com"),
        ("?next=%2Fu%3Fmail%3Dann%40example.com%26y%3D1", "ann%40example.com"),
    ],
)
def test_an_encoded_mail_is_found_and_nothing_before_it(text: str, mail: str) -> None:
    assert found(text) == [("EMAIL", mail)]
    assert redact("up 100%40 of the time, 50%40.5") == "up 100%40 of the time, 50%40.5"


@pytest.mark.parametrize(
    ("table", "values"),
    [
        ("user,password\nbob,Fr0gjump1\namy,Tr33top!", ["Fr0gjump1", "Tr33top!"]),
        ("| user | password |\n| --- | --- |\n| bob42x | Fr0gjump1 |", ["Fr0gjump1"]),
        ("user\tpwd\tnote\nbob\tFr0gjump1\tnew9one", ["Fr0gjump1"]),
        ("password,token\nFr0gjump1,Zk3v9p2w7x1z8", ["Fr0gjump1", "Zk3v9p2w7x1z8"]),
        ("员工 | 账号 | 密码\n小刘 | liu01 | Lx@5566", ["Lx@5566"]),
    ],
)
def test_a_secret_below_the_name_of_its_column_is_found_and_its_neighbours_stay(table: str, values: list[str]) -> None:
    assert [value for _, value in found(table)] == values
    assert redact(redact(table)) == redact(table)


@pytest.mark.parametrize(
    "text",
    [
        "| field | password |\n| --- | --- |\n| min length | 8 |\n| max | 64 |",
        "| check | pass | fail |\n| --- | --- | --- |\n| lint | 138 | 0 |",
        "| field | type | secret |\n| --- | --- | --- |\n| api_key | string | yes |",
        "host,port,password\ndb,5432,",
        "name,password_hash\nbob,5f4dcc3b5aa765d61d8327deb882cf99",
        "<password>********</password><user>bob12</user>",
    ],
)
def test_a_table_about_secrets_stays(text: str) -> None:
    assert redact(text) == text
