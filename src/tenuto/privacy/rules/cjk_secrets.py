"""Values after the name of a secret in Chinese, Japanese or Korean, where words are not separated by blanks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tenuto.model.patterns import lazy_pattern
from tenuto.privacy.rules.folding import FoldedText
from tenuto.privacy.rules.secret_blocks import secrets_in_block
from tenuto.privacy.rules.secret_columns import secrets_in_column
from tenuto.privacy.rules.secret_names import Name
from tenuto.privacy.rules.secret_values import (
    SecretValue,
    announces_pair,
    has_special_character,
    is_blank,
    is_keylike,
    is_one_time_code,
    is_other_data,
    is_varied,
    parse_value,
)
from tenuto.privacy.rules.several_secrets import further_values, old_and_new_values
from tenuto.privacy.rules.span import Find, PiiRule
from tenuto.privacy.rules.word_tables import any_of, load_table

_WORDS: Final = load_table("secrets")["cjk"]
_NAME: Final = lazy_pattern(rf"(?P<password>{any_of(_WORDS['passwords'])})|(?P<key>{any_of(_WORDS['keys'])})")
_LINK: Final = lazy_pattern(
    rf"""["'”」』)*]{{0,3}}[ ]{{0,2}}
    (?:(?P<about>[\u4e00-\u9fff()（）的]{{0,8}}?)
        (?:(?:{any_of(_WORDS["links"])})了?|(?:{any_of(_WORDS["verbs"])})(?=[ ]?["“「!-~]))
      |{any_of(_WORDS["particles"])})
    [ ]{{0,2}}:?[ \t]*\n?[ ]{{0,2}}|[ \t]{{0,2}}""",
    re.VERBOSE,
)
# A name alone on its line, perhaps with its owner before it, but no verb: 登录密码.
_LINE: Final = lazy_pattern(rf"(?:\A|\n)[ \t]{{0,2}}(?!{any_of(_WORDS['actions'])})[A-Za-z0-9\u4e00-\u9fff]{{0,8}}\Z")
_BELOW: Final = lazy_pattern(r"[ \t]{0,2}\n[ \t]{0,4}(?=[!-~]{4,48}[ \t]{0,2}(?:\n|\Z))")
_NOT_ABOUT: Final = lazy_pattern(any_of(_WORDS["properties"]))
_WARNING: Final = lazy_pattern(rf"(?:{any_of(_WORDS['warnings'])})再?(?:把|将|使用|用|以|让)?[\u4e00-\u9fff]{{0,4}}\Z")
_SETS: Final = lazy_pattern("[成为為用设設改换換]")
_EXAMPLE: Final = lazy_pattern(f"[\"'”」]?(?:{any_of(_WORDS['examples'])})")
# Words followed by a number, and nothing after that.
_PHRASE: Final = lazy_pattern(
    rf"(?!{any_of(_WORDS['no_beginnings_of_phrases'])})[\u4e00-\u9fff]{{3,12}}"
    r"[!@#$%^&*_-]?[0-9]{1,8}[!@#$%^&*]{0,3}(?![0-9A-Za-z\u3040-\u9fff\uac00-\ud7af])"
)
_NO_PHRASE: Final = lazy_pattern(any_of(_WORDS["no_parts_of_phrases"]))
_SAYS: Final = frozenset(":=是为")
# First characters of a value, and how far any link reaches from a name.
_VALUE: Final = lazy_pattern("[!-~]{3}|[0-9“「『【]")
_FURTHEST_VALUE: Final = 32
_LONGEST_NAME: Final = 8
_FAR: Final = lazy_pattern("[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af,，、?？:： ]{1,16}")
_UNITS: Final = lazy_pattern(rf"\s{{0,2}}(?:{any_of(_WORDS['units'])})")
_METHOD: Final = lazy_pattern(rf"\s{{0,2}}(?:{any_of(_WORDS['methods'])})")


def find_cjk_named_secrets(view: FoldedText) -> Iterator[Find]:
    """Every value after a Chinese, Japanese or Korean name. Names without a value nearby are skipped together."""
    match = _NAME.search(view.text)
    while match is not None:
        at = match.end()
        value = _VALUE.search(view.text, at)
        if value is None:
            return
        if value.start() - at > _FURTHEST_VALUE:
            at = max(at, value.start() - _FURTHEST_VALUE - _LONGEST_NAME)
        else:
            yield from _cjk_secrets(view, Name(match.start(), at, match.lastgroup or "key"))
        match = _NAME.search(view.text, at)


def _cjk_secrets(view: FoldedText, name: Name) -> Iterator[Find]:
    view.work.judged += 1
    column = secrets_in_column(view, name)
    yield from cjk_secrets_after(view, name) if column is None else column


def cjk_secrets_after(view: FoldedText, name: Name) -> Iterator[Find]:
    """The values after a name in any language, where what follows it is Chinese, Japanese or Korean."""
    elsewhere = old_and_new_values(view, name)
    if elsewhere is None:
        elsewhere = secrets_in_block(view, name)
    if elsewhere is not None:
        yield from elsewhere
        return
    below = _value_on_next_line(view, name)
    if below is not None:
        yield below.start, below.end, name.rule
        return
    link = _LINK.match(view.text, name.end)
    assert link is not None  # its last branch matches the empty string
    if link["about"] and _NOT_ABOUT.search(link["about"]):
        return
    value = parse_value(view, link.end(), pair=announces_pair(view, name.start))
    if value is None:
        yield from _passphrase(view, name, link) or _value_far(view, name)
        return
    text = view.text[value.start : value.end]
    if is_blank(text) or is_other_data(text) or _is_measure(view, value):
        return
    if is_one_time_code(view, name.start, text) or _is_example(view, name, link, value):
        return
    if name.kind != "password":
        if is_keylike(text, 8):
            yield value.start, value.end, PiiRule.API_KEY
    elif (value.quoted and len(text) >= 3) or (
        len(text) >= 4 and (is_varied(text) or (link[0].strip() not in ("", "is") and text.isascii()))
    ):
        yield value.start, value.end, PiiRule.PASSWORD
        yield from further_values(view, name, value)


def _value_on_next_line(view: FoldedText, name: Name) -> SecretValue | None:
    """The value alone on the next line, if the name is alone on its line, as in a copied form."""
    below = _BELOW.match(view.text, name.end)
    if below is None or not _LINE.search(view.text, max(0, name.start - 10), name.start):
        return None
    value = parse_value(view, below.end())
    text = "" if value is None else view.text[value.start : value.end]
    if len(text) < 4 or not is_varied(text) or is_blank(text) or is_other_data(text):
        return None
    return value if name.kind == "password" or is_keylike(text, 8) else None


def _is_measure(view: FoldedText, value: SecretValue) -> bool:
    """密码8位, 密钥256位, 密码sha256加密: its length or how it is stored, not the value."""
    if _METHOD.match(view.text, value.end):
        return True
    text = view.text[value.start : value.end]
    return _UNITS.match(view.text, value.end) is not None and not (is_keylike(text, 6) and is_varied(text))


def _is_example(view: FoldedText, name: Name, link: re.Match[str], value: SecretValue) -> bool:
    if _EXAMPLE.match(view.text, value.end):
        return True
    warning = _WARNING.search(view.text, max(0, name.start - 12), name.start)
    return warning is not None and _SETS.search(link[0]) is not None


def _passphrase(view: FoldedText, name: Name, link: re.Match[str]) -> tuple[Find, ...]:
    if name.kind != "password" or link[0].rstrip(" ")[-1:] not in _SAYS:
        return ()
    phrase = _PHRASE.match(view.text, link.end())
    if phrase is None or _NO_PHRASE.search(phrase[0]) or _NOT_ABOUT.search(phrase[0]):
        return ()
    return ((*phrase.span(), PiiRule.PASSWORD),)


def _value_far(view: FoldedText, name: Name) -> Iterator[Find]:
    """密码还是原来那个 Abc@123: some words come between, so the value must be unambiguous."""
    link = _FAR.match(view.text, name.end)
    if link is None or name.kind != "password" or _NOT_ABOUT.search(link[0]):
        return
    value = parse_value(view, link.end())
    if value is None:
        return
    text = view.text[value.start : value.end]
    if is_keylike(text, 6) and has_special_character(text) and not is_blank(text) and not is_other_data(text):
        yield value.start, value.end, PiiRule.PASSWORD
