"""Secrets whose place gives them away: inside an address, behind a command's switch, in a header."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tenuto.privacy.folding import Folded
from tenuto.privacy.span import Rule
from tenuto.privacy.values import has_capitals_inside, is_blank, is_keylike, is_varied

_URL: Final = re.compile(
    r"""(?<![A-Za-z0-9])[A-Za-z][A-Za-z0-9+.-]{1,30}://[^\s:/@?\#"'<>]{0,64}:(?P<value>[^\s/"'<>]{1,128}?)@
    (?=[A-Za-z0-9.\[_-]|$)(?![^\s/@]{0,80}@)""",
    re.VERBOSE,
)
_USER: Final = re.compile(
    r"""(?<![\w-])(?:-u|--user|--proxy-user)[ =]{0,2}["']?[\w.@+-]{1,64}:(?P<value>[^\s"']{3,128})"""
)
_SWITCH: Final = re.compile(
    r"""(?<![\w-])(?:sshpass[ ]+-p[ ]*
        |mysql(?:dump|admin)?[ ][^\n|;]{0,48}?-p
        |redis-cli[ ][^\n|;]{0,48}?-a[ ]+
        |smbclient[ ][^\n|;]{0,48}?-U[ ]+[\w]+%
        |docker[ ]+login[ ][^\n|;]{0,48}?-p[ ]+
    )["']?(?P<value>[^\s"'-][^\s"']{2,80})""",
    re.VERBOSE,
)
_STATEMENT: Final = re.compile(r"""(?:IDENTIFIED BY|WITH PASSWORD|(?<![A-Za-z])AUTH) +["']?(?P<value>[^\s"';]{4,64})""")
_AS_PASSWORD: Final = re.compile(
    r"""(?<![^\s"'(])(?P<value>[!-~]{6,48})["']?[ ]as[ ](?:my|the|your|our|a|his|her)[ ]
    (?:[a-z-]{1,12}[ ])?(?:password|passphrase|pwd)""",
    re.VERBOSE,
)
_BASIC: Final = re.compile(r"(?<![A-Za-z])[Bb]asic +(?P<value>[A-Za-z0-9+/]{8,400}={0,2})(?![A-Za-z0-9+/=])")
_BEARER: Final = re.compile(r"(?<![A-Za-z])(?:[Bb]earer|BEARER) +(?P<value>[A-Za-z0-9._~+/=-]{12,4096})")
_DIGIT_OR_PADDING: Final = re.compile("[0-9=]")
# What examples in documentation have as their password.
_SAMPLES: Final = frozenset({"password", "pass", "pwd", "passwd", "secret", "user", "username", "xxx"})


def find_url_credentials(view: Folded) -> Iterator[tuple[int, int, Rule]]:
    """Passwords inside addresses: `postgres://svc:...@host`."""
    for match in _URL.finditer(view.ascii):
        value = match["value"]
        if value.lower() not in _SAMPLES and not is_blank(value):
            yield *match.span("value"), Rule.URL_CREDENTIALS


def has_forms(view: Folded) -> bool:
    """Whether a switch, a statement or the word of a header occurs."""
    if b"-" in view.bytes and (" -" in view.ascii or "-u" in view.ascii):
        return True
    low = view.lower
    return "basic" in low or "bearer" in low or _has_statement(view) or _has_as(view)


def _has_statement(view: Folded) -> bool:
    return "AUTH" in view.ascii or "IDENTIFIED BY" in view.ascii or "WITH PASSWORD" in view.ascii


def _has_as(view: Folded) -> bool:
    return " as " in view.ascii and ("pass" in view.lower or "pwd" in view.lower)


def find_by_form(view: Folded) -> Iterator[tuple[int, int, Rule]]:
    """Every value behind a command's switch or in a header."""
    text = view.ascii
    if " -" in text or "-u" in text:
        for pattern in (_USER, _SWITCH):
            yield from ((*m.span("value"), Rule.PASSWORD) for m in pattern.finditer(text) if not is_blank(m["value"]))
    for pattern in ((_STATEMENT,) if _has_statement(view) else ()) + ((_AS_PASSWORD,) if _has_as(view) else ()):
        for match in pattern.finditer(text):
            if len(match["value"]) >= 6 and is_varied(match["value"]) and not is_blank(match["value"]):
                yield *match.span("value"), Rule.PASSWORD
    if "basic" in view.lower:
        yield from ((*m.span("value"), Rule.PASSWORD) for m in _BASIC.finditer(text) if _is_basic(text, m))
    if "bearer" in view.lower:
        for match in _BEARER.finditer(text):
            if is_keylike(match["value"], 12) and not is_blank(match["value"]):
                yield *match.span("value"), Rule.API_KEY


def _is_basic(text: str, match: re.Match[str]) -> bool:
    """Whether "basic" is a header's: it says so, or what follows is no word of a sentence."""
    value = match["value"]
    if "uthorization" in text[max(0, match.start() - 24) : match.start()]:
        return len(value) % 4 == 0
    return has_capitals_inside(value) and _DIGIT_OR_PADDING.search(value) is not None
