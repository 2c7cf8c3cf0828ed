"""Prechecks: cheap searches that say whether a family of rules can find anything in a text.

Half of all messages hold no private data. A precheck that is false for a text is false for every part of it.
"""

from __future__ import annotations

from typing import Final

from tenuto.model.patterns import lazy_pattern
from tenuto.privacy.rules.folding import FoldedText

LEAST: Final = 7
"""Fewer digits than this are no private number."""
_ENOUGH: Final = b"0" * LEAST
ENCODED_AT: Final = "%40"
_STEMS: Final = frozenset({"basic", "bearer", "identified by", "auth"})
PASSWORD_STEMS: Final = frozenset({"pass", "pw", "kennwort"})
SLASHED: Final = lazy_pattern(r"/[!-~]{0,31}[!@#$%^&*]")
ORACLE_TOOLS: Final = ("sqlplus", "expdp", "impdp", "sqlldr")
_DOTTED: Final = lazy_pattern(rb"00\.00+\.0")
_SAME: Final = bytes(range(256))
_THREE_DOTS: Final = lazy_pattern(rb"\.0{1,3}\.0{1,3}\.")
_COLONS: Final = lazy_pattern(":(?::|(?:[0-9A-Fa-f]{1,4}:){6})")
_SQUARE: Final = lazy_pattern(r"\[(?:\.\]|[ ]?at[ ]?[\])}>])")
_ROUND: Final = lazy_pattern(r"\((?:\.\)|[ ]?at[ ]?[\])}>])")
_PASSPORT_WORDS: Final = ("passport", "reisepass", "passnummer", "pass-nr", "passeport")
NUMERAL: Final = "零〇○一二三四五六七八九幺壹贰叁肆伍陆柒捌玖"
NUMERALS: Final = f"[{NUMERAL}](?:[ ,，、.-]{{0,2}}[{NUMERAL}]){{6,11}}"
"""A number in Chinese numerals, with or without separators."""
_NUMERALS: Final = lazy_pattern(NUMERALS)
_LOGINS: Final = frozenset({"cre", "auth"})
_DASH: Final = lazy_pattern("-(?:u|(?<= -))")


def has_urls(view: FoldedText) -> bool:
    """Whether an @ and the start of a URL occur, perhaps escaped as in JSON."""
    text = view.ascii
    return "@" in text and ("://" in text or ":\\/\\/" in text)


def has_secret_syntax(view: FoldedText) -> bool:
    """Whether a command switch, a statement, a pipe or the word of a header occurs."""
    return not view.stems.isdisjoint(_STEMS) or has_switch(view) or has_pipe(view) or has_statement(view)


def has_switch(view: FoldedText) -> bool:
    text = view.ascii
    return ("-" in text and _DASH.search(text) is not None) or ("/" in text and " /u" in text)


def has_pipe(view: FoldedText) -> bool:
    return "|" in view.ascii and "echo" in view.lower


def has_statement(view: FoldedText) -> bool:
    stems = view.stems
    if "identified by" in stems or ("auth" in stems and "AUTH" in view.ascii):
        return True
    return "pass" in stems and "WITH PASSWORD" in view.ascii


def has_logins(view: FoldedText) -> bool:
    """Whether an @, the name of a password, or a word for signing in occurs."""
    text = view.ascii
    if "@" in text or view.signed or not view.stems.isdisjoint(PASSWORD_STEMS):
        return True
    if has_login(view) or has_wifi(view):
        return True
    return "/" in text and (SLASHED.search(text) is not None or has_oracle(view))


def has_login(view: FoldedText) -> bool:
    text, lower = view.ascii, view.lower
    if not (":" in text or "/" in text or "|" in text or "('" in text or '("' in text):
        return False
    return "log" in lower or "zugang" in lower or not view.stems.isdisjoint(_LOGINS)


def has_wifi(view: FoldedText) -> bool:
    lower = view.lower
    return ("/" in lower or "|" in lower) and ("wifi" in lower or "wi-fi" in lower or "wlan" in lower)


def has_oracle(view: FoldedText) -> bool:
    return any(tool in view.lower for tool in ORACLE_TOOLS)


def has_emails(text: str) -> bool:
    """Whether an @ occurs, or the code for one."""
    return "@" in text or ("%" in text and ENCODED_AT in text)


def has_ipv4(view: FoldedText) -> bool:
    """Whether three dots occur with only a few digits between them."""
    return view.digits.find(b"0.0") >= 0 and _THREE_DOTS.search(view.digits) is not None


def has_ipv6(view: FoldedText) -> bool:
    """Whether two adjacent colons occur, or seven with only hexadecimal digits between them."""
    return ":" in view.ascii and _COLONS.search(view.ascii) is not None


def has_digits(view: FoldedText) -> bool:
    """Whether seven digits occur in a row, ignoring separators."""
    return view.digits.count(b"0") >= LEAST and view.digits.translate(_SAME, b" \t\r\n.()/-").find(_ENOUGH) >= 0


def has_numbers(view: FoldedText) -> bool:
    """As `has_digits`, without dates and decimals, which are most numbers of logs and tables."""
    digits = view.digits.replace(b"0000-00-00", b"|")
    if digits is not view.digits and digits.translate(_SAME, b" \t\r\n.()/-").find(_ENOUGH) < 0:
        return False
    if digits.translate(_SAME, b" \t\r\n()/-").find(_ENOUGH) >= 0:
        return True
    # With dots: 555.0187, or two dots with digits between them, unlike a decimal.
    if digits.find(b"000.0000") >= 0:
        return True
    return digits.translate(None, b"0").find(b"..") >= 0 and _DOTTED.search(digits) is not None


def has_passport_word(view: FoldedText) -> bool:
    """Whether the text may mention a passport."""
    if "pass" in view.stems and any(word in view.lower for word in _PASSPORT_WORDS):
        return True
    return view.signed


def has_spelled_out(view: FoldedText) -> bool:
    """Whether a dot or an @ is written as a word or in brackets, or digits as Chinese numerals."""
    low = view.lower
    if "dot" in view.stems or ("[" in low and _SQUARE.search(low)) or ("(" in low and _ROUND.search(low)):
        return True
    text = view.text
    return text is not view.ascii and ("艾特" in text or _NUMERALS.search(text) is not None)
