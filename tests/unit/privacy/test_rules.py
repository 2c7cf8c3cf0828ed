"""The examples of the requirements, their mistakes, and precedence between rules (A12-A14, S1-S3, T9)."""

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


def found(text: str) -> list[tuple[str, str]]:
    return [(str(span.type), text[span.start : span.end]) for span in detect(text)]


@pytest.mark.parametrize(("text", "mark"), TABLE.items())
def test_the_documents_table_comes_out_as_it_stands(text: str, mark: str) -> None:
    """A13."""
    assert redact(text) == mark


def test_the_documents_table_comes_out_in_a_sentence_too() -> None:
    text = "Write to user@example.com or call +1-234-567-8900 from 192.168.1.1, my card number is 4532-1234-5678-9012."

    assert redact(text) == (
        "Write to [REDACTED_EMAIL] or call [REDACTED_PHONE] from [REDACTED_IP], my card number is [REDACTED_CC]."
    )


@pytest.mark.parametrize("text", ["", " ", "hello", "你好"])
def test_text_without_anything_private_is_returned_as_it_is(text: str) -> None:
    """A12."""
    assert redact(text) == text
    assert detect(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "2024-12-13",
        "1700000000",
        "1700000000123",
        "order 20240601123456789",
        "3.14159265358979",
        "1 2 3 4 5 6 7 8 9 10",
        "3f2504e0-4f89-41d3-9a0c-0305e82c3301",
        "first 12345\n67890 second",
        "version 10.4.2.1",
        "999.999.999.999",
        "the secret ingredient",
        "I forgot my password yesterday",
    ],
)
def test_innocent_numbers_and_words_stay(text: str) -> None:
    """S1, S2: text that the regexes of the requirements would destroy."""
    assert redact(text) == text


@pytest.mark.parametrize(
    ("text", "type_", "value"),
    [
        ("password is hunter22222", PiiType.SECRET, "hunter22222"),
        ("密码是abc123", PiiType.SECRET, "abc123"),
        ("key sk-Ab3dEf6hIj9kLm2nOp5q leaked", PiiType.API_KEY, "sk-Ab3dEf6hIj9kLm2nOp5q"),
        ("from 2001:db8::77 again", PiiType.IP, "2001:db8::77"),
        ("t eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl t", PiiType.API_KEY, None),
        ("编号192.168.1.1号", PiiType.IP, "192.168.1.1"),
        ("卡11010519491231002X号", PiiType.CN_ID, "11010519491231002X"),
        ("电话１３８００１３８０００", PiiType.PHONE, "１３８００１３８０００"),
    ],
)
def test_what_the_documents_expressions_miss_is_found(text: str, type_: PiiType, value: str | None) -> None:
    """S2, S3."""
    assert found(text) == [(type_, value or text[2:-2])]


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


def test_a_mark_says_what_stood_there_and_passes_through() -> None:
    text = "[EMAIL_1] and [REDACTED_PHONE], password is [REDACTED_SECRET], nested [REDACTED_[REDACTED_EMAIL]]"

    assert redact(text) == text


def test_every_type_and_name_in_marks_is_in_the_docs_and_in_the_words_of_the_console() -> None:
    docs, words = (
        (ROOT / name).read_text(encoding="utf-8")
        for name in ("docs/ideas/privacy.md", "src/tenuto/server/console/words/en.js")
    )

    assert [kind for kind in PiiType if f"`{kind}`" not in docs] == []
    assert [rule for rule in PiiRule if f'"mark.{Span(0, 0, TYPE_OF[rule], rule).name}"' not in words] == []


def test_no_number_hides_in_what_looks_like_a_mark() -> None:
    assert redact("[REDACTED_EMAIL ann@example.com]") == "[REDACTED_EMAIL [REDACTED_EMAIL]]"
    assert redact("[PHONE 13800138000]") == "[PHONE [REDACTED_PHONE]]"


def test_check_digits_decide() -> None:
    assert passes_luhn("4242424242424242")
    assert not passes_luhn("4242424242424241")
    assert is_resident_id("11010519491231002X")
    assert not is_resident_id("110105194912310021")
    assert not is_resident_id("11010519491331002X")
    assert found("ref 4242424242424241") == []
    assert found("流水110105194912310021") == []


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
        "我叫[REDACTED_PERSON]，[REDACTED_ADDRESS]，订单号[REDACTED_ORDER_ID]，电话[REDACTED_PHONE]"
    )


def test_a_number_between_two_lines_is_found_where_a_check_digit_vouches_for_it() -> None:
    assert found("card 4242 4242\n4242 4242") == [("CARD", "4242 4242\n4242 4242")]
    assert found("rows 4242 4242\n4242 4241") == []


def test_a_stream_takes_another_text_after_its_end() -> None:
    stream = RedactionStream()

    first = stream.feed("mail ann@exam") + stream.feed("ple.com") + stream.flush()
    second = stream.feed("4111 1111 1111 1111") + stream.flush()

    assert (first, second) == ("mail [REDACTED_EMAIL]", "[REDACTED_CC]")
    assert stream.flush() == ""


def test_a_stream_of_prose_holds_back_little() -> None:
    """Bounded delay: a stream holds back a few sentences at most."""
    stream = RedactionStream()
    sentence = "The committee talked about the garden and nobody could agree on anything before lunch. "
    given = out = most = 0
    for _ in range(200):
        given += len(sentence)
        out += len(stream.feed(sentence))
        most = max(most, given - out)

    assert most < 400


def test_a_stream_without_calm_holds_back_no_more_than_its_limit() -> None:
    stream = RedactionStream()
    given = out = most = 0
    for number in range(20_000):
        line = f"{number:09} {number * 7:09}\n"
        given += len(line)
        out += len(stream.feed(line))
        most = max(most, given - out)

    assert most < 4096 + 512


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


def test_an_address_at_the_beginning_of_a_line_is_found() -> None:
    """The end of the line before is no label."""
    assert redact("/etc/hosts\n10.136.86.4 db") == "/etc/hosts\n[REDACTED_IP] db"


@pytest.mark.parametrize(
    "text",
    [
        "upgraded from 2.3.4.5 to 2.3.4.6",
        "see section 3.2.1.4 and appendix 5.1.2.7",
        "从 2.3.4.5升到2.3.4.6",
        "800 - 555 - 1212 = -967",
        "your one-time password is 482913",
        "login flow: step1/step2",
        "asst_abc123DEF456ghi789JKL012 called call_Zk9xV3u8Gm1q2w3e4r5t6y7u",
        "boarding pass ABC1234, gate 12",
    ],
)
def test_what_only_looks_like_a_value_stays(text: str) -> None:
    """S1, S2."""
    assert redact(text) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("use Chelsea1905! as the new password", "Chelsea1905!"),
        ("Turm_3344 ist mein Passwort", "Turm_3344"),
        ("用Tiger2010这个密码登录", "Tiger2010"),
        ("login: sam / Fjord!2020", "Fjord!2020"),
        ("mo@example.com:Kebab*Friday7", "Kebab*Friday7"),
        ("root:my$ql99@tcp(db.example.com:3306)/app", "my$ql99"),
        ('{"name": "DB_PASSWORD", "value": "rabbit-1"}', "rabbit-1"),
        ("what is the password?\nMango!Tree55", "Mango!Tree55"),
        ("密码还是原来那个 Blau@2211", "Blau@2211"),
    ],
)
def test_a_password_is_found_wherever_the_sentence_gives_it_away(text: str, value: str) -> None:
    """Before its name, next to a user, in a separate field, as an answer."""
    assert ("SECRET", value) in found(text)


@pytest.mark.parametrize(
    "text",
    ["grafana: Zk3p9QxVt7LmR2sWy8BnC4dF", "acme_secret_8sKd93jFh2Lq0PzXc7Vb", "server key Q7x2-8sKd93jFh2Lq0PzXc7VbNm"],
)
def test_a_key_of_a_provider_nobody_knows_is_found_by_its_surroundings(text: str) -> None:
    assert [kind for kind, _ in found(text)] == ["API_KEY"]


@pytest.mark.parametrize(
    "text",
    [
        "still on 3.6.12.1, everybody else has 3.6.20",
        "5.2.4.1 supersedes clause 5.2.3.9",
        "2.6.1.3 vs version 2.6.2.0",
        "is 11.0.22.7 the LTS?",
        "6.3.1.2和6.3.1.4两个小节",
        "鸿蒙 4.2.0.110 很卡",
        "见表 2.2.1.3",
    ],
)
def test_a_version_or_section_is_told_by_what_stands_around_it(text: str) -> None:
    """Words around it, and other numbers with the same beginning."""
    assert redact(text) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("rolled version 2.6.1.8 out to 10.4.1.7", "10.4.1.7"),
        ("主机表：10.4.1.7 正常", "10.4.1.7"),
        ("router 198.51.100.3 has 2.6.1", "198.51.100.3"),
        ("host 2.6.1.3 is not version 2.6.1.8", "2.6.1.3"),
        ("ping10.4.1.7丢包", "10.4.1.7"),
        ("ipv6：2001:db8:1:2:3:4:5:6", "2001:db8:1:2:3:4:5:6"),
        ("node:2001:db8::31 is up", "2001:db8::31"),
    ],
)
def test_an_address_beside_versions_and_behind_a_glued_word_is_found(text: str, value: str) -> None:
    assert found(text) == [("IP", value)]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("SSN512-33-4455", "SSN"),
        ("id11010519491231002X", "CN_ID"),
        ("visa4242424242424242", "CARD"),
        ("passportE12345678", "PASSPORT"),
    ],
)
def test_a_number_glued_to_its_own_label_is_found(text: str, kind: str) -> None:
    assert [name for name, _ in found(text)] == [kind]
    assert found(text.replace(text.rstrip("0123456789-XE"), "build")) == []


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("110108199302141232/11010519491231002X", ["110108199302141232", "11010519491231002X"]),
        ("11010519491231002X/110108199302141232", ["11010519491231002X", "110108199302141232"]),
        ("512-33-4455/431-66-2290", ["512-33-4455", "431-66-2290"]),
        ("4242424242424242/5425532650201468", ["4242424242424242", "5425532650201468"]),
        ("pw changed from Otter_41 to Heron_52", ["Otter_41", "Heron_52"]),
        ("密码从Otter_41改成Heron_52", ["Otter_41", "Heron_52"]),
    ],
)
def test_both_of_two_values_are_found(text: str, values: list[str]) -> None:
    assert [value for _, value in found(text)] == values


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("wifi: guest / sunny42x", "sunny42x"),
        ("WLAN: Gast | Kaffee2024", "Kaffee2024"),
        ("here's my passwrod again: bl4ck-Tea", "bl4ck-Tea"),
        ("the pasword is gr33n-Tea", "gr33n-Tea"),
        ("账号admin psw: Fr0gjump1", "Fr0gjump1"),
        ("账：admin 密：Fr0gjump1", "Fr0gjump1"),
        ("密码→Fr0gjump1", "Fr0gjump1"),
        ("> the db pass?\n< 0range-Peel7", "0range-Peel7"),
        ('"private_key_id": "3f9a1c0e5b7d2f8a6c4e0b1d9f7a5c3e1b8d6f40"', "3f9a1c0e5b7d2f8a6c4e0b1d9f7a5c3e1b8d6f40"),
        ("Tag me at 415-555-0134", "415-555-0134"),
        ("加群13812345678", "13812345678"),
        ("加v13812345678", "13812345678"),
        ("my number hasn't changed, still 4155550163", "4155550163"),
        ("and a callback? caller: 7 2 0 5 5 5 0 1 3 9", "7 2 0 5 5 5 0 1 3 9"),
        ("my social's 6 1 2 - 4 4 - 9 0 1 8", "6 1 2 - 4 4 - 9 0 1 8"),
        ("passport no 12345678", "12345678"),
        ("core1.example.net (192.0.2.19)", "192.0.2.19"),
    ],
)
def test_a_value_is_found_as_people_write_it(text: str, value: str) -> None:
    assert [text[span.start : span.end] for span in detect(text)] == [value]


@pytest.mark.parametrize(
    "text",
    [
        "WiFi: 802.11ac / 802.11ax",
        "WiFi: 6E / Bluetooth5.3",
        "加密：AES256",
        "tag 415-555-0134",
        "加群812345678",
        "微信群号：13812345678",
        "bus 7 2 0 5 5 5 0 1 3 9",
        "VISA AUTH 004512",
        "UPDATE users SET password=:password",
        "pass: 12/20 tests",
        "Using .NET (4.8.0.1) and ASP.NET 4.0.1.1",
    ],
)
def test_what_is_written_alike_stays(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize("text", ["z***3@example.com", "j**n.d*e@example.org", "u•••r@example.net"])
def test_a_masked_address_is_none(text: str) -> None:
    assert redact(text) == text
    assert redact("**ann@example.com**") == "**[REDACTED_EMAIL]**"


def test_a_webhook_with_an_at_inside_is_one_find() -> None:
    uuid = "1db64ce2-7875-29c1-3dca-0bffb0d3afb2"
    text = f"https://example.webhook.office.com/webhookb2/{uuid}@{uuid}/IncomingWebhook/{uuid.replace('-', '')}/{uuid}"

    assert redact(f"post to {text} please") == "post to [REDACTED_API_KEY] please"


def test_a_private_key_block_ends_at_its_own_end() -> None:
    """A block of another kind inside it, or a second one after it, changes nothing."""
    first = (
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA\n-----END EC PRIVATE KEY-----\n-----END RSA PRIVATE KEY-----"
    )
    second = first.replace("RSA", "DSA")

    assert redact(f"{first} and {second}") == "[REDACTED_PRIVATE_KEY] and [REDACTED_PRIVATE_KEY]"
    assert redact("-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA\n(the end)").endswith("\n(the end)")


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("身份证11010519491231002X:6", "身份证[REDACTED_CN_ID]:6"),
        ("身份证11010519491231002X:13800138000", "身份证[REDACTED_CN_ID]:[REDACTED_PHONE]"),
        ("https://user:pass@host.com/path", "https://user:pass@host.com/path"),
        ("bob:ann@host.com", "bob:[REDACTED_EMAIL]"),
    ],
)
def test_what_stands_beside_a_colon_is_told_apart(text: str, left: str) -> None:
    assert redact(text) == left


@pytest.mark.parametrize(
    "text", ["soc sec 512-33-4471", "Soc. Security number: 337518842", "社安号码518-44-9072请核对", "社安码401227718"]
)
def test_a_social_security_number_is_known_by_its_short_names(text: str) -> None:
    assert [kind for kind, _ in found(text)] == ["SSN"]
    assert found("sec 512334471") == found("soc 512334471") == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("我的号 176 207 212 48", "176 207 212 48"),
        ("call me on 186 12 34 56 78", "186 12 34 56 78"),
        ("手机 1 5 9 8 8 2 2 7 7 1 4，别打错", "1 5 9 8 8 2 2 7 7 1 4"),
        ("电话1390\n1234567", "1390\n1234567"),
    ],
)
def test_a_phone_in_odd_groups_is_found_where_a_word_names_it(text: str, value: str) -> None:
    assert found(text) == [("PHONE", value)]
    assert found(f"row: {value}") == []


def test_a_phone_behind_a_mail_and_a_slash_is_found() -> None:
    assert redact("li.wei@example.cn/13671120098") == "[REDACTED_EMAIL]/[REDACTED_PHONE]"
    assert redact("/13671120098.txt") == "/13671120098.txt"


@pytest.mark.parametrize(
    "text", ["产品版本号为2.10.0.18", "release notes 3.1.4.2", "from 10.15.7 to 14.2.1.3", "pull 1.8.0.22-SNAPSHOT"]
)
def test_a_version_is_told_by_its_word_its_suffix_or_the_one_before(text: str) -> None:
    assert redact(text) == text
    assert redact("IP: 203.0.113.5-beta") == "IP: [REDACTED_IP]-beta"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('variable "db_password" { default = "Tr0ub4dor&3x" }', "Tr0ub4dor&3x"),
        ("DbPassword:\n    Type: String\n    Default: Winter-Oak88", "Winter-Oak88"),
        ('<entry key="password"><value>Gr4vel#Road</value></entry>', "Gr4vel#Road"),
        ("Uid=sa;Pwd=My Dog Rex1;", "My Dog Rex1"),
        ("密码：芝麻开门2024", "芝麻开门2024"),
        ("ssh in with root/Passw0rd!", "Passw0rd!"),
    ],
)
def test_a_password_away_from_its_name_or_with_spaces_is_found_whole(text: str, value: str) -> None:
    assert found(text)[0][1].endswith(value)
    assert redact(text).count("[REDACTED_SECRET]") == 1


@pytest.mark.parametrize(
    "text",
    [
        "export DB_PASS=$(vault kv get -field=password secret/db)",
        "PASSWORD=`pass show work/db`",
        "密码不要用123456这种",
        "别把密码设成123456",
        "never set the password to Password1",
        "密码：见附件第2页",
        'variable "db_password" { default = var.shared }',
    ],
)
def test_a_command_and_a_bad_example_are_no_passwords(text: str) -> None:
    assert redact(text) == text


def test_an_error_code_beside_a_passport_is_none() -> None:
    assert found("报错E88231004，护照号E71234567已提交") == [("PASSPORT", "E71234567")]
    assert found("护照上传报错13800138000") == [("PHONE", "13800138000")]


@pytest.mark.parametrize("mail", ["用户@例子.公司", "müller@bücher.de", "иван@почта.рф", "sales@例子.中国"])
def test_a_mail_in_any_script_is_found(mail: str) -> None:
    assert found(f"写信给{mail}，谢谢") == [("EMAIL", mail)]
    assert found("大家好@小明.请看一下") == []


def test_a_number_of_nineteen_digits_is_a_card_as_a_whole_or_not_at_all() -> None:
    assert found("流水 6228 4800 4056 7775 160 已入账") == []
    assert found("卡号 62258813 14077776 123") == []
    assert found("card 4242 4242 4242 4242 123") == [("CARD", "4242 4242 4242 4242")]


def names_in(text: str) -> list[str]:
    return [text[span.start : span.end] for span in detect(text, types={PiiType.PERSON})]


@pytest.mark.parametrize(
    "text",
    [
        *(
            "大家好，我是高中生",
            "我是学生",
            "我是老师，姓什么不重要",
            "我是程序员",
            "我是素食者",
            "我是江苏人",
            "本人方便的话会来",
        ),
        *(
            "I am vegan",
            "I am Vegan, no cheese please",
            "I'm Late",
            "I’m Late",
            "I am German",
            "please contact Support",
        ),
    ],
)
def test_what_somebody_is_is_no_name(text: str) -> None:
    """Issue 4: "I am" precedes an occupation as often as a name."""
    assert names_in(text) == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        *(
            ("我叫王伟", "王伟"),
            ("大家好，我是高伟，请多关照", "高伟"),
            ("我是欧阳修", "欧阳修"),
            ("我叫高中生", "高中生"),
        ),
        *(
            ("I'm Bob", "Bob"),
            ("I am Ann Lee and late", "Ann Lee"),
            ("I am Dr. House", "House"),
            ("contact: Ann", "Ann"),
        ),
    ],
)
def test_a_name_behind_the_same_words_is_one(text: str, name: str) -> None:
    assert names_in(text) == [name]


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
