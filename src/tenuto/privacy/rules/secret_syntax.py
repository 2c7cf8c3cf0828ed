"""Secrets known by their position: inside a URL, after a command switch, in a statement or a header."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tenuto.model.patterns import lazy_pattern
from tenuto.privacy.rules.folding import FoldedText
from tenuto.privacy.rules.prechecks import has_pipe, has_statement, has_switch
from tenuto.privacy.rules.secret_values import has_capitals_inside, is_blank, is_fingerprint, is_keylike, is_varied
from tenuto.privacy.rules.span import Find, PiiRule
from tenuto.privacy.rules.word_tables import load_table

_URL: Final = lazy_pattern(
    r"""(?<![A-Za-z0-9])[A-Za-z][A-Za-z0-9+.-]{1,30}:(?:\\?/){2}[^\s:/@?\#"'<>]{0,64}:(?P<value>[^\s/"'<>]{1,128}?)@
    (?=[A-Za-z0-9.\[_-]|$)(?![^\s/@]{0,80}@)""",
    re.VERBOSE,
)
# A token alone before the host: https://1f0c...@o12.ingest.example.io/34
_URL_TOKEN: Final = lazy_pattern(r"https?:(?:\\?/){2}(?P<value>[A-Za-z0-9_.~-]{20,255})@(?=[A-Za-z0-9\[])")
_PARTS: Final = lazy_pattern("[_.~-]")
_CHANGES: Final = lazy_pattern("[0-9](?=[A-Za-z])|[A-Za-z](?=[0-9])|[a-z](?=[A-Z])")
_USER: Final = lazy_pattern(
    r"""(?<![\w-])(?:-u|--user|--proxy-user|--auth)[ =]{0,2}["']?[\w.@+-]{1,64}:(?P<value>[^\s"']{3,128})"""
)
_SWITCH: Final = lazy_pattern(
    r"""(?<![\w-])(?:sshpass[ ]+-p[ ]*
        |https?[ ][^\n|;]{0,48}?-a[ ]{1,3}["']?[\w.@+-]{1,64}:
        |(?:mysql(?:dump|admin|sh)?|mariadb(?:-dump|-admin)?)[ ](?:[^\n|;]{0,48}?[ ])?-p(?!assword)
        |[xw]?freerdp[ ][^\n|;]{0,48}?/p:
        |net[ ]{1,2}use[ ][^\n|;]{0,48}?/user:\S{1,40}[ ]{1,3}
        |redis-cli[ ][^\n|;]{0,48}?-a[ ]+
        |smbclient[ ][^\n|;]{0,48}?-U[ ]+[\w]+%
        |(?:docker|podman|az|helm|oc|npm)[ ]+(?:registry[ ]+)?login[ ][^\n|;]{0,48}?-p[ ]+
        |mongo(?:sh|dump|restore|import|export)?[ ][^\n|;]{0,48}?-p[ ]+
        |(?:sqlcmd|bcp|zip|unzip)[ ][^\n|;]{0,48}?-P[ ]*
        |ldap(?:search|modify|add|delete|whoami)[ ][^\n|;]{0,48}?-w[ ]+
        |htpasswd[ ]+-[a-zA-Z]{0,4}b[a-zA-Z]{0,4}[ ]+\S{1,40}[ ]+\S{1,32}[ ]+
        |7za?[ ][^\n|;]{0,48}?-p
        |useradd[ ][^\n|;]{0,48}?-p[ ]+
    )["']?(?P<value>[^\s"'-][^\s"']{2,80})""",
    re.VERBOSE,
)
_PIPED: Final = lazy_pattern(
    r"""echo[ ]+["']?(?:[\w-]{1,32}:(?=[^|]{3,68}\|[ ]*(?:sudo[ ]+)?chpasswd))?(?P<value>[!-~]{3,64}?)["']?[ ]*
    \|[ ]*(?:sudo[ ]+-S|(?:sudo[ ]+)?chpasswd)""",
    re.VERBOSE,
)
_SWITCHES: Final = (_USER, _SWITCH)
_STATEMENT: Final = lazy_pattern(
    r"""(?:IDENTIFIED BY|WITH PASSWORD|(?<![A-Za-z])AUTH) +["']?(?P<value>[^\s"';]{4,64})"""
)
_BASIC: Final = lazy_pattern(r"(?<![A-Za-z])[Bb]asic +(?P<value>[A-Za-z0-9+/]{8,400}={0,2})(?![A-Za-z0-9+/=])")
_BEARER: Final = lazy_pattern(r"(?<![A-Za-z])(?:[Bb]earer|BEARER) +(?P<value>[A-Za-z0-9._~+/=-]{12,4096})")
_DIGIT_OR_PADDING: Final = lazy_pattern("[0-9=]")
_SAMPLES: Final = frozenset(load_table("secrets")["samples"].split())


def find_url_credentials(view: FoldedText) -> Iterator[Find]:
    """Passwords inside URLs: `postgres://svc:...@host`."""
    for match in _URL.finditer(view.ascii):
        value = match["value"]
        if value.lower() not in _SAMPLES and not is_blank(value):
            yield *match.span("value"), PiiRule.URL_CREDENTIALS


def find_url_tokens(view: FoldedText) -> Iterator[Find]:
    """Tokens alone before the host of a URL. User names there have at most hyphens and a year."""
    for match in _URL_TOKEN.finditer(view.ascii):
        value = match["value"]
        if (is_fingerprint(value) or any(map(_is_mixed, _PARTS.split(value)))) and not is_blank(value):
            yield *match.span("value"), PiiRule.URL_CREDENTIALS


def _is_mixed(part: str) -> bool:
    return is_keylike(part, 12) and len(_CHANGES.findall(part)) > 2


def find_syntax_secrets(view: FoldedText) -> Iterator[Find]:
    """Every value after a command switch, in a statement or in a header."""
    text = view.ascii
    for pattern in (_SWITCHES if has_switch(view) else ()) + ((_PIPED,) if has_pipe(view) else ()):
        yield from ((*m.span("value"), PiiRule.PASSWORD) for m in pattern.finditer(text) if not is_blank(m["value"]))
    if has_statement(view):
        for match in _STATEMENT.finditer(text):
            value = match["value"]
            # On a payment receipt digits after AUTH are the bank's approval code.
            approved = match[0].startswith("AUTH") and value.isdigit()
            if len(value) >= 6 and is_varied(value) and not approved and not is_blank(value):
                yield *match.span("value"), PiiRule.PASSWORD
    if "basic" in view.stems:
        yield from ((*m.span("value"), PiiRule.PASSWORD) for m in _BASIC.finditer(text) if _is_basic(text, m))
    if "bearer" in view.stems:
        for match in _BEARER.finditer(text):
            if is_keylike(match["value"], 12) and not is_blank(match["value"]):
                yield *match.span("value"), PiiRule.API_KEY


def _is_basic(text: str, match: re.Match[str]) -> bool:
    """Whether "basic" is part of a header: it is named, or no ordinary word follows."""
    value = match["value"]
    if "uthorization" in text[max(0, match.start() - 24) : match.start()]:
        return len(value) % 4 == 0
    return has_capitals_inside(value) and _DIGIT_OR_PADDING.search(value) is not None
