"""Families of rules, each behind a cheap precheck: half of all messages hold no private data."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Final, NamedTuple

from tenuto.model.patterns import lazy_pattern
from tenuto.privacy.rules.api_keys import BLOCK, KEY_WORD, find_api_keys, find_private_keys
from tenuto.privacy.rules.cjk_secrets import find_cjk_named_secrets
from tenuto.privacy.rules.emails import find_emails
from tenuto.privacy.rules.folding import FoldedText
from tenuto.privacy.rules.identity_numbers import find_passports
from tenuto.privacy.rules.ip_addresses import find_ipv4, find_ipv6
from tenuto.privacy.rules.logins import find_logins
from tenuto.privacy.rules.named_secrets import find_named_secrets
from tenuto.privacy.rules.numbers import find_numbers
from tenuto.privacy.rules.on_request import find_on_request
from tenuto.privacy.rules.prechecks import (
    has_digits,
    has_emails,
    has_ipv4,
    has_ipv6,
    has_logins,
    has_passport_word,
    has_secret_syntax,
    has_spelled_out,
    has_urls,
)
from tenuto.privacy.rules.secret_names import STEMS
from tenuto.privacy.rules.secret_syntax import find_syntax_secrets, find_url_credentials, find_url_tokens
from tenuto.privacy.rules.span import Find
from tenuto.privacy.rules.spelled_out import find_spelled_out
from tenuto.privacy.rules.worded_passwords import find_worded_passwords, has_worded_passwords


class Needs(IntEnum):
    """The least that a text has where a family may find something."""

    NOTHING = 0
    WORDS = 1
    """Names of secrets, or words for signing in."""
    SIGNS = 2
    """Seven digits, an @, or other signs that prose does not have."""


class Family(NamedTuple):
    """Rules that look for the same things.

    `may_find` is its precheck: if it is false for a text, it is false for every part of it. `find` takes the finds of
    surer families as well.
    """

    name: str
    needs: Needs
    may_find: Callable[[FoldedText], bool]
    find: Callable[[FoldedText, list[Find]], Iterable[Find]]


def _alone(find: Callable[[FoldedText], Iterable[Find]]) -> Callable[[FoldedText, list[Find]], Iterable[Find]]:
    """A family that finds the same whatever was found before."""
    return lambda view, _: find(view)


# The most certain first: of overlapping spans the first one stays.
FAMILIES: Final = (
    Family("private keys", Needs.SIGNS, lambda view: BLOCK in view.ascii, _alone(find_private_keys)),
    Family("URL credentials", Needs.SIGNS, has_urls, _alone(find_url_credentials)),
    Family("API keys", Needs.NOTHING, lambda view: view.words.find(KEY_WORD) >= 0, _alone(find_api_keys)),
    Family("URL tokens", Needs.SIGNS, has_urls, _alone(find_url_tokens)),
    Family("secrets by syntax", Needs.SIGNS, has_secret_syntax, _alone(find_syntax_secrets)),
    Family("logins", Needs.WORDS, has_logins, _alone(find_logins)),
    Family("named secrets", Needs.WORDS, lambda view: not view.stems.isdisjoint(STEMS), _alone(find_named_secrets)),
    Family("CJK named secrets", Needs.WORDS, lambda view: view.signed, _alone(find_cjk_named_secrets)),
    Family("worded passwords", Needs.WORDS, has_worded_passwords, _alone(find_worded_passwords)),
    Family("e-mail addresses", Needs.SIGNS, lambda view: has_emails(view.ascii), _alone(find_emails)),
    Family("IPv6 addresses", Needs.SIGNS, has_ipv6, _alone(find_ipv6)),
    Family("IPv4 addresses", Needs.SIGNS, has_ipv4, _alone(find_ipv4)),
    Family("passports", Needs.WORDS, has_passport_word, _alone(find_passports)),
    Family("numbers", Needs.SIGNS, has_digits, find_numbers),
    Family("spelled out", Needs.NOTHING, has_spelled_out, _alone(find_spelled_out)),
)
ON_REQUEST_FAMILY: Final = Family("on request", Needs.NOTHING, lambda _: True, _alone(find_on_request))

_BY_NEEDS: Final = {least: tuple(family for family in FAMILIES if family.needs <= least) for least in Needs}
_DASHES: Final = lazy_pattern("-(?:u|----|(?<= -))")
_LOUD: Final = frozenset({"basic", "bearer", "identified by", "auth", "pass"})


def select_families(view: FoldedText) -> tuple[Family, ...]:
    """The families whose prechecks may pass: for most prose a few cheap searches leave few of them."""
    text = view.ascii
    if has_emails(text) or "|" in text or view.digits.find(b"0.0") >= 0 or has_digits(view):
        return FAMILIES
    if ("-" in text and _DASHES.search(text)) or ("/" in text and " /u" in text):
        return FAMILIES
    if not view.stems.isdisjoint(_LOUD) or has_ipv6(view):
        return FAMILIES
    return _BY_NEEDS[Needs.WORDS if view.stems or has_logins(view) else Needs.NOTHING]
