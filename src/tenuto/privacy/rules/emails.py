"""E-mail addresses in texts of any script, found from their @ outwards."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tenuto.model.patterns import lazy_pattern
from tenuto.privacy.rules.folding import FoldedText
from tenuto.privacy.rules.prechecks import ENCODED_AT
from tenuto.privacy.rules.span import Find, PiiRule
from tenuto.privacy.rules.word_tables import any_of, load_table

_DOMAINS: Final = load_table("domains")
# Latin letters belong to an address; adjacent characters of other scripts belong to the sentence.
_LETTER: Final = "A-Za-z0-9\u00c0-\u024f"
_LONGEST_LOCAL: Final = 64
_PLAIN: Final = lazy_pattern(rf"[{_LETTER}._%+'-]+")
_DOMAIN: Final = lazy_pattern(
    rf"(?:[{_LETTER}](?:[{_LETTER}-]{{0,61}}[{_LETTER}])?\.){{1,8}}"
    rf"(?:xn--[a-z0-9-]{{2,50}}|[A-Za-z\u00c0-\u024f]{{2,24}})(?![{_LETTER}]|-[{_LETTER}])"
)
# A Chinese keyboard gives a full stop for a dot: a@b。com. It also ends sentences, so here the last part must be an
# existing top-level domain that no sentence begins with.
_STOP: Final = "[.\u3002\uff61]"
_STOPPED: Final[str] = _DOMAINS["stopped"]
_DOMAIN_STOPPED: Final = lazy_pattern(
    rf"(?:[{_LETTER}](?:[{_LETTER}-]{{0,61}}[{_LETTER}])?{_STOP}){{1,4}}"
    rf"(?:{any_of(_STOPPED + _STOPPED.upper())})(?![{_LETTER}]|-[{_LETTER}])"
)
_COUNTRY: Final = lazy_pattern(f"[\u3002\uff61](?:{any_of(_DOMAINS['countries'])})(?![A-Za-z0-9-])")
_BEFORE_COUNTRY: Final = tuple(_DOMAINS["before_country"].split())
# In non-Latin scripts addresses are rare and sentences have no spaces: the top-level domain must exist.
_BEYOND: Final = "\u0370-\u06ff\u0900-\u097f\u0e00-\u0e7f\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_DOMAIN_BEYOND: Final = lazy_pattern(
    rf"(?=[^@\s]{{0,64}}[{_BEYOND}])(?:[{_LETTER}{_BEYOND}](?:[{_LETTER}{_BEYOND}-]{{0,30}}[{_LETTER}{_BEYOND}])?\.){{1,4}}?"
    rf"(?:{any_of(_DOMAINS['beyond_latin'])})(?![A-Za-z0-9-]|[\u0370-\u06ff]|\.[{_LETTER}{_BEYOND}]|(?![的即吧或和并与及是请来はへにをま])[\u3040-\u9fff])"
)
_LOCAL_BEYOND: Final = lazy_pattern(rf"[{_LETTER}{_BEYOND}._%+-]{{1,32}}")
# Words of a sentence that may be joined to the address after them.
_LEAD: Final = lazy_pattern("(?:给|到|至|是|为|為|系|箱|送|向|信|址|件|寄|请|找|は|へ|に|を|는|은|:)(?=[^@]{1,8}\\Z)")
# Mailing lists and relays put the original address before the @: bounces+rosa=example.org@..., `prvs=`, `SRS0=`.
# Elsewhere an equals sign ends the name of a field: to=ann@example.com.
_EQUALS: Final = lazy_pattern(rf"[{_LETTER}._%+'=-]+")
_PASSED_ON: Final = lazy_pattern(
    rf"(?:(?<![{_LETTER}._%+'-])(?:(?:ms)?prvs[0-9]?|srs[01]|btv1)[=+-][{_LETTER}._%+'=-]+"
    rf"|(?<![{_LETTER}._%'-])[{_LETTER}._%'-]+\+[{_LETTER}._%+'-]*=[{_LETTER}._%+'-]+"
    rf"|(?<![{_LETTER}._%+'-])(?=[^=@]{{0,64}}(?:bounce|return|owner|-[0-9]))[{_LETTER}._%'-]+=(?:[a-z0-9-]+\.)+(?:{any_of(_STOPPED)}))\Z",
    re.IGNORECASE,
)
# z***3@example.com shows no address; **ann@example.com** shows one in bold.
_MASK: Final = lazy_pattern(r"[A-Za-z0-9][*•●]+\Z")
# Before the @ of a URL is a user, and a password after a colon.
_USER: Final = lazy_pattern(r"://(?:[^\s/@:]{1,64}:)?\Z")
# The @ of an address inside a URL: ?to=ann%40example.com. Encoded characters before the local part do not belong to it.
_ENCODED_SIGN: Final = lazy_pattern("%(?:2[0236789CFcf]|3[A-Fa-f]|5[BDbd]|7[BDbd])")
# Text after the @ in file names, decorators and packages.
_NOT_DOMAINS: Final = frozenset(_DOMAINS["file_endings"].split())


def find_emails(view: FoldedText) -> Iterator[Find]:
    """Every address: a local part, an @, and a domain with a dot."""
    at = view.ascii.find("@")
    while at >= 0:
        end = _domain_end(view, at)
        beyond = None if end is not None or view.text is view.ascii else _non_latin_email(view.text, at)
        if beyond is not None:
            yield *beyond, PiiRule.EMAIL
        if end is not None and view.text[at:end].rpartition(".")[2].lower() not in _NOT_DOMAINS:
            start = _local_start(view.text, at)
            if start is not None and not _is_repository(view.text, start, end):
                yield start, end, PiiRule.EMAIL
        at = view.ascii.find("@", at + 1)
    yield from _percent_encoded_emails(view)


def _percent_encoded_emails(view: FoldedText) -> Iterator[Find]:
    at = view.ascii.find(ENCODED_AT)
    while at >= 0:
        end, start = _domain_end(view, at + len(ENCODED_AT) - 1), _local_start(view.text, at)
        if end is not None and start is not None:
            for sign in _ENCODED_SIGN.finditer(view.ascii, start, at):
                start = sign.end()
            if start < at:
                yield start, end, PiiRule.EMAIL
        at = view.ascii.find(ENCODED_AT, at + 1)


def _domain_end(view: FoldedText, at: int) -> int | None:
    """Where the domain after an @ ends, if there is one in Latin letters."""
    text = view.text
    domain = _DOMAIN.match(text, at + 1)
    if domain is None:
        domain = _DOMAIN_STOPPED.match(text, at + 1) if text is not view.ascii else None
    elif domain[0].endswith(_BEFORE_COUNTRY):
        domain = _COUNTRY.match(text, domain.end()) or domain
    return None if domain is None else domain.end()


def _non_latin_email(text: str, at: int) -> tuple[int, int] | None:
    """An address with non-Latin letters in its domain: 用户@例子.公司, иван@почта.рф."""
    domain = _DOMAIN_BEYOND.match(text, at + 1)
    # A Latin local part begins with its Latin letters; another one where the sentence seems to end.
    pattern = _PLAIN if _PLAIN.match(text, at - 1, at) else _LOCAL_BEYOND
    local = None if domain is None else pattern.match(text[max(0, at - 32) : at][::-1])
    if domain is None or local is None:
        return None
    start = at - local.end()
    for lead in _LEAD.finditer(text, start, at):
        start = lead.end()
    start += len(text[start:at]) - len(text[start:at].lstrip(".%+-"))
    return (start, domain.end()) if start < at else None


def _local_start(text: str, at: int) -> int | None:
    """Where the local part begins. It is read backwards, so that its cost is its length."""
    if text[at - 1 : at] == '"':
        quote = text.rfind('"', max(0, at - 60), at - 1)
        return quote if quote >= 0 and "\n" not in text[quote:at] and at - quote > 2 else None
    match = _PLAIN.match(text[max(0, at - _LONGEST_LOCAL) : at][::-1])
    if match is None:
        return None
    start = at - match.end()
    if text[start - 1 : start] == "=":
        start = _bounce_local_start(text, start, at)
    while start < at and text[start] in ".'-%":
        start += 1
    if _MASK.search(text, max(0, start - 16), start):
        return None
    if start == at or text[at - 1] == "." or _USER.search(text, max(0, start - 68), start):
        return None
    return start


def _bounce_local_start(text: str, start: int, at: int) -> int:
    """Where a local part begins that has an equals sign before `start`, and perhaps inside."""
    match = _EQUALS.match(text[max(0, at - _LONGEST_LOCAL) : at][::-1])
    passed = None if match is None else _PASSED_ON.search(text, at - match.end(), at)
    return start if passed is None else passed.start()


def _is_repository(text: str, start: int, end: int) -> bool:
    """`git@github.com:org/repo` names the shared account of a server."""
    return text[start : start + 4] == "git@" and text[end : end + 1] in (":", "/")
